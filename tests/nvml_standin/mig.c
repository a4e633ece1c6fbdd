/* MIG: the mode, MIG devices, GPU instances and compute instances.
 *
 * A MIG device is one compute instance. Profile *indices* (0: one slice, 1: two, ...) go into the profile
 * queries, profile *ids* (19 for 1g.5gb) come out of them and of the instances; only on compute
 * instances are the two the same. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_GPU(450, device);
    NEED(current && pending);
    if (!target.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = target.gpu->mig_current;
    *pending = target.gpu->mig_pending;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    ENTER_GPU(450, device);
    NEED(count);
    *count = target.gpu->mig_current ? target.gpu->model->max_migs : 0; /* "zero if MIG is not supported or enabled" */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    ENTER_GPU(450, device);
    NEED(mig);
    if (!target.gpu->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    NEED(index < target.gpu->model->max_migs);
    if (!target.gpu->migs[index].present)
        return NVML_ERROR_NOT_FOUND;
    *mig = make_handle(MIG_HANDLE, target.index, index, 0);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    ENTER_ANY(450, device);
    NEED(is_mig);
    *is_mig = target.kind == MIG_HANDLE;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    ENTER_KIND(450, MIG_HANDLE, mig);
    NEED(device);
    *device = make_handle(GPU_HANDLE, target.index, 0, 0);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned *id) {
    ENTER_KIND(450, MIG_HANDLE, mig);
    NEED(id);
    *id = target.mig->gi;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned *id) {
    ENTER_KIND(450, MIG_HANDLE, mig);
    NEED(id);
    *id = target.mig->ci;
    return NVML_SUCCESS;
}

typedef struct {
    unsigned multiprocessors, copy, decoders, encoders, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long mib;
} Attributes;

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, Attributes *attributes) {
    ENTER_ANY(450, device);
    if (!target.mig) /* "This API currently only supports MIG device handles" */
        return NVML_ERROR_NOT_SUPPORTED;
    NEED(attributes);
    const Profile *profile = target.mig->profile;
    unsigned slices = ci_slices(target.mig->ci_profile);
    *attributes = (Attributes){.multiprocessors = profile->multiprocessors * slices / profile->slices,
                               .copy = profile->copy,
                               .decoders = profile->decoders,
                               .jpeg = profile->jpeg,
                               .ofa = profile->ofa,
                               .gi_slices = profile->slices,
                               .ci_slices = slices,
                               .mib = profile->mib};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, Attributes *attributes) {
    return nvmlDeviceGetAttributes_v2(device, attributes);
}

/* --- GPU instances --------------------------------------------------------------------------------- */

enum { GI_PROFILES = 0x12, CI_PROFILES = 0x9 };

typedef struct {
    unsigned id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    unsigned long long mib;
} GiProfile;

typedef struct {
    unsigned version, id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    unsigned long long mib;
    char name[NAME_SIZE];
} GiProfile2;

typedef struct {
    unsigned version, id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    unsigned long long mib;
    char name[NAME_SIZE];
    unsigned capabilities;
} GiProfile3;

typedef struct {
    unsigned start, size;
} Placement;

typedef struct {
    nvmlDevice_t device;
    unsigned id, profile;
    Placement placement;
} GiInfo;

static nvmlReturn_t gi_profile(const Target *target, unsigned index, const Profile **profile) {
    NEED(index < GI_PROFILES);
    *profile = target->gpu->mig_capable ? find_profile(target->gpu, index) : NULL;
    return *profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned index, GiProfile *info) {
    const Profile *p;
    ENTER_GPU(450, device);
    NEED(info);
    TRY(gi_profile(&target, index, &p));
    *info = (GiProfile){.id = p->id, .slices = p->slices, .instances = p->instances,
                        .multiprocessors = p->multiprocessors, .copy = p->copy, .decoders = p->decoders,
                        .jpeg = p->jpeg, .ofa = p->ofa, .mib = p->mib};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned index, void *info) {
    const Profile *p;
    ENTER_GPU(510, device);
    NEED(info);
    unsigned version = *(unsigned *)info;
    if (version != STRUCT_VERSION(GiProfile2, 2) && version != STRUCT_VERSION(GiProfile3, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(gi_profile(&target, index, &p));
    if (version == STRUCT_VERSION(GiProfile2, 2)) {
        GiProfile2 *out = info;
        *out = (GiProfile2){.version = version, .id = p->id, .slices = p->slices, .instances = p->instances,
                            .multiprocessors = p->multiprocessors, .copy = p->copy, .decoders = p->decoders,
                            .jpeg = p->jpeg, .ofa = p->ofa, .mib = p->mib};
        snprintf(out->name, sizeof out->name, "MIG %s", p->name);
    } else {
        GiProfile3 *out = info;
        *out = (GiProfile3){.version = version, .id = p->id, .slices = p->slices, .instances = p->instances,
                            .multiprocessors = p->multiprocessors, .copy = p->copy, .decoders = p->decoders,
                            .jpeg = p->jpeg, .ofa = p->ofa, .mib = p->mib};
        snprintf(out->name, sizeof out->name, "MIG %s", p->name);
    }
    return NVML_SUCCESS;
}

/* Where instances of a profile can begin: every multiple of their size, as far as there are slices
 * for `instances` of them. */
static nvmlReturn_t placements(const Target *target, unsigned id, Placement *out, unsigned *count) {
    NEED(count);
    const Profile *p = target->gpu->mig_capable ? find_profile_id(target->gpu, id) : NULL;
    if (!p)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned found = 0, starts = target->gpu->model->memory_slices / p->memory_slices;
    if (p->slices == 1 && p->memory_slices == 1)
        starts = target->gpu->model->max_migs;
    else if (p->slices == 2 && starts == 4)
        starts = 3; /* seven compute slices hold three pairs */
    else if (p->slices == 4)
        starts = 1;
    for (unsigned start = 0; found < starts; start += p->memory_slices, found++)
        if (out)
            out[found] = (Placement){.start = start, .size = p->memory_slices};
    *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id, Placement *out,
                                                                  unsigned *count) {
    ENTER_GPU(460, device);
    return placements(&target, id, out, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    ENTER_GPU(450, device);
    NEED(instance);
    if (!target.gpu->mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < MAX_MIGS; i++)
        if (target.gpu->migs[i].present && target.gpu->migs[i].gi == id) {
            *instance = make_handle(GI_HANDLE, target.index, id, 0);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* Every GPU instance of a profile once, however many compute instances it holds. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                                              unsigned *count) {
    bool seen[16] = {false};
    ENTER_GPU(450, device);
    NEED(instances && count);
    if (!target.gpu->mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    NEED(find_profile_id(target.gpu, id));
    *count = 0;
    for (unsigned i = 0; i < MAX_MIGS; i++) {
        const Mig *mig = &target.gpu->migs[i];
        if (mig->present && mig->profile->id == id && !seen[mig->gi]) {
            seen[mig->gi] = true;
            instances[(*count)++] = make_handle(GI_HANDLE, target.index, mig->gi, 0);
        }
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, GiInfo *info) {
    ENTER_KIND(450, GI_HANDLE, instance);
    NEED(info);
    *info = (GiInfo){.device = make_handle(GPU_HANDLE, target.index, 0, 0),
                     .id = target.mig->gi,
                     .profile = target.mig->profile->id,
                     .placement = {target.mig->start, target.mig->size}};
    return NVML_SUCCESS;
}

/* --- compute instances ------------------------------------------------------------------------------ */

typedef struct {
    unsigned id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
} CiProfile;

typedef struct {
    unsigned version, id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    char name[NAME_SIZE];
} CiProfile2;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t instance;
    unsigned id, profile;
    Placement placement;
} CiInfo;

static nvmlReturn_t ci_profile(const Target *target, unsigned index, unsigned engines, CiProfile *info) {
    const Profile *p = target->mig->profile;
    unsigned slices = index < 7 ? ci_slices(index) : 0; /* revision 1 of one slice: on none of these models */
    NEED(index < CI_PROFILES && engines == 0);
    if (!slices || slices > p->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (CiProfile){.id = index, .slices = slices, .instances = p->slices / slices,
                        .multiprocessors = p->multiprocessors * slices / p->slices, .copy = p->copy,
                        .decoders = p->decoders, .jpeg = p->jpeg, .ofa = p->ofa};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned index,
                                                                 unsigned engines, CiProfile *info) {
    ENTER_KIND(450, GI_HANDLE, instance);
    NEED(info);
    return ci_profile(&target, index, engines, info);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned index,
                                                                  unsigned engines, CiProfile2 *info) {
    CiProfile old;
    ENTER_KIND(510, GI_HANDLE, instance);
    NEED(info);
    if (info->version != STRUCT_VERSION(CiProfile2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(ci_profile(&target, index, engines, &old));
    memcpy(&info->id, &old, sizeof old);
    if (old.slices == target.mig->profile->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", target.mig->profile->name);
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", old.slices, target.mig->profile->name);
    return NVML_SUCCESS;
}

static const Mig *compute_instance(const Target *target, unsigned id) {
    for (unsigned i = 0; i < MAX_MIGS; i++) {
        const Mig *mig = &target->gpu->migs[i];
        if (mig->present && mig->gi == target->mig->gi && mig->ci == id)
            return mig;
    }
    return NULL;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                          nvmlComputeInstance_t *compute) {
    ENTER_KIND(450, GI_HANDLE, instance);
    NEED(compute);
    if (!compute_instance(&target, id))
        return NVML_ERROR_NOT_FOUND;
    *compute = make_handle(CI_HANDLE, target.index, target.mig->gi, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned profile,
                                                       nvmlComputeInstance_t *out, unsigned *count) {
    ENTER_KIND(450, GI_HANDLE, instance);
    NEED(out && count && profile < CI_PROFILES);
    *count = 0;
    for (unsigned id = 0; id < 8; id++) {
        const Mig *mig = compute_instance(&target, id);
        if (mig && mig->ci_profile == profile)
            out[(*count)++] = make_handle(CI_HANDLE, target.index, mig->gi, id);
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, CiInfo *info) {
    ENTER_KIND(450, CI_HANDLE, compute);
    NEED(info);
    /* node.txt does not place compute instances; those of one slice, the usual ones, start at their id */
    *info = (CiInfo){.device = make_handle(GPU_HANDLE, target.index, 0, 0),
                     .instance = make_handle(GI_HANDLE, target.index, target.mig->gi, 0),
                     .id = target.mig->ci,
                     .profile = target.mig->ci_profile,
                     .placement = {target.mig->ci, ci_slices(target.mig->ci_profile)}};
    return NVML_SUCCESS;
}
