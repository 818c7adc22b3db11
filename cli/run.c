/* SPDX-License-Identifier: MIT */
/*
 * reveille run: a command on simulated GPUs. This process is the machine (simcuda/machine): it
 * records what the command's processes do, and replays that at the end for the table of stages.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "command.h"
#include "options.h"
#include "record/record.h"
#include "simcuda/machine/launch.h"
#include "simcuda/machine/machine.h"
#include "unknown.h"

#define DEVICE_USUAL "h200"
#define STAGE_OF_ALL "run"
#define AUDIT_LIBRARY "libreveille-find.so"
#define RANKS_MAX (1u << 20)

typedef struct arguments {
    const char *device;
    uint32_t gpus;
    uint32_t rank;
    uint32_t world; /* 0: the command starts all ranks itself, if there are any */
    uint64_t host_bytes;
    uint64_t keep_bytes;
    const char *output;
    const char *nvtx;
    option_budgets budgets;
    bool json;
    bool no_gpu_ok;
    char **command; /* ends with NULL */
} arguments;

static int set_keep(const command_spec *command, const option_spec *option, char *value,
                    void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec run_spec = {
    .name = "run",
    .summary = "run a command on simulated GPUs and show its memory",
    .usage = "[OPTION]... [--] COMMAND [ARGUMENT]...",
    .description =
        "Runs COMMAND on GPUs that are simulated: CUDA's libraries are replaced by ones that hand "
        "out memory as a card would and do not compute. No GPU is needed, and a real one is not "
        "touched. All processes of the command share the GPUs. At the end the memory peak of "
        "every stage is printed with those who held it, as by `reveille replay`.\n\n"
        "Small copies to the GPU are kept and can be read back. What only a kernel would write "
        "reads as zero, and is counted at the end. A function that is not simulated returns "
        "\"not supported\", and is named once on stderr.",
    .options =
        (const option_spec[]){
            OPTION_OF_DEVICE(FIELD(device), DEVICE_USUAL),
            {.kind = OPTION_NUMBER,
             .name = "gpus",
             .value = "N",
             .help = "number of GPUs",
             .usual = "1",
             .expected = "a number from 1 to 64",
             .least = 1,
             .most = RVL_MAX_DEVICES,
             .field = FIELD(gpus)},
            {.kind = OPTION_NUMBER,
             .name = "rank",
             .value = "R",
             .help = "with `--world`, the rank that the command plays",
             .usual = "0",
             .expected = "a number below that of `--world`",
             .least = 0,
             .most = RANKS_MAX - 1,
             .field = FIELD(rank)},
            {.kind = OPTION_NUMBER,
             .name = "world",
             .value = "N",
             .help = "the command is one process of a job of N, and the others are not started: "
                     "the environment is as torchrun has it, nobody waits for them, and "
                     "operations of NCCL are complete at once",
             .usual = "the command starts all its processes",
             .expected = "a number from 1 to 1048576",
             .least = 1,
             .most = RANKS_MAX,
             .field = FIELD(world)},
            {.kind = OPTION_SIZE,
             .name = "host-memory",
             .value = "SIZE",
             .help = "how much host memory all processes may pin and register together",
             .usual = "no bound",
             .field = FIELD(host_bytes)},
            {.kind = OPTION_CALL,
             .name = "keep-contents",
             .value = "SIZE",
             .help = "the largest copy to a GPU that is kept, so that it can be read back",
             .usual = "1MiB",
             .expected = "a size such as 1MiB, or 0",
             .set = set_keep},
            {.kind = OPTION_STRING,
             .name = "stages-nvtx",
             .value = "PREFIX",
             .help = "NVTX ranges that begin with this are stages, named by the rest",
             .usual = "all is one stage, \"run\"",
             .expected = "the beginning of a range's name",
             .field = FIELD(nvtx)},
            OPTION_OF_BUDGET(FIELD(budgets)),
            {.kind = OPTION_FILE,
             .letter = 'o',
             .name = "output",
             .value = "FILE",
             .help = "the trace of the run, of all processes",
             .usual = "none is kept",
             .files = "rvt",
             .field = FIELD(output)},
            {.kind = OPTION_FLAG,
             .name = "no-gpu-ok",
             .help = "accept a command that uses no GPU",
             .field = FIELD(no_gpu_ok)},
            OPTION_OF_JSON(FIELD(json)),
            OPTION_OF_COLOR,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"N", "COMMAND's own; 128 and more if a signal ended it"},
                                  {"3", "COMMAND succeeded, and a stage is over its budget"},
                                  {"2", "bad usage, the command cannot be run, or it succeeded "
                                        "without using CUDA (see --no-gpu-ok)"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille run python train.py", "A program on one simulated H200."},
            {"reveille run --device h100-80g --gpus 8 -o run.rvt -- torchrun --nproc-per-node 8 "
             "train.py",
             "Eight processes on eight GPUs; the trace is kept."},
            {"reveille run --rank 3 --world 64 python train.py",
             "One rank of a job of 64, on one GPU."},
            {"reveille run --budget run=60GiB -- ./engine", "A bound, for CI."},
            {NULL, NULL}},
    .environment =
        (const text_entry[]){
            {"LD_AUDIT", "Libraries that are named there stay, before ours. Ours sees to it that "
                         "the names of CUDA's libraries lead to simulated ones."},
            {"PYTHONPATH", "Ours comes first: a sitecustomize.py, through which small tensors of "
                           "PyTorch are computed for real. It runs the one that it hides."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-record(1), reveille-replay(1), reveille-devices(1); "
                "docs/run.md in the sources",
    .command_follows = true,
};

/* ---- Arguments ---- */

static int set_keep(const command_spec *command, const option_spec *option, char *value, void *user)
{
    arguments *parsed = user;
    parsed->keep_bytes = 0;
    if (strcmp(value, "0") != 0 && rvl_size_parse(value, &parsed->keep_bytes) != RVL_OK)
        return options_refuse(command, "--%s %s: expected %s", option->name, value,
                              option->expected);
    return 0;
}

/* ---- The libraries ---- */

static bool find_library(char path[PATH_MAX])
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
        complain(0, "there is no " AUDIT_LIBRARY " beside this command: install it (a build "
                    "without the CUDA headers has none)");
    else if (strpbrk(path, " :") != NULL)
        complain(0, "%s: LD_AUDIT cannot hold a path with a space or a colon: install it elsewhere",
                 path);
    return path[0] != '\0' && strpbrk(path, " :") == NULL;
}

static bool set_number(const char *variable, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, number);
    return setenv(variable, text, 1) == 0;
}

/*
 * What torchrun sets for a process, of nodes with as many GPUs as there are here. The store is an
 * agent's: PyTorch's rank 0 would open one itself otherwise, and wait there for the others.
 */
static bool set_rank(const arguments *parsed, uint16_t store_port)
{
    uint32_t local = parsed->gpus < parsed->world ? parsed->gpus : parsed->world;
    uint32_t nodes = (parsed->world + local - 1) / local;
    return set_number("RANK", parsed->rank) && set_number("WORLD_SIZE", parsed->world) &&
           set_number("LOCAL_RANK", parsed->rank % local) &&
           set_number("LOCAL_WORLD_SIZE", local) &&
           set_number("GROUP_RANK", parsed->rank / local) &&
           set_number("GROUP_WORLD_SIZE", nodes) && set_number("ROLE_RANK", parsed->rank) &&
           set_number("ROLE_WORLD_SIZE", parsed->world) && set_number("MASTER_PORT", store_port) &&
           setenv("MASTER_ADDR", "127.0.0.1", 1) == 0 && setenv("ROLE_NAME", "default", 1) == 0 &&
           setenv("TORCHELASTIC_RUN_ID", "reveille", 1) == 0 &&
           set_number("TORCHELASTIC_RESTART_COUNT", 0) &&
           set_number("TORCHELASTIC_MAX_RESTARTS", 0) &&
           setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1) == 0;
}

/* Triton looks for the driver in a folder, or where ldconfig says. Python runs sitecustomize.py. */
static bool set_environment(const arguments *parsed, const char *library, const char *machine)
{
    char folder[PATH_MAX], driver[PATH_MAX + 16], python[PATH_MAX + 16], kept[24];
    snprintf(kept, sizeof kept, "%" PRIu64, parsed->keep_bytes);
    snprintf(folder, sizeof folder, "%s", library);
    *strrchr(folder, '/') = '\0';
    snprintf(driver, sizeof driver, "%s/libcuda.so.1", folder);
    snprintf(python, sizeof python, "%s/python", folder);
    return setenv(RVLI_WIRE_VARIABLE, machine, 1) == 0 &&
           setenv(RVLI_WIRE_KEEP_VARIABLE, kept, 1) == 0 &&
           record_add_path("LD_AUDIT", library, false) &&
           record_add_path("PYTHONPATH", python, true) &&
           setenv("TRITON_LIBCUDA_PATH", folder, 1) == 0 &&
           (parsed->nvtx == NULL || (setenv("REVEILLE_STAGES_NVTX", parsed->nvtx, 1) == 0 &&
                                     setenv("NVTX_INJECTION64_PATH", driver, 1) == 0));
}

/* ---- The result ---- */

static void tell_refusals(const rvli_machine *machine)
{
    const rvli_machine_refusal *refused = rvli_machine_refused(machine);
    char asked[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], where[32];
    if (refused->count == 0)
        return;
    snprintf(where, sizeof where, refused->device >= 0 ? "device %d" : "pinned host memory",
             refused->device);
    complain(0,
             "out of memory %" PRIu64 " times: first %s asked for %s (%" PRIu64
             " bytes) of %s with %s (%" PRIu64 " bytes) free",
             refused->count, refused->process, format_size(refused->requested_bytes, asked),
             refused->requested_bytes, where, format_size(refused->free_bytes, left),
             refused->free_bytes);
}

/* A command that is well and has used no GPU has shown nothing. */
static int tell_unused(const rvli_machine *machine, int code)
{
    if (rvli_machine_processes(machine) > 0)
        return code;
    return complain(code != 0 ? code : EXIT_BAD_INPUT,
                    "no process of the command has used CUDA. Does it run on the CPU, or is its "
                    "PyTorch a build without CUDA (python -c \"import torch; "
                    "print(torch.version.cuda)\" prints None)? Install one with CUDA");
}

static bool print_text(void *user, const char *text, size_t size)
{
    (void)user;
    return fwrite(text, 1, size, stdout) == size;
}

static bool within_budgets(const rvl_replay *replay)
{
    bool within = true;
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) == RVL_OK)
            within = within && device.within_budgets;
    }
    return within;
}

/* What the run was, from its trace. Returns the exit status that it asks for. */
static int show(const arguments *parsed, const char *trace)
{
    const rvl_trace_progress progress = {.struct_size = sizeof progress};
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .budgets = parsed->budgets.list,
                                        .budget_count = parsed->budgets.count,
                                        .budget_size = sizeof *parsed->budgets.list};
    rvl_replay *replay = NULL;
    rvl_status status = rvl_replay_run(&trace, 1, &options, &replay);
    if (status != RVL_OK)
        return explain_replay(status);
    bool printed = true;
    if (parsed->json) {
        printed = rvl_replay_write_json(replay, print_text, NULL) != RVL_ERR_HOST_OOM;
        putchar('\n');
    } else {
        printed = report_print(replay, &progress);
    }
    int code = within_budgets(replay) ? EXIT_FITS : EXIT_DOES_NOT_FIT;
    rvl_replay_close(replay);
    return printed ? code : complain(EXIT_INTERNAL, "out of host memory");
}

/* ---- Running ---- */

static int complain_of(const rvl_error *error, int status)
{
    return complain(status, "%s%s%s", error->message, error->native_name[0] != '\0' ? ": " : "",
                    error->native_name);
}

static int run_on(const arguments *parsed, rvli_machine *machine, const char *library,
                  const char *path, bool *ran_out)
{
    rvli_launch launch;
    if (!set_environment(parsed, library, rvli_machine_name(machine)) ||
        (parsed->world > 0 && !set_rank(parsed, rvli_machine_store_port(machine))))
        return complain(EXIT_INTERNAL, "no memory for the environment of the command");
    if (!rvli_launch_start(path, parsed->command, &launch))
        return complain(EXIT_BAD_INPUT, "%s: %s", path, strerror(errno));
    rvl_status served = rvli_machine_serve(machine, launch.ended);
    int status = rvli_launch_finish(&launch);
    if (served != RVL_OK)
        return complain(EXIT_INTERNAL, "waiting for processes: %s", strerror(errno));
    *ran_out = true;
    return record_exit_status(status);
}

static int run_machine(const arguments *parsed, const char *library, const char *path,
                       const char *trace)
{
    const rvli_machine_options options = {.device = parsed->device,
                                          .gpus = (int)parsed->gpus,
                                          .host_bytes = parsed->host_bytes,
                                          .world = parsed->world,
                                          .record = trace,
                                          .stage = parsed->nvtx == NULL ? STAGE_OF_ALL : NULL};
    rvli_machine *machine = NULL;
    rvl_error error = {.struct_size = sizeof error};
    bool ran = false;
    rvl_status status = rvli_machine_open(&options, &error, &machine);
    if (status != RVL_OK)
        return complain_of(&error, status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT);
    int code = run_on(parsed, machine, library, path, &ran);
    if (ran) {
        tell_refusals(machine);
        unknown_tell(rvli_machine_unknown_reads(machine));
        code = parsed->no_gpu_ok ? code : tell_unused(machine, code);
    }
    if (rvli_machine_close(machine) != RVL_OK && ran) {
        rvl_last_error(&error);
        return complain_of(&error, EXIT_INTERNAL);
    }
    int shown = ran ? show(parsed, trace) : EXIT_FITS;
    return code != 0 ? code : shown;
}

/* A trace that is not kept has no name, and goes with this process. */
static int run(const arguments *parsed)
{
    char library[PATH_MAX] = "", path[PATH_MAX], unnamed[48];
    if (!find_library(library) || !record_find_command(parsed->command[0], path))
        return EXIT_BAD_INPUT;
    if (parsed->output != NULL)
        return record_good_output(parsed->output, path, parsed->command)
                   ? run_machine(parsed, library, path, parsed->output)
                   : EXIT_BAD_INPUT;
    int file = memfd_create("reveille-run", MFD_CLOEXEC);
    if (file < 0)
        return complain(EXIT_INTERNAL, "no memory for the trace: %s", strerror(errno));
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", file);
    int status = run_machine(parsed, library, path, unnamed);
    close(file);
    return status;
}

static int check_rank(const arguments *parsed, const option_line *line)
{
    if (options_given(&run_spec, line, "rank") && parsed->world == 0)
        return options_refuse(&run_spec, "--rank: of how many? Add --world");
    if (parsed->world > 0 && parsed->rank >= parsed->world)
        return options_refuse(
            &run_spec, "--rank %" PRIu32 ": --world %" PRIu32 " has ranks from 0 to %" PRIu32,
            parsed->rank, parsed->world, parsed->world - 1);
    return 0;
}

static int check(const arguments *parsed, const option_line *line, char **words)
{
    int status = check_rank(parsed, line);
    if (status != 0)
        return status;
    if (words[0] == NULL)
        return options_refuse(&run_spec, "run: name the command to run");
    if (parsed->nvtx != NULL && !record_good_injection())
        return EXIT_BAD_INPUT;
    return parsed->output != NULL ? options_check_ending(&run_spec, "-o", parsed->output, "rvt zst")
                                  : 0;
}

int command_run(int argc, char **argv)
{
    arguments parsed = {.device = DEVICE_USUAL, .gpus = 1, .keep_bytes = RVLI_WIRE_KEEP_USUAL};
    option_line line;
    if (!options_make_budgets(argc, &parsed.budgets))
        return complain(EXIT_INTERNAL, "out of host memory");
    int status;
    if (!options_parse(&run_spec, argc, argv, &parsed, &line)) {
        status = line.status;
    } else {
        parsed.command = argv + line.first;
        status = check(&parsed, &line, parsed.command);
        if (status == 0)
            status = run(&parsed);
    }
    free(parsed.budgets.list);
    return status;
}
