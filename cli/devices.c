/* SPDX-License-Identifier: MIT */
/* reveille devices: the kinds of device that can be simulated. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"

enum { NAME, CAPACITY, GRANULARITY, DESCRIPTION, SOURCE, COLUMNS };

typedef struct arguments {
    bool json;
} arguments;

const command_spec devices_spec = {
    .name = "devices",
    .summary = "list the devices that can be simulated",
    .usage = "[--json]",
    .description =
        "Lists the device profiles that `--device` takes, with the source of each capacity: a "
        "public report (GitHub repository and number) that shows the card's own answer. cuda: what "
        "the driver gives to programs; smi: what nvidia-smi shows, of which programs get a few "
        "hundred MiB less.",
    .options =
        (const option_spec[]){OPTION_OF_JSON(offsetof(arguments, json)), {.kind = OPTION_END}},
    .exits =
        (const text_entry[]){
            {"0", "printed"}, {"2", "bad usage"}, {"1", "an internal failure"}, {NULL, NULL}},
    .examples = (const text_entry[]){{"reveille devices", "All profiles, as a table."},
                                     {"reveille devices --json | jq -r '.devices[].name'",
                                      "Their names, for a script."},
                                     {NULL, NULL}},
    .see_also = "reveille(1), reveille-replay(1), reveille-plan(1)",
};

static bool print_table(void)
{
    static const char *const titles[COLUMNS] = {"profile", "capacity", "granularity", "description",
                                                "source of the capacity"};
    static const bool right[COLUMNS] = {false, true, true, false, false};
    table *rows = table_new(titles, right, COLUMNS);
    if (rows == NULL)
        return false;
    rvl_profile profile = {.struct_size = sizeof profile};
    for (size_t i = 0; rvl_profile_get(i, &profile) == RVL_OK; i++) {
        char capacity[SIZE_TEXT_BYTES], granularity[SIZE_TEXT_BYTES];
        const char *cells[COLUMNS] = {profile.name, format_size(profile.capacity_bytes, capacity),
                                      format_size(profile.granularity_bytes, granularity),
                                      profile.description, profile.source};
        table_add(rows, cells);
    }
    bool ok = table_print(rows, "");
    table_free(rows);
    return ok;
}

/* Of a built-in text, which is plain UTF-8. */
static void print_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void print_json(void)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    printf("{\"schema\":1,\"devices\":[");
    for (size_t i = 0; rvl_profile_get(i, &profile) == RVL_OK; i++) {
        printf("%s{\"name\":", i > 0 ? "," : "");
        print_string(profile.name);
        printf(",\"description\":");
        print_string(profile.description);
        printf(",\"capacity_bytes\":%" PRIu64 ",\"granularity_bytes\":%" PRIu64 ",\"source\":",
               profile.capacity_bytes, profile.granularity_bytes);
        print_string(profile.source);
        printf("}");
    }
    puts("]}");
}

int command_devices(int argc, char **argv)
{
    arguments parsed = {0};
    option_line line;
    if (!options_parse(&devices_spec, argc, argv, &parsed, &line))
        return line.status;
    if (line.first < argc)
        return options_refuse(&devices_spec, "devices: unexpected argument %s", argv[line.first]);
    if (parsed.json)
        print_json();
    else if (!print_table())
        return complain(EXIT_INTERNAL, "out of host memory");
    return EXIT_FITS;
}
