/* SPDX-License-Identifier: MIT */
#include "simulate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "command.h"
#include "record/record.h"

#define STAGE_OF_ALL "run"
#define AUDIT_LIBRARY "libreveille-find.so"

/* ---- The libraries ---- */

bool simulate_find_library(char path[PATH_MAX])
{
    static const char *const places[] = {RVL_LIBRARIES_FROM_COMMAND "/reveille-cuda",
                                         "../lib/reveille-cuda", "../simcuda"};
    char own[PATH_MAX], candidate[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof *places; i++) {
        *slash = '\0';
        snprintf(candidate, sizeof candidate, "%s/%s/" AUDIT_LIBRARY, own, places[i]);
        if (realpath(candidate, path) != NULL && access(path, R_OK) == 0)
            break;
        path[0] = '\0';
    }
    if (path[0] == '\0')
        complain(0,
                 "there is no " AUDIT_LIBRARY " beside this command: install it. A build without "
                 "CUDA's headers has none: scripts/cuda-headers in the sources brings them");
    return path[0] != '\0' &&
           record_make_listable(path, ":$"); /* separators in LD_AUDIT and PYTHONPATH */
}

static bool set_number(const char *variable, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, number);
    return setenv(variable, text, 1) == 0;
}

/*
 * Sets the variables that torchrun sets for a process, as if every node had the number of GPUs of
 * this one. Declares the store as an agent's. Otherwise PyTorch's rank 0 would open one itself, and
 * wait there for the other ranks.
 */
static bool set_rank(const simulation *what, uint16_t store_port)
{
    uint32_t local = what->gpus < what->world ? what->gpus : what->world;
    uint32_t nodes = (what->world + local - 1) / local;
    return set_number("RANK", what->rank) && set_number("WORLD_SIZE", what->world) &&
           set_number("LOCAL_RANK", what->rank % local) && set_number("LOCAL_WORLD_SIZE", local) &&
           set_number("GROUP_RANK", what->rank / local) && set_number("GROUP_WORLD_SIZE", nodes) &&
           set_number("ROLE_RANK", what->rank) && set_number("ROLE_WORLD_SIZE", what->world) &&
           set_number("MASTER_PORT", store_port) && setenv("MASTER_ADDR", "127.0.0.1", 1) == 0 &&
           setenv("ROLE_NAME", "default", 1) == 0 &&
           setenv("TORCHELASTIC_RUN_ID", "reveille", 1) == 0 &&
           set_number("TORCHELASTIC_RESTART_COUNT", 0) &&
           set_number("TORCHELASTIC_MAX_RESTARTS", 0) &&
           setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1) == 0;
}

/*
 * With an LD_AUDIT library, the loader leaves less than 4 KiB of thread-local memory for libraries
 * that are loaded later. Preloaded allocators need more (Ray preloads jemalloc into its servers).
 * This memory is on the stack of each thread, so we reserve no more than they need.
 */
#define STATIC_TLS "glibc.rtld.optional_static_tls"

static bool leave_room_for_threads(void)
{
    const char *tunables = getenv("GLIBC_TUNABLES");
    return (tunables != NULL && strstr(tunables, STATIC_TLS "=") != NULL) ||
           record_add_path("GLIBC_TUNABLES", STATIC_TLS "=65536", false);
}

/* Leads the command to our libraries by LD_AUDIT. Audit libraries load a second C library, at which
 * valgrind aborts, so valgrind gets the folder first in LD_LIBRARY_PATH instead. */
static bool lead(const simulation *what, const char *library, const char *folder)
{
    const char *slash = strrchr(what->command.path, '/');
    const char *name = slash != NULL ? slash + 1 : what->command.path;
    return strncmp(name, "valgrind", strlen("valgrind")) == 0
               ? record_add_path("LD_LIBRARY_PATH", folder, true)
               : record_add_path("LD_AUDIT", library, false);
}

static bool counts_host(const simulation *what)
{
    return what->host_bytes > 0 || what->keep_host_bytes > 0;
}

static bool count_host(const simulation *what)
{
    char kept[24] = "all";
    if (!counts_host(what))
        return unsetenv(RVLI_WIRE_HOST_VARIABLE) == 0;
    if (what->keep_host_bytes > 0)
        snprintf(kept, sizeof kept, "%" PRIu64, what->keep_host_bytes);
    return setenv(RVLI_WIRE_HOST_VARIABLE, kept, 1) == 0;
}

static bool set_responses(const simulation *what)
{
    return what->responses == NULL ? unsetenv("REVEILLE_RESPONSE_LENGTHS") == 0
                                   : setenv("REVEILLE_RESPONSE_LENGTHS", what->responses, 1) == 0 &&
                                         set_number("REVEILLE_RESPONSE_SEED", what->response_seed);
}

/* Sets the command's environment. Triton takes the driver's folder from TRITON_LIBCUDA_PATH, or
 * else asks ldconfig. Python runs our sitecustomize.py from PYTHONPATH. */
static bool set_environment(const simulation *what, const char *library, const char *machine)
{
    char folder[PATH_MAX], driver[PATH_MAX + 16], python[PATH_MAX + 16], kept[24];
    snprintf(kept, sizeof kept, "%" PRIu64, what->keep_bytes);
    snprintf(folder, sizeof folder, "%s", library);
    *strrchr(folder, '/') = '\0';
    snprintf(driver, sizeof driver, "%s/libcuda.so.1", folder);
    snprintf(python, sizeof python, "%s/python", folder);
    return setenv(RVLI_WIRE_VARIABLE, machine, 1) == 0 &&
           setenv(RVLI_WIRE_KEEP_VARIABLE, kept, 1) == 0 && count_host(what) &&
           set_responses(what) && lead(what, library, folder) && leave_room_for_threads() &&
           record_add_path("PYTHONPATH", python, true) &&
           setenv("TRITON_LIBCUDA_PATH", folder, 1) == 0 &&
           setenv("RVL_NVML_LIBRARY", "libnvidia-ml.so.1", 1) == 0 && /* replaces nvidia-smi */
           (what->history != NULL ? setenv("REVEILLE_HISTORY", what->history, 1)
                                  : unsetenv("REVEILLE_HISTORY")) == 0 &&
           unsetenv("CUDA_VISIBLE_DEVICES") == 0 && /* it names the real GPUs of this machine */
           (what->nvtx == NULL || (setenv("REVEILLE_STAGES", what->nvtx, 1) == 0 &&
                                   setenv("NVTX_INJECTION64_PATH", driver, 1) == 0));
}

/* ---- This process's environment ---- */

static void free_words(char **words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++)
        free(words[i]);
    free(words);
}

/* NULL: no memory. */
static char **copy_environment(void)
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **words = calloc(count + 1, sizeof *words);
    for (size_t i = 0; words != NULL && i < count; i++) {
        words[i] = strdup(environ[i]);
        if (words[i] == NULL) {
            free_words(words);
            return NULL;
        }
    }
    return words;
}

/* Restores our environment, so that a second command does not inherit settings of the first. Frees
 * words. */
static bool restore_environment(char **words)
{
    bool good = clearenv() == 0;
    for (size_t i = 0; words[i] != NULL && good; i++) {
        char *value = strchr(words[i], '=');
        if (value == NULL)
            continue;
        *value = '\0';
        good = setenv(words[i], value + 1, 1) == 0;
    }
    free_words(words);
    return good;
}

/* ---- Running ---- */

static int complain_of(const rvl_error *error, int status)
{
    return complain(status, "%s%s%s", error->message, error->native_name[0] != '\0' ? ": " : "",
                    error->native_name);
}

static int complain_of_trace(const rvl_error *error, const rvli_output *kept)
{
    return complain_of_file("%s%s%s%s%s", kept != NULL ? kept->path : "", kept != NULL ? ": " : "",
                            error->message, error->native_name[0] != '\0' ? ": " : "",
                            error->native_name);
}

static int start(const simulation *what, const rvli_machine *machine, const char *library,
                 rvli_launch *launch)
{
    char **before = copy_environment();
    if (before == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    int code = 0;
    if (!set_environment(what, library, rvli_machine_name(machine)) ||
        (what->world > 0 && !set_rank(what, rvli_machine_store_port(machine))))
        code = complain(EXIT_INTERNAL, "no memory for the environment of the command");
    else if (!rvli_launch_start(&what->command, launch))
        code = complain(EXIT_BAD_INPUT, "%s: %s", what->command.path, strerror(errno));
    if (!restore_environment(before) && code == 0) {
        rvli_launch_kill(launch);
        (void)rvli_launch_finish(launch);
        code = complain(EXIT_INTERNAL, "out of host memory");
    }
    return code;
}

static int run_on(const simulation *what, rvli_machine *machine, const char *library,
                  const rvli_machine_watch *watch, simulation_end *end)
{
    rvli_launch launch;
    int code = start(what, machine, library, &launch);
    if (code != 0)
        return code;
    rvli_machine_watch_strays(machine, launch.keeper, library);
    rvl_status served = rvli_machine_serve(machine, launch.ended, watch);
    int number = errno;
    if (served != RVL_OK)
        rvli_launch_kill(&launch);
    end->status = rvli_launch_finish(&launch);
    end->stopped = served == RVL_ERR_TIMEOUT;
    end->ran = served == RVL_OK;
    return end->ran || end->stopped
               ? 0
               : complain(EXIT_INTERNAL, "waiting for processes: %s", strerror(number));
}

/* Gives the trace its name before it is complete. */
static int publish(rvli_output *kept)
{
    if (kept == NULL || kept->folder < 0 || rvli_output_publish(kept, false) == RVL_OK)
        return 0;
    return complain(EXIT_BAD_INPUT, "%s", rvli_error_get()->message);
}

int simulate(const simulation *what, const char *library, const char *trace, rvli_output *kept,
             const rvli_machine_watch *watch, simulation_end *end_out)
{
    const rvli_machine_options options = {.device = what->device,
                                          .gpus = (int)what->gpus,
                                          .host_bytes = what->host_bytes,
                                          .world = what->world,
                                          .keep_times = what->history != NULL,
                                          .record = trace,
                                          .stage = what->nvtx == NULL ? STAGE_OF_ALL : NULL};
    rvli_machine *machine = NULL;
    rvl_error error = {.struct_size = sizeof error};
    *end_out = (simulation_end){0};
    rvl_status status = rvli_machine_open(&options, &error, &machine);
    if (status != RVL_OK)
        return complain_of(&error, status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT);
    int code = publish(kept);
    if (code == 0)
        code = run_on(what, machine, library, watch, end_out);
    if (end_out->ran || end_out->stopped)
        rvli_machine_ended(machine, end_out->status);
    end_out->processes = rvli_machine_processes(machine);
    end_out->turned_away = rvli_machine_turned_away(machine);
    end_out->refused = *rvli_machine_refused(machine);
    end_out->unknown = *rvli_machine_unknown_reads(machine);
    end_out->assumed = *rvli_machine_assumed(machine);
    end_out->pool = *rvli_machine_widest_pool(machine);
    end_out->host = *rvli_machine_host_peak(machine);
    end_out->strays = *rvli_machine_strays(machine);
    end_out->races = *rvli_machine_races_seen(machine);
    end_out->engines = *rvli_machine_engines_seen(machine);
    end_out->lengths = *rvli_machine_lengths_given(machine);
    if (what->history != NULL)
        end_out->times = rvli_machine_take_times(machine);
    if (rvli_machine_close(machine) != RVL_OK && code == 0) {
        rvl_last_error(&error);
        code = complain_of_trace(&error, kept);
    }
    return code;
}

int simulate_trace(char path[SIMULATE_TRACE_BYTES])
{
    int file = memfd_create("reveille-run", MFD_CLOEXEC);
    if (file < 0)
        complain(0, "no memory for the trace, by memfd_create(): %s%s", strerror(errno),
                 errno == ENOSYS || errno == EPERM
                     ? ": allow it in the seccomp profile of this container"
                     : "");
    snprintf(path, SIMULATE_TRACE_BYTES, "/proc/self/fd/%d", file);
    return file;
}

/* ---- Messages ---- */

void simulate_tell_refusals(const rvli_machine_refusal *refused)
{
    char asked[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], times[TIMES_TEXT_BYTES], where[32];
    if (refused->count == 0)
        return;
    snprintf(where, sizeof where, refused->device >= 0 ? "device %d" : "host memory",
             refused->device);
    complain(0,
             "out of memory %s: %s%s asked for %s (%" PRIu64 " bytes) of %s with %s (%" PRIu64
             " bytes) free",
             format_times(refused->count, times), refused->count > 1 ? "first " : "",
             refused->process, format_size(refused->requested_bytes, asked),
             refused->requested_bytes, where, format_size(refused->free_bytes, left),
             refused->free_bytes);
}

void simulate_tell_pool(const rvli_machine_pool *pool, const char *who)
{
    char here[SIZE_TEXT_BYTES], card[SIZE_TEXT_BYTES];
    if (pool->card_bytes <= pool->reserved_bytes)
        return;
    complain(
        0,
        "%scudaMallocAsync: a pool of %s reserved up to %s of device %d. On a card it may be up "
        "to %s, as far as the GPU is behind the program when memory is freed",
        who, pool->process, format_size(pool->reserved_bytes, here), pool->device,
        format_size(pool->card_bytes, card));
}

void simulate_tell_host(const simulation *what, const rvli_machine_host *host)
{
    char all[SIZE_TEXT_BYTES], pinned[SIZE_TEXT_BYTES], pageable[SIZE_TEXT_BYTES];
    if (!counts_host(what))
        return;
    complain(0,
             "the host needs up to %s: %s pinned, %s of PyTorch's tensors of 1 MiB or more; files "
             "that are mapped are not counted",
             format_size(host->pinned_bytes + host->pageable_bytes, all),
             format_size(host->pinned_bytes, pinned), format_size(host->pageable_bytes, pageable));
}

void simulate_tell_races(const rvli_machine_races *races, const char *who)
{
    for (size_t i = 0; i < races->count; i++)
        complain(0, "%son a card %s", who, races->texts[i]);
}

void simulate_tell_strays(const rvli_strays *strays, const char *who)
{
    if (strays->process != 0)
        complain(0,
                 "%s%s[%d] was started without the environment of this command (env -i, sudo), and "
                 "has loaded the CUDA driver of this machine, %s: nothing of it is counted. Pass "
                 "the environment on (env without -i, sudo -E)",
                 who, strays->program, (int)strays->process, strays->library);
}

bool simulate_tell_turned_away(const simulation_end *end)
{
    char count[COUNT_TEXT_BYTES];
    if (end->turned_away == 0)
        return false;
    complain(0,
             "%s found no simulated GPU, since there was no descriptor left, and nothing of theirs "
             "is counted: raise the limit (ulimit -n, and -Hn)",
             format_count(end->turned_away, "process", "processes", count));
    return true;
}

/* A command that succeeds without a GPU has tested nothing. */
bool simulate_tell_unused(const simulation_end *end)
{
    if (end->processes > 0)
        return false;
    complain(0, "no process of the command has used CUDA. Does it run on the CPU, or is its "
                "PyTorch a build without CUDA (python -c \"import torch; "
                "print(torch.version.cuda)\" prints None)? Install one with CUDA");
    return true;
}
