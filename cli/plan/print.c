/* SPDX-License-Identifier: MIT */
/* Prints the result of a plan: as text, as JSON (schema 1, docs/plan.md) and as CSV. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "plan/plan.h"

#define HOLDERS_SHOWN 6
#define NUMBER_TEXT_BYTES 24

static const char *const state_words[] = {"", "yes", "tight", "no", "refused", "failed"};

/* Releases root. Returns 0 or the exit status. */
static int write_json(const plan_arguments *arguments, json_t *root)
{
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    int status = document_write_text(&arguments->json, text);
    free(text);
    json_decref(root);
    return status;
}

static int no_memory(void)
{
    return complain(EXIT_INTERNAL, "out of host memory");
}

static json_t *bytes_json(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *fraction_json(uint32_t ppm)
{
    return ppm > 0 ? json_real((double)ppm / 1e6) : json_null();
}

static const char *format_fraction(uint32_t ppm, char text[NUMBER_TEXT_BYTES])
{
    snprintf(text, NUMBER_TEXT_BYTES, "%u.%06u", ppm / 1000000, ppm % 1000000);
    return ppm > 0 ? text : "";
}

/* Returns the bytes that a case lacks to fit; 0: it fits. */
static uint64_t missing_bytes(const rvl_plan_result *result)
{
    return result->peak_bytes > result->capacity_bytes ? result->peak_bytes - result->capacity_bytes
                                                       : 0;
}

static const char *format_largest(const rvl_plan_result *result, char text[SIZE_TEXT_BYTES])
{
    if (result->largest_bytes == UINT64_MAX)
        return "any";
    return format_size(result->largest_bytes, text);
}

/* Formats the free bytes in the stage that binds, or, after a minus, the missing ones. */
static const char *format_room(const rvl_plan_result *result, char text[SIZE_TEXT_BYTES + 1])
{
    uint64_t missing = missing_bytes(result);
    text[0] = '-';
    if (missing > 0)
        format_size(missing, text + 1);
    else
        format_size(result->capacity_bytes - result->peak_bytes, text);
    return text;
}

/* Prints the largest doubts of all cases. devices: include doubts about capacities. */
static void print_doubts(const rvl_plan_result *results, size_t count, bool devices)
{
    uint64_t capacity = 0, assumed = 0;
    char size[SIZE_TEXT_BYTES];
    for (size_t i = 0; i < count; i++) {
        if (devices && results[i].capacity_doubt_bytes > capacity)
            capacity = results[i].capacity_doubt_bytes;
        if (results[i].assumed_bytes > assumed)
            assumed = results[i].assumed_bytes;
    }
    if (capacity > 0)
        printf("in doubt: programs may get up to %s less of a device\n",
               format_size(capacity, size));
    if (assumed > 0)
        printf("in doubt: up to %s of a step, as other programs had; `reveille model` names the "
               "terms\n",
               format_size(assumed, size));
}

/* ---- Largest size ---- */

/* Finds the stage that binds. false: there is none. */
static bool find_stage(const rvl_replay *replay, const rvl_plan_result *result, size_t *device_out,
                       uint32_t *stage_out)
{
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK || device.device != result->device)
            continue;
        for (uint32_t stage = 0; stage < device.stage_count; stage++) {
            rvl_stage_stats stats = {.struct_size = sizeof stats};
            if (rvl_replay_get_stage(replay, i, stage, &stats, NULL) == RVL_OK &&
                strncmp(stats.name, result->stage, RVL_PLAN_STAGE_BYTES - 1) == 0 &&
                stats.peak_bytes == result->peak_bytes) {
                *device_out = i;
                *stage_out = stage;
                return true;
            }
        }
    }
    return false;
}

/* Lists the largest holders of the stage that binds. Returns the number listed. *count_out receives
 * the number of all holders. */
static size_t holders_of(const rvl_replay *replay, const rvl_plan_result *result,
                         rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS], size_t *count_out)
{
    size_t device;
    uint32_t stage;
    *count_out = 0;
    if (!find_stage(replay, result, &device, &stage) ||
        rvl_replay_get_holders(replay, device, stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, count_out) != RVL_OK)
        return 0;
    return *count_out < RVL_REPLAY_LISTED_HOLDERS ? *count_out : RVL_REPLAY_LISTED_HOLDERS;
}

static void print_verdict(const plan_arguments *arguments, const rvl_plan_result *result)
{
    char size[SIZE_TEXT_BYTES], fraction[NUMBER_TEXT_BYTES];
    if (result->largest_bytes == UINT64_MAX)
        say("%s: any size fits: it is never in use\n", arguments->tag);
    else if (result->state == RVL_PLAN_FITS)
        say("%s: at most %s (%" PRIu64 " bytes)", arguments->tag,
            format_size(result->largest_bytes, size), result->largest_bytes);
    else
        say("%s: no size %s", arguments->tag,
            result->state == RVL_PLAN_TIGHT ? "leaves the headroom" : "fits");
    if (result->largest_bytes == UINT64_MAX)
        return;
    if (result->mem_fraction_ppm > 0)
        printf(", a mem_fraction of %s", format_fraction(result->mem_fraction_ppm, fraction));
    if (result->traced_bytes > 0)
        printf("; the %s %s", arguments->trace_count > 0 ? "trace has" : "settings give",
               format_size(result->traced_bytes, size));
    if (result->headroom_bytes > 0 && plan_is_in_bounds(result))
        printf("; the headroom is %s", format_size(result->headroom_bytes, size));
    puts("");
}

static void print_binding(const rvl_replay *replay, const rvl_plan_result *result)
{
    char peak[SIZE_TEXT_BYTES], capacity[SIZE_TEXT_BYTES], room[SIZE_TEXT_BYTES + 1];
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t count, listed = holders_of(replay, result, holders, &count);
    format_room(result, room);
    say("  binds  stage %s on device %d: %s of %s, %s %s", result->stage, result->device,
        format_size(result->peak_bytes, peak), format_size(result->capacity_bytes, capacity),
        room[0] == '-' ? room + 1 : room, room[0] == '-' ? "missing" : "free");
    if (result->capacity_doubt_bytes > 0)
        say(" (in doubt: programs may get %s less)",
            format_size(result->capacity_doubt_bytes, peak));
    puts("");
    for (size_t i = 0; i < listed && i < HOLDERS_SHOWN; i++)
        say("         %s/%s %s\n", holders[i].process,
            holders[i].tag != NULL ? holders[i].tag : "-", format_size(holders[i].bytes, peak));
    if (count > HOLDERS_SHOWN)
        printf("         and %zu more\n", count - HOLDERS_SHOWN);
    print_doubts(result, 1, false); /* the line of the stage has the device's doubt */
}

static json_t *binding_json(const rvl_replay *replay, const rvl_plan_result *result)
{
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t count, listed = holders_of(replay, result, holders, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < listed; i++)
        json_array_append_new(list,
                              json_pack("{s:s,s:s?,s:o}", "process", holders[i].process, "tag",
                                        holders[i].tag, "bytes", bytes_json(holders[i].bytes)));
    return json_pack("{s:i,s:s,s:o,s:o,s:o,s:o}", "device", result->device, "stage", result->stage,
                     "capacity_bytes", bytes_json(result->capacity_bytes), "peak_bytes",
                     bytes_json(result->peak_bytes), "missing_bytes",
                     bytes_json(missing_bytes(result)), "at_peak", list);
}

static json_t *largest_json(const rvl_plan_result *result)
{
    return result->state == RVL_PLAN_FITS && result->largest_bytes != UINT64_MAX
               ? bytes_json(result->largest_bytes)
               : json_null();
}

static json_t *verdict_json(const plan_arguments *arguments, const rvl_plan_result *result,
                            const rvl_replay *replay)
{
    return json_pack(
        "{s:i,s:s,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:s}", "schema", 1, "tag", arguments->tag, "fits",
        result->state == RVL_PLAN_FITS, "unbounded", result->largest_bytes == UINT64_MAX,
        "largest_bytes", largest_json(result), "headroom_bytes", bytes_json(result->headroom_bytes),
        "mem_fraction", fraction_json(result->mem_fraction_ppm), "traced_bytes",
        bytes_json(result->traced_bytes), "binding",
        replay != NULL ? binding_json(replay, result) : json_null(), "why", result->why);
}

static void print_largest(const plan_arguments *arguments, const rvl_plan_result *result,
                          const rvl_replay *replay)
{
    print_verdict(arguments, result);
    if (replay != NULL)
        print_binding(replay, result);
    else
        say("  %s\n", result->why);
}

int plan_print_largest(const plan_arguments *arguments, const rvl_plan_result *result,
                       const rvl_replay *replay)
{
    if (!document_is_printed(&arguments->json))
        print_largest(arguments, result, replay);
    return arguments->json.wanted ? write_json(arguments, verdict_json(arguments, result, replay))
                                  : 0;
}

/* ---- Ranks ---- */

static json_t *ranks_json(const plan_arguments *arguments, const rvl_plan_result *results,
                          size_t count, size_t binding, const rvl_replay *replay)
{
    json_t *root = verdict_json(arguments, &results[binding], replay), *ranks = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *rank = json_pack("{s:s,s:b,s:b,s:o,s:o,s:o}", "trace", arguments->traces[i], "fits",
                                 results[i].state == RVL_PLAN_FITS, "unbounded",
                                 results[i].largest_bytes == UINT64_MAX, "largest_bytes",
                                 largest_json(&results[i]), "mem_fraction",
                                 fraction_json(results[i].mem_fraction_ppm), "traced_bytes",
                                 bytes_json(results[i].traced_bytes));
        if (json_array_append_new(ranks, rank) != 0) {
            json_decref(ranks);
            json_decref(root);
            return NULL;
        }
    }
    json_object_set_new(root, "binding_rank", json_integer((json_int_t)binding));
    json_object_set_new(root, "ranks", ranks);
    return root;
}

static bool print_ranks(const plan_arguments *arguments, const rvl_plan_result *results,
                        size_t count, size_t binding, const rvl_replay *replay)
{
    static const char *const titles[] = {"rank", "trace", "largest", "traced", "fraction"};
    static const bool right[] = {true, false, true, true, true};
    table *rows = table_new(titles, right, 5);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        char number[NUMBER_TEXT_BYTES], largest[SIZE_TEXT_BYTES], traced[SIZE_TEXT_BYTES];
        char fraction[NUMBER_TEXT_BYTES];
        bool fits = results[i].state == RVL_PLAN_FITS;
        snprintf(number, sizeof number, "%zu", i);
        table_add(rows,
                  (const char *const[]){number, arguments->traces[i],
                                        fits ? format_largest(&results[i], largest) : "none",
                                        format_size(results[i].traced_bytes, traced),
                                        format_fraction(results[i].mem_fraction_ppm, fraction)});
    }
    bool printed = rows != NULL && table_print(rows, "  ");
    table_free(rows);
    if (!printed)
        return false;
    print_verdict(arguments, &results[binding]);
    say("  binds  rank %zu, %s\n", binding, arguments->traces[binding]);
    print_binding(replay, &results[binding]);
    return true;
}

int plan_print_ranks(const plan_arguments *arguments, const rvl_plan_result *results, size_t count,
                     size_t binding, const rvl_replay *replay)
{
    if (!document_is_printed(&arguments->json) &&
        !print_ranks(arguments, results, count, binding, replay))
        return no_memory();
    return arguments->json.wanted
               ? write_json(arguments, ranks_json(arguments, results, count, binding, replay))
               : 0;
}

/* ---- Sweep as a table ---- */

enum { FITS, GPUS, CAPACITY, PEAK, STAGE, ROOM, HOST, SECONDS, LARGEST, FRACTION, WHY, FIXED };

static const char *const fixed_titles[] = {"fits",    "GPUs",     "capacity", "peak",
                                           "stage",   "free",     "host",     "seconds",
                                           "largest", "fraction", ""};
static const bool fixed_right[] = {false, true, true, true, false, true,
                                   true,  true, true, true, false};

static bool is_shown(const plan_arguments *arguments, size_t axis)
{
    return arguments->axes[axis].count > 1;
}

static void fill_case(const plan_arguments *arguments, size_t number, const char **cells)
{
    size_t column = 0;
    for (size_t i = 0; i < arguments->axis_count; i++) {
        if (is_shown(arguments, i))
            cells[column++] = plan_value(arguments, number, i);
    }
}

static void add_row(table *rows, const plan_arguments *arguments, size_t number,
                    const rvl_plan_result *result, size_t shown)
{
    char gpus[NUMBER_TEXT_BYTES], capacity[SIZE_TEXT_BYTES], peak[SIZE_TEXT_BYTES];
    char room[SIZE_TEXT_BYTES + 1], host[SIZE_TEXT_BYTES], seconds[NUMBER_TEXT_BYTES];
    char largest[SIZE_TEXT_BYTES], fraction[NUMBER_TEXT_BYTES];
    const char *cells[PLAN_AXES_MAX + FIXED] = {NULL};
    fill_case(arguments, number, cells);
    const char **fixed = cells + shown;
    for (int i = 0; i < FIXED; i++)
        fixed[i] = "";
    fixed[FITS] = state_words[result->state];
    fixed[WHY] = result->why;
    snprintf(gpus, sizeof gpus, "%u", result->gpu_count);
    fixed[GPUS] = gpus;
    if (result->stage[0] != '\0') {
        fixed[CAPACITY] = format_size(result->capacity_bytes, capacity);
        fixed[PEAK] = format_size(result->peak_bytes, peak);
        fixed[STAGE] = result->stage;
        fixed[ROOM] = format_room(result, room);
        fixed[HOST] = format_size(result->host_bytes, host);
        snprintf(seconds, sizeof seconds, "%.3f", (double)result->transition_ns / 1e9);
        fixed[SECONDS] = seconds;
    }
    if (arguments->tag != NULL && result->state == RVL_PLAN_FITS) {
        fixed[LARGEST] = format_largest(result, largest);
        fixed[FRACTION] = format_fraction(result->mem_fraction_ppm, fraction);
    }
    table_add(rows, cells);
}

static void print_choice(const plan_arguments *arguments, const rvl_plan_result *results,
                         size_t count)
{
    char missing[SIZE_TEXT_BYTES], headroom[SIZE_TEXT_BYTES];
    size_t number = plan_best(results, count);
    if (number == SIZE_MAX) /* in an interrupted sweep, all may be refused */
        return;
    bool fits = results[number].state == RVL_PLAN_FITS;
    bool tight = results[number].state == RVL_PLAN_TIGHT;
    fputs(fits    ? "cheapest that fits:"
          : tight ? "nothing leaves the headroom; nearest:"
                  : "nothing fits; nearest:",
          stdout);
    for (size_t i = 0; i < arguments->axis_count; i++)
        say(" --%s %s", arguments->axes[i].name, plan_value(arguments, number, i));
    if (tight)
        say(" (%s free in stage %s, of a headroom of %s)",
            format_size(results[number].capacity_bytes - results[number].peak_bytes, missing),
            results[number].stage, format_size(results[number].headroom_bytes, headroom));
    else if (!fits && results[number].stage[0] != '\0')
        say(" (%s missing in stage %s)", format_size(missing_bytes(&results[number]), missing),
            results[number].stage);
    puts("");
}

static bool print_table(const plan_arguments *arguments, const rvl_plan_result *results,
                        size_t count)
{
    const char *titles[PLAN_AXES_MAX + FIXED];
    bool right[PLAN_AXES_MAX + FIXED] = {false};
    size_t shown = 0;
    for (size_t i = 0; i < arguments->axis_count; i++) {
        if (is_shown(arguments, i))
            titles[shown++] = arguments->axes[i].name;
    }
    for (size_t i = 0; i < FIXED; i++) {
        bool unused = arguments->tag == NULL && (i == LARGEST || i == FRACTION);
        titles[shown + i] = unused ? "" : fixed_titles[i];
        right[shown + i] = fixed_right[i];
    }
    table *rows = table_new(titles, right, shown + FIXED);
    if (rows == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        add_row(rows, arguments, i, &results[i], shown);
    bool printed = table_print(rows, "");
    table_free(rows);
    if (printed) {
        print_doubts(results, count, true);
        print_choice(arguments, results, count);
    }
    return printed;
}

/* ---- Sweep as JSON ---- */

static json_t *settings_json(const plan_arguments *arguments, size_t number)
{
    json_t *settings = json_object();
    for (size_t i = 0; i < arguments->axis_count; i++)
        json_object_set_new(settings, arguments->axes[i].name,
                            json_string(plan_value(arguments, number, i)));
    return settings;
}

static json_t *case_json(const plan_arguments *arguments, size_t number,
                         const rvl_plan_result *result)
{
    bool known = result->stage[0] != '\0';
    json_t *item = json_pack(
        "{s:o,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o}", "settings", settings_json(arguments, number),
        "fits", state_words[result->state], "gpus", (json_int_t)result->gpu_count, "capacity_bytes",
        known ? bytes_json(result->capacity_bytes) : json_null(), "peak_bytes",
        known ? bytes_json(result->peak_bytes) : json_null(), "stage",
        known ? json_string(result->stage) : json_null(), "host_bytes",
        known ? bytes_json(result->host_bytes) : json_null(), "seconds",
        known ? json_real((double)result->transition_ns / 1e9) : json_null(), "why",
        result->why[0] != '\0' ? json_string(result->why) : json_null());
    if (result->capacity_doubt_bytes > 0)
        json_object_set_new(item, "capacity_doubt_bytes", bytes_json(result->capacity_doubt_bytes));
    if (result->assumed_bytes > 0)
        json_object_set_new(item, "assumed_bytes", bytes_json(result->assumed_bytes));
    if (arguments->tag != NULL) {
        json_object_set_new(item, "largest_bytes", largest_json(result));
        json_object_set_new(item, "mem_fraction", fraction_json(result->mem_fraction_ppm));
    }
    return item;
}

static json_t *number_json(size_t number)
{
    return number != SIZE_MAX ? json_integer((json_int_t)number) : json_null();
}

static json_t *sweep_json(const plan_arguments *arguments, const rvl_plan_result *results,
                          size_t count)
{
    size_t best = plan_best(results, count);
    bool fits = best != SIZE_MAX && results[best].state == RVL_PLAN_FITS;
    json_t *cases = json_array();
    for (size_t i = 0; i < count; i++) {
        if (json_array_append_new(cases, case_json(arguments, i, &results[i])) != 0) {
            json_decref(cases);
            return NULL;
        }
    }
    return json_pack("{s:i,s:o,s:o,s:o}", "schema", 1, "cases", cases, "cheapest",
                     number_json(fits ? best : SIZE_MAX), "nearest",
                     number_json(fits ? SIZE_MAX : best));
}

/* ---- Sweep as CSV ---- */

/* Prints a cell and `end`. Quotes it if needed (RFC 4180). */
static void print_cell(const char *cell, char end)
{
    char *text = printable(cell);
    if (text == NULL || strpbrk(text, ",\"") == NULL) {
        printf("%s%c", text != NULL ? text : "?", end);
        free(text);
        return;
    }
    putchar('"');
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"')
            putchar('"');
        putchar(*at);
    }
    printf("\"%c", end);
    free(text);
}

static void print_csv_row(const plan_arguments *arguments, size_t number,
                          const rvl_plan_result *result)
{
    char fraction[NUMBER_TEXT_BYTES];
    for (size_t i = 0; i < arguments->axis_count; i++)
        print_cell(plan_value(arguments, number, i), ',');
    printf("%s,%u,", state_words[result->state], result->gpu_count);
    if (result->stage[0] != '\0') {
        printf("%" PRIu64 ",%" PRIu64 ",", result->capacity_bytes, result->peak_bytes);
        print_cell(result->stage, ',');
        printf("%" PRIu64 ",%.9f,", result->host_bytes, (double)result->transition_ns / 1e9);
    } else {
        fputs(",,,,,", stdout);
    }
    if (arguments->tag != NULL && result->state == RVL_PLAN_FITS)
        printf("%" PRIu64 ",%s,",
               result->largest_bytes == UINT64_MAX ? result->capacity_bytes : result->largest_bytes,
               format_fraction(result->mem_fraction_ppm, fraction));
    else
        fputs(",,", stdout);
    print_cell(result->why, '\n');
}

static void print_csv(const plan_arguments *arguments, const rvl_plan_result *results, size_t count)
{
    for (size_t i = 0; i < arguments->axis_count; i++)
        printf("%s,", arguments->axes[i].name);
    puts("fits,gpus,capacity_bytes,peak_bytes,stage,host_bytes,seconds,largest_bytes,"
         "mem_fraction_max,why");
    for (size_t i = 0; i < count; i++)
        print_csv_row(arguments, i, &results[i]);
}

int plan_print_sweep(const plan_arguments *arguments, const rvl_plan_result *results, size_t count)
{
    bool printed = document_is_printed(&arguments->json);
    if (arguments->csv)
        print_csv(arguments, results, count);
    else if (!printed && !print_table(arguments, results, count))
        return no_memory();
    return arguments->json.wanted ? write_json(arguments, sweep_json(arguments, results, count))
                                  : 0;
}
