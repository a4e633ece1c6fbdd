/* Finding a GPU and asking it about itself. Which functions take the handle of a MIG device too is
 * what nvml.h says function by function; the others answer NOT_SUPPORTED to one. */
#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Kept in the kernel, so every process sees what another has set: in the file NVML_STANDIN_STATE, one mode each. */
enum { PLACES = MAX_MIGS + 1 }; /* by MIG slot, the last is the GPU itself */
static unsigned char own_modes[MAX_GPUS * PLACES];
static unsigned persistence[MAX_GPUS];

/* --- handles --------------------------------------------------------------------------------------- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(0);
    NEED(count);
    *count = session->count; /* lost ones too, see the note at nvmlDeviceGetHandleByIndex_v2 */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    ENTER(0);
    NEED(device && index < session->count);
    TRY(check_gpu(__func__, index));
    *device = make_handle(GPU_HANDLE, index, 0, 0);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static bool any_lost(void) {
    for (unsigned i = 0; i < session->count; i++)
        if (gpu_is_lost(i))
            return true;
    return false;
}

static nvmlReturn_t handle_by_uuid(const char *call, const char *uuid, nvmlDevice_t *device) {
    for (unsigned i = 0; i < session->count; i++) {
        const Gpu *gpu = &session->gpus[i];
        unsigned slot = MAX_MIGS;
        if (strcasecmp(gpu->uuid, uuid) != 0) {
            for (slot = 0; slot < MAX_MIGS; slot++)
                if (gpu->migs[slot].present && strcasecmp(gpu->migs[slot].uuid, uuid) == 0)
                    break;
            if (slot == MAX_MIGS)
                continue;
        }
        TRY(check_gpu(call, i));
        *device = slot == MAX_MIGS ? make_handle(GPU_HANDLE, i, 0, 0) : make_handle(MIG_HANDLE, i, slot, 0);
        return NVML_SUCCESS;
    }
    /* The search passes over GPUs that cannot say their UUID: nvml.h has "if any GPU has fallen off
     * the bus", not "the target GPU" as elsewhere. */
    return any_lost() ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER(0);
    NEED(uuid && device);
    return handle_by_uuid(__func__, uuid, device);
}

typedef struct {
    unsigned version, type;
    union {
        char text[41];
        unsigned char bytes[16];
    } value;
} UuidArgument;

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const UuidArgument *uuid, nvmlDevice_t *device) {
    enum { ASCII = 1 };
    ENTER(560);
    NEED(uuid && device);
    if (uuid->version != STRUCT_VERSION(UuidArgument, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    NEED(uuid->type == ASCII && memchr(uuid->value.text, '\0', sizeof uuid->value.text));
    return handle_by_uuid(__func__, uuid->value.text, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device) {
    unsigned domain, bus, slot, function = 0;
    int end = 0;
    ENTER(0);
    NEED(text && device);
    if (!(sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) == 4 && !text[end]) &&
        !(sscanf(text, "%x:%x:%x%n", &domain, &bus, &slot, &end) == 3 && !text[end])) {
        domain = 0;
        NEED(sscanf(text, "%x:%x.%x%n", &bus, &slot, &function, &end) == 3 && !text[end]);
    }
    for (unsigned i = 0; i < session->count; i++) {
        const Gpu *gpu = &session->gpus[i];
        if (gpu->domain != domain || gpu->bus != bus || gpu->device != slot || function)
            continue;
        TRY(check_gpu(__func__, i));
        *device = make_handle(GPU_HANDLE, i, 0, 0);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}

/* --- what it is ------------------------------------------------------------------------------------ */

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    ENTER_ANY(0, device);
    NEED(index);
    *index = target.mig ? (unsigned)(target.mig - target.gpu->migs) : target.index;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    char text[2 * TEXT + 8];
    ENTER_ANY(0, device);
    if (!target.mig)
        return put_text(name, length, target.gpu->name);
    snprintf(text, sizeof text, "%s MIG %s", target.gpu->name, target.mig->name);
    return put_text(name, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    ENTER_ANY(0, device);
    return put_text(uuid, length, target.mig ? target.mig->uuid : target.gpu->uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    ENTER_GPU(0, device);
    if (!target.gpu->serial[0])
        return NVML_ERROR_NOT_SUPPORTED;
    return put_text(serial, length, target.gpu->serial);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    ENTER_GPU(0, device);
    NEED(minor);
    *minor = target.gpu->minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand) {
    ENTER_GPU(0, device);
    NEED(brand);
    *brand = target.gpu->model->brand;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_ANY(0, device);
    NEED(major && minor);
    *major = target.gpu->model->cuda_major;
    *minor = target.gpu->model->cuda_minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, unsigned mode[2]) {
    enum { NONE = 0, ATS = 2, VERSION_1 = 0x1000008 }; /* struct of a version and a value */
    ENTER_GPU(570, device);
    NEED(mode);
    if (mode[0] != VERSION_1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (target.gpu->model->cuda_major * 10 + target.gpu->model->cuda_minor < 75) /* Turing or newer */
        return NVML_ERROR_NOT_SUPPORTED;
    mode[1] = target.gpu->ats ? ATS : NONE;
    return NVML_SUCCESS;
}

/* Only where GPU memory is a NUMA node of its own, which is not the node the GPU is attached to. */
EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    ENTER_GPU(545, device);
    NEED(node);
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *nodes,
                                                unsigned scope) {
    ENTER_GPU(0, device);
    NEED(size && nodes && scope <= 1);
    if (target.gpu->numa < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(nodes, 0, size * sizeof *nodes);
    NEED((unsigned)target.gpu->numa / 64 < size);
    nodes[target.gpu->numa / 64] = 1ul << target.gpu->numa % 64;
    return NVML_SUCCESS;
}

/* --- memory ---------------------------------------------------------------------------------------- */

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

static unsigned long long total_bytes(const Target *target) {
    return (target->mig ? target->mig->profile->mib : target->gpu->mib) << 20;
}

/* What an idle GPU keeps for itself: the first version has no field for it and counts it as used. */
static unsigned long long reserved_bytes(const Target *target) {
    return total_bytes(target) / 64;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, Memory *memory) {
    ENTER_ANY(0, device);
    NEED(memory);
    unsigned long long total = total_bytes(&target), used = reserved_bytes(&target);
    *memory = (Memory){.total = total, .free = total - used, .used = used};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, Memory2 *memory) {
    ENTER_ANY(510, device);
    NEED(memory);
    if (memory->version != STRUCT_VERSION(Memory2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = total_bytes(&target);
    memory->reserved = reserved_bytes(&target);
    memory->free = memory->total - memory->reserved;
    memory->used = 0;
    return NVML_SUCCESS;
}

/* --- modes ----------------------------------------------------------------------------------------- */

static long place_of(const Target *target) {
    return (long)target->index * PLACES + (target->mig ? target->mig - target->gpu->migs : MAX_MIGS);
}

static unsigned get_compute_mode(long place) {
    const char *path = getenv("NVML_STANDIN_STATE");
    FILE *file = path ? fopen(path, "rb") : NULL;
    int mode = 0;
    if (!path)
        return own_modes[place];
    if (file) {
        mode = fseek(file, place, SEEK_SET) ? 0 : fgetc(file);
        fclose(file);
    }
    return mode == EOF ? 0 : (unsigned)mode;
}

static void set_compute_mode(long place, unsigned mode) {
    const char *path = getenv("NVML_STANDIN_STATE");
    if (!path) {
        own_modes[place] = (unsigned char)mode;
        return;
    }
    int file = open(path, O_WRONLY | O_CREAT, 0666); /* pwrite: other processes set other GPUs at the same time */
    unsigned char byte = (unsigned char)mode;
    if (file < 0 || pwrite(file, &byte, 1, place) != 1)
        die("NVML_STANDIN_STATE %s can't be written", path);
    close(file);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    ENTER_ANY(0, device);
    NEED(mode);
    *mode = get_compute_mode(place_of(&target));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode) {
    ENTER_ANY(0, device);
    NEED(mode < 4);
    if (mode == 1) /* exclusive thread, which no driver supports any more */
        return NVML_ERROR_NOT_SUPPORTED;
    if (!target.mig && target.gpu->mig_current) /* "If MIG is enabled on a GPU, device must be MIG device handle" */
        return NVML_ERROR_NOT_SUPPORTED;
    set_compute_mode(place_of(&target), mode);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    ENTER_GPU(0, device);
    NEED(mode);
    *mode = persistence[target.index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    ENTER_GPU(0, device);
    NEED(mode < 2);
    persistence[target.index] = mode;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_GPU(0, device);
    NEED(current && pending);
    if (!target.gpu->model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

/* --- how it is: an idle board without a fault, unless a fault line says otherwise --------------------- */

/* Error types: 0 corrected, 1 uncorrected. Nothing clears the counters, so volatile and aggregate agree. */
static nvmlReturn_t ecc_errors(const Target *target, unsigned error, unsigned long long *count) {
    const Faults *faults = current_faults();
    if (!target->gpu->model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    for (unsigned i = 0; i < faults->event_count; i++)
        *count += faults->events[i].gpu == (int)target->index &&
                  faults->events[i].type == (error ? EVENT_DOUBLE_BIT_ECC : EVENT_SINGLE_BIT_ECC);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned error, unsigned counter,
                                                unsigned long long *count) {
    ENTER_GPU(0, device);
    NEED(count && error < 2 && counter < 2);
    return ecc_errors(&target, error, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned error, unsigned counter,
                                                    unsigned location, unsigned long long *count) {
    enum { DEVICE_MEMORY = 2, LOCATIONS = 9 };
    ENTER_GPU(0, device);
    NEED(count && error < 2 && counter < 2 && location < LOCATIONS);
    TRY(ecc_errors(&target, error, count));
    if (location != DEVICE_MEMORY)
        *count = 0;
    return NVML_SUCCESS;
}

/* Boards that remap rows do not retire pages. */
static bool retires_pages(const Target *target) {
    return target->gpu->model->ecc && !target->gpu->model->row_remapping;
}

static nvmlReturn_t no_pages(const Target *target, unsigned cause, unsigned *count) {
    NEED(count && cause < 2);
    if (!retires_pages(target))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              unsigned long long *addresses) {
    ENTER_GPU(0, device);
    (void)addresses;
    return no_pages(&target, cause, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                                 unsigned long long *addresses, unsigned long long *times) {
    ENTER_GPU(410, device);
    (void)addresses;
    (void)times;
    return no_pages(&target, cause, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending) {
    ENTER_GPU(0, device);
    NEED(pending);
    if (!retires_pages(&target))
        return NVML_ERROR_NOT_SUPPORTED;
    *pending = current_faults()->retiring[target.index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                              unsigned *pending, unsigned *failed) {
    ENTER_GPU(450, device);
    NEED(correctable && uncorrectable && pending && failed);
    /* "NOT_SUPPORTED If MIG is enabled or if the device doesn't support this feature" */
    if (!target.gpu->model->row_remapping || target.gpu->mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    *correctable = 0;
    *pending = current_faults()->remap_pending[target.index];
    *failed = current_faults()->remap_failed[target.index];
    *uncorrectable = *pending; /* the row that waits */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    ENTER_GPU(0, device);
    NEED(sensor == 0 && celsius);
    *celsius = 35;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *celsius) {
    enum { SHUTDOWN = 0, SLOWDOWN = 1, GPU_MAX = 3, COUNT = 8 };
    ENTER_GPU(0, device);
    NEED(threshold < COUNT && celsius);
    if (threshold != SHUTDOWN && threshold != SLOWDOWN && threshold != GPU_MAX)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = threshold == SHUTDOWN ? 95 : threshold == SLOWDOWN ? 90 : 85;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ENTER_GPU(0, device);
    NEED(reasons);
    *reasons = 1; /* idle */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ENTER_GPU(535, device);
    NEED(reasons);
    *reasons = 1; /* idle */
    return NVML_SUCCESS;
}

typedef struct {
    unsigned field, scope;
    long long time, latency;
    unsigned type;
    nvmlReturn_t code;
    unsigned long long value;
} FieldValue;

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, FieldValue *values) {
    ENTER_ANY(0, device);
    NEED(count > 0 && values);
    for (int i = 0; i < count; i++)
        values[i].code = NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

static nvmlReturn_t no_processes(unsigned *count) {
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

#define PROCESSES(since, name)                                                                       \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *processes) {                \
        ENTER_ANY(since, device);                                                                    \
        (void)processes;                                                                             \
        return no_processes(count);                                                                  \
    }

PROCESSES(0, nvmlDeviceGetComputeRunningProcesses)
PROCESSES(450, nvmlDeviceGetComputeRunningProcesses_v2)
PROCESSES(510, nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(470, nvmlDeviceGetMPSComputeRunningProcesses_v2)
PROCESSES(510, nvmlDeviceGetMPSComputeRunningProcesses_v3)
