// A tiny job: it writes down that it starts, waits, writes down that it ends, and ends as it is told.
//
//     job RECORD MILLISECONDS CODE [SAVED [LEFTOVER_MILLISECONDS]]
//
// With SAVED it is deaf to HUP, and after a TERM it goes on until the file SAVED exists, or for SAVED
// milliseconds, as a training run that saves its state. It leaves a process behind that holds the same
// seats, is deaf to HUP too, and ends by itself after LEFTOVER_MILLISECONDS.
//
// Each line is one write to a file opened for appending, so the order of the lines is the order of
// what happened. A negative CODE is the signal it ends itself with. On each of its GPUs it takes the
// first seat that is free, a lock that goes with the process and with nothing else: a line tells the
// highest seat it had to take, and so how many others were truly there. It does the same for its job:
// another attempt of that may be alive. The record may be shared by hosts, so GPUs have theirs.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked_to_end;

static void on_term(int signum) {
    (void)signum;
    asked_to_end = 1;
}

static const char *get(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : "-";
}

static int take_seat(const char *record, const char *what, const char *name) {
    char path[4096];
    for (int seat = 0;; seat++) {
        snprintf(path, sizeof path, "%s.%s.%s.%d", record, what, name, seat);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) _exit(96);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return seat;
        close(fd);
    }
}

static int take_seats(const char *record, const char *host) {
    char gpus[512];
    int highest = 0;
    snprintf(gpus, sizeof gpus, "%s", get("CUDA_VISIBLE_DEVICES"));
    if (strcmp(gpus, "-") == 0) return 0;
    for (char *gpu = strtok(gpus, ","); gpu; gpu = strtok(NULL, ",")) {
        int seat = take_seat(record, host, gpu);
        if (seat > highest) highest = seat;
    }
    return highest;
}

static void tell(int fd, const char *what, int seat, const char *host, int rivals) {
    char line[512];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int size = snprintf(line, sizeof line, "%s %s.%s %s %d %lld %d %s %d\n", what, get("STOKER_JOB_ID"),
                        get("STOKER_ATTEMPT"), get("CUDA_VISIBLE_DEVICES"), (int)getpid(),
                        now.tv_sec * 1000000LL + now.tv_nsec / 1000, seat, host, rivals);
    if (write(fd, line, size) != size) _exit(99);
}

static void sleep_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void save(const char *saved) {
    if (saved[0] != '/') sleep_ms(atol(saved));
    while (saved[0] == '/' && access(saved, F_OK) != 0) sleep_ms(1);
}

static void leave_behind(long ms) {
    if (ms <= 0 || fork() != 0) return;
    signal(SIGTERM, SIG_DFL);
    sleep_ms(ms);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 4 || argc > 6) return 98;
    if (argc > 4) {
        signal(SIGTERM, on_term);
        signal(SIGHUP, SIG_IGN);
    }
    int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return 97;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    int rivals = take_seat(argv[1], "job", get("STOKER_JOB_ID"));
    int seat = take_seats(argv[1], host);
    tell(fd, "start", seat, host, rivals);
    if (argc > 5) leave_behind(atol(argv[5]));
    sleep_ms(atol(argv[2]));
    if (asked_to_end) save(argv[4]);
    tell(fd, "end", seat, host, rivals);
    int code = atoi(argv[3]);
    if (code < 0) {
        signal(-code, SIG_DFL);
        raise(-code);
    }
    return code;
}
