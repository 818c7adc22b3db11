/* SPDX-License-Identifier: MIT */
/* Checks a device on the command line, and suggests profiles for an unknown name. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "command.h"
#include "options.h"

/* Keeps letters and digits only, in lower case, so that "H100_80GB" can match h100-80g. */
static void bare_name(const char *text, char bare[64])
{
    size_t length = 0;
    for (; *text != '\0' && length < 63; text++) {
        if (isalnum((unsigned char)*text))
            bare[length++] = (char)tolower((unsigned char)*text);
    }
    bare[length] = '\0';
}

/* Whether word may mean name, by rule `how`: 0 is the strongest rule, 2 the weakest. */
static bool is_meant(int how, const char *word, const char *name)
{
    switch (how) {
    case 0: /* word is a prefix of name */
        return strlen(word) > 1 && strncmp(word, name, strlen(word)) == 0;
    case 1: /* name is a prefix of word */
        return strncmp(word, name, strlen(name)) == 0;
    default:
        return (strlen(word) > 2 && strstr(name, word) != NULL) || suggest_matches(word, name);
    }
}

/* Lists the profiles that text may mean, as "h100-80g or h100-94g". */
static void list_meant(const char *text, char list[DEVICE_WHY_BYTES / 2])
{
    rvl_profile profile = {.struct_size = sizeof profile};
    char word[64], name[64];
    size_t length = 0, longest = 0;
    bare_name(text, word);
    list[0] = '\0';
    for (int how = 0; how < 3 && length == 0; how++) {
        for (size_t i = 0; rvl_profile_get(i, &profile) == RVL_OK; i++) {
            bare_name(profile.name, name);
            if (!is_meant(how, word, name))
                continue;
            if (how == 1 && strlen(name) < longest) /* h200-141gb also starts with h20 */
                continue;
            if (how == 1 && strlen(name) > longest)
                length = 0;
            longest = strlen(name);
            if (length < DEVICE_WHY_BYTES / 2)
                length += (size_t)snprintf(list + length, DEVICE_WHY_BYTES / 2 - length, "%s%s",
                                           length > 0 ? " or " : "", profile.name);
        }
    }
}

/* Describes what is wrong in a profile's file, with the line if it is known. */
static void describe_file(char why[DEVICE_WHY_BYTES])
{
    const rvl_error *error = rvli_error_get();
    if (error->line > 0)
        snprintf(why, DEVICE_WHY_BYTES, "line %" PRIu32 ": %s", error->line, error->message);
    else
        snprintf(why, DEVICE_WHY_BYTES, "%s", error->message);
}

bool options_check_device(const char *text, char why[DEVICE_WHY_BYTES])
{
    rvl_profile profile = {.struct_size = sizeof profile};
    char meant[DEVICE_WHY_BYTES / 2];
    rvl_status status = rvl_profile_load(text, &profile);
    if (status == RVL_OK)
        return true;
    if (rvli_error_get()->file[0] != '\0') {
        describe_file(why);
        return false;
    }
    list_meant(text, meant);
    size_t digits = strspn(text, "0123456789.");
    if (status == RVL_ERR_INVALID)
        snprintf(why, DEVICE_WHY_BYTES,
                 "less than 1 MiB, which no GPU has: did you mean %.*sGiB%s%s?",
                 (int)(digits < 32 ? digits : 32), text, meant[0] != '\0' ? " or " : "", meant);
    else
        snprintf(why, DEVICE_WHY_BYTES,
                 "neither a size nor a profile that `reveille devices` lists%s%s%s",
                 meant[0] != '\0' ? ": did you mean " : "", meant, meant[0] != '\0' ? "?" : "");
    return false;
}

/* Warns about "80GB": a card that is sold as 80 GB has more than 80 * 10^9 bytes. */
void options_warn_of_decimal(const char *option, const char *text)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    size_t digits = strspn(text, "0123456789."), length = strlen(text);
    char size[SIZE_TEXT_BYTES];
    if (length != digits + 2 || strcasecmp(text + digits, "GB") != 0 ||
        rvl_profile_find(text, &profile) != RVL_OK)
        return;
    complain(0,
             "--%s %s is %s, since GB counts in powers of ten: for a card that is sold as %.*s GB, "
             "name its profile (`reveille devices`) or write %.*sGiB",
             option, text, format_size(profile.capacity_bytes, size), (int)digits, text,
             (int)digits, text);
}
