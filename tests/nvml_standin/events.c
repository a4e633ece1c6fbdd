/* Event sets: what is registered gets what happens afterwards, in order. */
#include "standin.h"

#include <string.h>

enum { MAX_SETS = 64, QUEUE = 512, SET_MARK = 0x5e7 };

typedef struct {
    bool used;
    unsigned serial, head, count;
    unsigned long long types[MAX_GPUS];
    Event queue[QUEUE];
} Set;

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gi, ci;
} EventData;

static Set sets[MAX_SETS];
static unsigned last_serial;

static nvmlEventSet_t set_handle(const Set *set) {
    uint64_t value = (uint64_t)SET_MARK << 48 | (uint64_t)set->serial << 8 | (unsigned)(set - sets);
    return (nvmlEventSet_t)(uintptr_t)value;
}

/* NULL for a set that is freed or never was: the real library would follow the pointer. */
static Set *find_set(const void *handle) {
    Set *set = &sets[(uintptr_t)handle & 0xff & (MAX_SETS - 1)];
    return set->used && set_handle(set) == handle ? set : NULL;
}

void deliver(const Event *event) {
    for (unsigned i = 0; i < MAX_SETS; i++) {
        Set *set = &sets[i];
        if (!set->used || !(set->types[event->gpu] & event->type))
            continue;
        if (set->count == QUEUE) { /* the oldest makes room */
            set->head = (set->head + 1) % QUEUE;
            set->count--;
        }
        set->queue[(set->head + set->count++) % QUEUE] = *event;
    }
}

void drop_event_sets(void) {
    for (unsigned i = 0; i < MAX_SETS; i++)
        sets[i].used = false;
}

static unsigned long long supported(const Gpu *gpu) {
    if (!gpu->events)
        return 0;
    return EVENT_XID | EVENT_PSTATE | EVENT_CLOCK |
           (gpu->model->ecc ? EVENT_SINGLE_BIT_ECC | EVENT_DOUBLE_BIT_ECC : 0u) |
           (gpu->mig_capable ? EVENT_MIG_CHANGE : 0u);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    ENTER_GPU(0, device);
    NEED(types);
    *types = supported(target.gpu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
    enum { ERROR_MEMORY = 20 };
    ENTER(0);
    NEED(out);
    for (unsigned i = 0; i < MAX_SETS; i++) {
        Set *set = &sets[i];
        if (set->used)
            continue;
        *set = (Set){.used = true, .serial = ++last_serial};
        *out = set_handle(set);
        return NVML_SUCCESS;
    }
    return ERROR_MEMORY;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t handle) {
    ENTER_GPU(0, device);
    Set *set = find_set(handle);
    NEED(set);
    /* A GPU without events refuses an empty mask too: that is how programs find out. */
    if (!target.gpu->events || types & ~supported(target.gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    set->types[target.index] |= types;
    return NVML_SUCCESS;
}

static nvmlReturn_t wait_for_event(nvmlEventSet_t handle, unsigned milliseconds, Event *event) {
    double end = now() + milliseconds / 1000.0;
    for (;;) {
        Set *set = find_set(handle);
        NEED(set);
        nvmlReturn_t fault = wait_fault();
        if (fault != NVML_SUCCESS)
            return fault;
        if (set->count) {
            *event = set->queue[set->head];
            set->head = (set->head + 1) % QUEUE;
            set->count--;
            return NVML_SUCCESS;
        }
        if (now() >= end)
            return NVML_ERROR_TIMEOUT;
        if (!pause_unlocked())
            return NVML_ERROR_UNINITIALIZED;
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, EventData *data, unsigned milliseconds) {
    Event event;
    ENTER(450);
    NEED(data);
    TRY(wait_for_event(handle, milliseconds, &event));
    *data = (EventData){.device = make_handle(GPU_HANDLE, (unsigned)event.gpu, 0, 0),
                        .type = event.type,
                        .data = event.data,
                        .gi = event.gi,
                        .ci = event.ci};
    return NVML_SUCCESS;
}

/* The first version knows no instances and leaves what lies behind its shorter struct alone. */
EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t handle, EventData *data, unsigned milliseconds) {
    Event event;
    ENTER(0);
    NEED(data);
    TRY(wait_for_event(handle, milliseconds, &event));
    data->device = make_handle(GPU_HANDLE, (unsigned)event.gpu, 0, 0);
    data->type = event.type;
    data->data = event.data;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t handle) {
    ENTER(0);
    Set *set = find_set(handle);
    NEED(set);
    set->used = false;
    return NVML_SUCCESS;
}
