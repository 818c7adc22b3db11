/* SPDX-License-Identifier: MIT */
#include "calibrate/neighbours.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define NVML "libnvidia-ml.so.1"
#define NVML_VARIABLE "RVL_NVML_LIBRARY"
#define DRIFT_BYTES (256 * MIB) /* memory that the driver may keep after a part */

/* Declares what we use of NVML without its header: 0 is success, and a device is a pointer. */
typedef struct nvml_process {
    unsigned pid;
    unsigned long long used_bytes; /* all ones: unknown */
    unsigned gpu_instance, compute_instance;
} nvml_process;

static bool find(void *library, const char *name, void *function_out, size_t size)
{
    void *symbol = dlsym(library, name);
    memcpy(function_out, &symbol, size);
    return symbol != NULL;
}

#define FIND(library, name, function) find(library, name, &(function), sizeof(function))

void neighbours_open(neighbours *it, const card *of)
{
    int (*init)(void);
    int (*by_bus_id)(const char *bus_id, void **device);
    const char *named = getenv(NVML_VARIABLE);
    *it = (neighbours){.nvml = NULL};
    void *library = dlopen(named != NULL && named[0] != '\0' ? named : NVML, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    if (FIND(library, "nvmlInit_v2", init) &&
        FIND(library, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) && init() == 0 &&
        by_bus_id(of->bus_id, &it->device) == 0)
        it->nvml = library;
    else
        dlclose(library);
}

void neighbours_close(neighbours *it)
{
    int (*shutdown)(void);
    if (it->nvml == NULL)
        return;
    if (FIND(it->nvml, "nvmlShutdown", shutdown))
        shutdown();
    dlclose(it->nvml);
    it->nvml = NULL;
}

static size_t list(const neighbours *it, nvml_process processes[NEIGHBOURS_MAX])
{
    int (*get)(void *device, unsigned *count, nvml_process *processes);
    unsigned count = NEIGHBOURS_MAX;
    if (it->nvml == NULL || !FIND(it->nvml, "nvmlDeviceGetComputeRunningProcesses_v3", get) ||
        get(it->device, &count, processes) != 0)
        return 0;
    return count < NEIGHBOURS_MAX ? count : NEIGHBOURS_MAX;
}

static bool is_ours(const neighbours *it, unsigned pid)
{
    for (size_t i = 0; i < it->ours_count; i++) {
        if (it->ours[i] == pid)
            return true;
    }
    return false;
}

static void describe(const neighbours *it, const nvml_process *process, char *text, size_t size)
{
    int (*get_name)(unsigned pid, char *name, unsigned size);
    char name[128] = "", used[SIZE_TEXT_BYTES] = "memory of unknown size";
    if (!FIND(it->nvml, "nvmlSystemGetProcessName", get_name) ||
        get_name(process->pid, name, sizeof name) != 0 || name[0] == '\0')
        snprintf(name, sizeof name, "a program");
    if (process->used_bytes != ~0ull)
        format_size(process->used_bytes, used);
    snprintf(text, size, "%.100s (process %u, %s)", name, process->pid, used);
}

/* Lists the processes that are not ours, separated by commas. false: there are none. */
static bool name_others(const neighbours *it, char text[NEIGHBOURS_TEXT_BYTES])
{
    nvml_process processes[NEIGHBOURS_MAX];
    size_t count = list(it, processes), length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        char one[200];
        if (is_ours(it, processes[i].pid))
            continue;
        describe(it, &processes[i], one, sizeof one);
        if (length + strlen(one) + 3 < NEIGHBOURS_TEXT_BYTES)
            length += (size_t)snprintf(text + length, NEIGHBOURS_TEXT_BYTES - length, "%s%s",
                                       length > 0 ? ", " : "", one);
    }
    return length > 0;
}

bool neighbours_before(const neighbours *it, char text[NEIGHBOURS_TEXT_BYTES])
{
    return name_others(it, text);
}

bool neighbours_hidden(card *of, uint64_t contexts, uint64_t context_bytes,
                       char text[NEIGHBOURS_TEXT_BYTES])
{
    char size[SIZE_TEXT_BYTES];
    uint64_t used = of->total_bytes - card_free_bytes(of), ours = contexts * context_bytes;
    if (context_bytes == 0 || of->failed != NULL || used <= ours + DRIFT_BYTES)
        return false;
    snprintf(text, NEIGHBOURS_TEXT_BYTES,
             "a program that NVML does not name (%s of the card's memory)",
             format_size(used - ours, size));
    return true;
}

void neighbours_settle(neighbours *it, card *of)
{
    nvml_process processes[NEIGHBOURS_MAX];
    it->ours_count = list(it, processes);
    for (size_t i = 0; i < it->ours_count; i++)
        it->ours[i] = processes[i].pid;
    it->free_bytes = card_free_bytes(of);
}

bool neighbours_since(const neighbours *it, card *of, char text[NEIGHBOURS_TEXT_BYTES])
{
    char size[SIZE_TEXT_BYTES];
    if (name_others(it, text))
        return true;
    uint64_t free_now = card_free_bytes(of);
    uint64_t moved =
        free_now < it->free_bytes ? it->free_bytes - free_now : free_now - it->free_bytes;
    if (moved <= DRIFT_BYTES)
        return false;
    snprintf(text, NEIGHBOURS_TEXT_BYTES,
             "a program that NVML does not name (%s of the card's memory %s)",
             format_size(moved, size), free_now < it->free_bytes ? "went" : "came back");
    return true;
}
