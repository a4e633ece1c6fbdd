/* A stand-in for NVIDIA's driver library, libnvidia-ml.so.1, for tests of programs that call it.
 *
 * It answers from a description of a node instead of a driver. Where the documentation of the real
 * library (docs.nvidia.com/deploy/nvml-api and the comments of nvml.h) names the answer to a wrong or
 * unlucky call, this gives that answer; where it leaves a choice, this takes the less convenient one.
 *
 * NVML_STANDIN_NODE names the node: the format of the recorded cases (tests/golden), read at nvmlInit.
 *
 * NVML_STANDIN_CONTROL names the faults (no such file: none). It is looked at on every call and while
 * a call waits, so a change takes effect at once. One line each, # starts a comment, a last line
 * without a newline is not read yet, later lines prevail:
 *
 *   lost GPU                   every call on that GPU answers GPU_IS_LOST; it still counts
 *   ok GPU                     and back
 *   fail CALL CODE [GPU]       CALL (any version suffix; * is every call) answers CODE; 0 lifts it
 *   block CALL SECONDS [GPU] [holding]
 *                              CALL takes that long, or until the line is gone; 0 lifts it. Other
 *                              calls go on meanwhile, unless `holding` is said
 *   init CODE                  the next nvmlInit that is not a mere recount answers CODE; 0 lifts it
 *   xid GPU CODE [gi=N] [ci=N] an event, once, for the sets registered when the line is seen
 *   ecc-single GPU, ecc-double GPU
 *                              an event too, and one more in the GPU's error counters
 *   remapped GPU PENDING FAILED
 *                              row remapping awaits a reset (0 or 1), has failed (0 or 1)
 *   retiring GPU PENDING       page retirement awaits a reset (0 or 1), on boards that retire pages
 *   waiterr CODE [TIMES]       nvmlEventSetWait answers CODE, for ever or TIMES times
 *   waitok                     and no more
 *   node PATH                  another node from now on
 *
 * GPU is NVML's index. A later fail or block line replaces an earlier one for the same CALL and GPU.
 * Event lines are counted, not compared: append to the file, and keep those that are there. A file
 * with fewer of them than before counts as new.
 *
 * NVML_STANDIN_STATE names a file that keeps the compute modes, so that processes see what others have set,
 * as they do with a driver; without it every process has its own.
 *
 * As with the real library, the driver's version can't change under a process that has loaded it: nvmlInit then
 * answers LIB_RM_VERSION_MISMATCH, in that process and for good. And the list of GPUs is made by nvmlInit: after `node PATH` a GPU that is gone
 * answers GPU_IS_LOST and a new one is not seen before the next nvmlShutdown and nvmlInit. GPUs in both
 * (by UUID) change at once, MIG layout included, and handles of MIG devices are tied to the slot: "handles
 * may be reused and their properties can change in the process" (nvmlDeviceGetMigDeviceHandleByIndex).
 *
 * Not modelled: permissions (use `fail CALL 4`), and lost GPUs found by nvmlEventSetWait (use waiterr 15).
 */
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all state; never held while asleep */
static unsigned references, generation;
static bool held_up; /* a holding block is running */

static Node live;
static bool gone[MAX_GPUS];
static char live_path[4096];
const Node *session = &live;

static Faults faults = {.wait_times = -1};
static struct stat control_stat;
static unsigned events_seen, waits_seen;
static long waits_answered;

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static const char *node_path(void) {
    const char *path = faults.node[0] ? faults.node : getenv("NVML_STANDIN_NODE");
    if (!path)
        die("NVML_STANDIN_NODE is not set");
    return path;
}

static int position(const Node *node, const char *uuid) {
    for (unsigned i = 0; i < node->count; i++)
        if (strcmp(node->gpus[i].uuid, uuid) == 0)
            return (int)i;
    return -1;
}

/* Takes over another description under a running session; what refers to GPUs is renumbered. */
static void change_node(const char *path) {
    static Node fresh;
    read_node(path, &fresh);
    for (unsigned i = 0; i < live.count; i++) {
        Gpu *gpu = &live.gpus[i];
        int from = position(&fresh, gpu->uuid);
        gone[i] = from < 0;
        if (gone[i])
            continue;
        *gpu = fresh.gpus[from];
        for (unsigned j = 0; j < live.count; j++) {
            int other = position(&fresh, live.gpus[j].uuid);
            gpu->topology[j] = other < 0 ? 0 : fresh.gpus[from].topology[other];
        }
        for (unsigned l = 0; l < MAX_LINKS; l++) {
            Link *link = &gpu->links[l];
            if (!link->up || link->to_switch)
                continue;
            int remote = position(&live, fresh.gpus[link->remote].uuid);
            link->up = remote >= 0;
            link->remote = remote < 0 ? 0 : (unsigned)remote;
        }
    }
    snprintf(live_path, sizeof live_path, "%s", path);
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads the faults again if they may have changed. Another path is another story: counts start afresh. */
static void refresh(void) {
    static char last_path[4096];
    const char *path = getenv("NVML_STANDIN_CONTROL");
    struct stat found;
    if (!path || stat(path, &found) != 0)
        memset(&found, 0, sizeof found);
    bool same_path = strcmp(path ? path : "", last_path) == 0;
    if (same_path && same_file(&found, &control_stat))
        return;
    if (!same_path)
        events_seen = waits_seen = 0;
    snprintf(last_path, sizeof last_path, "%s", path ? path : "");
    control_stat = found;
    read_faults(last_path, &faults);
    if (faults.event_count < events_seen)
        events_seen = 0;
    for (; events_seen < faults.event_count; events_seen++)
        deliver(&faults.events[events_seen]);
    if (faults.waits != waits_seen)
        waits_answered = 0;
    waits_seen = faults.waits;
    if (references && strcmp(node_path(), live_path) != 0)
        change_node(node_path());
}

/* Lets other threads in for a moment, as a call does that sleeps in the driver. */
static void doze(void) {
    struct timespec time = {.tv_nsec = 2000000};
    pthread_mutex_unlock(&lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    refresh();
}

bool pause_unlocked(void) {
    doze();
    return references > 0;
}

/* Whether `call`, a C name, is the function a fault line names, whatever the version of either. */
static bool names(const char *rule, const char *call) {
    size_t length = strlen(rule);
    if (strcmp(rule, "*") == 0)
        return true;
    if (strncmp(rule, call, length) != 0)
        return false;
    call += length;
    return *call == '\0' || strcmp(call, "V") == 0 || (call[0] == '_' && call[1] == 'v' && call[2] && !call[3]);
}

/* The rule for a call on exactly that GPU; ANY_GPU finds the rules without a GPU. */
static const Rule *find_rule(bool block, const char *call, int gpu) {
    for (unsigned i = faults.rule_count; i-- > 0;) {
        const Rule *rule = &faults.rules[i];
        if (rule->block == block && rule->gpu == gpu && names(rule->call, call))
            return rule;
    }
    return NULL;
}

static void sit_out_block(const char *call, int gpu) {
    double begun = now();
    bool holding = false;
    const Rule *rule;
    while ((rule = find_rule(true, call, gpu)) && now() - begun < rule->seconds) {
        if (rule->holding && !held_up)
            holding = held_up = true;
        doze();
    }
    if (holding)
        held_up = false;
}

static nvmlReturn_t failure(const char *call, int gpu) {
    const Rule *rule = find_rule(false, call, gpu);
    return rule ? rule->code : NVML_SUCCESS;
}

static void lock_library(void) {
    pthread_mutex_lock(&lock);
    while (held_up)
        doze();
    refresh();
}

void leave(const int *entered) {
    (void)entered;
    pthread_mutex_unlock(&lock);
}

static nvmlReturn_t refuse(nvmlReturn_t code) {
    pthread_mutex_unlock(&lock);
    return code;
}

static nvmlReturn_t admit(const char *call, int since) {
    if (!references)
        return NVML_ERROR_UNINITIALIZED;
    if (atoi(live.driver) < since)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    sit_out_block(call, ANY_GPU);
    if (!references)
        return NVML_ERROR_UNINITIALIZED;
    return failure(call, ANY_GPU);
}

nvmlReturn_t enter(const char *call, int since) {
    lock_library();
    nvmlReturn_t code = admit(call, since);
    return code == NVML_SUCCESS ? code : refuse(code);
}

const Faults *current_faults(void) {
    return &faults;
}

bool gpu_is_lost(unsigned index) {
    return gone[index] || faults.lost[index];
}

/* What stands in the way of a call on one GPU; for use after enter(). */
nvmlReturn_t check_gpu(const char *call, unsigned index) {
    sit_out_block(call, (int)index);
    if (!references)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t code = failure(call, (int)index);
    return code == NVML_SUCCESS && gpu_is_lost(index) ? NVML_ERROR_GPU_IS_LOST : code;
}

/* A handle says all there is to know, and is no address: a wrong one is refused instead of crashing.
 * Bits: 16 mark, 16 generation, 8 kind, 8 GPU, 8 MIG slot or GPU instance, 8 compute instance. */
void *make_handle(Kind kind, unsigned gpu, unsigned gi, unsigned ci) {
    uint64_t value = (uint64_t)0x4e56 << 48 | (uint64_t)(generation & 0xffff) << 32 | (uint64_t)kind << 24 |
                     gpu << 16 | gi << 8 | ci;
    return (void *)(uintptr_t)value;
}

nvmlReturn_t resolve(const void *handle, unsigned kinds, Target *target) {
    uint64_t value = (uint64_t)(uintptr_t)handle;
    unsigned kind = (value >> 24) & 0xff, gpu = (value >> 16) & 0xff, gi = (value >> 8) & 0xff, ci = value & 0xff;
    if (kind > CI_HANDLE || !(kinds & 1u << kind) || gpu >= live.count || make_handle(kind, gpu, gi, ci) != handle)
        return NVML_ERROR_INVALID_ARGUMENT;
    *target = (Target){.kind = kind, .index = gpu, .gpu = &live.gpus[gpu]};
    if (gpu_is_lost(gpu))
        return NVML_ERROR_GPU_IS_LOST;
    for (unsigned slot = 0; kind != GPU_HANDLE && !target->mig && slot < MAX_MIGS; slot++) {
        const Mig *mig = &live.gpus[gpu].migs[slot];
        if (mig->present && (kind == MIG_HANDLE ? slot == gi : mig->gi == gi && (kind == GI_HANDLE || mig->ci == ci)))
            target->mig = mig;
    }
    return kind == GPU_HANDLE || target->mig ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t enter_handle(const char *call, int since, unsigned kinds, void *handle, Target *target) {
    nvmlReturn_t code = enter(call, since);
    if (code != NVML_SUCCESS)
        return code;
    code = resolve(handle, kinds, target);
    if (code == NVML_SUCCESS || code == NVML_ERROR_GPU_IS_LOST) {
        code = check_gpu(call, target->index);
        if (code == NVML_SUCCESS) /* once more: the node may have changed during a block */
            code = resolve(handle, kinds, target);
    }
    return code == NVML_SUCCESS ? code : refuse(code);
}

nvmlReturn_t put_text(char *buffer, unsigned length, const char *text) {
    NEED(buffer);
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

/* The code of a waiterr line that still has an answer to give. */
nvmlReturn_t wait_fault(void) {
    if (faults.wait_code == NVML_SUCCESS || (faults.wait_times >= 0 && waits_answered >= faults.wait_times))
        return NVML_SUCCESS;
    waits_answered++;
    return faults.wait_code;
}

/* --- init and shutdown ----------------------------------------------------------------------------- */

/* A process keeps the library that it has loaded: with another driver in the kernel only a new process gets on. */
static bool upgraded(const Node *node) {
    static char loaded[TEXT];
    if (!loaded[0])
        snprintf(loaded, sizeof loaded, "%s", node->driver);
    return strcmp(loaded, node->driver) != 0;
}

static nvmlReturn_t initialise(void) {
    static Node fresh;
    lock_library();
    sit_out_block("nvmlInit", ANY_GPU);
    nvmlReturn_t code = failure("nvmlInit", ANY_GPU);
    if (code == NVML_SUCCESS && !references) {
        read_node(node_path(), &fresh);
        code = faults.init ? faults.init : fresh.init;
        if (code == NVML_SUCCESS && upgraded(&fresh))
            code = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        if (code == NVML_SUCCESS) {
            live = fresh;
            memset(gone, 0, sizeof gone);
            snprintf(live_path, sizeof live_path, "%s", node_path());
            generation++;
        }
    }
    references += code == NVML_SUCCESS;
    return refuse(code);
}

EXPORT nvmlReturn_t nvmlInit(void) { return initialise(); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return initialise(); }
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialise();
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    ENTER(0);
    if (--references == 0)
        drop_event_sets();
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const TEXTS[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
        "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request", "RM has detected an NVML/RM version mismatch.",
        "In use by another client", "Insufficient Memory", "No data", "vGPU operation not supported with ECC enabled",
        "Insufficient resources", "Frequency not supported", "Argument version mismatch", "Deprecated",
        "Not Ready", "No GPUs found", "Invalid state"};
    return code >= 0 && code < (int)(sizeof TEXTS / sizeof *TEXTS) ? TEXTS[code] : "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER(0);
    return put_text(version, length, live.driver);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    char text[2 * TEXT];
    ENTER(0);
    snprintf(text, sizeof text, "%d.%s", live.cuda / 1000, live.driver);
    return put_text(version, length, text);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(0);
    NEED(version);
    *version = live.cuda;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
