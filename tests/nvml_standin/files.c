/* Reads the two files that drive the stand-in: the node and the faults.
 *
 * A file that cannot be understood ends the process with the line at fault: a test that runs on half
 * a description proves nothing. */
#include "standin.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Model MODELS[] = {
#define MODEL(...) {__VA_ARGS__},
#define PROFILE(...)
#include "models.def"
#undef MODEL
#undef PROFILE
};

static const Profile PROFILES[] = {
#define MODEL(...)
#define PROFILE(...) {__VA_ARGS__},
#include "models.def"
#undef MODEL
#undef PROFILE
};

/* Compute slices by compute instance profile index (NVML_COMPUTE_INSTANCE_PROFILE_*). */
static const unsigned CI_SLICES[] = {1, 2, 3, 4, 7, 8, 6, 1};

enum { WORDS = 24 };

typedef struct {
    const char *path;
    unsigned number, count;
    char text[4096], *words[WORDS];
} Line;

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("NVML stand-in: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static _Noreturn void reject(const Line *line, const char *what) {
    die("%s:%u: %s (near \"%s\")", line->path, line->number, what, line->count ? line->words[0] : "");
}

/* Splits a line at blanks; double quotes keep blanks together and are dropped; # ends the line. */
static void split(Line *line) {
    char *out = line->text;
    bool quoted = false, inside = false;
    line->count = 0;
    for (const char *in = line->text; *in; in++) {
        bool blank = strchr(" \t\r\n", *in) != NULL;
        if (*in == '#' && !quoted)
            break;
        if (!quoted && blank) {
            if (inside)
                *out++ = '\0';
            inside = false;
            continue;
        }
        if (!inside) {
            if (line->count == WORDS)
                reject(line, "too many words");
            line->words[line->count++] = out;
            inside = true;
        }
        if (*in == '"')
            quoted = !quoted;
        else
            *out++ = *in;
    }
    *out = '\0';
    if (quoted)
        reject(line, "a quote that does not end");
}

/* The next line that says something. A last line without a newline is still being written: not yet. */
static bool next(FILE *file, Line *line) {
    while (fgets(line->text, sizeof line->text, file)) {
        line->number++;
        if (!strchr(line->text, '\n'))
            return false;
        split(line);
        if (line->count)
            return true;
    }
    return false;
}

static bool is(const Line *line, const char *word) {
    return strcmp(line->words[0], word) == 0;
}

static unsigned long long number(const Line *line, const char *text, int base, unsigned long long most) {
    char *end;
    errno = 0;
    unsigned long long value = text ? strtoull(text, &end, base) : 0;
    if (!text || !*text || *end || errno || *text == '-' || value > most)
        reject(line, "not a number in range");
    return value;
}

static const char *word(const Line *line, unsigned at) {
    if (at >= line->count)
        reject(line, "a word is missing");
    return line->words[at];
}

static unsigned long long number_at(const Line *line, unsigned at, unsigned long long most) {
    return number(line, word(line, at), 0, most);
}

/* The value of `key=value` among the words from `first` on, or NULL. */
static const char *option(const Line *line, unsigned first, const char *key) {
    size_t length = strlen(key);
    for (unsigned i = first; i < line->count; i++)
        if (strncmp(line->words[i], key, length) == 0 && line->words[i][length] == '=')
            return line->words[i] + length + 1;
    return NULL;
}

static unsigned long long number_option(const Line *line, const char *key, unsigned long long most) {
    return number(line, option(line, 1, key), 0, most);
}

static void only_options(const Line *line, unsigned first, const char *known) {
    for (unsigned i = first; i < line->count; i++) {
        char key[TEXT + 2];
        const char *equals = strchr(line->words[i], '=');
        if (!equals || (size_t)(equals - line->words[i]) >= TEXT)
            reject(line, "expected key=value");
        snprintf(key, sizeof key, " %.*s ", (int)(equals - line->words[i]), line->words[i]);
        if (!strstr(known, key))
            reject(line, "an option that is not known");
    }
}

static void copy(const Line *line, char *target, size_t size, const char *text) {
    if ((size_t)snprintf(target, size, "%s", text) >= size)
        reject(line, "a text that is too long");
}

const Profile *find_profile(const Gpu *gpu, unsigned index) {
    for (size_t i = 0; i < sizeof PROFILES / sizeof *PROFILES; i++)
        if (strcmp(PROFILES[i].model, gpu->model->key) == 0 && PROFILES[i].index == index)
            return &PROFILES[i];
    return NULL;
}

const Profile *find_profile_id(const Gpu *gpu, unsigned id) {
    for (size_t i = 0; i < sizeof PROFILES / sizeof *PROFILES; i++)
        if (strcmp(PROFILES[i].model, gpu->model->key) == 0 && PROFILES[i].id == id)
            return &PROFILES[i];
    return NULL;
}

unsigned ci_slices(unsigned profile) {
    return profile < sizeof CI_SLICES / sizeof *CI_SLICES ? CI_SLICES[profile] : 0;
}

static void parse_fabric(const Line *line, Gpu *gpu, const char *text) {
    unsigned digits = 0;
    for (; *text; text++) {
        char digit[2] = {*text, '\0'};
        if (*text == '-')
            continue;
        if (digits == 32)
            reject(line, "fabric= is a cluster UUID of 32 hex digits");
        unsigned value = (unsigned)number(line, digit, 16, 15);
        gpu->fabric_uuid[digits / 2] |= (unsigned char)(digits % 2 ? value : value << 4);
        digits++;
    }
    if (digits != 32)
        reject(line, "fabric= is a cluster UUID of 32 hex digits");
    gpu->in_fabric = true;
}

static void parse_mig_mode(const Line *line, Gpu *gpu, const char *text) {
    gpu->mig_capable = strcmp(text, "na") != 0;
    if (!gpu->mig_capable)
        return;
    const char *comma = strchr(text, ',');
    gpu->mig_current = text[0] == '1';
    gpu->mig_pending = comma ? comma[1] == '1' : gpu->mig_current;
    if (!strchr("01", text[0]) || (comma ? comma != text + 1 || !strchr("01", comma[1]) || strlen(text) != 3
                                         : strlen(text) != 1))
        reject(line, "mig= is 0, 1, na or current,pending");
    if (gpu->mig_current && !gpu->model->max_migs)
        reject(line, "this model does not do MIG");
}

static void parse_gpu(const Line *line, Node *node, int driver) {
    unsigned index = (unsigned)number_at(line, 1, MAX_GPUS - 1);
    if (index != node->count)
        reject(line, "GPUs are numbered from 0, in order, as NVML does");
    only_options(line, 2, " model uuid minor bus numa mem name serial mig events fabric clique ats ");
    Gpu *gpu = &node->gpus[node->count++];
    const char *key = option(line, 2, "model"), *text;
    for (size_t i = 0; key && i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].key, key) == 0)
            gpu->model = &MODELS[i];
    if (!gpu->model)
        reject(line, "model= names no model of models.def");
    /* The product names got their "NVIDIA " with branch 470. */
    const char *name = gpu->model->name;
    copy(line, gpu->name, sizeof gpu->name, driver < 470 && strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name);
    if ((text = option(line, 2, "name")))
        copy(line, gpu->name, sizeof gpu->name, text);
    if (!(text = option(line, 2, "uuid")))
        reject(line, "uuid= is missing");
    copy(line, gpu->uuid, sizeof gpu->uuid, text);
    if ((text = option(line, 2, "serial")))
        copy(line, gpu->serial, sizeof gpu->serial, text);
    gpu->minor = option(line, 2, "minor") ? (unsigned)number_option(line, "minor", 1023) : index;
    char tail;
    if (!(text = option(line, 2, "bus")) ||
        sscanf(text, "%x:%x:%x.0%c", &gpu->domain, &gpu->bus, &gpu->device, &tail) != 3)
        reject(line, "bus= is like 00000000:10:00.0");
    text = option(line, 2, "numa");
    gpu->numa = !text || strcmp(text, "-1") == 0 ? -1 : (int)number(line, text, 10, 1023);
    gpu->mib = option(line, 2, "mem") ? number_option(line, "mem", 1ull << 40) : gpu->model->mib;
    parse_mig_mode(line, gpu, (text = option(line, 2, "mig")) ? text : gpu->model->max_migs ? "0" : "na");
    gpu->events = !option(line, 2, "events") || number_option(line, "events", 1);
    gpu->ats = option(line, 2, "ats") && number_option(line, "ats", 1);
    if ((text = option(line, 2, "fabric")))
        parse_fabric(line, gpu, text);
    if (option(line, 2, "clique"))
        gpu->clique = (unsigned)number_option(line, "clique", UINT32_MAX);
}

static Gpu *gpu_named(const Line *line, Node *node, const char *text) {
    unsigned index = (unsigned)number(line, text, 10, MAX_GPUS);
    if (index >= node->count)
        reject(line, "there is no such GPU above this line");
    return &node->gpus[index];
}

static void parse_mig(const Line *line, Node *node) {
    only_options(line, 1, " gpu slot gi ci giprofile ciprofile start size uuid ");
    Gpu *gpu = gpu_named(line, node, option(line, 1, "gpu"));
    if (!gpu->mig_current)
        reject(line, "MIG is not on for this GPU");
    unsigned slot = (unsigned)number_option(line, "slot", gpu->model->max_migs - 1);
    Mig *mig = &gpu->migs[slot];
    if (mig->present)
        reject(line, "two MIG devices in one slot");
    mig->present = true;
    mig->gi = (unsigned)number_option(line, "gi", 14);
    mig->ci = (unsigned)number_option(line, "ci", 7);
    mig->profile = find_profile(gpu, (unsigned)number_option(line, "giprofile", 255));
    if (!mig->profile)
        reject(line, "giprofile= is no profile of this model");
    mig->ci_profile = (unsigned)number_option(line, "ciprofile", 7);
    mig->start = (unsigned)number_option(line, "start", 7);
    mig->size = (unsigned)number_option(line, "size", 8);
    if (!option(line, 1, "uuid"))
        reject(line, "uuid= is missing");
    copy(line, mig->uuid, sizeof mig->uuid, option(line, 1, "uuid"));
    unsigned slices = ci_slices(mig->ci_profile);
    if (slices > mig->profile->slices)
        reject(line, "the compute instance is larger than its GPU instance");
    if (slices == mig->profile->slices)
        copy(line, mig->name, sizeof mig->name, mig->profile->name);
    else
        snprintf(mig->name, sizeof mig->name, "%uc.%s", slices, mig->profile->name);
}

/* Takes the lowest free links of a GPU; which number a link has is of no meaning beyond order. */
static void connect(const Line *line, Gpu *gpu, unsigned remote, bool to_switch) {
    for (unsigned i = 0; i < gpu->model->nvlinks; i++)
        if (!gpu->links[i].up) {
            gpu->links[i] = (Link){.up = true, .to_switch = to_switch, .remote = remote};
            return;
        }
    reject(line, "more NVLinks than the model has");
}

static void parse_topology(const Line *line, Node *node) {
    static const char *const LEVELS[] = {"internal", "single", "multiple", "hostbridge", "node", "system"};
    Gpu *a = gpu_named(line, node, word(line, 1)), *b = gpu_named(line, node, word(line, 2));
    for (int i = 0; i < 6; i++)
        if (strcmp(LEVELS[i], word(line, 3)) == 0) {
            /* one above NVML's level, since 0 is "internal" there and "not said" here */
            a->topology[b - node->gpus] = b->topology[a - node->gpus] = i * 10 + 1;
            return;
        }
    reject(line, "not a topology level");
}

void read_node(const char *path, Node *node) {
    Line line = {.path = path};
    FILE *file = fopen(path, "re");
    if (!file)
        die("cannot read the node %s: %s", path, strerror(errno));
    *node = (Node){.driver = "570.133.20", .cuda = 12080};
    while (next(file, &line)) {
        if (is(&line, "driver")) {
            only_options(&line, 2, " cuda ");
            copy(&line, node->driver, sizeof node->driver, word(&line, 1));
            if (option(&line, 2, "cuda"))
                node->cuda = (int)number_option(&line, "cuda", 99999);
        } else if (is(&line, "init")) {
            only_options(&line, 1, " return ");
            node->init = (int)number_option(&line, "return", 999);
        } else if (is(&line, "gpu")) {
            parse_gpu(&line, node, atoi(node->driver));
        } else if (is(&line, "mig")) {
            parse_mig(&line, node);
        } else if (is(&line, "nvlink")) {
            Gpu *a = gpu_named(&line, node, word(&line, 1)), *b = gpu_named(&line, node, word(&line, 2));
            for (unsigned long long left = number_at(&line, 3, MAX_LINKS); left; left--) {
                connect(&line, a, (unsigned)(b - node->gpus), false);
                connect(&line, b, (unsigned)(a - node->gpus), false);
            }
        } else if (is(&line, "nvswitch")) {
            Gpu *gpu = gpu_named(&line, node, word(&line, 1));
            unsigned count = (unsigned)number_at(&line, 2, MAX_LINKS);
            for (unsigned i = 0; i < count; i++)
                connect(&line, gpu, i % 4, true);
        } else if (is(&line, "topo")) {
            parse_topology(&line, node);
        } else {
            reject(&line, "not a directive");
        }
    }
    fclose(file);
}

static void add_rule(const Line *line, Faults *faults, bool block) {
    Rule rule = {.gpu = ANY_GPU};
    unsigned last = line->count;
    if (block && last > 3 && strcmp(line->words[last - 1], "holding") == 0) {
        rule.holding = true;
        last--;
    }
    copy(line, rule.call, sizeof rule.call, word(line, 1));
    rule.block = block;
    if (block) {
        char *end;
        rule.seconds = strtod(word(line, 2), &end);
        if (*end || rule.seconds < 0)
            reject(line, "not a number of seconds");
    } else {
        rule.code = (int)number_at(line, 2, 999);
    }
    if (last > 4)
        reject(line, "too many words");
    if (last == 4)
        rule.gpu = (int)number_at(line, 3, MAX_GPUS - 1);
    for (unsigned i = 0; i < faults->rule_count; i++) {
        Rule *old = &faults->rules[i];
        if (old->block == block && old->gpu == rule.gpu && strcmp(old->call, rule.call) == 0) {
            *old = rule;
            return;
        }
    }
    if (faults->rule_count == MAX_RULES)
        reject(line, "too many fail and block lines");
    faults->rules[faults->rule_count++] = rule;
}

static void add_event(const Line *line, Faults *faults, unsigned long long type) {
    bool xid = is(line, "xid");
    if (faults->event_count == MAX_EVENTS)
        reject(line, "too many events");
    Event event = {.gpu = (int)number_at(line, 1, MAX_GPUS - 1), .type = type, .gi = UINT32_MAX, .ci = UINT32_MAX};
    event.data = xid ? number_at(line, 2, UINT32_MAX) : 0;
    only_options(line, xid ? 3 : 2, " gi ci ");
    if (option(line, 1, "gi"))
        event.gi = (unsigned)number_option(line, "gi", UINT32_MAX);
    if (option(line, 1, "ci"))
        event.ci = (unsigned)number_option(line, "ci", UINT32_MAX);
    faults->events[faults->event_count++] = event;
}

/* No such file: no faults. */
void read_faults(const char *path, Faults *faults) {
    Line line = {.path = path};
    FILE *file = fopen(path, "re");
    memset(faults, 0, sizeof *faults);
    faults->wait_times = -1;
    if (!file)
        return;
    while (next(file, &line)) {
        if (is(&line, "lost") || is(&line, "ok")) {
            faults->lost[number_at(&line, 1, MAX_GPUS - 1)] = is(&line, "lost");
        } else if (is(&line, "remapped")) {
            unsigned gpu = (unsigned)number_at(&line, 1, MAX_GPUS - 1);
            faults->remap_pending[gpu] = number_at(&line, 2, 1);
            faults->remap_failed[gpu] = number_at(&line, 3, 1);
        } else if (is(&line, "retiring")) {
            faults->retiring[number_at(&line, 1, MAX_GPUS - 1)] = number_at(&line, 2, 1);
        } else if (is(&line, "fail") || is(&line, "block")) {
            add_rule(&line, faults, is(&line, "block"));
        } else if (is(&line, "init")) {
            faults->init = (int)number_at(&line, 1, 999);
        } else if (is(&line, "xid")) {
            add_event(&line, faults, EVENT_XID);
        } else if (is(&line, "ecc-single")) {
            add_event(&line, faults, EVENT_SINGLE_BIT_ECC);
        } else if (is(&line, "ecc-double")) {
            add_event(&line, faults, EVENT_DOUBLE_BIT_ECC);
        } else if (is(&line, "waiterr") || is(&line, "waitok")) {
            faults->waits++;
            faults->wait_code = is(&line, "waiterr") ? (int)number_at(&line, 1, 999) : NVML_SUCCESS;
            faults->wait_times = is(&line, "waiterr") && line.count > 2 ? (long)number_at(&line, 2, 1000000) : -1;
        } else if (is(&line, "node")) {
            copy(&line, faults->node, sizeof faults->node, word(&line, 1));
        } else {
            reject(&line, "not a fault");
        }
    }
    fclose(file);
}
