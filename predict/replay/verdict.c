/* SPDX-License-Identifier: MIT */
/*
 * The verdict: one sentence about what happened.
 *
 * It is decided in this order: memory that did not fit, either on the replay's own devices or in
 * the recorded program; a command that failed; a recording that is cut off; no use of a GPU;
 * refusals that were survived; and then the remaining memory, compared with the headroom.
 */
#include "reveille/verdict.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "predict/replay/replay_internal.h"

/* ---- Outcomes of refusals ---- */

static void count_refusal(rvli_outcome *outcome, const rvli_refusal *refusal)
{
    outcome->refused++;
    if (outcome->first.number == 0 || refusal->number < outcome->first.number)
        outcome->first = *refusal;
}

static int place_of(const rvl_trace_event *event)
{
    return event->device == RVL_TRACE_HOST ? RVL_NO_DEVICE : (int)event->device;
}

/* Returns the open stage of the process, or, if it has none, the one that began last. */
static uint32_t stage_of(const rvl_replay *replay, const rvl_trace_event *event)
{
    const rvli_stages *stages = &replay->stages;
    uint32_t own = rvli_replay_stages_current(replay, event->process_index);
    return own == 0 && stages->open_count > 0 ? stages->open[stages->open_count - 1] : own;
}

static void note_refusal(rvl_replay *replay, rvli_refusal_open *process,
                         const rvl_trace_event *event)
{
    rvli_outcome *outcome = &replay->outcome;
    uint32_t index = stage_of(replay, event);
    const rvli_stage_of_process *stage = &replay->stages.list[index];
    const rvli_refusal *last = &process->last;
    int device = place_of(event);
    bool by_allocator = event->flags & RVL_REFUSE_BY_ALLOCATOR;
    /* An allocator refuses at the end of its tries, which the driver has refused before. */
    bool again = process->open && last->device == device && !last->by_allocator &&
                 (by_allocator || last->requested_bytes == event->bytes);
    if (process->open && !again)
        count_refusal(outcome, last);
    process->last = (rvli_refusal){.number = again ? last->number : outcome->events,
                                   .process = event->process,
                                   .tag = event->tag != NULL ? event->tag
                                          : again            ? last->tag
                                                             : NULL,
                                   .where = event->name,
                                   .requested_bytes = event->bytes,
                                   .free_bytes = event->free_bytes,
                                   .stage = stage->mark,
                                   .stage_number = stage->number,
                                   .stage_index = index,
                                   .device = device,
                                   .by_allocator = by_allocator,
                                   .file = event->file,
                                   .line = event->line};
    process->open = true;
}

/* Notes a deadly refusal. The verdict names the first one. */
static void note_deadly(rvli_outcome *outcome, rvli_refusal_open *process)
{
    if (outcome->deadly.number == 0 || process->last.number < outcome->deadly.number)
        outcome->deadly = process->last;
}

static void note_failure(rvl_replay *replay, rvli_refusal_open *process,
                         const rvl_trace_event *event)
{
    rvli_outcome *outcome = &replay->outcome;
    const rvli_stage_of_process *stage = &replay->stages.list[stage_of(replay, event)];
    const rvli_failure failure = {.process = event->process,
                                  .how = event->name,
                                  .stage = stage->mark,
                                  .stage_number = stage->number};
    if (outcome->failure.process == NULL)
        outcome->failure = failure;
    if (outcome->reason.process == NULL && failure.how != NULL)
        outcome->reason = failure;
    if (!process->open || failure.how == NULL)
        return;
    process->last.how = failure.how;
    process->open = false;
    count_refusal(outcome, &process->last);
    if (outcome->replaced)
        outcome->deadly = (rvli_refusal){0};
    outcome->replaced = false;
    outcome->successor_from = outcome->process_count;
    note_deadly(outcome, process);
}

static void note_successor(rvli_outcome *outcome, const rvl_trace_event *event)
{
    if (event->process_index >= outcome->process_count)
        outcome->process_count = event->process_index + 1;
    if (event->kind == RVL_EVENT_ALLOC && outcome->deadly.number != 0 &&
        event->process_index >= outcome->successor_from)
        outcome->replaced = true;
}

static bool ended_well(const rvli_outcome *outcome)
{
    return outcome->ended && !outcome->by_signal && outcome->exit_status == 0;
}

/*
 * Whether a refusal ended the program. A program that restarts a process, or asks for less in
 * another one, survives if it ends well.
 */
static bool was_deadly(const rvli_outcome *outcome)
{
    return outcome->deadly.number != 0 && !(outcome->replaced && ended_well(outcome));
}

static void note_grant(rvli_outcome *outcome, rvli_refusal_open *process,
                       const rvl_trace_event *event)
{
    const rvli_refusal *last = &process->last;
    if (!process->open)
        return;
    if (!last->by_allocator && last->device == place_of(event) &&
        event->bytes >= last->requested_bytes)
        outcome->cured++;
    else
        count_refusal(outcome, last);
    process->open = false;
}

/* A program that marks a stage has survived the refusal. */
static void note_mark(rvli_outcome *outcome, rvli_refusal_open *process)
{
    if (process->open)
        count_refusal(outcome, &process->last);
    process->open = false;
}

static void note_program(rvli_outcome *outcome, const rvl_trace_event *event)
{
    if (!(event->process_flags & RVL_PROCESS_RAN))
        return;
    outcome->ran = true;
    if (!(event->process_flags & RVL_PROCESS_RECORDS_REFUSALS))
        outcome->unrecorded = true;
}

void rvli_outcome_note(rvl_replay *replay, rvli_refusal_open *process, const rvl_trace_event *event)
{
    rvli_outcome *outcome = &replay->outcome;
    outcome->events++;
    note_program(outcome, event);
    note_successor(outcome, event);
    switch (event->kind) {
    case RVL_EVENT_REFUSE:
        note_refusal(replay, process, event);
        break;
    case RVL_EVENT_ALLOC:
        outcome->used = true;
        note_grant(outcome, process, event);
        break;
    case RVL_EVENT_EXTERNAL:
        outcome->used = outcome->used || event->bytes > 0;
        break;
    case RVL_EVENT_STAGE:
    case RVL_EVENT_ENTER:
    case RVL_EVENT_STEP:
    case RVL_EVENT_PAUSE:
    case RVL_EVENT_RESUME:
        note_mark(outcome, process);
        break;
    case RVL_EVENT_FAIL:
        note_failure(replay, process, event);
        break;
    case RVL_EVENT_ENDED:
        outcome->ended = true;
        outcome->by_signal = event->flags & RVL_ENDED_BY_SIGNAL;
        outcome->exit_status = event->exit_status;
        outcome->missed = event->bytes;
        outcome->waits = event->name;
        break;
    default:
        break;
    }
}

void rvli_outcome_end(rvli_outcome *outcome, rvli_refusal_open *process)
{
    if (!process->open)
        return;
    count_refusal(outcome, &process->last);
    if (!ended_well(outcome))
        note_deadly(outcome, process);
    process->open = false;
}

/* ---- Sentences ---- */

typedef struct sentence {
    char *text;
    size_t size;
    size_t length;
} sentence;

static void say(sentence *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(sentence *said, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(said->text + said->length, said->size - said->length, format, arguments);
    va_end(arguments);
    if (length > 0)
        said->length += (size_t)length;
    if (said->length >= said->size)
        said->length = said->size - 1;
}

static void say_bytes(sentence *said, uint64_t bytes)
{
    char room[32];
    rvli_text text = rvli_text_begin(room, sizeof room);
    rvli_text_add_bytes(&text, bytes);
    say(said, "%s", room);
}

/*
 * Returns the name of a signal that ends commands, such as "KILL"; NULL: any other. sigabbrev_np()
 * is newer than the glibc of the wheel.
 */
static const char *signal_name(uint32_t number)
{
    static const char *const names[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",   [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
        [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT", [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
        [SIGKILL] = "KILL", [SIGUSR1] = "USR1", [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM", [SIGXCPU] = "XCPU",
        [SIGXFSZ] = "XFSZ", [SIGSYS] = "SYS",
    };
    return number < sizeof names / sizeof names[0] ? names[number] : NULL;
}

/* A shell exits with 128 plus the number of the signal that ended its last command. */
static void say_end(sentence *said, const rvl_verdict *verdict)
{
    uint32_t status = verdict->exit_status;
    const char *name = signal_name(verdict->by_signal ? status : status - 128);
    if (verdict->by_signal)
        say(said, "was killed by signal %" PRIu32, status);
    else
        say(said, "failed with exit status %" PRIu32, status);
    if (name != NULL && (verdict->by_signal || status > 128))
        say(said, verdict->by_signal ? " (SIG%s)" : " (128 + SIG%s)", name);
}

static void say_stage(sentence *said, const char *stage, uint32_t number)
{
    if (stage != NULL)
        say(said, ", in %s", stage);
    if (number > 1)
        say(said, "#%" PRIu32, number);
}

/*
 * A process that did not say how it failed may have been killed on purpose. Then the first process
 * that gave a reason is named too.
 */
static void say_failures(sentence *said, const rvli_outcome *outcome)
{
    const rvli_failure *first = &outcome->failure, *reason = &outcome->reason;
    if (first->process == NULL)
        return;
    say(said, "; %s failed first", first->process);
    say_stage(said, first->stage, first->stage_number);
    say(said, ": %s", first->how != NULL ? first->how : "killed, crashed, or left by _exit()");
    if (first->how == NULL && reason->process != NULL) {
        say(said, "; then %s", reason->process);
        say_stage(said, reason->stage, reason->stage_number);
        say(said, ": %s", reason->how);
    }
}

static void say_request(sentence *said, const rvl_verdict *verdict)
{
    say(said, "%s%s%s asked for ", verdict->process != NULL ? verdict->process : "?",
        verdict->tag != NULL ? "/" : "", verdict->tag != NULL ? verdict->tag : "");
    say_bytes(said, verdict->requested_bytes);
    if (verdict->device == RVL_NO_DEVICE)
        say(said, " of host memory with ");
    else
        say(said, " of device %d with ", verdict->device);
    say_bytes(said, verdict->free_bytes);
    say(said, " free");
    say_stage(said, verdict->stage, verdict->stage_number);
    if (verdict->where != NULL)
        say(said, ", at %s", verdict->where);
    if (verdict->free_bytes >= verdict->requested_bytes)
        say(said, ": refused by a limit of its own");
}

static void say_room(sentence *said, const rvl_verdict *verdict)
{
    say(said, "with ");
    say_bytes(said, verdict->spare_bytes);
    say(said, " to spare");
}

static void say_refusals(sentence *said, const rvl_verdict *verdict)
{
    say(said, "fits after %" PRIu64 " refusal%s that the program survived, ",
        verdict->refused_count, verdict->refused_count == 1 ? "" : "s");
    say_room(said, verdict);
    say(said, verdict->refused_count == 1 ? ": " : "; the first: ");
    say_request(said, verdict);
}

static bool ended_badly(const rvl_verdict *verdict)
{
    return verdict->ended && (verdict->by_signal || verdict->exit_status != 0);
}

static void say_out_of_memory(sentence *said, const rvl_verdict *verdict,
                              const rvli_refusal *deadly)
{
    say(said, "out of memory: ");
    say_request(said, verdict);
    if (deadly->number != 0 && ended_badly(verdict)) {
        say(said, "; the command ");
        say_end(said, verdict);
    } else if (deadly->how != NULL && verdict->ended) {
        say(said, "; the process failed (%s), and the command ended with exit status 0",
            deadly->how);
    }
}

static void say_failure(sentence *said, const rvl_verdict *verdict, const rvli_outcome *outcome)
{
    say(said, "no verdict: ");
    size_t before = said->length;
    if (outcome->other_device && was_deadly(outcome))
        say(said, "the command ran out of memory where it was recorded, and did not go on");
    else if (outcome->missed > 0)
        say(said, "the command had %" PRIu64 " process%s that found no simulated GPU",
            outcome->missed, outcome->missed == 1 ? "" : "es");
    else if (ended_badly(verdict)) {
        say(said, "the command ");
        say_end(said, verdict);
        say_failures(said, outcome);
    }
    if (outcome->waits != NULL)
        say(said, "%s%s", said->length > before ? "; " : "", outcome->waits);
}

static void write_text(const rvli_outcome *outcome, rvl_verdict *verdict)
{
    sentence said = {.text = verdict->text, .size = sizeof verdict->text};
    verdict->text[0] = '\0';
    switch (verdict->kind) {
    case RVL_VERDICT_FITS:
        say(&said, "fits, ");
        say_room(&said, verdict);
        break;
    case RVL_VERDICT_TIGHT:
        say(&said, "tight: ");
        say_bytes(&said, verdict->spare_bytes);
        say(&said, " to spare on device %d, less than the headroom of ", verdict->device);
        say_bytes(&said, verdict->headroom_bytes);
        break;
    case RVL_VERDICT_SURVIVED:
        say_refusals(&said, verdict);
        break;
    case RVL_VERDICT_OUT_OF_MEMORY:
        say_out_of_memory(&said, verdict, &outcome->deadly);
        break;
    case RVL_VERDICT_UNRECORDED:
        say(&said, "no refusals recorded: what was allocated fits, ");
        say_room(&said, verdict);
        break;
    case RVL_VERDICT_CUT_OFF:
        say(&said, "no verdict: a recording breaks off; what is in it fits, ");
        say_room(&said, verdict);
        break;
    case RVL_VERDICT_FAILED:
        say_failure(&said, verdict, outcome);
        break;
    default:
        say(&said, "no verdict: it used no GPU");
        break;
    }
}

/* ---- Memory left ---- */

static uint64_t headroom_of(const rvli_headroom *headroom, uint64_t capacity_bytes)
{
    return headroom->percent < 0 ? headroom->bytes
                                 : (uint64_t)((double)capacity_bytes / 100 * headroom->percent);
}

rvl_status rvli_headroom_read(const rvl_replay_options *options, rvli_headroom *headroom_out)
{
    bool bytes = options->flags & RVL_REPLAY_HEADROOM_BYTES;
    bool percent = options->flags & RVL_REPLAY_HEADROOM_PERCENT;
    if ((bytes && percent) || !(options->headroom_percent >= 0 && options->headroom_percent <= 100))
        return rvli_error(RVL_ERR_INVALID, "a headroom is a size, or 0 to 100 percent");
    *headroom_out = (rvli_headroom){.bytes = options->headroom_bytes,
                                    .percent = bytes     ? -1
                                               : percent ? options->headroom_percent
                                                         : RVL_HEADROOM_USUAL_PERCENT};
    return RVL_OK;
}

/* Finds the device with the least memory left at its peak beyond the headroom. */
static void find_room(const rvl_replay *replay, rvl_verdict *verdict)
{
    int64_t least = INT64_MAX;
    verdict->device = RVL_NO_DEVICE;
    for (int i = 0; i < replay->device_count; i++) {
        const rvl_device_stats *stats = &replay->devices[i].stats;
        uint64_t capacity = stats->capacity_bytes;
        uint64_t spare = capacity > stats->peak_bytes ? capacity - stats->peak_bytes : 0;
        uint64_t headroom = headroom_of(&replay->headroom, capacity);
        int64_t beyond = (int64_t)spare - (int64_t)headroom;
        if (beyond >= least)
            continue;
        least = beyond;
        verdict->device = replay->devices[i].trace_index;
        verdict->spare_bytes = spare;
        verdict->headroom_bytes = headroom;
    }
}

/* ---- Requests that did not fit ---- */

static void name_refusal(const rvli_refusal *refusal, rvl_verdict *verdict)
{
    if (refusal->number == 0)
        return;
    verdict->process = refusal->process;
    verdict->tag = refusal->tag;
    verdict->where = refusal->where;
    verdict->stage = refusal->stage;
    verdict->stage_number = refusal->stage_number;
    verdict->requested_bytes = refusal->requested_bytes;
    verdict->free_bytes = refusal->free_bytes;
}

/* Whether a device of the replay had no room. If so, the verdict names that request. */
static bool find_overcommit(const rvl_replay *replay, rvl_verdict *verdict)
{
    for (int i = 0; i < replay->device_count; i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        if (!replay->devices[i].overcommitted ||
            rvl_replay_get_device(replay, (size_t)i, &device) != RVL_OK)
            continue;
        verdict->device = device.device;
        verdict->process = device.oom_process;
        verdict->tag = device.oom_tag;
        verdict->requested_bytes = device.oom_requested_bytes;
        verdict->free_bytes = device.oom_free_bytes;
        if (rvl_replay_get_stage(replay, (size_t)i, device.oom_stage, &stage, NULL) == RVL_OK)
            verdict->stage = stage.name; /* includes its number */
        return true;
    }
    return false;
}

bool rvli_outcome_failed(const rvli_outcome *outcome)
{
    return was_deadly(outcome) || outcome->missed > 0 || outcome->waits != NULL ||
           (outcome->ended && (outcome->by_signal || outcome->exit_status != 0));
}

static rvl_verdict_kind decide(const rvl_replay *replay, rvl_verdict *verdict)
{
    const rvli_outcome *outcome = &replay->outcome;
    uint64_t spare_bytes = verdict->spare_bytes;
    if (find_overcommit(replay, verdict)) {
        verdict->spare_bytes = 0;
        return RVL_VERDICT_OUT_OF_MEMORY;
    }
    bool deadly = was_deadly(outcome);
    name_refusal(deadly ? &outcome->deadly : &outcome->first, verdict);
    if (deadly && !outcome->other_device) {
        verdict->device = outcome->deadly.device;
        verdict->spare_bytes = 0;
        return RVL_VERDICT_OUT_OF_MEMORY;
    }
    if (rvli_outcome_failed(outcome))
        return RVL_VERDICT_FAILED;
    if (outcome->cut_off)
        return RVL_VERDICT_CUT_OFF;
    if (outcome->ended && !outcome->used)
        return RVL_VERDICT_NO_GPU;
    if (outcome->refused > 0 && !outcome->other_device) {
        verdict->device = outcome->first.device;
        return RVL_VERDICT_SURVIVED;
    }
    if (outcome->unrecorded)
        return RVL_VERDICT_UNRECORDED;
    return spare_bytes < verdict->headroom_bytes ? RVL_VERDICT_TIGHT : RVL_VERDICT_FITS;
}

/* ---- The call ---- */

const char *rvl_verdict_keyword(rvl_verdict_kind kind)
{
    static const char *const keywords[] = {
#define KEYWORD(name, keyword) keyword,
        RVL_VERDICT_MAP(KEYWORD)
#undef KEYWORD
    };
    return (unsigned)kind < RVL_VERDICT_KIND_COUNT ? keywords[kind] : "?";
}

rvl_status rvl_replay_get_verdict(const rvl_replay *replay, rvl_verdict *verdict_out)
{
    if (replay == NULL || verdict_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or verdict_out is NULL");
    const rvli_outcome *outcome = &replay->outcome;
    rvl_verdict verdict = {.refused_count = outcome->refused,
                           .cured_count = outcome->cured,
                           .ended = outcome->ended,
                           .by_signal = outcome->by_signal,
                           .exit_status = outcome->exit_status,
                           .waits = outcome->waits};
    find_room(replay, &verdict);
    verdict.kind = decide(replay, &verdict);
    write_text(outcome, &verdict);
    return rvli_result_write(verdict_out, &verdict, sizeof verdict);
}
