/* A driver for tests: the functions of libnvidia-ml.so.1 that penstock calls through pynvml.
   Reads $FAKE_NVML anew at each nvmlInit. A line: UUID GIB USED_GIB MIG NUMA NVLINK PID NAME */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, DRIVER_NOT_LOADED = 9, INSUFFICIENT_SIZE = 7 };
typedef struct { char uuid[80], name[96]; unsigned long long gib, used; int mig, numa, nvlink; unsigned pid; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
static Gpu gpus[16];
static unsigned count;

int nvmlInitWithFlags(unsigned flags) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return DRIVER_NOT_LOADED;
    for (count = 0; count < 16; count++) {
        Gpu *g = &gpus[count];
        if (fscanf(file, "%79s %llu %llu %d %d %d %u %95[^\n]", g->uuid, &g->gib, &g->used, &g->mig,
                   &g->numa, &g->nvlink, &g->pid, g->name) != 8) break;
    }
    fclose(file);
    return SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Gpu **g) { *g = &gpus[i]; return SUCCESS; }
int nvmlDeviceGetUUID(Gpu *g, char *text, unsigned size) { strncpy(text, g->uuid, size); return SUCCESS; }
int nvmlDeviceGetName(Gpu *g, char *text, unsigned size) { strncpy(text, g->name, size); return SUCCESS; }
int nvmlDeviceGetMemoryInfo(Gpu *g, Memory *m) {
    m->total = g->gib << 30; m->used = g->used << 30; m->free = m->total - m->used;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(Gpu *g, unsigned *now, unsigned *later) { *now = *later = g->mig; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *g, unsigned *n, Process *list) {
    if (!g->pid) { *n = 0; return SUCCESS; }
    if (!list || *n < 1) { *n = 1; return INSUFFICIENT_SIZE; }
    *n = 1;
    list[0] = (Process){g->pid, g->used << 30, ~0u, ~0u};
    return SUCCESS;
}
int nvmlDeviceGetP2PStatus(Gpu *a, Gpu *b, int kind, int *status) {
    *status = kind == 2 && a->nvlink >= 0 && a->nvlink == b->nvlink ? 0 : 5;
    return SUCCESS;
}
int nvmlDeviceGetTopologyCommonAncestor(Gpu *a, Gpu *b, int *level) {
    *level = a->numa == b->numa ? 40 : 50;
    return SUCCESS;
}
