/* SPDX-License-Identifier: MIT */
/*
 * reveille run: runs a command on simulated GPUs (simulate.h). At the end it replays the trace of
 * the processes, for the table of stages.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/output.h"
#include "advice.h"
#include "command.h"
#include "document.h"
#include "engines.h"
#include "history.h"
#include "lengths.h"
#include "live.h"
#include "options.h"
#include "output.h"
#include "record/record.h"
#include "simulate.h"
#include "unknown.h"
#include "verdict.h"

typedef struct arguments {
    simulation what;
    const char *output;
    const char *attribution; /* "on", "off"; NULL: on */
    const char
        *snapshots; /* the folder that keeps PyTorch's history; NULL: delete it after the run */
    history history;
    rvli_machine_engines engines;
    lengths_rule rule;
    rvli_machine_lengths lengths;
    option_budgets budgets;
    option_headroom headroom;
    bool no_refusals;
    bool advise;
    advice advice;
    replay_view view;
    bool no_gpu_ok;
} arguments;

#define KEEP_HOST_LEAST ((uint64_t)1 << 20)

static int set_keep(const command_spec *command, const option_spec *option, char *value,
                    void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec run_spec = {
    .name = "run",
    .summary = "run a command on simulated GPUs and show its memory",
    .usage = "[OPTION]... [--] COMMAND [ARGUMENT]...",
    .description =
        "Runs COMMAND on simulated GPUs: CUDA's libraries are replaced by ones that allocate "
        "memory as a card would, but do not compute. You need no GPU, and a real one is not "
        "used. All processes of the command share the GPUs. At the end, the memory peak of "
        "every stage is printed with its holders, as by `reveille replay`.\n\n"
        "Small copies to the GPU are kept and can be read back. Memory that only a kernel would "
        "have written reads as zero, and such reads are counted at the end. A function that is "
        "not simulated returns \"not supported\", and is named once on stderr.",
    .options =
        (const option_spec[]){
            OPTION_OF_DEVICE(FIELD(what.device), SIMULATE_DEVICE_USUAL),
            OPTION_OF_GPUS(FIELD(what.gpus)),
            {.kind = OPTION_NUMBER,
             .name = "rank",
             .value = "R",
             .help = "with `--world`, the rank of the command",
             .usual = "0",
             .expected = "a number below that of `--world`",
             .least = 0,
             .most = SIMULATE_RANKS_MAX - 1,
             .field = FIELD(what.rank)},
            {.kind = OPTION_NUMBER,
             .name = "world",
             .value = "N",
             .help = "the command is one rank of a job of N, and the others are not started: the "
                     "environment is that of torchrun, nothing waits for the other ranks, and "
                     "NCCL operations are complete at once",
             .usual = "the command starts all its processes",
             .expected = "a number from 1 to 1048576",
             .least = 1,
             .most = SIMULATE_RANKS_MAX,
             .field = FIELD(what.world)},
            {.kind = OPTION_SIZE,
             .name = "host-memory",
             .value = "SIZE",
             .help = "limit of host memory for all processes together: pinned, registered, and "
                     "large tensors of PyTorch",
             .usual = "no limit",
             .field = FIELD(what.host_bytes)},
            {.kind = OPTION_CALL,
             .name = "keep-contents",
             .value = "SIZE",
             .help = "largest copy to a GPU that is kept, so that it can be read back",
             .usual = "1MiB",
             .expected = "a size such as 1MiB, or 0",
             .set = set_keep},
            {.kind = OPTION_SIZE,
             .name = "keep-host",
             .value = "SIZE",
             .help = "largest tensor in host memory that keeps its content, at least 1MiB: "
                     "larger ones share a few pages, but are counted in full",
             .usual = "all keep it",
             .field = FIELD(what.keep_host_bytes)},
            {.kind = OPTION_FILE,
             .name = "response-lengths",
             .value = "RULE",
             .help = "how many tokens each generated sequence has: `uniform:A..B`, "
                     "`lognormal:MEAN,SIGMA`, or a file with a number a line, used in turn",
             .usual = "max: no sequence ends before its limit",
             .field = FIELD(rule.named)},
            {.kind = OPTION_NUMBER,
             .name = "response-seed",
             .value = "N",
             .help = "with `--response-lengths`, the seed of the lengths",
             .usual = "0",
             .least = 0,
             .most = UINT32_MAX,
             .field = FIELD(what.response_seed)},
            OPTION_OF_STAGES(FIELD(what.nvtx),
                             "ranges of NVTX and record_function with a name that starts with this "
                             "are stages, named by the rest",
                             "one stage, \"run\""),
            OPTION_OF_STAGES_NVTX(FIELD(what.nvtx)),
            OPTION_OF_BUDGET(FIELD(budgets)),
            OPTION_OF_HEADROOM(FIELD(headroom)),
            OPTION_OF_NO_REFUSALS(FIELD(no_refusals)),
            {.kind = OPTION_FILE,
             .letter = 'o',
             .name = "output",
             .value = "FILE",
             .help = "the trace of the run, of all processes",
             .usual = "none is kept",
             .files = "rvt",
             .field = FIELD(output)},
            {.kind = OPTION_CHOICE,
             .name = "attribution",
             .value = "on|off",
             .help = "whether to record PyTorch's history, to find what each peak is for and "
                     "which lines hold it",
             .usual = "on",
             .field = FIELD(attribution)},
            {.kind = OPTION_STRING,
             .name = "snapshots",
             .value = "DIR",
             .help = "folder in which to keep PyTorch's history, as snapshots for `reveille "
                     "snapshot`: DIR/PROCESS.N.pickle",
             .usual = "it is deleted after the run",
             .expected = "a folder",
             .field = FIELD(snapshots)},
            {.kind = OPTION_FLAG,
             .name = "advise",
             .help = "replay PyTorch's history with other settings of its allocator, and with "
                     "gradient checkpointing of lines that hold activations, to find what each "
                     "saves",
             .usual = "only if the command ran out of memory",
             .field = FIELD(advise)},
            {.kind = OPTION_FLAG,
             .name = "no-gpu-ok",
             .help = "accept a command that uses no GPU",
             .usual = "exit status 2",
             .field = FIELD(no_gpu_ok)},
            OPTION_OF_EACH_STAGE(FIELD(view.each_stage)),
            OPTION_OF_JSON(FIELD(view.json)),
            OPTION_OF_MARKDOWN(FIELD(view.markdown)),
            OPTION_OF_COLOR,
            {.kind = OPTION_CALL,
             .name = "progress",
             .value = "auto|always|never",
             .optional = true,
             .set = progress_set,
             .usual = "auto: on a terminal, after two seconds",
             .help = "show a line for each device at the bottom of stderr's terminal; without a "
                     "value: always, every ten seconds if stderr is not a terminal"},
            {.kind = OPTION_END},
        },
    .exits =
        (const text_entry[]){{"N", "that of COMMAND; 128 plus the signal's number if a signal "
                                   "ended it"},
                             {"3", "COMMAND succeeded, but a stage is over its budget, or "
                                   "a request was refused and `--no-refusals` is given, or a rank "
                                   "waited for one that left or never came"},
                             {"2", "bad usage, the command cannot be run, or it succeeded "
                                   "without using CUDA (see --no-gpu-ok) or without a stage "
                                   "that a budget names"},
                             {"1", "an internal failure"},
                             {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille run python train.py", "A program on one simulated H200."},
            {"reveille run --device h100-80g --gpus 8 -o run.rvt -- torchrun --nproc-per-node 8 "
             "train.py",
             "Run eight processes on eight GPUs, and keep the trace."},
            {"reveille run --rank 3 --world 64 python train.py",
             "One rank of a job of 64, on one GPU."},
            {"reveille run --budget run=60GiB -- ./engine", "A bound, for CI."},
            {NULL, NULL}},
    .environment =
        (const text_entry[]){
            {"LD_AUDIT", "Libraries that it names stay, before ours, which leads the names of "
                         "CUDA's libraries to simulated ones."},
            {"GLIBC_TUNABLES", "Gets room for thread-local memory of preloaded libraries, unless "
                               "it has `glibc.rtld.optional_static_tls`."},
            {"PYTHONPATH", "Our folder comes first: its sitecustomize.py computes small tensors "
                           "of PyTorch for real. It also runs the sitecustomize.py that it hides."},
            {"CUDA_VISIBLE_DEVICES", "Is removed, because it names the real GPUs. The command can "
                                     "set it for its processes: it then names simulated GPUs."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-record(1), reveille-replay(1), reveille-devices(1); "
                "docs/run.md in the sources",
    .command_follows = true,
};

/* ---- Arguments ---- */

static int set_keep(const command_spec *command, const option_spec *option, char *value, void *user)
{
    arguments *parsed = user;
    parsed->what.keep_bytes = 0;
    if (strcmp(value, "0") != 0 && rvl_size_parse(value, &parsed->what.keep_bytes) != RVL_OK)
        return options_refuse(command, "--%s %s: expected %s", option->name, value,
                              option->expected);
    return 0;
}

/* ---- The result ---- */

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

static bool has_stage(const rvl_replay *replay, const char *mark)
{
    for (size_t device = 0; device < rvl_replay_device_count(replay); device++) {
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        for (uint32_t i = 0; rvl_replay_get_stage(replay, device, i, &stage, NULL) == RVL_OK; i++)
            if (strcmp(stage.mark, mark) == 0)
                return true;
    }
    return false;
}

static rvl_status replay_with(const char *trace, const option_budgets *budgets,
                              const option_headroom *headroom, rvl_replay **replay_out)
{
    rvl_replay_options options = {.struct_size = sizeof options,
                                  .budgets = budgets->list,
                                  .budget_count = budgets->count,
                                  .budget_size = sizeof *budgets->list};
    verdict_ask(headroom, &options);
    return rvl_replay_run(&trace, 1, &options, replay_out);
}

/*
 * Replays with only those budgets that name a stage of the run. The run is over and cannot be
 * repeated, so its result is shown in spite of a wrong budget.
 */
static rvl_status replay_without_unknown(const char *trace, option_budgets *budgets,
                                         const option_headroom *headroom, rvl_replay **replay_out)
{
    rvl_replay *all = NULL;
    rvl_status status = replay_with(trace, &(option_budgets){0}, headroom, &all);
    if (status != RVL_OK)
        return status;
    size_t known = 0;
    for (size_t i = 0; i < budgets->count; i++)
        if (has_stage(all, budgets->list[i].stage))
            budgets->list[known++] = budgets->list[i];
    budgets->count = known;
    rvl_replay_close(all);
    return replay_with(trace, budgets, headroom, replay_out);
}

/* ---- Additions to the replay's result ---- */

static bool print_more(const void *user, const rvl_replay *replay)
{
    const arguments *parsed = user;
    engines_print(&parsed->engines);
    return history_print(&parsed->history, replay) && advice_print(&parsed->advice);
}

static bool write_more(FILE *out, const void *user, const rvl_replay *replay)
{
    const arguments *parsed = user;
    return history_write_json(out, &parsed->history, replay) &&
           advice_write_json(out, &parsed->advice) && engines_write_json(out, &parsed->engines) &&
           lengths_write_json(out, &parsed->rule, &parsed->lengths);
}

static void mark_more(FILE *out, const void *user)
{
    const arguments *parsed = user;
    engines_write_markdown(out, &parsed->engines);
}

static bool find_advice(arguments *parsed, const rvl_replay *replay)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    bool refused = rvl_replay_get_verdict(replay, &verdict) == RVL_OK &&
                   verdict.kind == RVL_VERDICT_OUT_OF_MEMORY;
    if (parsed->history.folder[0] == '\0' || !(refused || parsed->advise))
        return true;
    return advice_find(parsed->history.folder, refused, &parsed->advice);
}

/* Shows the result of the run from its trace. Returns the exit status. */
static int show(arguments *parsed, const char *trace)
{
    rvl_replay *replay = NULL;
    int unknown = 0;
    rvl_status status = replay_with(trace, &parsed->budgets, &parsed->headroom, &replay);
    if (status == RVL_ERR_INVALID && parsed->budgets.count > 0) {
        unknown = explain_replay(status);
        status = replay_without_unknown(trace, &parsed->budgets, &parsed->headroom, &replay);
    }
    if (status != RVL_OK)
        return explain_replay(status);
    const rvl_trace_progress progress = {.struct_size = sizeof progress};
    const replay_more more = {
        .print = print_more, .write_json = write_more, .write_markdown = mark_more, .user = parsed};
    int shown = find_advice(parsed, replay) ? replay_show(replay, &progress, &parsed->view, &more)
                                            : complain(EXIT_INTERNAL, "out of host memory");
    advice_clear(&parsed->advice);
    bool refused = parsed->no_refusals && verdict_has_refusals(replay);
    int code = within_budgets(replay) && !refused && !verdict_is_of_failure(replay)
                   ? EXIT_FITS
                   : EXIT_DOES_NOT_FIT;
    rvl_replay_close(replay);
    if (shown != 0)
        return shown;
    return unknown != 0 ? unknown : code;
}

/* ---- Running ---- */

/* Prints messages about how the command ran. Returns its exit status, or EXIT_BAD_INPUT if it
 * succeeded but used no GPU, or if the run is incomplete. */
static int tell(const arguments *parsed, const simulation_end *end)
{
    int code = record_exit_status(end->status);
    unknown_tell(&end->unknown, "");
    assumed_tell(&end->assumed, "");
    lengths_tell(&parsed->rule, &end->lengths, "--response-lengths ");
    simulate_tell_pool(&end->pool, "");
    simulate_tell_host(&parsed->what, &end->host);
    simulate_tell_strays(&end->strays, "");
    simulate_tell_races(&end->races, "");
    bool incomplete = simulate_tell_turned_away(end);
    bool unused = !parsed->no_gpu_ok && !incomplete && simulate_tell_unused(end);
    return code == 0 && (unused || incomplete) ? EXIT_BAD_INPUT : code;
}

/* Complains if the trace file was replaced, as by another run. This run still reads its own file.
 */
static void tell_replaced(const rvli_output *kept, const char *path)
{
    struct stat own, there;
    if (fstat(kept->fd, &own) == 0 &&
        (stat(path, &there) != 0 || own.st_dev != there.st_dev || own.st_ino != there.st_ino))
        complain(0,
                 "%s was replaced or removed while this ran, so its trace is lost: name another "
                 "file for each run",
                 path);
}

static int run_and_show(arguments *parsed, const char *library, const char *trace,
                        rvli_output *kept)
{
    simulation_end end;
    rvli_machine_watch watch;
    int code =
        simulate(&parsed->what, library, trace, kept, live_begin(&watch) ? &watch : NULL, &end);
    live_end();
    parsed->history.times = end.times;
    parsed->engines = end.engines;
    parsed->lengths = end.lengths;
    if (!end.ran)
        return code;
    int told = tell(parsed, &end);
    if (kept != NULL)
        tell_replaced(kept, parsed->output);
    if (code != 0)
        return code;
    int shown = show(parsed, trace);
    if (kept != NULL)
        output_tell(parsed->output, "reveille report %s -o run.html");
    return told != 0 ? told : shown;
}

static int run_into(arguments *parsed, const char *library, const char *trace, rvli_output *kept)
{
    bool off = parsed->attribution != NULL && strcmp(parsed->attribution, "off") == 0;
    int status = off ? 0 : history_begin(parsed->snapshots, &parsed->history);
    if (status != 0)
        return status;
    if (parsed->history.folder[0] != '\0')
        parsed->what.history = parsed->history.folder;
    status = run_and_show(parsed, library, trace, kept);
    history_end(&parsed->history);
    return status;
}

/* Whether the written trace can be read for the table: not from a pipe or a terminal. */
static bool is_readable_again(const rvli_output *kept)
{
    struct stat facts;
    return fstat(kept->fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

static int run_kept(arguments *parsed, const char *library)
{
    rvli_output kept;
    char trace[RVLI_OUTPUT_PATH_BYTES];
    if (rvli_output_open(parsed->output, RVLI_OUTPUT_CHOSEN, &kept) != RVL_OK)
        return complain(EXIT_BAD_INPUT, "%s", rvli_error_get()->message);
    rvli_output_path(&kept, trace);
    int status = is_readable_again(&kept)
                     ? run_into(parsed, library, trace, &kept)
                     : complain(EXIT_BAD_INPUT,
                                "-o %s: the table is made of the trace, which cannot be read again "
                                "from there: name a file, or leave -o out",
                                parsed->output);
    rvli_output_close(&kept);
    return status;
}

/* Without -o, the trace is a file without a name, which ends with this process. */
static int run(arguments *parsed)
{
    char library[PATH_MAX] = "", path[PATH_MAX], unnamed[SIMULATE_TRACE_BYTES];
    char **words = parsed->what.command.words;
    if (!simulate_find_library(library) || !record_find_command(words[0], path))
        return EXIT_BAD_INPUT;
    parsed->what.command.path = path;
    if (parsed->output != NULL)
        return record_good_output(parsed->output, path, words) ? run_kept(parsed, library)
                                                               : EXIT_BAD_INPUT;
    int file = simulate_trace(unnamed);
    if (file < 0)
        return EXIT_INTERNAL;
    int status = run_into(parsed, library, unnamed, NULL);
    close(file);
    return status;
}

static int check_rank(const arguments *parsed, const option_line *line)
{
    if (options_given(&run_spec, line, "rank") && parsed->what.world == 0)
        return options_refuse(&run_spec, "--rank: of how many? Add --world");
    if (parsed->what.world > 0 && parsed->what.rank >= parsed->what.world)
        return options_refuse(
            &run_spec, "--rank %" PRIu32 ": --world %" PRIu32 " has ranks from 0 to %" PRIu32,
            parsed->what.rank, parsed->what.world, parsed->what.world - 1);
    return 0;
}

static int check(const arguments *parsed, const option_line *line, char **words)
{
    int status = check_rank(parsed, line);
    if (status != 0)
        return status;
    if (options_given(&run_spec, line, "response-seed") && parsed->what.responses == NULL)
        return options_refuse(&run_spec,
                              "--response-seed: of which lengths? Add --response-lengths");
    if (words[0] == NULL)
        return options_refuse(&run_spec, "run: name the command to run");
    if (parsed->what.keep_host_bytes > 0 && parsed->what.keep_host_bytes < KEEP_HOST_LEAST)
        return options_refuse(&run_spec,
                              "--keep-host: smaller tensors than 1MiB always keep their content: "
                              "name a size of 1MiB or more");
    if (parsed->snapshots != NULL && parsed->attribution != NULL &&
        strcmp(parsed->attribution, "off") == 0)
        return options_refuse(&run_spec, "--snapshots: not with --attribution=off, which follows "
                                         "no history: leave one of them out");
    if (parsed->advise && parsed->attribution != NULL && strcmp(parsed->attribution, "off") == 0)
        return options_refuse(&run_spec, "--advise: not with --attribution=off, which follows no "
                                         "history: leave one of them out");
    if (parsed->what.nvtx != NULL && !record_good_injection())
        return EXIT_BAD_INPUT;
    status = documents_check(&run_spec, &parsed->view.json, &parsed->view.markdown);
    if (status != 0)
        return status;
    const output_name outputs[] = {{"-o", parsed->output},
                                   {"--json", parsed->view.json.path},
                                   {"--markdown", parsed->view.markdown.path}};
    status = outputs_check_each_other(outputs, sizeof outputs / sizeof *outputs);
    return status == 0 && parsed->output != NULL
               ? options_check_trace(&run_spec, parsed->output, "rvt")
               : status;
}

static int read_lengths(arguments *parsed)
{
    char why[LENGTHS_WHY_BYTES];
    if (!lengths_read(&parsed->rule, why))
        return options_refuse(&run_spec, "--response-lengths %s", why);
    parsed->what.responses = parsed->rule.text[0] != '\0' ? parsed->rule.text : NULL;
    return 0;
}

int command_run(int argc, char **argv)
{
    arguments parsed = {.what = {.device = SIMULATE_DEVICE_USUAL,
                                 .gpus = 1,
                                 .keep_bytes = RVLI_WIRE_KEEP_USUAL,
                                 .command = {.output = -1}}};
    option_line line;
    if (!options_make_budgets(argc, &parsed.budgets))
        return complain(EXIT_INTERNAL, "out of host memory");
    int status;
    if (!options_parse(&run_spec, argc, argv, &parsed, &line)) {
        status = line.status;
    } else {
        parsed.what.command.words = argv + line.first;
        status = read_lengths(&parsed);
        if (status == 0)
            status = check(&parsed, &line, argv + line.first);
        if (status == 0)
            status = run(&parsed);
    }
    free(parsed.budgets.list);
    return status;
}
