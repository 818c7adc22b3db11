/* SPDX-License-Identifier: MIT */
/*
 * The tape of every config's training step, in settings that go together: held by a digest of each.
 *
 * A digest stands for all allocations in their order, and for the frees between two of them without
 * theirs, which the allocator's state does not depend on. tests/data/tapes.txt has them, a line for
 * each config and a column for each setting; "-" is a setting that the family refuses.
 *
 * After a change that is meant to move a tape: RVL_TAPES=DIR test_tapes writes tapes.txt there, and
 * each tape as text (DIR/CONFIG.SETTING), before and after to be compared line by line.
 */
#include "tests/support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/llm/step/training.h"
#include "tests/predict/model_configs.h"

#define CONFIGS RVL_SOURCE_DIR "/tests/data/configs"
#define DIGESTS RVL_SOURCE_DIR "/tests/data/tapes.txt"
#define LAYERS_MAX 4
#define CONFIGS_MAX 256
#define LINE_BYTES 512

static const struct {
    const char *name;
    rvl_model_options options;
} settings[] = {
#define DDP .struct_size = sizeof(rvl_model_options), .train = RVL_MODEL_TRAIN_DDP, .train_ranks = 1
#define FSDP                                                                                       \
    .struct_size = sizeof(rvl_model_options), .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 4
#define LORA DDP, .lora_rank = 16, .lora_targets = RVL_MODEL_LORA_ALL_LINEAR, .seq_len = 1024
    {"ddp", {DDP, .seq_len = 1024, .optimizer = RVL_MODEL_ADAMW_BF16}},
    {"accumulate", {DDP, .seq_len = 4096, .micro_batch = 2, .accumulate = 2}},
    {"fsdp", {FSDP, .seq_len = 5000, .flags = RVL_MODEL_RESHARD}},
    {"recompute", {FSDP, .seq_len = 1024, .flags = RVL_MODEL_RECOMPUTE}},
    {"offload", {FSDP, .seq_len = 1024, .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_OFFLOAD}},
    {"flash", {DDP, .seq_len = 1000, .attention = RVL_MODEL_ATTENTION_FLASH}},
    {"math",
     {DDP, .seq_len = 256, .attention = RVL_MODEL_ATTENTION_MATH, .flags = RVL_MODEL_RECOMPUTE}},
    {"chunked", {DDP, .seq_len = 1024, .loss = RVL_MODEL_LOSS_CHUNKED, .loss_chunks = 3}},
    {"fused", {DDP, .seq_len = 1024, .loss = RVL_MODEL_LOSS_FUSED}},
    {"parts", {FSDP, .seq_len = 2048, .train_cp = 4, .flags = RVL_MODEL_RECOMPUTE}},
    {"lora", {LORA}},
    {"nf4", {LORA, .base_dtype = RVL_MODEL_BASE_NF4, .flags = RVL_MODEL_RECOMPUTE}},
    {"kbit",
     {LORA, .base_dtype = RVL_MODEL_BASE_NF4,
      .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT}},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* ---- A tape ---- */

typedef struct tape {
    uint64_t digest;
    uint64_t frees; /* since the last allocation: their sum */
    FILE *text;     /* NULL: not written */
} tape;

/* FNV-1a of what an event says. */
static uint64_t hashed(uint64_t digest, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        digest = (digest ^ (value >> 8 * i & 0xff)) * UINT64_C(1099511628211);
    return digest;
}

static void tell(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    tape *t = user;
    uint64_t event = hashed(hashed(hashed(0, (uint64_t)bytes), stream), holder);
    if (bytes > 0) {
        t->digest = hashed(hashed(t->digest, t->frees), event);
        t->frees = 0;
    } else {
        t->frees += event;
    }
    if (t->text != NULL)
        fprintf(t->text, "%+lld stream %d term %d\n", (long long)bytes, (int)stream, (int)holder);
}

static rvli_training_shape shape_of(const rvl_model_options *o)
{
    uint32_t parts = o->train_cp > 1 ? o->train_cp : 1;
    return (rvli_training_shape){.train = o->train,
                                 .train_ranks = o->train_ranks,
                                 .flags = o->flags,
                                 .micro_batch = o->micro_batch,
                                 .seq_len = o->seq_len / parts,
                                 .accumulate = o->accumulate,
                                 .optimizer = o->optimizer,
                                 .cp = parts,
                                 .attention = o->attention,
                                 .loss = o->loss,
                                 .loss_chunks = o->loss_chunks,
                                 .lora_rank = o->lora_rank,
                                 .lora_targets = o->lora_targets,
                                 .base_dtype = o->base_dtype};
}

static FILE *open_text(const char *folder, const char *config, const char *setting)
{
    char path[LINE_BYTES];
    if (folder == NULL)
        return NULL;
    snprintf(path, sizeof path, "%s/%s.%s", folder, config, setting);
    return fopen(path, "w");
}

/* A run with less than is live at once would not fit, so it is never tried. */
static void less_than_is_live_never_fits(const rvl_model *model, rvli_training_shape shape,
                                         uint64_t live_bytes)
{
    rvli_trained tight;
    shape.limit_bytes = live_bytes - 1;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &tight), RVL_OK);
    assert_true(tight.reserved_bytes > shape.limit_bytes);
}

/* Appends a digest, or "-", to the line. */
static void add_digest(char *line, const rvl_model *model, const char *config, int setting)
{
    rvli_plan plan;
    rvli_trained trained;
    size_t length = strlen(line);
    if (rvli_plan_make(model, &settings[setting].options, &plan) != RVL_OK) {
        snprintf(line + length, LINE_BYTES - length, " -");
        return;
    }
    const rvli_training_shape shape = shape_of(&plan.options);
    tape t = {.text = open_text(getenv("RVL_TAPES"), config, settings[setting].name)};
    const rvli_tape_listener listener = {.told = tell, .user = &t};
    assert_int_equal(rvli_training_run(model, &shape, &listener, &trained), RVL_OK);
    if (t.text != NULL)
        fclose(t.text);
    rvli_trained alone; /* without the step that only confirms the last */
    assert_int_equal(rvli_training_run(model, &shape, NULL, &alone), RVL_OK);
    assert_memory_equal(&alone, &trained, sizeof alone);
    if (setting == 0)
        less_than_is_live_never_fits(model, shape, alone.requested_bytes);
    uint64_t all = hashed(hashed(t.digest, t.frees), trained.reserved_bytes);
    snprintf(line + length, LINE_BYTES - length, " %08x", (unsigned)(all ^ all >> 32));
}

static void make_line(char *line, const char *config)
{
    rvl_model *model = open_model(config);
    if (model->layers > LAYERS_MAX)
        model->layers = LAYERS_MAX;
    snprintf(line, LINE_BYTES, "%s", config);
    for (int i = 0; i < SETTINGS; i++)
        add_digest(line, model, config, i);
    rvl_model_close(model);
}

/* ---- All of them ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

typedef char name[128];

static size_t list_configs(name *names)
{
    static const char ending[] = ".json";
    size_t count = 0;
    DIR *folder = opendir(CONFIGS);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < sizeof ending || strcmp(entry->d_name + length - 5, ending) != 0)
            continue;
        assert_true(count < CONFIGS_MAX);
        snprintf(names[count++], sizeof names[0], "%.*s", (int)(length - 5), entry->d_name);
    }
    closedir(folder);
    qsort(names, count, sizeof names[0], by_name);
    return count;
}

/* Which settings of a line differ. */
static void tell_difference(const char *expected, const char *line)
{
    char before[LINE_BYTES], after[LINE_BYTES], *at[2];
    snprintf(before, sizeof before, "%s", expected);
    snprintf(after, sizeof after, "%s", line);
    const char *config = strtok_r(before, " ", &at[0]);
    strtok_r(after, " ", &at[1]);
    for (int i = 0; i < SETTINGS; i++) {
        const char *was = strtok_r(NULL, " ", &at[0]), *is = strtok_r(NULL, " ", &at[1]);
        if (was == NULL || is == NULL || strcmp(was, is) != 0)
            print_error("%s, %s: the tape is another\n", config, settings[i].name);
    }
}

static FILE *open_digests(const char *folder)
{
    char path[LINE_BYTES];
    if (folder == NULL)
        return NULL;
    snprintf(path, sizeof path, "%s/tapes.txt", folder);
    return fopen(path, "w");
}

static void each_tape_is_as_it_was(void **state)
{
    (void)state;
    static name names[CONFIGS_MAX];
    size_t count = list_configs(names), different = 0;
    FILE *expected = fopen(DIGESTS, "r"), *written = open_digests(getenv("RVL_TAPES"));
    for (size_t i = 0; i < count; i++) {
        char line[LINE_BYTES], before[LINE_BYTES] = "";
        make_line(line, names[i]);
        if (written != NULL)
            fprintf(written, "%s\n", line);
        if (expected == NULL || fgets(before, sizeof before, expected) == NULL)
            before[0] = '\0';
        before[strcspn(before, "\n")] = '\0';
        if (strcmp(before, line) != 0) {
            different++;
            tell_difference(before, line);
        }
    }
    if (written != NULL)
        fclose(written);
    assert_non_null(expected);
    fclose(expected);
    assert_true(count >= 120);
    assert_int_equal(different, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_tape_is_as_it_was)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
