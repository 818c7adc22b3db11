/* SPDX-License-Identifier: MIT */
/*
 * Runs a check's command on simulated GPUs, as `reveille run` does. Keeps the command's output, and
 * shows its last lines if the check has no stages.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check/check.h"
#include "interrupt.h"
#include "record/record.h"
#include "unknown.h"

#define LOOK_MS 100
#define SAID_BYTES 4000
#define SAID_LINES 20

/* ---- Timeout ---- */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool go_on(void *user, rvli_machine *machine)
{
    const double *end_s = user;
    (void)machine;
    return !interrupt_came() && (*end_s == 0 || now_s() < *end_s);
}

/* ---- Output ---- */

/* Returns the last lines of a file. The caller frees them. NULL: there are none, or no memory. */
static char *read_end(FILE *file)
{
    char text[SAID_BYTES + 1];
    size_t lines = 0;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    long from = size > SAID_BYTES ? size - SAID_BYTES : 0;
    if (size <= 0 || fseek(file, from, SEEK_SET) != 0)
        return NULL;
    size_t length = fread(text, 1, SAID_BYTES, file);
    while (length > 0 && text[length - 1] == '\n')
        length--;
    text[length] = '\0';
    char *at = text + length;
    while (at > text && (at[-1] != '\n' || ++lines < SAID_LINES))
        at--;
    if (from > 0 && at == text) { /* the first line is cut off: skip it */
        const char *next = strchr(text, '\n');
        at = next != NULL ? text + (next - text) + 1 : text;
    }
    return length > 0 ? strdup(at) : NULL;
}

/* ---- Result ---- */

static void add(check_refusal *why, const char *text)
{
    size_t length = strlen(why->text);
    snprintf(why->text + length, sizeof why->text - length, "%s%s", length > 0 ? "; " : "", text);
}

/* Judges the end of the command. Complaints are appended to the reason (complain_into()). */
static void judge(const check_item *item, const simulation_end *end, check_refusal *why)
{
    char text[128];
    why->verdict = CHECK_OK;
    if (interrupt_came() && (end->stopped || end->status != 0)) {
        why->verdict = CHECK_BROKEN;
        why->cut = true;
        add(why, "interrupted");
    } else if (end->stopped) {
        why->verdict = CHECK_BROKEN;
        snprintf(text, sizeof text,
                 "no verdict: the command did not end within %g s, and was killed: see what it "
                 "waits for, or "
                 "raise \"timeout\"",
                 item->timeout_s);
        add(why, text);
    } else if (end->status != 0) {
        why->ended = true;
        why->verdict = CHECK_BROKEN; /* explain_end() adds the trace's verdict */
    } else if (simulate_tell_turned_away(end) || simulate_tell_unused(end)) {
        why->ended = true;
        why->verdict = CHECK_BROKEN;
    }
}

/* Prints how a command that succeeded may behave differently on a card. */
static void tell(const check_item *item, const char *device, const simulation_end *end)
{
    char who[CHECK_TEXT_BYTES];
    snprintf(who, sizeof who, "check %s on %s: ", item->name, device);
    unknown_tell(&end->unknown, who);
    simulate_tell_pool(&end->pool, who);
    simulate_tell_strays(&end->strays, who);
    simulate_tell_races(&end->races, who);
    snprintf(who, sizeof who, "check %s on %s: \"response_lengths\" ", item->name, device);
    lengths_tell(&item->responses, &end->lengths, who);
}

/* ---- Running ---- */

/* Makes a path absolute, because the command runs in another folder. false: has complained. */
static bool make_whole(char path[PATH_MAX])
{
    char here[PATH_MAX], whole[PATH_MAX];
    if (path[0] == '/')
        return true;
    if (getcwd(here, sizeof here) == NULL ||
        snprintf(whole, sizeof whole, "%s/%s", here, path) >= (int)sizeof whole) {
        complain(0, "%s: too long a path", path);
        return false;
    }
    memcpy(path, whole, sizeof whole);
    return true;
}

static int run_command(const check_item *item, const char *device, const char *trace, int output,
                       simulation_end *end)
{
    char library[PATH_MAX] = "", path[PATH_MAX];
    simulation what = item->simulated;
    double end_s = item->timeout_s > 0 ? now_s() + item->timeout_s : 0;
    const rvli_machine_watch watch = {.period_ms = LOOK_MS, .look = go_on, .user = &end_s};
    if (!simulate_find_library(library) || !record_find_command(item->program, path) ||
        !make_whole(path) || (what.nvtx != NULL && !record_good_injection()))
        return EXIT_BAD_INPUT;
    what.device = device;
    what.command.path = path;
    what.command.words = (char **)(uintptr_t)item->words;
    what.command.output = output;
    return simulate(&what, library, trace, NULL, &watch, end);
}

int check_simulate(const check_item *item, const char *device, const char *trace,
                   check_refusal *why, rvli_machine_engines *engines_out)
{
    simulation_end end = {0};
    FILE *output = tmpfile();
    if (output == NULL)
        return complain(EXIT_INTERNAL, "no file for the command's output: %s", strerror(errno));
    complain_into(why->text, sizeof why->text);
    int code = run_command(item, device, trace, fileno(output), &end);
    if (code == 0)
        judge(item, &end, why);
    else
        why->verdict = CHECK_BROKEN;
    complain_into(NULL, 0);
    *engines_out = end.engines;
    if (why->verdict == CHECK_OK)
        tell(item, device, &end);
    else if (!why->cut)
        why->said = read_end(output);
    fclose(output);
    return code == EXIT_INTERNAL ? complain(code, "%s", why->text) : 0;
}
