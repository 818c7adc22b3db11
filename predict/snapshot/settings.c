/* SPDX-License-Identifier: MIT */
/* A table with a function for each setting. */
#include "predict/snapshot/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB_SHIFT 20
#define MIB_MAX (UINT64_MAX >> MIB_SHIFT)
#define LARGE_BUFFER_MIB 20
#define LARGE_SEGMENT_MIB_MAX (UINT64_C(1) << 20)
#define VALUE_BYTES_MAX 64

/* ---- Values ---- */

static bool is_word(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

static bool parse_whole(const char *text, uint64_t *number_out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *number_out = number;
    return errno == 0 && *end == '\0';
}

/* Parses digits with at most one point. strtod() would depend on the locale. */
static bool parse_fraction(const char *text, double *number_out)
{
    double number = 0, scale = 1;
    bool point = false, digit = false;
    for (; *text != '\0'; text++) {
        if (*text == '.' && !point) {
            point = true;
        } else if (*text >= '0' && *text <= '9') {
            digit = true;
            number = number * 10 + (*text - '0');
            scale *= point ? 10 : 1;
        } else {
            return false;
        }
    }
    *number_out = number / scale;
    return digit;
}

static bool is_power_of_two(uint64_t number)
{
    return number > 0 && (number & (number - 1)) == 0;
}

static unsigned log2_of(uint64_t number)
{
    return 63u - (unsigned)__builtin_clzll(number);
}

/* ---- Settings ---- */

static bool set_expandable(rvli_settings *settings, char *text)
{
    bool yes = is_word(text, "True") || is_word(text, "true") || is_word(text, "1");
    bool no = is_word(text, "False") || is_word(text, "false") || is_word(text, "0");
    settings->expandable = yes;
    return yes || no;
}

static bool parse_mib(const char *text, uint64_t *bytes_out)
{
    uint64_t mib;
    if (!parse_whole(text, &mib) || mib < LARGE_BUFFER_MIB)
        return false;
    *bytes_out = mib < MIB_MAX ? mib << MIB_SHIFT : MIB_MAX << MIB_SHIFT;
    return true;
}

static bool set_max_split(rvli_settings *settings, char *text)
{
    if (is_word(text, "none") || is_word(text, "-1")) {
        settings->max_split_bytes = UINT64_MAX;
        return true;
    }
    return parse_mib(text, &settings->max_split_bytes);
}

static bool set_max_rounding(rvli_settings *settings, char *text)
{
    return parse_mib(text, &settings->max_non_split_rounding_bytes);
}

static bool set_large_segment(rvli_settings *settings, char *text)
{
    uint64_t mib;
    if (!parse_whole(text, &mib) || mib < 2 || mib > LARGE_SEGMENT_MIB_MAX)
        return false;
    settings->large_segment_bytes = mib << MIB_SHIFT;
    return true;
}

static bool set_gc_threshold(rvli_settings *settings, char *text)
{
    double threshold;
    if (!parse_fraction(text, &threshold) || threshold >= 1)
        return false;
    settings->gc_threshold = threshold;
    return true;
}

static bool set_fraction(rvli_settings *settings, char *text)
{
    double fraction;
    if (!parse_fraction(text, &fraction) || fraction <= 0 || fraction > 1)
        return false;
    settings->memory_fraction = fraction;
    return true;
}

static bool parse_divisions(const char *text, uint64_t *divisions_out)
{
    return parse_whole(text, divisions_out) &&
           (*divisions_out == 0 || is_power_of_two(*divisions_out));
}

/*
 * Sets the divisions of "SIZE:DIVISIONS" in a list. The first size also sets all smaller buckets,
 * and ">" sets the buckets beyond the size before it.
 */
static bool set_bucket(rvli_settings *settings, char *item, bool first, size_t *last)
{
    char *colon = strchr(item, ':');
    uint64_t size, divisions;
    if (colon == NULL)
        return false;
    *colon = '\0';
    if (!parse_divisions(colon + 1, &divisions))
        return false;
    if (is_word(item, ">")) {
        for (size_t i = *last + 1; i < RVLI_ROUNDUP_BUCKETS; i++)
            settings->divisions[i] = divisions;
        return true;
    }
    if (!parse_whole(item, &size) || !is_power_of_two(size))
        return false;
    size_t index = log2_of(size);
    index = index < RVLI_ROUNDUP_BUCKETS ? index : RVLI_ROUNDUP_BUCKETS - 1;
    for (size_t i = 0; first && i < index; i++)
        settings->divisions[i] = divisions;
    settings->divisions[index] = divisions;
    *last = index;
    return true;
}

static bool set_bucket_list(rvli_settings *settings, char *text)
{
    size_t length = strlen(text), last = 0;
    bool first = true;
    if (length < 2 || text[length - 1] != ']')
        return false;
    text[length - 1] = '\0';
    for (char *item = text + 1; item != NULL; first = false) {
        char *comma = strchr(item, ',');
        if (comma != NULL)
            *comma++ = '\0';
        if (!set_bucket(settings, item, first, &last))
            return false;
        item = comma;
    }
    return true;
}

static bool set_divisions(rvli_settings *settings, char *text)
{
    uint64_t divisions;
    if (text[0] == '[')
        return set_bucket_list(settings, text);
    if (!parse_divisions(text, &divisions))
        return false;
    for (size_t i = 0; i < RVLI_ROUNDUP_BUCKETS; i++)
        settings->divisions[i] = divisions;
    return true;
}

typedef struct setting {
    const char *name;
    bool (*set)(rvli_settings *settings, char *text);
    const char *expected;
} setting;

static const setting known[] = {
    {"expandable_segments", set_expandable, "true or false"},
    {"max_split_size_mb", set_max_split, "a number of MiB, 20 or more, or none"},
    {"max_non_split_rounding_mb", set_max_rounding, "a number of MiB, 20 or more"},
    {"large_segment_size_mb", set_large_segment, "a number of MiB, 2 or more"},
    {"roundup_power2_divisions", set_divisions,
     "a power of two, 0 for none, or a list such as [256:1,512:2,>:4]"},
    {"garbage_collection_threshold", set_gc_threshold, "a fraction below 1, 0 for none"},
    {"per_process_memory_fraction", set_fraction, "a fraction above 0, at most 1"},
};

#define KNOWN_COUNT (sizeof known / sizeof known[0])

const char *rvli_settings_names(void)
{
    return "expandable_segments, max_split_size_mb, max_non_split_rounding_mb, "
           "large_segment_size_mb, roundup_power2_divisions, garbage_collection_threshold, "
           "per_process_memory_fraction";
}

void rvli_settings_default(rvli_settings *settings)
{
    *settings =
        (rvli_settings){.max_split_bytes = UINT64_MAX,
                        .max_non_split_rounding_bytes = (uint64_t)LARGE_BUFFER_MIB << MIB_SHIFT,
                        .large_segment_bytes = (uint64_t)LARGE_BUFFER_MIB << MIB_SHIFT};
}

static bool is_blank(char letter)
{
    return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

/* Copies a text without its blanks, which may be anywhere between words. false: too long. */
static bool copy_solid(const char *from, size_t length, char *to, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        if (is_blank(from[i]))
            continue;
        if (at + 1 >= size)
            return false;
        to[at++] = from[i];
    }
    to[at] = '\0';
    return true;
}

rvl_status rvli_settings_set(rvli_settings *settings, const char *key, size_t key_length,
                             const char *value, size_t value_length, const char **expected_out)
{
    char text[VALUE_BYTES_MAX * 4];
    rvli_settings changed = *settings;
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (strlen(known[i].name) != key_length || memcmp(known[i].name, key, key_length) != 0)
            continue;
        *expected_out = known[i].expected;
        if (!copy_solid(value, value_length, text, sizeof text) || !known[i].set(&changed, text))
            return RVL_ERR_INVALID;
        *settings = changed;
        return RVL_OK;
    }
    return RVL_ERR_NOT_FOUND;
}

/* Whether a setting affects neither the block that a request gets nor the reserved bytes. */
static bool is_harmless(const char *key, size_t length, const char *value, size_t value_length)
{
    static const char *const words[] = {
        "release_lock_on_cudamalloc",        "release_lock_on_hipmalloc", "use_cuda_host_register",
        "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
    };
    char name[VALUE_BYTES_MAX], text[VALUE_BYTES_MAX];
    if (!copy_solid(key, length, name, sizeof name) ||
        !copy_solid(value, value_length, text, sizeof text))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (is_word(name, words[i]))
            return true;
    }
    return strncmp(name, "pinned_", strlen("pinned_")) == 0 ||
           (is_word(name, "backend") && is_word(text, "native"));
}

static bool set_word(rvli_settings *settings, const char *word, size_t length, const char *colon)
{
    const char *expected, *value = colon + 1, *end = word + length;
    while (word < colon && is_blank(*word))
        word++;
    size_t key = (size_t)(colon - word);
    while (key > 0 && is_blank(word[key - 1]))
        key--;
    size_t value_length = (size_t)(end - value);
    return rvli_settings_set(settings, word, key, value, value_length, &expected) == RVL_OK ||
           is_harmless(word, key, value, value_length);
}

bool rvli_settings_set_all(rvli_settings *settings, const char *conf, size_t length)
{
    const char *end = conf + length;
    bool all = true;
    while (conf < end) {
        const char *stop = conf, *colon = NULL;
        int depth = 0;
        for (; stop < end && (*stop != ',' || depth > 0); stop++) {
            depth += *stop == '[' ? 1 : *stop == ']' ? -1 : 0;
            if (*stop == ':' && colon == NULL)
                colon = stop;
        }
        if (colon != NULL)
            all = set_word(settings, conf, (size_t)(stop - conf), colon) && all;
        conf = stop + 1;
    }
    return all;
}

uint64_t rvli_settings_divisions(const rvli_settings *settings, uint64_t size)
{
    unsigned log2 = log2_of(size);
    unsigned index = log2 > MIB_SHIFT ? log2 - MIB_SHIFT : 0;
    return settings->divisions[index < RVLI_ROUNDUP_BUCKETS ? index : RVLI_ROUNDUP_BUCKETS - 1];
}

bool rvli_settings_same(const rvli_settings *a, const rvli_settings *b)
{
    return a->max_split_bytes == b->max_split_bytes &&
           a->max_non_split_rounding_bytes == b->max_non_split_rounding_bytes &&
           a->large_segment_bytes == b->large_segment_bytes && a->gc_threshold <= b->gc_threshold &&
           a->gc_threshold >= b->gc_threshold && a->memory_fraction <= b->memory_fraction &&
           a->memory_fraction >= b->memory_fraction && a->expandable == b->expandable &&
           memcmp(a->divisions, b->divisions, sizeof a->divisions) == 0;
}
