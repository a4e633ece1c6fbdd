/* What the parts of the stand-in share: the types of nvml.h that cross the library's border, the
 * node and the faults as parsed, and how every exported function begins.
 *
 * The layouts follow nvml.h of the CUDA 12 and 13 drivers, which pynvml mirrors. */
#ifndef NVML_STANDIN_H
#define NVML_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- nvml.h ------------------------------------------------------------------------------------ */

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;
typedef void *nvmlGpuInstance_t;
typedef void *nvmlComputeInstance_t;
typedef void *nvmlEventSet_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

enum { NAME_SIZE = 96, UUID_SIZE = 96, BUS_ID_SIZE = 32, BUS_ID_LEGACY_SIZE = 16 };

/* nvmlEventType* */
enum { EVENT_SINGLE_BIT_ECC = 0x1, EVENT_DOUBLE_BIT_ECC = 0x2, EVENT_PSTATE = 0x4, EVENT_XID = 0x8,
       EVENT_CLOCK = 0x10, EVENT_MIG_CHANGE = 0x100 };

/* A versioned struct carries its own size, so that the library can tell the caller's layout. */
#define STRUCT_VERSION(type, version) ((unsigned)(sizeof(type) | ((unsigned)(version) << 24)))

/* --- the node ------------------------------------------------------------------------------------ */

enum { MAX_GPUS = 32, MAX_MIGS = 8, MAX_LINKS = 18, ANY_GPU = -1, TEXT = 128 };

typedef struct {
    const char *key, *name;
    unsigned brand;
    unsigned long long mib;
    int cuda_major, cuda_minor;
    unsigned pci_device, nvlinks, nvlink_version, ecc, row_remapping, fabric, max_migs, memory_slices;
} Model;

typedef struct {
    const char *model;
    unsigned index, id;
    const char *name;
    unsigned slices;
    unsigned long long mib;
    unsigned memory_slices, instances, multiprocessors, copy, decoders, jpeg, ofa;
} Profile;

typedef struct {
    bool present;
    unsigned gi, ci, start, size;
    const Profile *profile; /* of the GPU instance */
    unsigned ci_profile;    /* index of the compute instance profile */
    char uuid[UUID_SIZE];
    char name[TEXT]; /* "3g.20gb", or "1c.3g.20gb" when it does not fill its GPU instance */
} Mig;

typedef struct {
    bool up, to_switch;
    unsigned remote; /* index of a GPU or of a switch */
} Link;

typedef struct {
    const Model *model;
    char name[TEXT], uuid[UUID_SIZE], serial[TEXT];
    unsigned minor, domain, bus, device;
    int numa;
    unsigned long long mib;
    bool mig_capable, mig_current, mig_pending, events, ats, in_fabric;
    unsigned char fabric_uuid[16];
    unsigned clique;
    Link links[MAX_LINKS];
    int topology[MAX_GPUS]; /* by index of the other GPU; 0 where the file says nothing */
    Mig migs[MAX_MIGS];     /* by MIG device index */
} Gpu;

typedef struct {
    char driver[TEXT];
    int cuda, init;
    unsigned count;
    Gpu gpus[MAX_GPUS];
} Node;

/* --- faults ---------------------------------------------------------------------------------------- */

enum { MAX_RULES = 256, MAX_EVENTS = 16384 };

typedef struct {
    char call[TEXT]; /* "*": every call */
    int gpu, code;
    bool block;
    double seconds;
    bool holding; /* a block that holds up every other call too */
} Rule;

typedef struct {
    int gpu;
    unsigned long long type, data;
    unsigned gi, ci;
} Event;

typedef struct {
    bool lost[MAX_GPUS], remap_pending[MAX_GPUS], remap_failed[MAX_GPUS], retiring[MAX_GPUS];
    int init, wait_code;
    long wait_times; /* < 0: until waitok */
    unsigned waits;  /* how many wait lines there are: a new one starts its count afresh */
    char node[4096]; /* "" : NVML_STANDIN_NODE */
    unsigned rule_count, event_count;
    Rule rules[MAX_RULES];
    Event events[MAX_EVENTS];
} Faults;

/* files.c */
void read_node(const char *path, Node *node);
void read_faults(const char *path, Faults *faults);
const Profile *find_profile(const Gpu *gpu, unsigned index);
const Profile *find_profile_id(const Gpu *gpu, unsigned id);
unsigned ci_slices(unsigned profile);
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- entering the library (core.c) ----------------------------------------------------------------- */

typedef enum { GPU_HANDLE = 1, MIG_HANDLE, GI_HANDLE, CI_HANDLE } Kind;

typedef struct {
    Kind kind;
    unsigned index; /* NVML's index of the GPU */
    const Gpu *gpu;
    const Mig *mig; /* the MIG device, or one compute instance of the GPU instance; NULL for a GPU */
} Target;

extern const Node *session; /* the node as this session sees it; valid only between ENTER and return */

/* Each takes the lock if it answers success, and has not got it otherwise. */
nvmlReturn_t enter(const char *call, int since);
nvmlReturn_t enter_handle(const char *call, int since, unsigned kinds, void *handle, Target *target);
void leave(const int *entered);

/* The rest is for functions that have entered. */
nvmlReturn_t check_gpu(const char *call, unsigned index);
nvmlReturn_t resolve(const void *handle, unsigned kinds, Target *target);
void *make_handle(Kind kind, unsigned gpu, unsigned gi, unsigned ci);
nvmlReturn_t put_text(char *buffer, unsigned length, const char *text);
const Faults *current_faults(void);
bool gpu_is_lost(unsigned index);
nvmlReturn_t wait_fault(void);
bool pause_unlocked(void); /* false: the library was shut down meanwhile */
double now(void);

/* events.c, called with the lock held */
void deliver(const Event *event);
void drop_event_sets(void);

#define EXPORT __attribute__((visibility("default")))

/* Passes on any code but success. */
#define TRY(call)                                                                                    \
    do {                                                                                             \
        nvmlReturn_t refused = (call);                                                               \
        if (refused != NVML_SUCCESS)                                                                 \
            return refused;                                                                          \
    } while (0)
#define NEED(condition) TRY((condition) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT)

/* Every exported function starts with one of these: it takes the lock (released at any return),
 * applies the faults and checks the handle. `since` is the first driver branch that has the
 * function; an older one answers FUNCTION_NOT_FOUND, which pynvml also makes of a missing symbol. */
#define ENTERED(call)                                                                                \
    TRY(call);                                                                                       \
    int entered __attribute__((cleanup(leave), unused)) = 1
#define ENTER(since) ENTERED(enter(__func__, since))
#define ENTER_ANY(since, handle)                                                                     \
    Target target;                                                                                   \
    ENTERED(enter_handle(__func__, since, 1u << GPU_HANDLE | 1u << MIG_HANDLE, handle, &target))
#define ENTER_GPU(since, handle)                                                                     \
    ENTER_ANY(since, handle);                                                                        \
    if (target.kind != GPU_HANDLE)                                                                   \
    return NVML_ERROR_NOT_SUPPORTED
#define ENTER_KIND(since, wanted, handle)                                                            \
    Target target;                                                                                   \
    ENTERED(enter_handle(__func__, since, 1u << (wanted), handle, &target))

#endif
