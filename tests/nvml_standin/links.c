/* What lies between GPUs and reaches out of them: PCI, NVLink, topology, fabric. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    char bus_id_legacy[BUS_ID_LEGACY_SIZE];
    unsigned domain, bus, device, pci_device, subsystem;
    char bus_id[BUS_ID_SIZE];
} PciInfo;

typedef struct {
    char bus_id[BUS_ID_LEGACY_SIZE];
    unsigned domain, bus, device, pci_device, subsystem, reserved[4];
} PciInfo2;

typedef struct {
    unsigned version, domain, bus, device, pci_device, subsystem, base_class, sub_class;
    char bus_id[BUS_ID_SIZE];
} PciInfoExt;

static PciInfo pci_info(unsigned domain, unsigned bus, unsigned device, unsigned product) {
    PciInfo info = {.domain = domain, .bus = bus, .device = device, .pci_device = product << 16 | 0x10de,
                    .subsystem = product << 16 | 0x10de};
    snprintf(info.bus_id, sizeof info.bus_id, "%08X:%02X:%02X.0", domain, bus, device);
    snprintf(info.bus_id_legacy, sizeof info.bus_id_legacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff,
             device & 0xff);
    return info;
}

static PciInfo gpu_pci_info(const Gpu *gpu) {
    return pci_info(gpu->domain, gpu->bus, gpu->device, gpu->model->pci_device);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, PciInfo *info) {
    ENTER_GPU(0, device);
    NEED(info);
    *info = gpu_pci_info(target.gpu);
    return NVML_SUCCESS;
}

/* The unversioned symbol and _v2 write the shorter, older struct: nothing behind the reserved words. */
static nvmlReturn_t old_pci_info(const Target *target, PciInfo2 *out) {
    NEED(out);
    PciInfo info = gpu_pci_info(target->gpu);
    *out = (PciInfo2){.domain = info.domain, .bus = info.bus, .device = info.device, .pci_device = info.pci_device,
                      .subsystem = info.subsystem};
    memcpy(out->bus_id, info.bus_id_legacy, sizeof out->bus_id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, PciInfo2 *info) {
    ENTER_GPU(0, device);
    return old_pci_info(&target, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, PciInfo2 *info) {
    ENTER_GPU(0, device);
    return old_pci_info(&target, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, PciInfoExt *out) {
    ENTER_GPU(535, device);
    NEED(out);
    if (out->version != STRUCT_VERSION(PciInfoExt, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    PciInfo info = gpu_pci_info(target.gpu);
    *out = (PciInfoExt){.version = out->version, .domain = info.domain, .bus = info.bus, .device = info.device,
                        .pci_device = info.pci_device, .subsystem = info.subsystem, .base_class = 0x03,
                        .sub_class = 0x02};
    memcpy(out->bus_id, info.bus_id, sizeof out->bus_id);
    return NVML_SUCCESS;
}

/* --- NVLink ---------------------------------------------------------------------------------------- */

/* NVLink functions take any link the product has; INVALID_ARGUMENT beyond, NOT_SUPPORTED without any. */
static nvmlReturn_t find_link(const Target *target, unsigned number, const Link **link) {
    if (!target->gpu->model->nvlinks)
        return NVML_ERROR_NOT_SUPPORTED;
    NEED(number < target->gpu->model->nvlinks);
    *link = &target->gpu->links[number];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned number, unsigned *active) {
    const Link *link;
    ENTER_GPU(0, device);
    NEED(active);
    TRY(find_link(&target, number, &link));
    *active = link->up;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned number, unsigned *version) {
    const Link *link;
    ENTER_GPU(0, device);
    NEED(version);
    TRY(find_link(&target, number, &link));
    *version = target.gpu->model->nvlink_version;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned number, unsigned capability,
                                                  unsigned *result) {
    enum { P2P = 0, P2P_ATOMICS = 2, VALID = 5, COUNT = 6 };
    const Link *link;
    ENTER_GPU(0, device);
    NEED(capability < COUNT && result);
    TRY(find_link(&target, number, &link));
    *result = capability == VALID || (link->up && (capability == P2P || capability == P2P_ATOMICS));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned number, unsigned *type) {
    enum { TO_GPU = 0, TO_SWITCH = 2, UNKNOWN = 0xff };
    const Link *link;
    ENTER_GPU(470, device);
    NEED(type);
    TRY(find_link(&target, number, &link));
    *type = !link->up ? UNKNOWN : link->to_switch ? TO_SWITCH : TO_GPU;
    return NVML_SUCCESS;
}

static nvmlReturn_t remote_pci(const Target *target, unsigned number, PciInfo *out) {
    const Link *link;
    NEED(out);
    TRY(find_link(target, number, &link));
    if (!link->up)
        return NVML_ERROR_NOT_SUPPORTED;
    /* NVSwitches of an HGX board, each a PCI device of its own */
    *out = link->to_switch ? pci_info(0, 0xc0 + link->remote, 0, 0x22a3) : gpu_pci_info(&session->gpus[link->remote]);
    out->subsystem = 0xffffffff; /* "pciSubSystemId is not filled in this function and is indeterminate" */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned number, PciInfo *out) {
    ENTER_GPU(0, device);
    return remote_pci(&target, number, out);
}

/* --- topology -------------------------------------------------------------------------------------- */

enum { INTERNAL = 0, NODE = 40, SYSTEM = 50 };

static unsigned level(unsigned a, unsigned b) {
    const Gpu *first = &session->gpus[a], *second = &session->gpus[b];
    if (a == b)
        return INTERNAL;
    if (first->topology[b])
        return (unsigned)first->topology[b] - 1;
    return first->numa == second->numa ? NODE : SYSTEM;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned *path) {
    Target second;
    ENTER_GPU(0, device);
    TRY(resolve(other, 1u << GPU_HANDLE, &second));
    NEED(path);
    *path = level(target.index, second.index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned wanted, unsigned *count,
                                                     nvmlDevice_t *devices) {
    unsigned found = 0;
    ENTER_GPU(0, device);
    NEED(count && (devices || !*count) && wanted <= SYSTEM && wanted % 10 == 0);
    for (unsigned i = 0; i < session->count; i++) {
        if (i == target.index || gpu_is_lost(i) || level(target.index, i) != wanted)
            continue;
        if (devices && found == *count)
            return NVML_SUCCESS;
        if (devices)
            devices[found] = make_handle(GPU_HANDLE, i, 0, 0);
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned capability,
                                           unsigned *status) {
    enum { READ = 0, WRITE = 1, NVLINK = 2, ATOMICS = 3, PROP = 4, COUNT = 5 };
    enum { OK = 0, CHIPSET_NOT_SUPPORTED = 1, NOT_SUPPORTED = 5 };
    Target second;
    ENTER_GPU(0, device);
    TRY(resolve(other, 1u << GPU_HANDLE, &second));
    NEED(capability < COUNT && status);
    bool linked = false, switched = false, far = level(target.index, second.index) == SYSTEM;
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        const Link *link = &target.gpu->links[i];
        linked |= link->up && !link->to_switch && link->remote == second.index;
        switched |= link->up && link->to_switch && second.gpu->links[i].up && second.gpu->links[i].to_switch;
    }
    linked |= switched;
    if (capability == NVLINK || capability == ATOMICS)
        *status = linked ? OK : NOT_SUPPORTED;
    else if (capability == PROP)
        *status = far ? CHIPSET_NOT_SUPPORTED : OK;
    else
        *status = linked || !far ? OK : CHIPSET_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* --- fabric ---------------------------------------------------------------------------------------- */

enum { FABRIC_NOT_SUPPORTED = 0, FABRIC_COMPLETED = 3 };

typedef struct {
    unsigned char cluster[16];
    nvmlReturn_t status;
    unsigned clique, state;
} Fabric;

typedef struct {
    unsigned version;
    Fabric fabric;
    unsigned health;
} Fabric2;

typedef struct {
    unsigned version;
    Fabric fabric;
    unsigned health;
    unsigned char summary;
} Fabric3;

static Fabric fabric_of(const Gpu *gpu) {
    Fabric fabric = {.clique = gpu->clique, .state = gpu->in_fabric ? FABRIC_COMPLETED : FABRIC_NOT_SUPPORTED};
    memcpy(fabric.cluster, gpu->fabric_uuid, sizeof fabric.cluster);
    return fabric;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, Fabric *info) {
    ENTER_GPU(520, device);
    NEED(info);
    if (!target.gpu->model->fabric)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = fabric_of(target.gpu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, Fabric2 *info) {
    ENTER_GPU(535, device);
    NEED(info);
    if (info->version != STRUCT_VERSION(Fabric2, 2) && info->version != STRUCT_VERSION(Fabric3, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!target.gpu->model->fabric)
        return NVML_ERROR_NOT_SUPPORTED;
    info->fabric = fabric_of(target.gpu);
    info->health = 0;
    if (info->version == STRUCT_VERSION(Fabric3, 3))
        ((Fabric3 *)info)->summary = target.gpu->in_fabric; /* 1: healthy, 0: not supported */
    return NVML_SUCCESS;
}
