/* SPDX-License-Identifier: MIT */
#include "lengths.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "command.h"

#define TOKENS_MOST 1000000000u /* in a sequence */
#define SIGMA_MOST 10.0
#define LINE_MOST 64
#define RULES "max, uniform:A..B, lognormal:MEAN,SIGMA, or a file with a number a line"

/* Stores the reason. Returns false. */
static bool refuse(char why[LENGTHS_WHY_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(char why[LENGTHS_WHY_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, LENGTHS_WHY_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- Numbers ---- */

/* Reads a length at the start of text. Returns what follows it; NULL: no valid length. */
static const char *read_length(const char *text, uint64_t *length_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*text))
        return NULL;
    errno = 0;
    *length_out = strtoull(text, &end, 10);
    return errno == 0 && *length_out >= 1 && *length_out <= TOKENS_MOST ? end : NULL;
}

/* Reads a decimal number that is not negative. Returns what follows it; NULL: no valid number. */
static const char *read_number(const char *text, double *number_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*text) || tolower((unsigned char)text[1]) == 'x')
        return NULL;
    *number_out = strtod(text, &end);
    return isfinite(*number_out) ? end : NULL;
}

/* ---- Rules ---- */

static bool check_uniform(const char *value, char why[LENGTHS_WHY_BYTES])
{
    uint64_t first = 0, last = 0;
    const char *at = read_length(value + strlen("uniform:"), &first);
    at = at != NULL && strncmp(at, "..", 2) == 0 ? read_length(at + 2, &last) : NULL;
    if (at == NULL || *at != '\0')
        return refuse(why, "%s: expected uniform:A..B, two numbers of tokens from 1 to %u", value,
                      TOKENS_MOST);
    return first <= last ||
           refuse(why, "%s: %" PRIu64 " is more than %" PRIu64, value, first, last);
}

static bool check_lognormal(const char *value, char why[LENGTHS_WHY_BYTES])
{
    double mean = 0, sigma = 0;
    const char *at = read_number(value + strlen("lognormal:"), &mean);
    at = at != NULL && *at == ',' ? read_number(at + 1, &sigma) : NULL;
    return (at != NULL && *at == '\0' && mean >= 1 && mean <= TOKENS_MOST && sigma <= SIGMA_MOST) ||
           refuse(why,
                  "%s: expected lognormal:MEAN,SIGMA: the mean in tokens, at least 1, and the "
                  "deviation of the logarithm, from 0 to %.0f",
                  value, SIGMA_MOST);
}

static bool is_length(char *line)
{
    uint64_t length;
    line[strcspn(line, "\r\n")] = '\0';
    const char *end = read_length(line, &length);
    return end != NULL && *end == '\0';
}

static bool check_lines(const char *path, FILE *file, char why[LENGTHS_WHY_BYTES])
{
    char line[LINE_MOST];
    uint64_t count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        count++;
        if (!is_length(line))
            return refuse(why, "%s:%" PRIu64 ": expected a number of tokens from 1 to %u", path,
                          count, TOKENS_MOST);
    }
    if (ferror(file))
        return refuse(why, "%s: %s", path, strerror(errno));
    return count > 0 || refuse(why, "%s: the file has no lengths", path);
}

static bool set_file(const char *value, char text[PATH_MAX + 8], char why[LENGTHS_WHY_BYTES])
{
    char path[PATH_MAX];
    struct stat facts;
    if (stat(value, &facts) != 0)
        return refuse(why, "%s: no rule, and no file (%s): expected " RULES, value,
                      strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return refuse(why, "%s: every process reads it again: name a file that stays", value);
    FILE *file = realpath(value, path) != NULL ? fopen(path, "re") : NULL;
    if (file == NULL)
        return refuse(why, "%s: %s", value, strerror(errno));
    bool well = check_lines(value, file, why);
    fclose(file);
    snprintf(text, PATH_MAX + 8, "file:%s", path);
    return well;
}

bool lengths_are_of_file(const char *named)
{
    return strcmp(named, "max") != 0 && strncmp(named, "uniform:", strlen("uniform:")) != 0 &&
           strncmp(named, "lognormal:", strlen("lognormal:")) != 0;
}

bool lengths_read(lengths_rule *rule, char why[LENGTHS_WHY_BYTES])
{
    const char *value = rule->named;
    if (value == NULL || strcmp(value, "max") == 0)
        return true;
    if (lengths_are_of_file(value))
        return set_file(value, rule->text, why);
    snprintf(rule->text, sizeof rule->text, "%s", value);
    return value[0] == 'u' ? check_uniform(value, why) : check_lognormal(value, why);
}

/* ---- Results ---- */

void lengths_tell(const lengths_rule *rule, const rvli_machine_lengths *given, const char *who)
{
    if (rule->text[0] == '\0')
        return;
    if (given->count == 0)
        complain(0,
                 "%s%s: no sequence got its length: vLLM, SGLang and generate() "
                 "of transformers ask for one, and the command has generated by none of them",
                 who, rule->named);
    else
        complain(
            0, "%s%s: %" PRIu64 " sequences of %" PRIu64 " to %" PRIu64 " tokens, %.1f in the mean",
            who, rule->named, given->count, given->shortest, given->longest,
            (double)given->tokens / (double)given->count);
}

bool lengths_write_json(FILE *out, const lengths_rule *rule, const rvli_machine_lengths *given)
{
    bool ok = true;
    if (rule->text[0] == '\0')
        return true;
    json_t *object = json_object();
    rvli_json_set(object, "rule", rvli_json_text(rule->named), &ok);
    rvli_json_set(object, "sequences", rvli_json_bytes(given->count), &ok);
    rvli_json_set(object, "tokens", rvli_json_bytes(given->tokens), &ok);
    rvli_json_set(object, "shortest_tokens", rvli_json_bytes(given->shortest), &ok);
    rvli_json_set(object, "longest_tokens", rvli_json_bytes(given->longest), &ok);
    char *text = ok ? json_dumps(object, JSON_COMPACT) : NULL;
    if (text != NULL)
        fprintf(out, ",\"responses\":%s", text);
    free(text);
    json_decref(object);
    return text != NULL;
}
