/* The checkpoint calls of a libcuda.so.1 for machines without a GPU. They change the folder
 * $STOKER_FAKE_NVML (state.py describes it): a suspended process is no longer listed by the fake NVML. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_SUPPORTED = 801,
       UNKNOWN = 999 };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { POLL_US = 5000, MAX_GPUS = 64 };
typedef unsigned long long bytes_t;
typedef struct { int state, line; bytes_t memory; char flags[64]; } Process;

static void path_of(char *path, const char *kind, int pid) {
    snprintf(path, 4096, "%s/%s/%d", getenv("STOKER_FAKE_NVML"), kind, pid);
}

static int read_process(int pid, Process *process) {
    char path[4096];
    path_of(path, "cuda", pid);
    FILE *file = fopen(path, "r");
    if (file) {
        int count = fscanf(file, "%d %d %llu %63s", &process->state, &process->line,
                           &process->memory, process->flags);
        fclose(file);
        return count == 4;
    }
    path_of(path, "procs", pid);
    file = fopen(path, "r");
    if (!file) return 0;
    process->state = RUNNING;
    int count = fscanf(file, "%d %llu %63s", &process->line, &process->memory, process->flags);
    fclose(file);
    return count == 3;
}

static void write_file(const char *kind, int pid, const Process *process) {
    char path[4096], fresh[4200];
    path_of(path, kind, pid);
    snprintf(fresh, sizeof fresh, "%s/.%s.%d", getenv("STOKER_FAKE_NVML"), kind, pid);
    FILE *file = fopen(fresh, "w");
    if (!file) abort();
    if (!strcmp(kind, "cuda")) fprintf(file, "%d ", process->state);
    fprintf(file, "%d %llu %s\n", process->line, process->memory, process->flags);
    fclose(file);
    if (rename(fresh, path)) abort();
}

static void remove_file(const char *kind, int pid) {
    char path[4096];
    path_of(path, kind, pid);
    unlink(path);
}

/* What the file `driver` says of a call. A stopped process does not answer: the call waits for it. */
static int trouble_with(const char *call, int pid) {
    char path[4096], name[96], mode[32], state;
    for (;;) {
        int hangs = 0, code = SUCCESS;
        snprintf(path, sizeof path, "%s/driver", getenv("STOKER_FAKE_NVML"));
        FILE *file = fopen(path, "r");
        while (file && fscanf(file, "%95s %31s", name, mode) == 2)
            if (!strcmp(name, call)) {
                hangs = !strcmp(mode, "hang");
                if (!strcmp(mode, "fail")) code = UNKNOWN;
                if (!strcmp(mode, "refuse")) code = NOT_SUPPORTED;
            }
        if (file) fclose(file);
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        file = fopen(path, "r");
        if (!file) return INVALID_VALUE;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state == 'T') hangs = 1;
        fclose(file);
        if (!hangs) return code;
        usleep(POLL_US);
    }
}

static int locked_folder(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", getenv("STOKER_FAKE_NVML"));
    FILE *file = fopen(path, "a");
    if (!file) abort();
    flock(fileno(file), LOCK_EX);
    return fileno(file);
}

static bytes_t free_bytes(int line) {
    char path[4096], word[32];
    bytes_t total = 0, used = 0;
    snprintf(path, sizeof path, "%s/gpus", getenv("STOKER_FAKE_NVML"));
    FILE *file = fopen(path, "r");
    for (int i = 0; file && i <= line; i++)
        if (fscanf(file, "%*[^\t]\t%llu\t%*[^\n]\n", &total) != 1) total = 0;
    if (file) fclose(file);
    snprintf(path, sizeof path, "ls %s/procs", getenv("STOKER_FAKE_NVML"));
    FILE *list = popen(path, "r");
    while (list && fscanf(list, "%31s", word) == 1) {
        Process other;
        snprintf(path, sizeof path, "/proc/%s/stat", word);
        if (access(path, F_OK) == 0 && read_process(atoi(word), &other) && other.line == line)
            used += other.memory;
    }
    if (list) pclose(list);
    return total > used ? total - used : 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    return getenv("STOKER_FAKE_NVML") ? SUCCESS : NOT_FOUND;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == UNKNOWN     ? "CUDA_ERROR_UNKNOWN"
                                  : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}

int cuCheckpointProcessGetState(int pid, int *state) {
    Process process;
    int code = trouble_with("cuCheckpointProcessGetState", pid);
    if (code) return code;
    if (!read_process(pid, &process)) return INVALID_VALUE;
    *state = process.state;
    return SUCCESS;
}

static int change(const char *call, int pid, int from, int to) {
    Process process;
    int code = trouble_with(call, pid);
    if (code) return code;
    int lock = locked_folder();
    code = read_process(pid, &process) && process.state == from ? SUCCESS : INVALID_VALUE;
    if (!code) {
        process.state = to;
        if (from == CHECKPOINTED && free_bytes(process.line) < process.memory) {
            process.state = FAILED;
            code = OUT_OF_MEMORY;
        }
        if (from == CHECKPOINTED && !code) write_file("procs", pid, &process);
        if (to == RUNNING) remove_file("cuda", pid);
        else write_file("cuda", pid, &process);
        if (to == CHECKPOINTED) remove_file("procs", pid);
    }
    close(lock);
    return code;
}

int cuCheckpointProcessLock(int pid, void *args) {
    (void)args;
    return change("cuCheckpointProcessLock", pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, void *args) {
    (void)args;
    return change("cuCheckpointProcessCheckpoint", pid, LOCKED, CHECKPOINTED);
}

int cuCheckpointProcessRestore(int pid, void *args) {
    (void)args;
    return change("cuCheckpointProcessRestore", pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, void *args) {
    (void)args;
    return change("cuCheckpointProcessUnlock", pid, LOCKED, RUNNING);
}
