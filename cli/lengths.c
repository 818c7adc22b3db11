/* SPDX-License-Identifier: MIT */
#include "lengths.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "command.h"

#define TOKENS_MOST 1000000000u /* of a sequence */
#define SIGMA_MOST 10.0
#define LINE_MOST 64
#define RULES "max, uniform:A..B, lognormal:MEAN,SIGMA, or a file with a number a line"

/* ---- Numbers ---- */

/* A length at the beginning of a text. NULL: there is none; else what follows it. */
static const char *read_length(const char *text, uint64_t *length_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*text))
        return NULL;
    errno = 0;
    *length_out = strtoull(text, &end, 10);
    return errno == 0 && *length_out >= 1 && *length_out <= TOKENS_MOST ? end : NULL;
}

/* The same of a decimal number that is no less than zero. */
static const char *read_number(const char *text, double *number_out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*text) || tolower((unsigned char)text[1]) == 'x')
        return NULL;
    *number_out = strtod(text, &end);
    return isfinite(*number_out) ? end : NULL;
}

/* ---- Rules ---- */

static int check_uniform(const command_spec *command, const char *value)
{
    uint64_t first = 0, last = 0;
    const char *at = read_length(value + strlen("uniform:"), &first);
    at = at != NULL && strncmp(at, "..", 2) == 0 ? read_length(at + 2, &last) : NULL;
    if (at == NULL || *at != '\0')
        return options_refuse(
            command,
            "--response-lengths %s: expected uniform:A..B, two numbers of tokens from 1 to %u",
            value, TOKENS_MOST);
    if (first > last)
        return options_refuse(command, "--response-lengths %s: %" PRIu64 " is more than %" PRIu64,
                              value, first, last);
    return 0;
}

static int check_lognormal(const command_spec *command, const char *value)
{
    double mean = 0, sigma = 0;
    const char *at = read_number(value + strlen("lognormal:"), &mean);
    at = at != NULL && *at == ',' ? read_number(at + 1, &sigma) : NULL;
    if (at == NULL || *at != '\0' || mean < 1 || mean > TOKENS_MOST || sigma > SIGMA_MOST)
        return options_refuse(
            command,
            "--response-lengths %s: expected lognormal:MEAN,SIGMA: the mean in tokens, at "
            "least 1, and the deviation of the logarithm, from 0 to %.0f",
            value, SIGMA_MOST);
    return 0;
}

static bool is_length(char *line)
{
    uint64_t length;
    line[strcspn(line, "\r\n")] = '\0';
    const char *end = read_length(line, &length);
    return end != NULL && *end == '\0';
}

static int check_lines(const command_spec *command, const char *path, FILE *file)
{
    char line[LINE_MOST];
    uint64_t count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        count++;
        if (!is_length(line))
            return options_refuse(command,
                                  "--response-lengths %s:%" PRIu64
                                  ": expected a number of tokens from 1 to %u",
                                  path, count, TOKENS_MOST);
    }
    if (ferror(file))
        return complain(EXIT_BAD_INPUT, "--response-lengths %s: %s", path, strerror(errno));
    return count > 0
               ? 0
               : options_refuse(command, "--response-lengths %s: the file has no lengths", path);
}

static int set_file(const command_spec *command, const char *value, char text[PATH_MAX + 8])
{
    char path[PATH_MAX];
    struct stat facts;
    if (stat(value, &facts) != 0)
        return options_refuse(command,
                              "--response-lengths %s: no rule, and no file (%s): expected " RULES,
                              value, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return options_refuse(command,
                              "--response-lengths %s: every process reads it again: name a file "
                              "that stays",
                              value);
    FILE *file = realpath(value, path) != NULL ? fopen(path, "re") : NULL;
    if (file == NULL)
        return complain(EXIT_BAD_INPUT, "--response-lengths %s: %s", value, strerror(errno));
    int status = check_lines(command, value, file);
    fclose(file);
    snprintf(text, PATH_MAX + 8, "file:%s", path);
    return status;
}

int lengths_read(const command_spec *command, lengths_rule *rule)
{
    const char *value = rule->named;
    if (value == NULL || strcmp(value, "max") == 0)
        return 0;
    snprintf(rule->text, sizeof rule->text, "%s", value);
    if (strncmp(value, "uniform:", strlen("uniform:")) == 0)
        return check_uniform(command, value);
    if (strncmp(value, "lognormal:", strlen("lognormal:")) == 0)
        return check_lognormal(command, value);
    return set_file(command, value, rule->text);
}

/* ---- What it gave ---- */

void lengths_tell(const lengths_rule *rule, const rvli_machine_lengths *given)
{
    if (rule->text[0] == '\0')
        return;
    if (given->count == 0)
        complain(0,
                 "--response-lengths %s: no sequence got its length: vLLM, SGLang and generate() "
                 "of transformers ask for one, and the command has generated by none of them",
                 rule->named);
    else
        complain(0,
                 "--response-lengths %s: %" PRIu64 " sequences of %" PRIu64 " to %" PRIu64
                 " tokens, %.1f in the mean",
                 rule->named, given->count, given->shortest, given->longest,
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
