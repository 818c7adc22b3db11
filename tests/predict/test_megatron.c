/* SPDX-License-Identifier: MIT */
/*
 * A step of Megatron as a program, against PyTorch's own figures.
 *
 * tests/simcuda/programs/megatron_train.py ran megatron-core's model, schedule, buffers and
 * optimizer as one rank on a simulated H200: the most that was allocated and reserved in its last
 * step (tests/simcuda/truth/megatron-*.json). Then what is refused, and how a step ends without
 * memory.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/llm/step/training.h"
#include "tests/predict/step_memory.h"

#define CONFIGS RVL_SOURCE_DIR "/tests/data/configs/"
#define PATH_BYTES 256
#define CONFIG_BYTES 4096
#define ALLOCATED_PERCENT 0.3
#define RESERVED_PERCENT 2.0
#define CLOSE_PERCENT 0.1

/* With another number of layers; 0: as it is. */
static rvl_model *open_model(const char *name, unsigned layers)
{
    char path[PATH_BYTES], text[CONFIG_BYTES], cut[CONFIG_BYTES];
    rvl_model *model = NULL;
    snprintf(path, sizeof path, CONFIGS "%s.json", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    fclose(file);
    char *count = strstr(text, "\"num_hidden_layers\": ");
    assert_non_null(count);
    count += strlen("\"num_hidden_layers\": ");
    if (layers > 0)
        snprintf(cut, sizeof cut, "%.*s%u%s", (int)(count - text), text, layers,
                 strchr(count, ','));
    const char *config = layers > 0 ? cut : text;
    assert_int_equal(rvl_model_parse(config, strlen(config), &model), RVL_OK);
    return model;
}

/* ---- Against programs that ran ---- */

typedef struct program {
    const char *name;
    const char *config;
    unsigned layers;
    rvli_training_shape shape;
    uint64_t allocated; /* the most in the last step, as PyTorch read it */
    uint64_t reserved;
    /* What was in use beyond that and what any program has: its communicators. Left out: four
     * streams of grouped products, 4 MiB, and the 128 MiB that a stage has less where no product is
     * PyTorch's: TransformerEngine's layers, without head and experts. */
    uint64_t nccl_mib;
} program;

#define RANK(tp_, pp_, cp_, ep_, dp_)                                                              \
    .train = RVL_MODEL_TRAIN_MEGATRON, .optimizer = RVL_MODEL_ADAMW, .tp = (tp_), .pp = (pp_),     \
    .cp = (cp_), .ep = (ep_), .dp = (dp_)
#define LOCAL RVL_MODEL_LOCAL_LAYERS
#define BATCH(micro_batch_, seq_len_, accumulate_)                                                 \
    .micro_batch = (micro_batch_), .seq_len = (seq_len_), .accumulate = (accumulate_)

static const program programs[] = {
    {"tp2",
     "llama-3.2-1b",
     0,
     {RANK(2, 1, 1, 1, 1), BATCH(2, 2048, 1), .flags = LOCAL},
     16013497856,
     17351835648,
     1742},
    {"tp2 sp",
     "llama-3.2-1b",
     0,
     {RANK(2, 1, 1, 1, 1), BATCH(2, 4096, 1), .flags = LOCAL | RVL_MODEL_SEQUENCE_PARALLEL},
     19756627456,
     20011024384,
     1742},
    {"pp2, first",
     "llama-3.2-1b",
     0,
     {RANK(1, 2, 1, 1, 1), BATCH(1, 2048, 4), .flags = LOCAL},
     16551805952,
     17322475520,
     1938},
    {"pp2, last",
     "llama-3.2-1b",
     0,
     {RANK(1, 2, 1, 1, 1), BATCH(1, 2048, 4), .stage = 1, .flags = LOCAL},
     16568615936,
     17987272704,
     1938},
    {"dp2",
     "qwen3-0.6b",
     0,
     {RANK(1, 1, 1, 1, 2), BATCH(1, 4096, 2), .flags = LOCAL},
     16746907648,
     19599982592,
     1742},
    {"tp2 pp2 dp2 sp, recompute",
     "llama-3.1-8b",
     0,
     {RANK(2, 2, 1, 1, 2), BATCH(1, 4096, 4),
      .flags = LOCAL | RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_RECOMPUTE},
     28211217408,
     29200744448,
     2422},
    {"tp4 sp, selective, bf16 gradients",
     "qwen2.5-7b",
     0,
     {RANK(4, 1, 1, 1, 1), BATCH(1, 4096, 2),
      .flags =
          LOCAL | RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_SELECTIVE | RVL_MODEL_BF16_GRADIENTS},
     45876429824,
     47670362112,
     1742},
    {"pp4, second",
     "llama-3.2-1b",
     0,
     {RANK(1, 4, 1, 1, 1), BATCH(1, 4096, 6), .stage = 1, .flags = LOCAL},
     8623209472,
     8751415296,
     1454},
    {"pp4, second, four parts",
     "llama-3.2-1b",
     0,
     {RANK(1, 4, 1, 1, 1), BATCH(1, 4096, 8), .stage = 1, .vpp = 4, .flags = LOCAL},
     10346721280,
     10592714752,
     1454},
    {"pp2, first, four parts",
     "llama-3.2-1b",
     0,
     {RANK(1, 2, 1, 1, 1), BATCH(1, 2048, 6), .vpp = 4, .flags = LOCAL},
     16787545088,
     17871929344,
     1938},
    {"dp4, bf16 gradients",
     "qwen2.5-0.5b",
     0,
     {RANK(1, 1, 1, 1, 4), BATCH(2, 2048, 1), .flags = LOCAL | RVL_MODEL_BF16_GRADIENTS},
     11503617024,
     13453230080,
     1742},
    {"cp2",
     "llama-3.2-1b",
     0,
     {RANK(1, 1, 2, 1, 1), BATCH(1, 4096, 1), .flags = LOCAL | RVL_MODEL_FUSED},
     18996536832,
     19253952512,
     1938},
    {"cp4",
     "llama-3.2-1b",
     0,
     {RANK(1, 1, 4, 1, 1), BATCH(1, 8192, 1), .flags = LOCAL | RVL_MODEL_FUSED},
     15289110016,
     15472787456,
     2134},
    {"cp2 tp2 sp",
     "qwen3-0.6b",
     0,
     {RANK(2, 1, 2, 1, 1), BATCH(1, 8192, 2),
      .flags = LOCAL | RVL_MODEL_FUSED | RVL_MODEL_SEQUENCE_PARALLEL},
     8597297152,
     9906946048,
     2422},
    {"cp4, recompute",
     "qwen2.5-0.5b",
     0,
     {RANK(1, 1, 4, 1, 1), BATCH(1, 32768, 1),
      .flags = LOCAL | RVL_MODEL_FUSED | RVL_MODEL_RECOMPUTE},
     12372263936,
     16911433728,
     2134},
    {"cp2, selective",
     "llama-3.2-1b",
     0,
     {RANK(1, 1, 2, 1, 1), BATCH(1, 8192, 1),
      .flags = LOCAL | RVL_MODEL_FUSED | RVL_MODEL_SELECTIVE},
     23420300800,
     25713180672,
     1938},
    {"tp2, recompute",
     "llama-3.2-1b",
     0,
     {RANK(2, 1, 1, 1, 1), BATCH(1, 8192, 1), .flags = LOCAL | RVL_MODEL_RECOMPUTE},
     14952543744,
     16886267904,
     1742},
    {"ep4 tp2 sp",
     "qwen3-30b-a3b",
     3,
     {RANK(2, 1, 1, 4, 4), BATCH(1, 2048, 2), .flags = LOCAL | RVL_MODEL_SEQUENCE_PARALLEL},
     9907006464,
     11091836928,
     3194},
    {"ep8, recompute",
     "mixtral-8x7b-v0.1",
     2,
     {RANK(1, 1, 1, 8, 8), BATCH(1, 4096, 1), .flags = LOCAL | RVL_MODEL_RECOMPUTE},
     10614434816,
     11641290752,
     2226},
    {"ep2",
     "qwen3-30b-a3b",
     2,
     {RANK(1, 1, 1, 2, 2), BATCH(1, 1024, 1), .flags = LOCAL},
     21287682048,
     24362614784,
     2226},
    {"te dp2",
     "qwen3-0.6b",
     0,
     {RANK(1, 1, 1, 1, 2), BATCH(1, 4096, 2)},
     16310687744,
     19157483520,
     1742},
    {"te tp2 sp",
     "llama-3.2-1b",
     0,
     {RANK(2, 1, 1, 1, 1), BATCH(2, 4096, 1), .flags = RVL_MODEL_SEQUENCE_PARALLEL},
     19454631424,
     19597885440,
     1742},
    {"te pp2, last",
     "llama-3.2-1b",
     0,
     {RANK(1, 2, 1, 1, 1), BATCH(1, 2048, 4), .stage = 1},
     16450334208,
     17655922688,
     1938},
    {"te pp4, second, two parts",
     "llama-3.2-1b",
     0,
     {RANK(1, 4, 1, 1, 1), BATCH(1, 4096, 8), .stage = 1, .vpp = 2},
     10234020864,
     10414456832,
     1454},
    {"te pp2, last, two parts",
     "llama-3.2-1b",
     0,
     {RANK(1, 2, 1, 1, 1), BATCH(1, 2048, 4), .stage = 1, .vpp = 2},
     17069618688,
     18314428416,
     1938},
    {"te tp2 pp2 dp2 sp, recompute",
     "llama-3.1-8b",
     0,
     {RANK(2, 2, 1, 1, 2), BATCH(1, 4096, 4),
      .flags = RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_RECOMPUTE},
     25122468864,
     26073890816,
     2422},
    {"te tp4 sp, selective, bf16 gradients",
     "qwen2.5-7b",
     0,
     {RANK(4, 1, 1, 1, 1), BATCH(1, 4096, 2),
      .flags = RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_SELECTIVE | RVL_MODEL_BF16_GRADIENTS},
     38272945152,
     39994785792,
     1742},
    {"te tp2, recompute",
     "llama-3.2-1b",
     0,
     {RANK(2, 1, 1, 1, 1), BATCH(1, 8192, 1), .flags = RVL_MODEL_RECOMPUTE},
     14986100224,
     15284043776,
     1742},
    {"te dp4, bf16 gradients",
     "qwen2.5-0.5b",
     0,
     {RANK(1, 1, 1, 1, 4), BATCH(2, 2048, 1), .flags = RVL_MODEL_BF16_GRADIENTS},
     11336883200,
     13260292096,
     1742},
    {"te cp2",
     "llama-3.2-1b",
     0,
     {RANK(1, 1, 2, 1, 1), BATCH(1, 4096, 1)},
     19030092288,
     19289604096,
     1938},
    {"te cp4, recompute",
     "qwen2.5-0.5b",
     0,
     {RANK(1, 1, 4, 1, 1), BATCH(1, 32768, 1), .flags = RVL_MODEL_RECOMPUTE},
     12405599744,
     16833839104,
     2134},
    {"te cp2, selective",
     "llama-3.2-1b",
     0,
     {RANK(1, 1, 2, 1, 1), BATCH(1, 8192, 1), .flags = RVL_MODEL_SELECTIVE},
     23453929984,
     23664263168,
     1938},
    {"te ep2",
     "qwen3-30b-a3b",
     2,
     {RANK(1, 1, 1, 2, 2), BATCH(1, 1024, 1)},
     20087756288,
     20659044352,
     2226},
    {"te ep8, recompute",
     "mixtral-8x7b-v0.1",
     2,
     {RANK(1, 1, 1, 8, 8), BATCH(1, 4096, 1), .flags = RVL_MODEL_RECOMPUTE},
     10606048256,
     11379146752,
     2226},
    {"te ep2, grouped",
     "qwen3-30b-a3b",
     2,
     {RANK(1, 1, 1, 2, 2), BATCH(1, 1024, 1), .flags = RVL_MODEL_GROUPED_GEMM},
     20221978112,
     20633878528,
     2226},
    {"te ep4 tp2 sp, grouped",
     "qwen3-30b-a3b",
     3,
     {RANK(2, 1, 1, 4, 4), BATCH(1, 2048, 2),
      .flags = RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_GROUPED_GEMM},
     10049617920,
     10351542272,
     3194},
    {"te ep8, recompute, grouped",
     "mixtral-8x7b-v0.1",
     2,
     {RANK(1, 1, 1, 8, 8), BATCH(1, 4096, 1),
      .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_GROUPED_GEMM},
     10740270080,
     11614027776,
     2226},
    {"te pp2 ep4, first, grouped",
     "qwen3-30b-a3b",
     4,
     {RANK(1, 2, 1, 4, 4), BATCH(1, 2048, 4), .flags = RVL_MODEL_GROUPED_GEMM},
     10042425344,
     11196694528,
     2422},
    {"te ep8, recompute, legacy",
     "mixtral-8x7b-v0.1",
     2,
     {RANK(1, 1, 1, 8, 8), BATCH(1, 4096, 1),
      .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_GROUPED_GEMM | RVL_MODEL_LEGACY_GROUPED_GEMM},
     10723488768,
     11446255616,
     2226},
    {"ep2, legacy",
     "qwen3-30b-a3b",
     2,
     {RANK(1, 1, 1, 2, 2), BATCH(1, 1024, 1),
      .flags = LOCAL | RVL_MODEL_FUSED | RVL_MODEL_GROUPED_GEMM},
     20069917696,
     20447232000,
     2226},
    {"ep4 tp2 sp, legacy",
     "qwen3-30b-a3b",
     3,
     {RANK(2, 1, 1, 4, 4), BATCH(1, 2048, 2),
      .flags = LOCAL | RVL_MODEL_FUSED | RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_GROUPED_GEMM},
     9905958912,
     10062135296,
     3194},
    {"dp4, offload",
     "qwen2.5-0.5b",
     0,
     {RANK(1, 1, 1, 1, 4), BATCH(1, 1024, 1), .flags = LOCAL, .optimizer_offload_ppm = 1000000},
     5066405888,
     5683281920,
     1742},
    {"dp4, half of it",
     "qwen2.5-0.5b",
     0,
     {RANK(1, 1, 1, 1, 4), BATCH(1, 1024, 1), .flags = LOCAL, .optimizer_offload_ppm = 500000},
     5781173248,
     6062866432,
     1742},
    {"tp2 dp2 sp, a quarter",
     "llama-3.2-1b",
     0,
     {RANK(2, 1, 1, 1, 2), BATCH(1, 4096, 1), .flags = LOCAL | RVL_MODEL_SEQUENCE_PARALLEL,
      .optimizer_offload_ppm = 250000},
     10751051776,
     10894704640,
     2226},
    {"ep8, bf16 gradients, half",
     "qwen3-30b-a3b",
     2,
     {RANK(1, 1, 1, 8, 8), BATCH(1, 1024, 1), .flags = LOCAL | RVL_MODEL_BF16_GRADIENTS,
      .optimizer_offload_ppm = 500000},
     5732084224,
     6213861376,
     2226},
    {"te dp4, half",
     "qwen3-0.6b",
     0,
     {RANK(1, 1, 1, 1, 4), BATCH(1, 4096, 2), .optimizer_offload_ppm = 500000},
     13603985408,
     16024338432,
     1742},
};

static double percent(uint64_t predicted, uint64_t read)
{
    return ((double)predicted / (double)read - 1) * 100;
}

static bool is_near(uint64_t predicted, uint64_t read, double bound)
{
    return percent(predicted, read) <= bound && percent(predicted, read) >= -bound;
}

static uint64_t most_allocated(const rvli_trained *trained)
{
    uint64_t passes = trained->passes.allocated_bytes, update = trained->update.allocated_bytes;
    return passes > update ? passes : update;
}

/* TransformerEngine's layers were followed event by event. Experts are in lots if not grouped. */
static double bound_of(const program *p, double percent)
{
    bool in_lots = p->shape.ep > 1 && (p->shape.flags & RVL_MODEL_GROUPED_GEMM) == 0;
    return p->shape.flags & LOCAL || in_lots ? percent : CLOSE_PERCENT;
}

/* Small tensors, and the first compilation of a kernel, are left out. */
static void programs_have_what_was_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        const program *p = &programs[i];
        rvl_model *model = open_model(p->config, p->layers);
        rvli_trained trained;
        assert_int_equal(rvli_training_run(model, &p->shape, NULL, &trained), RVL_OK);
        uint64_t allocated = most_allocated(&trained);
        bool near = is_near(allocated, p->allocated, bound_of(p, ALLOCATED_PERCENT)) &&
                    is_near(trained.reserved_bytes, p->reserved, bound_of(p, RESERVED_PERCENT));
        if (!near)
            print_error("%s: allocated %+.3f %%, reserved %+.3f %%\n", p->name,
                        percent(allocated, p->allocated),
                        percent(trained.reserved_bytes, p->reserved));
        assert_true(near);
        rvl_model_close(model);
    }
}

/* ---- The program itself ---- */

typedef struct ledger {
    uint64_t events;
    int64_t bytes[RVL_MODEL_TERM_COUNT];
} ledger;

static void note(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    ledger *l = user;
    assert_true(stream == RVLI_STREAM_COMPUTE || stream == RVLI_STREAM_RING);
    l->events++;
    l->bytes[holder] += bytes;
    assert_true(l->bytes[holder] >= 0);
}

static ledger run_told(const rvl_model *model, rvli_training_shape shape)
{
    ledger l = {0};
    rvli_trained trained;
    assert_int_equal(
        rvli_training_run(model, &shape, &(rvli_tape_listener){.told = note, .user = &l}, &trained),
        RVL_OK);
    assert_true(l.events > 500);
    return l;
}

/* Positions, the buffer that gathers sequences, the last input of each part with its gradient where
 * it was received, and what the optimizer and the buffers have. */
static void nothing_is_left_but_states(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t tp, pp, cp, ep;
        uint64_t flags;
        uint32_t vpp;
    } cases[] = {
        {"llama-3.1-8b", 1, 2, 1, 1, LOCAL, 2},
        {"llama-3.1-8b", 2, 4, 1, 1, LOCAL | RVL_MODEL_SEQUENCE_PARALLEL, 8},
        {"qwen3-8b", 2, 2, 1, 1, LOCAL | RVL_MODEL_RECOMPUTE, 1},
        {"qwen2.5-7b", 1, 2, 4, 1, LOCAL | RVL_MODEL_SELECTIVE, 1},
        {"qwen3-30b-a3b", 1, 2, 1, 4, LOCAL | RVL_MODEL_GROUPED_GEMM, 1},
        {"qwen3-30b-a3b", 1, 2, 2, 4, RVL_MODEL_GROUPED_GEMM | RVL_MODEL_RECOMPUTE, 1},
        {"mixtral-8x7b-v0.1", 1, 2, 1, 8,
         RVL_MODEL_GROUPED_GEMM | RVL_MODEL_LEGACY_GROUPED_GEMM | RVL_MODEL_SELECTIVE, 1},
        {"qwen3-8b", 2, 1, 2, 1, RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_SELECTIVE, 1},
        {"llama-3.1-8b", 1, 2, 1, 1, 0, 2},
        {"llama-3.1-8b", 2, 4, 1, 1, RVL_MODEL_SEQUENCE_PARALLEL, 8},
        {"qwen3-30b-a3b", 1, 4, 1, 4, RVL_MODEL_RECOMPUTE, 3},
        {"llama-3.1-8b", 1, 1, 1, 1, 0, 1},
        {"llama-3.1-8b", 2, 4, 2, 1, RVL_MODEL_SEQUENCE_PARALLEL, 1},
        {"llama-3.1-8b", 4, 2, 1, 1, RVL_MODEL_RECOMPUTE, 1},
        {"qwen2.5-7b", 2, 2, 1, 1, RVL_MODEL_SELECTIVE, 1},
        {"qwen3-8b", 8, 1, 1, 1, RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_RECOMPUTE, 1},
        {"mistral-7b-v0.1", 1, 2, 4, 1, RVL_MODEL_BF16_GRADIENTS, 1},
        {"qwen3-8b", 1, 2, 8, 1, RVL_MODEL_SELECTIVE, 1},
        {"qwen3-8b", 2, 1, 3, 1, RVL_MODEL_RECOMPUTE, 1},
        {"mixtral-8x7b-v0.1", 1, 2, 1, 8, 0, 1},
        {"qwen3-30b-a3b", 2, 1, 1, 4, RVL_MODEL_SEQUENCE_PARALLEL | RVL_MODEL_RECOMPUTE, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = open_model(cases[i].config, 0);
        for (uint32_t stage = 0; stage < cases[i].pp; stage++) {
            rvli_training_shape shape = {
                RANK(cases[i].tp, cases[i].pp, cases[i].cp, cases[i].ep, 8),
                BATCH(1, 256, cases[i].vpp > 1 ? 3 * cases[i].pp : 6), .flags = cases[i].flags,
                .stage = stage, .vpp = cases[i].vpp};
            ledger l = run_told(model, shape);
            int64_t weights = l.bytes[RVL_MODEL_SHARDED_WEIGHTS];
            /* TransformerEngine's layers gather into tensors of their own: only the head is left.
             */
            bool gathers = (cases[i].flags & LOCAL) || stage + 1 == cases[i].pp;
            int64_t gathered = gathers && (cases[i].flags & RVL_MODEL_SEQUENCE_PARALLEL)
                                   ? (int64_t)(512 / cases[i].cp * model->dim[RVLI_DIM_HIDDEN])
                                   : 0;
            int64_t copies = cases[i].flags & RVL_MODEL_BF16_GRADIENTS
                                 ? l.bytes[RVL_MODEL_MASTER_WEIGHTS]
                                 : weights;
            uint32_t split = cases[i].flags & RVL_MODEL_SEQUENCE_PARALLEL ? cases[i].tp : 1;
            int64_t input = (int64_t)(512 / cases[i].cp * model->dim[RVLI_DIM_HIDDEN] / split);
            int64_t inputs = cases[i].vpp - (stage == 0);
            /* The graph of a layer with experts that was computed again holds its input, and the
             * gradient of that. */
            bool has_graphs = model->experts > 0 && (cases[i].flags & RVL_MODEL_RECOMPUTE);
            int64_t graphs = has_graphs ? (int64_t)(model->layers / cases[i].pp) - inputs : 0;
            assert_int_equal(l.bytes[RVL_MODEL_ACTIVATIONS],
                             2 * input * (inputs + graphs) + gathered +
                                 (int64_t)(UINT64_C(1024) * model->dim[RVLI_DIM_HEAD]));
            assert_int_equal(l.bytes[RVL_MODEL_LOGITS], 0);
            assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER_TEMPORARIES], 0);
            assert_int_equal(l.bytes[RVL_MODEL_GRADIENTS], weights + copies);
            assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER], 2 * l.bytes[RVL_MODEL_MASTER_WEIGHTS]);
        }
        rvl_model_close(model);
    }
}

/*
 * What of the optimizer is on the host is not here: main weights and moments are less by that part,
 * to one parameter, and the host has weights, two moments and pinned gradients.
 */
static void an_offloaded_part_is_on_the_host(void **state)
{
    (void)state;
    static const uint32_t parts[] = {250000, 500000, 1000000};
    rvl_model *model = open_model("qwen3-30b-a3b", 2);
    rvli_training_shape shape = {RANK(1, 1, 1, 2, 2), BATCH(1, 64, 1)};
    int64_t all = run_told(model, shape).bytes[RVL_MODEL_MASTER_WEIGHTS];
    int64_t largest = 4 * (int64_t)(model->dim[RVLI_DIM_VOCABULARY] * model->dim[RVLI_DIM_HIDDEN]);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        rvli_trained trained;
        shape.optimizer_offload_ppm = parts[i];
        ledger l = run_told(model, shape);
        int64_t here = l.bytes[RVL_MODEL_MASTER_WEIGHTS];
        int64_t there = all - here, least = all / 1000000 * parts[i];
        assert_true(there >= least && there < least + largest);
        assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER], 2 * here);
        assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER_TEMPORARIES], 0);
        assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
        assert_in_range(trained.host_bytes, 4 * there, 5 * there);
    }
    rvl_model_close(model);
}

/* The weights of all stages, of all tensor-parallel ranks, are those of the model. */
static void ranks_have_all_parameters(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen3-30b-a3b", 0);
    uint64_t parameters = rvl_model_parameter_count(model), elements = 0;
    for (uint32_t stage = 0; stage < 4; stage++) {
        ledger l = run_told(
            model, (rvli_training_shape){RANK(1, 4, 1, 1, 2), BATCH(1, 64, 1), .stage = stage});
        elements += (uint64_t)l.bytes[RVL_MODEL_SHARDED_WEIGHTS] / 2;
        assert_int_equal(l.bytes[RVL_MODEL_MASTER_WEIGHTS], l.bytes[RVL_MODEL_SHARDED_WEIGHTS]);
    }
    assert_int_equal(elements, parameters);
    rvl_model_close(model);
}

/* What docs/model.md says that a dense layer keeps, without parallelism in it. */
static uint64_t kept_bytes(const rvl_model *model, uint64_t tokens, uint64_t flags)
{
    const uint64_t *d = model->dim;
    uint64_t less = flags & LOCAL ? 0 : 2 * (d[RVLI_DIM_Q] + d[RVLI_DIM_KV]);
    return tokens * (8 * d[RVLI_DIM_HIDDEN] + 2 * (2 * d[RVLI_DIM_Q] + 3 * d[RVLI_DIM_KV]) +
                     8 * d[RVLI_DIM_HEAD] + 2 * d[RVLI_DIM_Q] + 4 * (uint64_t)model->heads +
                     6 * d[RVLI_DIM_INTERMEDIATE] - less);
}

/* Stage p of four has 4 - p micro-batches in flight, or as many as there are. */
static void check_in_flight(uint64_t flags)
{
    rvl_model *model = open_model("llama-3.2-1b", 0);
    uint64_t held[4], one = 0;
    for (uint32_t stage = 1; stage < 3; stage++) {
        for (uint32_t count = 1; count <= 4; count++) {
            rvli_training_shape shape = {RANK(1, 4, 1, 1, 8), BATCH(1, 1024, count), .flags = flags,
                                         .stage = stage};
            rvli_trained trained;
            assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
            held[count - 1] = trained.passes.held[RVL_MODEL_ACTIVATIONS];
        }
        one = stage == 1 ? held[1] - held[0] : one;
        assert_true(is_near(held[1] - held[0], one, 1));
        assert_true(is_near(one, 4 * kept_bytes(model, 1024, flags), 1));
        if (stage == 1)
            assert_true(is_near(held[2] - held[1], one, 1));
        else
            assert_true(held[2] - held[1] < one / 10);
        assert_true(held[3] - held[2] < one / 10);
    }
    rvl_model_close(model);
}

static void earlier_stages_have_more_in_flight(void **state)
{
    (void)state;
    check_in_flight(LOCAL);
    check_in_flight(0);
}

/*
 * With v parts a stage s of P runs 2 (P - s - 1) + (v - 1) P passes of a part ahead, and one more
 * before the first goes back: so many parts' layers are kept, or as many as there are.
 */
static void parts_have_more_in_flight(void **state)
{
    (void)state;
    static const struct {
        uint32_t pp, vpp, stage, count;
        uint64_t passes;
    } cases[] = {{2, 2, 0, 8, 5},  {2, 2, 1, 8, 3},   {4, 4, 2, 12, 15}, {4, 2, 1, 12, 9},
                 {4, 2, 2, 12, 7}, {4, 4, 1, 12, 17}, {4, 2, 0, 4, 8}};
    rvl_model *model = open_model("llama-3.2-1b", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t layers = 16 / cases[i].pp / cases[i].vpp;
        rvli_training_shape shape = {RANK(1, cases[i].pp, 1, 1, 8), BATCH(1, 2048, cases[i].count),
                                     .flags = LOCAL, .stage = cases[i].stage, .vpp = cases[i].vpp};
        rvli_trained trained;
        assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
        uint64_t kept = cases[i].passes * layers * kept_bytes(model, 2048, LOCAL);
        uint64_t held = trained.passes.held[RVL_MODEL_ACTIVATIONS];
        /* Beside it: what one layer has for a moment, and what was received. (Of a first stage with
         * many parts the embedding's gradient is fuller.) */
        if (held < kept || held > kept + 2 * kept_bytes(model, 2048, LOCAL))
            print_error("case %zu: %lu of %lu\n", i, (unsigned long)held, (unsigned long)kept);
        assert_in_range(held, kept, kept + 2 * kept_bytes(model, 2048, LOCAL));
    }
    rvl_model_close(model);
}

/* ---- As a step shows it ---- */

static rvl_model_options options_of(const program *p)
{
    const rvli_training_shape *s = &p->shape;
    return (rvl_model_options){.struct_size = sizeof(rvl_model_options),
                               .flags = s->flags,
                               .train = s->train,
                               .train_ranks = s->tp * s->pp * s->cp * s->dp,
                               .train_tp = s->tp,
                               .train_pp = s->pp,
                               .train_cp = s->cp,
                               .train_ep = s->ep,
                               .train_stage = s->stage,
                               .train_vpp = s->vpp,
                               .micro_batch = s->micro_batch,
                               .seq_len = s->seq_len,
                               .accumulate = s->accumulate,
                               .optimizer = s->optimizer,
                               .optimizer_offload_ppm = s->optimizer_offload_ppm};
}

/* The trainer's terms of the fuller moment are what is reserved, and states are packed. */
static void a_step_has_its_terms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        const program *p = &programs[i];
        rvl_model *model = open_model(p->config, p->layers);
        rvl_model_options options = options_of(p);
        rvl_model_step *step;
        assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
        uint64_t weights = rvl_model_step_bytes(step, RVL_MODEL_SHARDED_WEIGHTS);
        uint64_t states = rvl_model_step_bytes(step, RVL_MODEL_OPTIMIZER);
        uint64_t main = rvl_model_step_bytes(step, RVL_MODEL_MASTER_WEIGHTS);
        assert_string_equal(rvl_model_step_tag(step, RVL_MODEL_SHARDED_WEIGHTS),
                            "training_weights");
        assert_true(states + 64 * RVLI_MIB > 2 * main && states < 2 * main + 64 * RVLI_MIB);
        assert_true(main <= 2 * weights * 102 / 100);
        assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_ALL_GATHER), 0);
        assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_GRADIENT_BUCKETS), 0);
        if (p->shape.stage + 1 < p->shape.pp)
            assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_LOGITS), 0);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
}

/* ---- NCCL ---- */

#define SENDING_MIB UINT64_C(320)
#define SIMULATED_SENDING_MIB UINT64_C(196) /* simulated sends take nothing */

static uint64_t nccl_of(const rvl_model *model, rvl_model_options options, rvl_model_term term)
{
    rvl_model_step *step;
    options.struct_size = sizeof options;
    options.flags |= RVL_MODEL_NCCL;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    uint64_t bytes = rvl_model_step_bytes(step, term);
    rvl_model_step_close(step);
    assert_int_equal(bytes % RVLI_MIB, 0);
    return bytes / RVLI_MIB;
}

/* Simulated communicators of these programs were counted by what they took. */
static void communicators_are_those_that_were_made(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        const program *p = &programs[i];
        rvl_model *model = open_model(p->config, p->layers);
        uint64_t expected = p->nccl_mib;
        uint64_t more = SENDING_MIB - SIMULATED_SENDING_MIB;
        expected += p->shape.pp > 1 ? more : 0;
        expected += p->shape.cp > 1 ? more : 0;
        expected += p->shape.cp > 2 ? more : 0;
        uint64_t mib = nccl_of(model, options_of(p), RVL_MODEL_TRAINER_NCCL);
        if (mib != expected)
            print_error("%s: %llu MiB\n", p->name, (unsigned long long)mib);
        assert_int_equal(mib, expected);
        rvl_model_close(model);
    }
}

/* 290 MiB once in a process, 484 for a communicator with collectives, 320 for one that sends. */
static void engines_and_other_trainers_have_communicators(void **state)
{
    (void)state;
    static const struct {
        rvl_model_options options;
        uint64_t engine;
        uint64_t trainer;
    } cases[] = {
        {{.tp = 2}, 774, 0},
        {{.tp = 2, .pp = 2}, 1094, 0},
        {{.pp = 4}, 610, 0},
        {{.tp = 2, .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 2}, 774, 774},
        {{.train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 64}, 0, 774},
        {{.train = RVL_MODEL_TRAIN_DDP}, 0, 774},
        {{.tp = 2, .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 1}, 774, 0},
        {{.tp = 2, .train = RVL_MODEL_TRAIN_MEGATRON, .train_ranks = 1}, 774, 0},
    };
    rvl_model *model = open_model("llama-3.2-1b", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(nccl_of(model, cases[i].options, RVL_MODEL_ENGINE_NCCL), cases[i].engine);
        assert_int_equal(nccl_of(model, cases[i].options, RVL_MODEL_TRAINER_NCCL),
                         cases[i].trainer);
    }
    rvl_model_close(model);
}

/* Bytes of a cause at an end of the trace: after its first event, and after its last. */
static void find_external(const rvl_model_step *step, const char *name, uint64_t *first_out,
                          uint64_t *last_out)
{
    size_t count;
    assert_int_equal(rvl_model_step_get_events(step, NULL, 0, 0, &count), RVL_OK);
    rvl_trace_event *events = calloc(count, sizeof *events);
    assert_non_null(events);
    assert_int_equal(rvl_model_step_get_events(step, events, sizeof *events, count, &count),
                     RVL_OK);
    *first_out = *last_out = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind != RVL_EVENT_EXTERNAL || strcmp(events[i].name, name) != 0)
            continue;
        *first_out = *first_out == UINT64_MAX ? events[i].bytes : *first_out;
        *last_out = events[i].bytes;
    }
    free(events);
}

/* It is there as long as its process, and the cache has so much less room. */
static void communicators_live_with_their_process(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.2-1b", 0);
    for (int strategy = RVL_MODEL_V3; strategy <= RVL_MODEL_V2; strategy++) {
        rvl_model_options options = {.struct_size = sizeof options,
                                     .tp = 2,
                                     .train = RVL_MODEL_TRAIN_DDP,
                                     .strategy = (rvl_model_strategy)strategy};
        rvl_model_step *without, *with;
        uint64_t first, last;
        assert_int_equal(rvl_model_step_make(model, &options, &without), RVL_OK);
        options.flags = RVL_MODEL_NCCL;
        assert_int_equal(rvl_model_step_make(model, &options, &with), RVL_OK);
        find_external(without, "engine_nccl", &first, &last);
        assert_int_equal(first, UINT64_MAX);
        find_external(with, "engine_nccl", &first, &last);
        assert_int_equal(first, 774 * RVLI_MIB);
        assert_int_equal(last, first);
        find_external(with, "trainer_nccl", &first, &last);
        assert_int_equal(first, 774 * RVLI_MIB);
        assert_int_equal(last, strategy == RVL_MODEL_V1 ? 0 : first);
        uint64_t less = rvl_model_step_bytes(without, RVL_MODEL_KV_CACHE) -
                        rvl_model_step_bytes(with, RVL_MODEL_KV_CACHE);
        assert_true(is_near(less, 774 * RVLI_MIB * 9 / 10, 10));
        rvl_model_step_close(without);
        rvl_model_step_close(with);
    }
    rvl_model_close(model);
}

/* ---- What is refused ---- */

static void check_refused(const char *config, rvl_model_options options, const char *key,
                          const char *part)
{
    rvl_model *model = open_model(config, 0);
    rvl_model_step *step = NULL;
    rvl_error error = {.struct_size = sizeof error};
    options.struct_size = sizeof options;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_ERR_INVALID);
    assert_null(step);
    rvl_last_error(&error);
    assert_string_equal(error.key, key);
    if (strstr(error.message, part) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", key, error.message, part);
    rvl_model_close(model);
}

#define MEGATRON(ranks) .train = RVL_MODEL_TRAIN_MEGATRON, .train_ranks = (ranks)

static void what_megatron_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        rvl_model_options options;
        const char *key;
        const char *part;
    } cases[] = {
        {"gemma-2b", {MEGATRON(2)}, "train", "qwen3 and qwen3_moe: say fsdp:N or ddp"},
        {"llama-3.2-1b",
         {MEGATRON(6), .train_tp = 4},
         "train",
         "4 does not divide the ranks of Megatron (it is train-tp x train-pp x train-cp), 6"},
        {"qwen2.5-0.5b",
         {MEGATRON(4), .train_tp = 4},
         "train-tp",
         "4 does not divide num_attention_heads, 14: choose another"},
        {"llama-3.2-1b",
         {MEGATRON(16), .train_tp = 16},
         "train-tp",
         "16 does not divide num_key_value_heads, 8"},
        {"llama-3.2-1b",
         {MEGATRON(3), .train_pp = 3},
         "train-pp",
         "3 does not divide num_hidden_layers, 16"},
        {"llama-3.2-1b", {MEGATRON(32), .train_pp = 32}, "train-pp", "32 does not divide"},
        {"llama-3.2-1b",
         {MEGATRON(4), .train_pp = 4, .train_stage = 4},
         "train-stage",
         "the first is 0, the last train-pp - 1"},
        {"llama-3.2-1b", {MEGATRON(2), .train_vpp = 2}, "train-vpp", "say 'train-pp'"},
        {"llama-3.2-1b",
         {MEGATRON(4), .train_pp = 4, .train_vpp = 3, .accumulate = 4},
         "train-vpp",
         "3 does not divide the layers of a stage, 4"},
        {"llama-3.2-1b",
         {MEGATRON(4), .train_pp = 4, .train_vpp = 2, .accumulate = 6},
         "accumulate",
         "choose a multiple of train-pp"},
        {"llama-3.2-1b",
         {.train = RVL_MODEL_TRAIN_FSDP, .train_vpp = 2},
         "train-vpp",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {MEGATRON(2), .train_cp = 2, .seq_len = 1002},
         "seq-len",
         "4 does not divide the sequence"},
        {"llama-3.2-1b",
         {MEGATRON(8), .train_tp = 8, .seq_len = 1002, .flags = RVL_MODEL_SEQUENCE_PARALLEL},
         "seq-len",
         "which 'sequence-parallel' splits, 1002"},
        {"llama-3.2-1b",
         {MEGATRON(2), .flags = RVL_MODEL_SEQUENCE_PARALLEL},
         "sequence-parallel",
         "which is 1: leave it out"},
        {"llama-3.2-1b",
         {MEGATRON(2), .flags = RVL_MODEL_SELECTIVE | RVL_MODEL_RECOMPUTE},
         "recompute-attention",
         "is part of 'recompute'"},
        {"llama-3.2-1b",
         {MEGATRON(2), .optimizer = RVL_MODEL_SGD},
         "optimizer",
         "worked out for adamw"},
        {"llama-3.2-1b", {MEGATRON(2), .train_ep = 2}, "train-ep", "no experts: leave it out"},
        {"mixtral-8x7b-v0.1",
         {MEGATRON(6), .train_ep = 3},
         "train-ep",
         "3 does not divide the number of experts, 8"},
        {"mixtral-8x7b-v0.1",
         {MEGATRON(4), .train_ep = 8},
         "train-ep",
         "8 does not divide the ranks of a pipeline stage, 4"},
        {"mixtral-8x7b-v0.1",
         {MEGATRON(2), .train_tp = 2},
         "sequence-parallel",
         "only with it: say it"},
        {"llama-3.2-1b", {MEGATRON(2), .train_tp = 1u << 20}, "train-tp", "from 1 to 4096"},
        {"llama-3.2-1b",
         {.train = RVL_MODEL_TRAIN_DDP, .train_pp = 2},
         "train-pp",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_SEQUENCE_PARALLEL},
         "sequence-parallel",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {.train = RVL_MODEL_TRAIN_FSDP, .flags = RVL_MODEL_SELECTIVE},
         "recompute-attention",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {.flags = RVL_MODEL_BF16_GRADIENTS},
         "bf16-gradients",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {MEGATRON(2), .flags = RVL_MODEL_GROUPED_GEMM},
         "moe-grouped-gemm",
         "this model has no experts: leave it out"},
        {"mixtral-8x7b-v0.1",
         {MEGATRON(2), .flags = RVL_MODEL_LEGACY_GROUPED_GEMM},
         "moe-use-legacy-grouped-gemm",
         "is a way of 'moe-grouped-gemm': say that too"},
        {"mixtral-8x7b-v0.1",
         {.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_GROUPED_GEMM},
         "moe-grouped-gemm",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {.train = RVL_MODEL_TRAIN_DDP, .flags = LOCAL},
         "transformer-impl",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {.train = RVL_MODEL_TRAIN_FSDP, .optimizer_offload_ppm = 1},
         "optimizer-offload",
         "say 'train' megatron:N"},
        {"llama-3.2-1b",
         {MEGATRON(2), .optimizer_offload_ppm = 1000001},
         "optimizer-offload",
         "expected more than 0 and at most 1"},
        {"llama-3.2-1b",
         {MEGATRON(2), .flags = RVL_MODEL_MIXED},
         "mixed-precision",
         "is a policy of FSDP"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused(cases[i].config, cases[i].options, cases[i].key, cases[i].part);
}

/* Its terms come from the program alone. */
static void no_term_of_its_trainer_is_given(void **state)
{
    (void)state;
    static const rvl_model_term terms[] = {
        RVL_MODEL_SHARDED_WEIGHTS, RVL_MODEL_MASTER_WEIGHTS, RVL_MODEL_OPTIMIZER,
        RVL_MODEL_GRADIENTS,       RVL_MODEL_ALL_GATHER,     RVL_MODEL_GRADIENT_BUCKETS,
        RVL_MODEL_ACTIVATIONS,     RVL_MODEL_LOGITS,         RVL_MODEL_CACHED};
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
        const rvl_model_given given = {.term = terms[i], .bytes = 1 << 20};
        check_refused("llama-3.2-1b",
                      (rvl_model_options){MEGATRON(2), .given = &given, .given_count = 1,
                                          .given_size = sizeof given},
                      "given", "no place in a step with this 'train'");
    }
}

/* What was measured asleep has NCCL's buffers in it. */
static void nccl_is_not_counted_twice(void **state)
{
    (void)state;
    const rvl_model_given given = {.term = RVL_MODEL_ASLEEP, .bytes = 1 << 30};
    check_refused("llama-3.2-1b",
                  (rvl_model_options){.tp = 2,
                                      .flags = RVL_MODEL_NCCL,
                                      .given = &given,
                                      .given_count = 1,
                                      .given_size = sizeof given},
                  "nccl", "the given size of asleep has NCCL's buffers in it");
}

/* ---- Without memory ---- */

static void no_memory_is_told(void **state)
{
    (void)state;
    static const program small = {
        "", "mixtral-8x7b-v0.1", 2, {RANK(1, 2, 1, 8, 8), BATCH(1, 64, 2)}, 0, 0, 0};
    rvl_model *model = open_model(small.config, small.layers);
    rvl_model_options options = options_of(&small);
    check_step_without_memory(model, &options);
    rvl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_have_what_was_read),
        cmocka_unit_test(nothing_is_left_but_states),
        cmocka_unit_test(an_offloaded_part_is_on_the_host),
        cmocka_unit_test(ranks_have_all_parameters),
        cmocka_unit_test(earlier_stages_have_more_in_flight),
        cmocka_unit_test(a_step_has_its_terms),
        cmocka_unit_test(communicators_are_those_that_were_made),
        cmocka_unit_test(engines_and_other_trainers_have_communicators),
        cmocka_unit_test(communicators_live_with_their_process),
        cmocka_unit_test(nccl_is_not_counted_twice),
        cmocka_unit_test(parts_have_more_in_flight),
        cmocka_unit_test(what_megatron_refuses),
        cmocka_unit_test(no_term_of_its_trainer_is_given),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
