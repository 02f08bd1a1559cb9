// A tiny job: it writes down that it starts, waits, writes down that it ends, and ends as it is told.
//
//     job RECORD MILLISECONDS CODE
//
// Each line is one write to a file opened for appending, so the order of the lines is the order of
// what happened. A negative CODE is the signal it ends itself with.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *get(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : "-";
}

static void tell(int fd, const char *what) {
    char line[512];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int size = snprintf(line, sizeof line, "%s %s.%s %s %d %lld\n", what, get("STOKER_JOB_ID"),
                        get("STOKER_ATTEMPT"), get("CUDA_VISIBLE_DEVICES"), (int)getpid(),
                        now.tv_sec * 1000000LL + now.tv_nsec / 1000);
    if (write(fd, line, size) != size) _exit(99);
}

int main(int argc, char **argv) {
    if (argc != 4) return 98;
    int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return 97;
    tell(fd, "start");
    long ms = atol(argv[2]);
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    tell(fd, "end");
    int code = atoi(argv[3]);
    if (code < 0) {
        signal(-code, SIG_DFL);
        raise(-code);
    }
    return code;
}
