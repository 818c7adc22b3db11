/* SPDX-License-Identifier: MIT */
/*
 * Files of checks are changed as lines of TOML: a line is copied, moved, taken out or from another
 * file; a key that the reader knows gets a line in a table where it may stand, or where it may not;
 * a value becomes another of any kind that TOML can write. A file of JSON is changed in the same
 * way: its values stand behind colons.
 */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#define LINES_MAX 512u
#define MADE_BYTES 16384u
#define INPUT_BYTES 65536u

typedef struct line {
    const char *at;
    uint32_t length; /* without its line break */
} line;

typedef struct text {
    line lines[LINES_MAX];
    uint32_t count;
    char made[MADE_BYTES];
    uint32_t made_bytes;
    uint32_t random;
} text;

static uint32_t pick(text *t, uint32_t below)
{
    return fuzz_pick(&t->random, below);
}

#define ONE_OF(t, words) words[pick(t, sizeof words / sizeof words[0])]

/* ---- Lines ---- */

/* false: it has too many lines, or bytes of which no text is made. */
static bool take_apart(text *t, const char *bytes, size_t size)
{
    if (size == 0 || (uint8_t)bytes[0] < '\t')
        return false;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(bytes + at, '\n', size - at);
        size_t stop = end != NULL ? (size_t)(end - bytes) : size;
        if (t->count == LINES_MAX)
            return false;
        t->lines[t->count++] = (line){bytes + at, (uint32_t)(stop - at)};
        at = stop + 1;
    }
    return true;
}

static void take_out(text *t, uint32_t at)
{
    memmove(&t->lines[at], &t->lines[at + 1], (t->count - at - 1) * sizeof *t->lines);
    t->count--;
}

static void put_in(text *t, uint32_t at, line l)
{
    if (t->count == LINES_MAX)
        return;
    memmove(&t->lines[at + 1], &t->lines[at], (t->count - at) * sizeof *t->lines);
    t->lines[at] = l;
    t->count++;
}

/* Parts of a line, one behind the other. */
static line make_line(text *t, const line *parts, uint32_t count)
{
    char *to = t->made + t->made_bytes;
    uint32_t length = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (t->made_bytes + length + parts[i].length > MADE_BYTES)
            return (line){"", 0};
        memcpy(to + length, parts[i].at, parts[i].length);
        length += parts[i].length;
    }
    t->made_bytes += length;
    return (line){to, length};
}

static line as_line(const char *words)
{
    return (line){words, (uint32_t)strlen(words)};
}

/* ---- Tables: which keys may stand where ---- */

#define KEYS_MAX 48

typedef enum table { ROOT, CHECK, SETTINGS, BUDGETS, GIVEN, TABLES } table;

static const char *const known[TABLES][KEYS_MAX] = {
    [ROOT] = {"schema", "baseline", "tolerance_percent", "checks"},
    [CHECK] = {"name",          "trace",       "model",
               "devices",       "wake",        "conductor",
               "budgets",       "settings",    "tolerance_percent",
               "command",       "gpus",        "rank",
               "world",         "host_memory", "keep_contents",
               "stages_nvtx",   "timeout",     "response_lengths",
               "response_seed", "kv_tokens"},
    [SETTINGS] = {"tp",
                  "pp",
                  "pp-rank",
                  "ep",
                  "mem-fraction",
                  "weights-dtype",
                  "kv-dtype",
                  "train",
                  "train-tp",
                  "train-pp",
                  "train-stage",
                  "train-cp",
                  "train-ep",
                  "sequence-parallel",
                  "recompute-attention",
                  "bf16-gradients",
                  "reshard",
                  "micro-batch",
                  "seq-len",
                  "recompute",
                  "optimizer",
                  "strategy",
                  "accumulate",
                  "fused",
                  "mixed-precision",
                  "given",
                  "wake",
                  "device",
                  "attention",
                  "loss",
                  "reduce-fp32",
                  "lora",
                  "lora-targets",
                  "nccl",
                  "base-dtype",
                  "adapter-dtype",
                  "prepare-kbit",
                  "autocast",
                  "cpu-offload",
                  "bucket-freed",
                  "offload-activations",
                  "transformer-impl",
                  "moe-grouped-gemm",
                  "moe-use-legacy-grouped-gemm",
                  "optimizer-offload"},
    [BUDGETS] = {"train", "rollout", "start", "update_weights", "\"a stage\""},
    [GIVEN] = {"weights", "kv_cache", "cuda_graph", "buffers", "optimizer", "activations", "logits",
               "asleep", "engine_context", "engine_nccl", "gradients"},
};

static bool begins(line l, const char *words)
{
    return l.length >= strlen(words) && memcmp(l.at, words, strlen(words)) == 0;
}

/* The table in which a line stands. */
static table table_at(const text *t, uint32_t at)
{
    while (at > 0) {
        line l = t->lines[--at];
        if (begins(l, "[[checks]]"))
            return CHECK;
        if (begins(l, "[checks.settings.given"))
            return GIVEN;
        if (begins(l, "[checks.settings"))
            return SETTINGS;
        if (begins(l, "[checks.budgets"))
            return BUDGETS;
    }
    return ROOT;
}

static const char *some_key(text *t, table of)
{
    uint32_t count = 0;
    while (count < KEYS_MAX && known[of][count] != NULL)
        count++;
    return known[of][pick(t, count)];
}

/* ---- Values ---- */

/* Right ones by their keys: what is not here takes a number. */
static const char *good_value(text *t, const char *key)
{
    static const char *const sizes[] = {"\"90GiB\"", "\"1.5TiB\"", "1073741824", "\"512MiB\""};
    static const char *const devices[] = {"\"h200\"", "[\"h100-80g\", \"h200\"]", "'80GiB'",
                                          "[\n  \"h200\", # one\n  \"b200\",\n]"};
    static const char *const lists[] = {"\"a.rvt\"", "[\"a.rvt\", \"b.rvt\"]", "'/tmp/x.rvt'"};
    static const struct {
        const char *key, *value;
    } fixed[] = {{"schema", "1"},
                 {"baseline", "\"b.json\""},
                 {"model", "\"config.json\""},
                 {"wake", "\"together\""},
                 {"conductor", "\"trainer\""},
                 {"settings", "{ tp = 2, train = \"fsdp:8\" }"},
                 {"budgets", "{ train = \"60GiB\", rollout = 1024 }"},
                 {"mem-fraction", "0.8"},
                 {"weights-dtype", "\"fp8\""},
                 {"kv-dtype", "\"bf16\""},
                 {"reshard", "true"},
                 {"nccl", "true"},
                 {"fused", "\"yes\""},
                 {"mixed-precision", "false"},
                 {"reduce-fp32", "true"},
                 {"sequence-parallel", "true"},
                 {"recompute-attention", "\"no\""},
                 {"bf16-gradients", "true"},
                 {"transformer-impl", "\"local\""},
                 {"moe-grouped-gemm", "true"},
                 {"moe-use-legacy-grouped-gemm", "false"},
                 {"optimizer-offload", "0.5"},
                 {"attention", "\"math\""},
                 {"lora-targets", "\"all-linear\""},
                 {"host_memory", "\"512GiB\""},
                 {"keep_contents", "0"},
                 {"stages_nvtx", "\"stage:\""},
                 {"response_lengths", "\"uniform:1..64\""},
                 {"response_seed", "7"},
                 {"kv_tokens", "100000"},
                 {"recompute", "false"},
                 {"strategy", "\"v2\""},
                 {"given", "{ cuda_graph = \"2.5GiB\" }"}};
    static const char *const trains[] = {"\"ddp\"", "\"none\"", "\"plain\"", "\"fsdp:8\"",
                                         "\"megatron:8\""};
    static const char *const losses[] = {"\"plain\"", "\"chunked\"", "\"chunked:4\"", "\"fused\""};
    static const char *const optimizers[] = {"\"adamw\"", "\"adamw-bf16\"", "\"adamw-8bit\"",
                                             "\"paged-adamw-8bit\"", "\"sgd\""};
    static const char *const commands[] = {"\"python train.py | tee log\"",
                                           "[\"bin/train\", \"-v\"]", "['/usr/bin/env']"};
    static const char *const names[] = {"\"a\"", "\"7b, as configured\"", "\"\\u00e9\\t\\\"\"",
                                        "\"\"\"many\nlines\"\"\"", "'c'"};
    static const char *const numbers[] = {"1", "2", "4", "0.5", "8", "4096"};
    if (strcmp(key, "name") == 0)
        return ONE_OF(t, names);
    if (strcmp(key, "trace") == 0)
        return ONE_OF(t, lists);
    if (strcmp(key, "devices") == 0)
        return ONE_OF(t, devices);
    if (strcmp(key, "command") == 0)
        return ONE_OF(t, commands);
    if (strcmp(key, "loss") == 0)
        return ONE_OF(t, losses);
    if (strcmp(key, "optimizer") == 0 && pick(t, 2) == 0)
        return ONE_OF(t, optimizers);
    if (strcmp(key, "train") == 0 && pick(t, 2) == 0)
        return ONE_OF(t, trains);
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (strcmp(key, fixed[i].key) == 0)
            return fixed[i].value;
    return pick(t, 2) == 0 ? ONE_OF(t, sizes) : ONE_OF(t, numbers);
}

/* Whatever TOML has, and a little that it lacks. */
static const char *any_value(text *t)
{
    static const char *const values[] = {"0",
                                         "-1",
                                         "+99",
                                         "1_000",
                                         "0xdead_beef",
                                         "0o755",
                                         "0b1101",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "3.14",
                                         "-2e-22",
                                         "6.626e+34",
                                         "1e400",
                                         "inf",
                                         "nan",
                                         "true",
                                         "false",
                                         "1979-05-27T07:32:00Z",
                                         "1979-05-27 07:32:00.999999-07:00",
                                         "1979-05-27",
                                         "07:32:00",
                                         "\"\"",
                                         "\"\\u0000\"",
                                         "\"\\U0010FFFF\"",
                                         "\"\\U000F0000\"",
                                         "\"\\x41\"",
                                         "'C:\\raw'",
                                         "'''\nraw \"\"\" text'''",
                                         "\"\"\"\\\n   joined\"\"\"",
                                         "\"gr\xc3\xb6\xc3\x9f\"",
                                         "\"\xe2\x80\xa8\xf0\x9f\x98\x80\"",
                                         "\"\xff\"",
                                         "[]",
                                         "[[], [1, [2.0]], \"x\"]",
                                         "[1, \"x\", {a = 1}]",
                                         "{}",
                                         "{ a.b.c = 1, \"d e\" = 2 }",
                                         "{ tp = 2, given = { weights = \"1GiB\" } }",
                                         "\"fsdp:0\"",
                                         "\"h200\"",
                                         "\"9EiB\"",
                                         "{\"a\": [1, {\"b\": null}]}"};
    return ONE_OF(t, values);
}

/* ---- Changes ---- */

/* Where the value of a line begins; its length: it has none. */
static uint32_t value_in(line l)
{
    for (uint32_t i = 0; i + 1 < l.length; i++)
        if (l.at[i] == '=' || l.at[i] == ':')
            return i + 1;
    return l.length;
}

static void change_value(text *t)
{
    uint32_t begin = pick(t, t->count), at = begin;
    while (value_in(t->lines[at]) == t->lines[at].length) {
        at = (at + 1) % t->count;
        if (at == begin)
            return;
    }
    line l = t->lines[at], value = as_line(any_value(t));
    uint32_t from = value_in(l);
    for (const char *const *key = known[table_at(t, at)]; pick(t, 2) == 0 && *key != NULL; key++)
        if (begins(l, *key))
            value = as_line(good_value(t, *key));
    const line parts[] = {{l.at, from}, {" ", 1}, value};
    t->lines[at] = make_line(t, parts, 3);
}

static void set_key(text *t)
{
    uint32_t at = pick(t, t->count + 1);
    table in = table_at(t, at);
    const char *key = some_key(t, pick(t, 16) == 0 ? (table)pick(t, TABLES) : in);
    const char *value = pick(t, 8) == 0 ? any_value(t) : good_value(t, key);
    const line parts[] = {as_line(key), as_line(" = "), as_line(value)};
    line made = make_line(t, parts, 3);
    for (uint32_t i = at; i-- > 0 && !begins(t->lines[i], "[");)
        if (begins(t->lines[i], key)) { /* once more would be an error */
            t->lines[i] = made;
            return;
        }
    put_in(t, at, made);
}

static void add_check(text *t)
{
    static const char *const subjects[] = {"model = \"config.json\"", "trace = [\"a.rvt\"]",
                                           "command = [\"python\", \"train.py\"]"};
    char name[32];
    snprintf(name, sizeof name, "name = \"c%u\"", (unsigned)pick(t, 1000));
    const line parts[] = {as_line(name)};
    put_in(t, t->count, as_line("[[checks]]"));
    put_in(t, t->count, make_line(t, parts, 1));
    put_in(t, t->count, as_line(ONE_OF(t, subjects)));
}

/* Only a check that has none of it yet can take one. */
static void add_table(text *t)
{
    static const char *const headers[] = {
        "[checks.settings]", "[checks.budgets]", "[checks.settings.given]",
        "[[checks]]",        "[checks]",         "[ \"checks\" . 'settings' ]",
        "[other]",           "[[a.b]]"};
    put_in(t, pick(t, 4) > 0 ? t->count : pick(t, t->count + 1),
           as_line(headers[pick(t, pick(t, 8) == 0 ? 8 : 3)]));
    if (pick(t, 4) > 0)
        set_key(t);
}

static void change_lines(text *t)
{
    uint32_t from = pick(t, t->count), to = pick(t, t->count);
    line l = t->lines[from];
    switch (pick(t, 4)) {
    case 0:
        put_in(t, to, l);
        break;
    case 1:
        t->lines[from] = t->lines[to];
        t->lines[to] = l;
        break;
    default:
        if (t->count > 1)
            take_out(t, from);
    }
}

/* What a file may have beside its keys; a letter that does not belong there. */
static void change_letters(text *t)
{
    static const char *const odd[] = {" # note", "\r",   "\t",          "=",        ".",
                                      "]",       "[",    "\"",          "'",        "\"\"\"",
                                      ",",       "}",    "\\",          "\xc2\xa0", "\xe2\x80\xa8",
                                      "\xff",    "\x01", "\xef\xbb\xbf"};
    uint32_t at = pick(t, t->count);
    line l = t->lines[at];
    uint32_t cut = pick(t, 2) == 0 ? l.length : pick(t, l.length + 1);
    const line parts[] = {{l.at, cut}, as_line(ONE_OF(t, odd)), {l.at + cut, l.length - cut}};
    t->lines[at] = make_line(t, parts, 3);
}

/* ---- What libFuzzer calls ---- */

static text current;
static char input[2 * INPUT_BYTES];

static size_t write_text(const text *t, uint8_t *data, size_t size_max)
{
    size_t size = 0;
    for (uint32_t i = 0; i < t->count && size_max - size > t->lines[i].length; i++) {
        memcpy(data + size, t->lines[i].at, t->lines[i].length);
        size += t->lines[i].length;
        data[size++] = '\n';
    }
    return size;
}

static text *begin(unsigned seed)
{
    current.count = current.made_bytes = 0;
    current.random = seed;
    return &current;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    static void (*const changes[])(text *) = {change_value, change_value, set_key,
                                              set_key,      set_key,      add_check,
                                              add_table,    change_lines, change_letters};
    text *t = begin(seed);
    if (size > INPUT_BYTES || pick(t, 16) == 0)
        return LLVMFuzzerMutate(data, size, size_max);
    memcpy(input, data, size);
    if (!take_apart(t, input, size))
        return LLVMFuzzerMutate(data, size, size_max);
    for (uint32_t times = 1 + pick(t, 3); times > 0; times--)
        changes[pick(t, sizeof changes / sizeof changes[0])](t);
    return write_text(t, data, size_max);
}

/* The first one; then the second one from one of its tables on. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t out_max, unsigned seed)
{
    text *t = begin(seed);
    if (first_size > INPUT_BYTES || second_size > INPUT_BYTES)
        return 0;
    memcpy(input, first, first_size);
    memcpy(input + first_size, second, second_size);
    if (!take_apart(t, input, first_size))
        return 0;
    uint32_t own = t->count;
    if (!take_apart(t, input + first_size, second_size))
        t->count = own;
    uint32_t from = own + pick(t, t->count - own + 1), cut = own;
    while (from < t->count && !begins(t->lines[from], "["))
        from++;
    if (pick(t, 2) == 0)
        cut = pick(t, own + 1);
    memmove(&t->lines[cut], &t->lines[from], (t->count - from) * sizeof *t->lines);
    t->count = cut + t->count - from;
    return write_text(t, out, out_max);
}
