/* A libnvidia-ml.so.1 for machines without a GPU: it answers from the folder $STOKER_FAKE_NVML,
 * read anew on each call (state.py describes it), so that the real pynvml runs unchanged. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { P2P_NVLINK = 2 };
enum { DOUBLE_BIT_ERROR = 2, XID = 8, EVENT_PERIOD_MS = 20 };
enum { MAX_GPUS = 64, MAX_PROCESSES = 4096, MAX_FROZEN = 64, MIG_PLACES = 7 };
typedef unsigned long long bytes_t;

typedef struct { char uuid[96], name[96], flags[96]; bytes_t memory; } Gpu;
typedef struct { unsigned pid; bytes_t memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; bytes_t at_us; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { void *device; bytes_t type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { bytes_t total, free, used; } Memory;
typedef struct { unsigned version; bytes_t total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;

static FILE *state_file(const char *name) {
    char path[4096];
    const char *folder = getenv("STOKER_FAKE_NVML");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", name);
    return folder ? fopen(path, "r") : NULL;
}

static int has_flag(const Gpu *gpu, const char *flag) { return strstr(gpu->flags, flag) != NULL; }

static int load_now(Gpu *gpus) {
    int count = 0;
    FILE *file = state_file("gpus");
    if (!file) return 0;
    while (count < MAX_GPUS &&
           fscanf(file, "%95[^\t]\t%llu\t%95[^\t]\t%95[^\n]\n", gpus[count].uuid,
                  &gpus[count].memory, gpus[count].name, gpus[count].flags) == 4)
        count++;
    fclose(file);
    return count;
}

/* Built FROZEN, the state is read once: then no call is slower than a driver's for the files' sake. */
#ifdef FROZEN
static int load(Gpu *gpus) {
    static Gpu known[MAX_GPUS];
    static int count = -1;
    if (count < 0) count = load_now(known);
    memcpy(gpus, known, count * sizeof *gpus);
    return count;
}
#else
#define load load_now
#endif

/* A handle is the GPU's line, counted from 1. */
static int find(void *handle, Gpu *gpu) {
    Gpu gpus[MAX_GPUS];
    long line = (long)handle - 1;
    if (line < 0 || line >= load(gpus)) return INVALID_ARGUMENT;
    *gpu = gpus[line];
    return has_flag(gpu, "lost") ? GPU_IS_LOST : SUCCESS;
}

/* With `sm`, also how busy each process keeps the GPU: what its flags say, else an even share. */
static int living_now(void *handle, Process *found, int *sm) {
    char path[4096], flags[64];
    int count = 0, line;
    bytes_t memory;
    struct dirent *entry;
    snprintf(path, sizeof path, "%s/procs", getenv("STOKER_FAKE_NVML"));
    DIR *folder = opendir(path);
    if (!folder) return 0;
    while ((entry = readdir(folder)) && count < MAX_PROCESSES) {
        int pid = atoi(entry->d_name);
        if (pid <= 0) continue;
        snprintf(path, sizeof path, "procs/%s", entry->d_name);
        FILE *file = state_file(path);
        if (!file) continue;
        int complete = fscanf(file, "%d %llu %63s", &line, &memory, flags) == 3;
        fclose(file);
        if (!complete || line != (long)handle - 1) continue;
        if (!strstr(flags, "host") && kill(pid, 0) != 0 && errno != EPERM) continue;
        char *told = strstr(flags, "sm");
        if (sm) sm[count] = told ? atoi(told + 2) : -1;
        found[count++] = (Process){pid, memory, -1, -1};
    }
    closedir(folder);
    for (int i = 0; sm && i < count; i++)
        if (sm[i] < 0) sm[i] = 100 / (count > 2 ? count : 2);
    return count;
}

#ifdef FROZEN
static int living(void *handle, Process *found, int *sm) {
    static struct { Process processes[MAX_FROZEN]; int sm[MAX_FROZEN], count; } known[MAX_GPUS];
    long line = (long)handle - 1;
    if (!known[line].count)
        known[line].count = living_now(handle, known[line].processes, known[line].sm);
    memcpy(found, known[line].processes, known[line].count * sizeof *found);
    if (sm) memcpy(sm, known[line].sm, known[line].count * sizeof *sm);
    return known[line].count;
}
#else
#define living living_now
#endif

static bytes_t used_bytes(void *handle, int *count) {
    Process found[MAX_PROCESSES];
    bytes_t used = 0;
    *count = living(handle, found, NULL);
    for (int i = 0; i < *count; i++) used += found[i].memory;
    return used;
}

static int processes(void *handle, unsigned *room, Process *out) {
    Process found[MAX_PROCESSES];
    Gpu gpu;
    int status = find(handle, &gpu);
    if (status) return status;
    if (has_flag(&gpu, "nolist")) return NOT_SUPPORTED;
    unsigned count = living(handle, found, NULL), offered = *room;
    *room = count;
    if (count > offered || (count && !out)) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++) {
        out[i] = found[i];
        if (has_flag(&gpu, "nomem")) out[i].memory = (bytes_t)-1;
    }
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    FILE *file = state_file("gpus");
    (void)flags;
    if (!file) return DRIVER_NOT_LOADED;
    fclose(file);
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    Gpu gpus[MAX_GPUS];
    int lines = load(gpus);
    *count = 0;
    for (int i = 0; i < lines; i++) *count += !has_flag(&gpus[i], "mig");
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    Gpu gpus[MAX_GPUS];
    int lines = load(gpus);
    for (int i = 0; i < lines; i++)
        if (!has_flag(&gpus[i], "mig") && index-- == 0) {
            *handle = (void *)(long)(i + 1);
            return has_flag(&gpus[i], "lost") ? GPU_IS_LOST : SUCCESS;
        }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    Gpu next;
    *current = *pending = find((char *)handle + 1, &next) == SUCCESS && has_flag(&next, "mig");
    return *current ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    (void)handle;
    *count = MIG_PLACES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned place, void **instance) {
    Gpu gpus[MAX_GPUS];
    long lines = load(gpus), line = (long)handle + place;
    for (long i = (long)handle; i <= line; i++)
        if (i >= lines || !has_flag(&gpus[i], "mig")) return NOT_FOUND;
    *instance = (void *)(line + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    Gpu gpu;
    int status = find(handle, &gpu);
    if (!status) snprintf(text, length, "%s", gpu.uuid);
    return status;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    Gpu gpu;
    int status = find(handle, &gpu);
    if (!status) snprintf(text, length, "%s", gpu.name);
    return status;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    Gpu gpu;
    int count, status = find(handle, &gpu);
    if (status) return status;
    bytes_t used = used_bytes(handle, &count);
    *memory = (Memory){gpu.memory, gpu.memory - used, used};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *memory) {
    Memory first;
    int status = nvmlDeviceGetMemoryInfo(handle, &first);
    if (!status) *memory = (MemoryV2){memory->version, first.total, 0, first.free, first.used};
    return status;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates) {
    Gpu gpu;
    int count, status = find(handle, &gpu);
    if (status) return status;
    if (has_flag(&gpu, "mig")) return NOT_SUPPORTED;
    used_bytes(handle, &count);
    rates->gpu = rates->memory = count >= 2 ? 100 : 50 * count;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    Utilization rates;
    int status = nvmlDeviceGetUtilizationRates(handle, &rates);
    (void)sensor;
    if (!status) *celsius = 30 + rates.gpu / 2;
    return status;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    Utilization rates;
    int status = nvmlDeviceGetUtilizationRates(handle, &rates);
    if (!status) *milliwatts = 60000 + 3000 * rates.gpu;
    return status;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *room, Process *out) {
    return processes(handle, room, out);
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *room, Process *out) {
    return processes(handle, room, out);
}

int nvmlDeviceGetProcessUtilization(void *handle, Sample *out, unsigned *room, bytes_t since_us) {
    Process found[MAX_PROCESSES];
    int sm[MAX_PROCESSES];
    Gpu gpu;
    int status = find(handle, &gpu);
    (void)since_us;
    if (status) return status;
    if (has_flag(&gpu, "mig")) return NOT_SUPPORTED;
    unsigned count = living(handle, found, sm), offered = *room;
    *room = count;
    if (!count) return NOT_FOUND;
    if (count > offered || !out) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++) out[i] = (Sample){found[i].pid, 0, sm[i], 0, 0, 0};
    return SUCCESS;
}

/* The number of a card, without the MIG instances before it. */
static int card_of(void *handle) {
    Gpu gpus[MAX_GPUS];
    int lines = load(gpus), card = 0;
    for (long i = 0; i < (long)handle - 1 && i < lines; i++) card += !has_flag(&gpus[i], "mig");
    return card;
}

/* How two cards are joined: the level of their ancestor, and the statuses of peer to peer. */
static int find_link(void *one, void *other, unsigned *level, unsigned *pcie, unsigned *nvlink) {
    Gpu first, second;
    int a, b, status = find(one, &first);
    unsigned found[3];
    if (!status) status = find(other, &second);
    if (status) return status;
    if (has_flag(&first, "mig") || has_flag(&second, "mig")) return NOT_SUPPORTED;
    *level = 30, *pcie = 0, *nvlink = 5;
    FILE *file = state_file("links");
    while (file && fscanf(file, "%d %d %u %u %u", &a, &b, &found[0], &found[1], &found[2]) == 5)
        if (a == card_of(one) && b == card_of(other))
            *level = found[0], *pcie = found[1], *nvlink = found[2];
    if (file) fclose(file);
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, unsigned *level) {
    unsigned pcie, nvlink;
    return find_link(one, other, level, &pcie, &nvlink);
}

int nvmlDeviceGetP2PStatus(void *one, void *other, unsigned kind, unsigned *status) {
    unsigned level, pcie, nvlink;
    int found = find_link(one, other, &level, &pcie, &nvlink);
    if (!found) *status = kind == P2P_NVLINK ? nvlink : pcie;
    return found;
}

/* Reads the fault after so many; how many there are. */
static int faults(int after, int *line, int *xid) {
    int count = 0, a_line, an_xid;
    FILE *file = state_file("xid");
    if (!file) return 0;
    while (fscanf(file, "%d %d", &a_line, &an_xid) == 2)
        if (count++ == after) *line = a_line, *xid = an_xid;
    fclose(file);
    return count;
}

/* An event set is the number of faults it has told of. */
int nvmlEventSetCreate(int **events) {
    int line, xid;
    *events = malloc(sizeof **events);
    **events = faults(-1, &line, &xid);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *handle, bytes_t kinds, int *events) {
    Gpu gpu;
    int status = find(handle, &gpu);
    (void)kinds, (void)events;
    return status ? status : has_flag(&gpu, "mig") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlEventSetWait_v2(int *events, Event *event, unsigned timeout_ms) {
    int line = 0, xid = 0;
    for (unsigned waited_ms = 0; faults(*events, &line, &xid) <= *events; waited_ms += EVENT_PERIOD_MS) {
        if (waited_ms >= timeout_ms) return TIMEOUT;
        usleep(EVENT_PERIOD_MS * 1000);
    }
    ++*events;
    *event = (Event){(void *)(long)(line + 1), xid ? XID : DOUBLE_BIT_ERROR, xid, 0, 0};
    return SUCCESS;
}
