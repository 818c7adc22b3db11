/* SPDX-License-Identifier: MIT */
/*
 * reveille devices: lists the kinds of device that can be simulated, or every figure of one of them
 * with its source and its uncertainty.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "device_figures.h"
#include "document.h"
#include "options.h"

enum { NAME, CAPACITY, GRANULARITY, COSTS, DESCRIPTION, SOURCE, COLUMNS };

typedef struct arguments {
    const char *device;
    option_document json;
} arguments;

const command_spec devices_spec = {
    .name = "devices",
    .summary = "list the devices that can be simulated",
    .usage = "[OPTION]...",
    .description =
        "Lists the device profiles that `--device` takes, with the source of each capacity: a "
        "public report (GitHub repository and number) that shows the card's own value. cuda: the "
        "memory that the driver gives to programs; smi: the memory that nvidia-smi shows, an upper "
        "bound, of which programs get a few hundred MiB less. Costs were measured on such a card, "
        "or are those of the H200.\n\n"
        "With `--device`, lists every figure of one profile, with its source and its uncertainty. "
        "For a file that `reveille calibrate` has written, also lists the minimum, the median and "
        "the maximum of each measurement.",
    .options = (const option_spec[]){OPTION_OF_DEVICE(offsetof(arguments, device), "all profiles"),
                                     OPTION_OF_JSON(offsetof(arguments, json)),
                                     {.kind = OPTION_END}},
    .exits =
        (const text_entry[]){
            {"0", "printed"}, {"2", "bad usage"}, {"1", "an internal failure"}, {NULL, NULL}},
    .examples = (const text_entry[]){{"reveille devices", "All profiles, as a table."},
                                     {"reveille devices --json | jq -r '.devices[].name'",
                                      "Their names, for a script."},
                                     {"reveille devices --device card.json",
                                      "The figures of a calibrated card, and their spread."},
                                     {NULL, NULL}},
    .see_also = "reveille(1), reveille-calibrate(1), reveille-replay(1), reveille-plan(1)",
};

#define CAPACITY_TEXT_BYTES (SIZE_TEXT_BYTES + 16)

/* Formats "139.8 GiB", or "at most 80.0 GiB" if the capacity is an upper bound. Returns text. */
static const char *capacity_text(const rvl_profile *profile, char text[CAPACITY_TEXT_BYTES])
{
    char size[SIZE_TEXT_BYTES];
    snprintf(text, CAPACITY_TEXT_BYTES, "%s%s", profile->capacity_doubt_bytes > 0 ? "at most " : "",
             format_size(profile->capacity_bytes, size));
    return text;
}

static const char *costs_source(const rvl_profile *profile)
{
    return profile->flags & RVL_PROFILE_MEASURED ? "measured" : "the H200's";
}

static bool print_table(void)
{
    static const char *const titles[COLUMNS] = {"profile", "capacity",    "granularity",
                                                "costs",   "description", "source of the capacity"};
    static const bool right[COLUMNS] = {false, true, true, false, false, false};
    table *rows = table_new(titles, right, COLUMNS);
    if (rows == NULL)
        return false;
    rvl_profile profile = {.struct_size = sizeof profile};
    for (size_t i = 0; rvl_profile_get(i, &profile) == RVL_OK; i++) {
        char capacity[CAPACITY_TEXT_BYTES], granularity[SIZE_TEXT_BYTES];
        const char *cells[COLUMNS] = {profile.name,
                                      capacity_text(&profile, capacity),
                                      format_size(profile.granularity_bytes, granularity),
                                      costs_source(&profile),
                                      profile.description,
                                      profile.source};
        table_add(rows, cells);
    }
    bool ok = table_print(rows, "");
    table_free(rows);
    return ok;
}

/* Writes a built-in text as a JSON string. It is plain UTF-8 without control characters. */
static void write_string(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        putc(*text, out);
    }
    putc('"', out);
}

static bool write_json(FILE *out, const void *unused)
{
    (void)unused;
    rvl_profile profile = {.struct_size = sizeof profile};
    fprintf(out, "{\"schema\":1,\"devices\":[");
    for (size_t i = 0; rvl_profile_get(i, &profile) == RVL_OK; i++) {
        fprintf(out, "%s{\"name\":", i > 0 ? "," : "");
        write_string(out, profile.name);
        fprintf(out, ",\"description\":");
        write_string(out, profile.description);
        fprintf(out,
                ",\"capacity_bytes\":%" PRIu64 ",\"granularity_bytes\":%" PRIu64 ",\"source\":",
                profile.capacity_bytes, profile.granularity_bytes);
        write_string(out, profile.source);
        fprintf(out, ",\"capacity_doubt_bytes\":%" PRIu64 ",\"costs_measured\":%s}",
                profile.capacity_doubt_bytes,
                profile.flags & RVL_PROFILE_MEASURED ? "true" : "false");
    }
    fputs("]}\n", out);
    return true;
}

int command_devices(int argc, char **argv)
{
    arguments parsed = {0};
    option_line line;
    if (!options_parse(&devices_spec, argc, argv, &parsed, &line))
        return line.status;
    if (line.first < argc)
        return options_refuse(&devices_spec, "devices: unexpected argument %s", argv[line.first]);
    int status = documents_check(&devices_spec, &parsed.json, NULL);
    if (status != 0)
        return status;
    if (parsed.device != NULL)
        return device_figures_print(parsed.device, &parsed.json);
    if (!document_is_printed(&parsed.json) && !print_table())
        return complain(EXIT_INTERNAL, "out of host memory");
    return document_write(&parsed.json, write_json, NULL);
}
