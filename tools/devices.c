/* SPDX-License-Identifier: MIT */
/* reveille devices: the kinds of device that can be simulated. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

enum { NAME, CAPACITY, GRANULARITY, DESCRIPTION, SOURCE, COLUMNS };

void help_devices(void)
{
    fputs(
        "usage: reveille devices [--json]\n"
        "\n"
        "Lists the device profiles that `reveille replay --device` takes, with the source of each\n"
        "capacity: a public report (GitHub repository and number) that shows the card's own "
        "answer.\n"
        "cuda: what the driver gives to programs; smi: what nvidia-smi shows, of which programs "
        "get a\n"
        "few hundred MiB less.\n"
        "\n"
        "  --json   print JSON, schema 1 (default: a table)\n"
        "  --help   print this\n",
        stdout);
}

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
    bool ok = table_print(rows, "", NULL, "");
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
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            help_devices();
            return EXIT_FITS;
        }
        if (strcmp(argv[i], "--json") != 0) {
            complain(EXIT_BAD_INPUT, "devices: unexpected argument %s", argv[i]);
            fputs("Try `reveille devices --help`.\n", stderr);
            return EXIT_BAD_INPUT;
        }
        json = true;
    }
    if (json)
        print_json();
    else if (!print_table())
        return complain(EXIT_INTERNAL, "out of host memory");
    return EXIT_FITS;
}
