/* SPDX-License-Identifier: MIT */
/*
 * The derivation of a training step: what names hold and when it goes, what nodes keep, how
 * gradients add up, what is computed again; and how texts are read.
 *
 * Small texts run on the parameters of a small model. What the tape takes and drops is written down
 * as signs and bytes, and compared.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/llm/graph/program.h"
#include "tests/predict/model_configs.h"

/* One layer, 16 tokens of 8 elements: a value of hidden states in bf16 has 256 bytes. */
#define SMALL                                                                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"vocab_size\":32,"       \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"intermediate_size\":24}"
#define TOKENS 16

typedef struct scene {
    rvl_model *model;
    rvli_training_shape shape;
    rvli_training t;
    char told[4096];
} scene;

/* Signs and bytes since the last look. */
static void tell(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    scene *s = user;
    (void)stream;
    (void)holder;
    size_t length = strlen(s->told);
    snprintf(s->told + length, sizeof s->told - length, "%+lld ", (long long)bytes);
}

static void begin_model(scene *s, const char *config, const char *text, uint64_t flags)
{
    *s = (scene){.model = parse_model(config),
                 .shape = {.train = RVL_MODEL_TRAIN_DDP,
                           .train_ranks = 1,
                           .flags = flags,
                           .micro_batch = 1,
                           .seq_len = TOKENS}};
    s->t = (rvli_training){.model = s->model,
                           .options = &s->shape,
                           .tokens = TOKENS,
                           .units = calloc(2, sizeof(rvli_unit))};
    rvli_tape_begin(&s->t.tape, 0);
    rvli_parameters_make(&s->t);
    s->t.graph = rvli_graph_make(&s->t);
    assert_non_null(s->t.graph);
    memset(s->t.graph->program, 0, sizeof *s->t.graph->program);
    rvli_program_read(s->t.graph->program, &s->t, &text, 1);
    assert_string_equal(s->t.graph->program->fault, "");
    s->t.graph->unit = s->t.at = 0;
    rvli_tape_listen(&s->t.tape, &(rvli_tape_listener){.told = tell, .user = s});
}

static void begin(scene *s, const char *text, uint64_t flags)
{
    begin_model(s, SMALL, text, flags);
}

static void end(scene *s)
{
    rvli_graph_free(s->t.graph);
    rvli_tape_end(&s->t.tape);
    free(s->t.units);
    free(s->t.parameters);
    rvl_model_close(s->model);
}

static void assert_told(scene *s, const char *expected)
{
    assert_string_equal(s->told, expected);
    s->told[0] = '\0';
}

/* Hidden states that have a gradient. */
static rvli_value *hidden(scene *s)
{
    const rvli_shape shape = {
        .elements = TOKENS * 8, .width = 8, .element_bytes = 2, .holder = RVL_MODEL_ACTIVATIONS};
    rvli_value *x = rvli_value_make(s->t.graph, &shape);
    x->learns = true;
    s->told[0] = '\0';
    return x;
}

/* Runs the text, and the backward pass from a gradient of what it gives. The caller compares. */
static rvli_value *forward(scene *s, rvli_value *x)
{
    return rvli_program_call(s->t.graph, RVLI_ENTRY_DECODER_LAYER, &x, 1);
}

static void backward(scene *s, rvli_value *y)
{
    rvli_graph *g = s->t.graph;
    rvli_value *gradient = rvli_value_make(g, &y->shape);
    rvli_value_release(g, y);
    s->told[0] = '\0';
    rvli_backward_run(g, gradient);
}

/* ---- Names ---- */

static void a_name_lets_go_what_it_had(void **state)
{
    (void)state;
    scene s;
    begin(&s,
          "def decoder_layer(x):\n    x = x.float()\n    y = x * 2\n    x = y * 2\n    return x\n",
          0);
    rvli_value *x = hidden(&s);
    x->learns = false;
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+512 +512 +512 -512 -512 ");
    rvli_value_release(s.t.graph, y);
    rvli_value_release(s.t.graph, x);
    assert_told(&s, "-512 -256 ");
    end(&s);
}

/* What is worked out on the way goes when it has been used, from left to right. */
static void what_has_no_name_goes_at_once(void **state)
{
    (void)state;
    scene s;
    begin(&s, "def decoder_layer(x):\n    return x.float() * 2 + x.silu()\n", 0);
    rvli_value *x = hidden(&s);
    x->learns = false;
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+512 +512 -512 +256 +512 -512 -256 ");
    rvli_value_release(s.t.graph, y);
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* A function owns its arguments; a module's call has them until it returns. */
static void a_module_holds_what_it_was_given(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"def decoder_layer(x):\n    return g(x.float())\ndef g(x):\n    x = x.silu()\n    return "
         "x * 2\n",
         "+512 +512 -512 +512 -512 "},
        {"def decoder_layer(x):\n    return g(x.float())\nmodule g(x):\n    x = x.silu()\n    "
         "return x * 2\n",
         "+512 +512 +512 -512 -512 "},
    };
    for (size_t i = 0; i < 2; i++) {
        scene s;
        begin(&s, cases[i].text, 0);
        rvli_value *x = hidden(&s);
        x->learns = false;
        rvli_value *y = forward(&s, x);
        assert_told(&s, cases[i].told);
        rvli_value_release(s.t.graph, y);
        rvli_value_release(s.t.graph, x);
        end(&s);
    }
}

/* ---- Nodes ---- */

/* A product keeps both factors, and works out the gradient of the second first. Both are the same x
 * here: the second is added to the first in place. */
static void a_product_keeps_its_factors(void **state)
{
    (void)state;
    scene s;
    begin(&s, "def decoder_layer(x):\n    x = x.float()\n    return x * x\n", 0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+512 +512 "); /* the copy in fp32 stays */
    backward(&s, y);
    assert_told(&s, "+512 +512 -512 -512 -512 +256 -512 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* The weight has its gradient as one in its own shape, which stays; the input's, a transposed view,
 * is not added to in place. */
static void products_of_weights_are_views(void **state)
{
    (void)state;
    scene s;
    begin(&s, "def decoder_layer(x):\n    x = x * 2\n    return q_proj(x) + k_proj(x)\n", 0);
    rvli_workspace(&s.t, RVLI_WORKSPACE_FORWARD);
    rvli_workspace(&s.t, RVLI_WORKSPACE_BACKWARD);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+256 +256 +256 +256 -256 -256 ");
    backward(&s, y);
    /* k: its weight's and x's; q: the same, added in a new tensor; then x's before it was scaled */
    assert_told(&s, "+128 +256 +128 +256 -256 -256 +256 -256 -256 +256 -256 -256 ");
    rvli_value_release(s.t.graph, x);
    const rvli_unit *unit = &s.t.units[0];
    assert_non_null(s.t.parameters[unit->by_role[RVLI_ROLE_Q] - 1].gradient);
    assert_int_equal(s.t.graph->order[0], unit->by_role[RVLI_ROLE_K] - 1);
    assert_int_equal(s.t.graph->order[1], unit->by_role[RVLI_ROLE_Q] - 1);
    assert_int_equal(s.t.graph->order_count, 2);
    for (uint32_t i = 0; i < s.t.parameter_count; i++)
        rvli_release(&s.t, &s.t.parameters[i].gradient);
    end(&s);
}

/* What has no gradient keeps nothing. */
static void without_a_gradient_nothing_is_kept(void **state)
{
    (void)state;
    scene s;
    begin(&s, "def decoder_layer(x):\n    return x.float().silu()\n", 0);
    rvli_value *x = hidden(&s);
    x->learns = false;
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+512 +512 -512 ");
    assert_null(s.t.graph->last);
    rvli_value_release(s.t.graph, y);
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* Two halves of one chunk have one node, which puts their gradients side by side. */
static void a_chunk_has_one_node(void **state)
{
    (void)state;
    scene s;
    begin(&s,
          "def decoder_layer(x):\n    x = x * 2\n    a, b = x.chunk()\n    return a.silu() + b\n",
          0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+256 +128 +128 -128 ");
    backward(&s, y);
    assert_told(&s, "+128 -256 +256 -128 -128 +256 -256 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* ---- Dimensions that products add ---- */

/* Mamba 2 of 2 heads of 4 elements, with 3 numbers of state each, in chunks of 8 tokens. */
#define MAMBA                                                                                      \
    "{\"model_type\":\"bamba\",\"hidden_size\":8,\"num_hidden_layers\":1,\"vocab_size\":32,"       \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"intermediate_size\":24,"                \
    "\"mamba_n_heads\":2,\"mamba_d_head\":4,\"mamba_n_groups\":1,\"mamba_d_state\":3,"             \
    "\"mamba_d_conv\":4,\"mamba_chunk_size\":8}"

/* For each token all 8 of its chunk. Backward both are as large, and are summed; views are not
 * added in place. */
static void a_product_has_the_dimensions_of_both(void **state)
{
    (void)state;
    scene s;
    begin_model(&s, MAMBA,
                "def decoder_layer(x):\n    x = x.mamba_heads().pad().by_chunks()\n"
                "    return (x.unsqueeze() * x.of_others()).sum_others()\n",
                0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+256 +2048 +256 -2048 ");
    backward(&s, y);
    assert_told(&s, "+2048 +2048 +256 -2048 +256 -2048 -256 -256 +256 -256 -256 +256 -256 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* Of 2 chunks and what is before them: 3 borders, 9 pairs of these, for 2 heads. The mask of pairs
 * is there three times for a moment, and then as long as its name, or what keeps it. */
static void pairs_of_borders_are_masked(void **state)
{
    (void)state;
    scene s;
    begin_model(
        &s, MAMBA,
        "def decoder_layer(x):\n    dt = in_proj(x)\n    a, b, dt = dt.split_projected()\n"
        "    a = b\n    dt = dt.pad().by_chunks()\n    dt = dt.last_of_chunk().pad_border()\n"
        "    dt = dt.expand_pairs()\n    mask = dt.mask_of_pairs()\n"
        "    return dt.masked(mask.empty_like())\n",
        0);
    rvli_workspace(&s.t, RVLI_WORKSPACE_FORWARD);
    rvli_workspace(&s.t, RVLI_WORKSPACE_BACKWARD);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+768 +64 +12 -64 +9 +9 -9 +9 +36 -12 -768 -9 ");
    backward(&s, y);
    /* masked, summed, cut, and as large as what it was of; then the product's */
    assert_told(&s, "+36 -36 -9 +12 -36 +8 -12 +64 -8 +64 -64 +768 -64 +384 +256 -768 -256 ");
    rvli_value_release(s.t.graph, x);
    for (uint32_t i = 0; i < s.t.parameter_count; i++)
        rvli_release(&s.t, &s.t.parameters[i].gradient);
    end(&s);
}

/* gpt_oss of 2 heads of 4 elements. */
#define SINKS                                                                                      \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":8,\"num_hidden_layers\":1,\"vocab_size\":32,"     \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":4,\"intermediate_size\":24," \
    "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"sliding_window\":8}"

/* 32 rows of 4 scores and a sink. Where the largest of each is stays, and its gradient is as large
 * as all, which autograd adds to that of the difference in place. */
static void a_sink_stands_beside_each_row(void **state)
{
    (void)state;
    scene s;
    begin_model(&s, SINKS,
                "def decoder_layer(x):\n    x = x.view()\n    x = cat(x, sinks.expand_sinks())\n"
                "    x = x - x.largest()\n    return x.without_sinks()\n",
                0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+320 +64 +256 +320 -64 -320 ");
    backward(&s, y);
    assert_told(&s, "+320 -256 +320 +64 -320 +320 -64 -256 -320 +4 -320 ");
    rvli_value_release(s.t.graph, x);
    for (uint32_t i = 0; i < s.t.parameter_count; i++)
        rvli_release(&s.t, &s.t.parameters[i].gradient);
    end(&s);
}

/* Gemma 3n of two streams: one of 16 tokens of 8 elements has 256 bytes. */
#define STREAMS                                                                                    \
    "{\"model_type\":\"gemma3n_text\",\"hidden_size\":8,\"num_hidden_layers\":1,"                  \
    "\"vocab_size\":32,\"vocab_size_per_layer_input\":32,\"hidden_size_per_layer_input\":4,"       \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":4,\"laurel_rank\":2,"        \
    "\"intermediate_size\":24,\"altup_num_inputs\":2,\"num_kv_shared_layers\":0}"

/* Through a part that was changed in place, and assigned to itself: the gradient and that of the
 * part are copied twice, zeros are what was there, and the part's is as large as the whole. */
static void a_change_of_a_part_copies_gradients(void **state)
{
    (void)state;
    scene s;
    begin_model(&s, STREAMS,
                "def decoder_layer(x):\n    y = x.repeat_streams()\n"
                "    return y.add_to_others_(x * 2)\n",
                0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+512 +256 -256 ");
    backward(&s, y);
    assert_told(
        &s,
        "+512 +256 +256 -256 -512 +512 -256 -512 +512 +256 -512 +256 -256 -256 +256 -512 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* Of a tensor in another order: a gradient in the tensor's own, then a copy for it and one for what
 * was added. */
static void a_change_of_a_view_copies_gradients(void **state)
{
    (void)state;
    scene s;
    begin_model(&s, STREAMS,
                "def decoder_layer(x):\n    return (x * 2).add_to_view_(x.float().bfloat16())\n",
                0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+256 +512 +256 -512 -256 ");
    backward(&s, y);
    assert_told(&s, "+256 -256 +256 +256 -256 +512 -256 +256 -512 -256 +256 -256 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* Each part of what was stacked has a view of its gradient. */
static void a_stack_of_a_list_has_one_gradient(void **state)
{
    (void)state;
    scene s;
    begin_model(&s, STREAMS,
                "def decoder_layer(x):\n    a = x.new_list()\n    for stream in streams:\n"
                "        b = x * 2\n        c = b.append()\n    return stack()\n",
                0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+256 +512 ");
    rvli_list_release(s.t.graph);
    assert_told(&s, "-256 ");
    backward(&s, y);
    assert_told(&s, "+256 -512 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* Keys and values stay until all that hold the dictionary have let it go. */
static void a_dictionary_has_keys_of_other_layers(void **state)
{
    (void)state;
    scene s;
    begin_model(&s, STREAMS,
                "def decoder_layer(x):\n    a = (x * 2).store_kv(x.float())\n"
                "    k, v = shared_kv_states()\n    return k * 2\n",
                0);
    rvli_value *x = hidden(&s);
    s.t.graph->dictionary_users = 2;
    rvli_value_release(s.t.graph, forward(&s, x));
    assert_told(&s, "+256 +512 +256 -256 ");
    rvli_dictionary_release(s.t.graph);
    assert_told(&s, "");
    rvli_dictionary_release(s.t.graph);
    assert_told(&s, "-256 -512 ");
    rvli_backward_forget(s.t.graph);
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* Two heads of k for four of q. The gradients of copies are summed as views, so the first two of
 * them add up in a new tensor, and the third is added to that in place. */
static void gradients_of_copied_heads_are_views(void **state)
{
    (void)state;
    scene s;
    begin_model(&s,
                "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"
                "\"vocab_size\":32,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                "\"intermediate_size\":24}",
                "def decoder_layer(x):\n    x = x.first_half().view().transpose()\n"
                "    return repeat_kv(x) + repeat_kv(x) + repeat_kv(x)\n",
                0);
    rvli_value *x = hidden(&s);
    rvli_value *y = forward(&s, x);
    assert_told(&s, "+256 +256 +256 -256 -256 +256 +256 -256 -256 ");
    backward(&s, y);
    assert_told(&s, "+128 +128 +128 -128 -128 +128 -256 -128 +128 -128 +256 -128 -256 ");
    rvli_value_release(s.t.graph, x);
    end(&s);
}

/* ---- Computed again ---- */

/* Nothing stays but the input. The scale comes first, for which nothing is needed; then the layer
 * runs up to what silu keeps, and no further. */
static void a_layer_runs_again_up_to_what_is_kept(void **state)
{
    (void)state;
    scene s;
    begin(&s, "module decoder_layer(x):\n    return x.float().silu() * 2\n", RVL_MODEL_RECOMPUTE);
    rvli_value *x = hidden(&s);
    rvli_value *y = rvli_checkpoint_forward(s.t.graph, 0, x);
    assert_told(&s, "+512 +512 -512 +512 -512 ");
    rvli_value_release(s.t.graph, x);
    assert_told(&s, ""); /* the layer has it */
    backward(&s, y);
    assert_told(&s, "+512 -512 +512 +512 -512 -512 -256 +256 -512 -256 ");
    end(&s);
}

/* Its last operator keeps a buffer, so all of it runs again before anything else is done. */
static void a_scaled_layer_runs_again_at_once(void **state)
{
    (void)state;
    scene s;
    begin(&s, "module decoder_layer(x):\n    x = x.float().silu() * 2\n    return x.scale_()\n",
          RVL_MODEL_RECOMPUTE);
    rvli_value *x = hidden(&s);
    rvli_value *y = rvli_checkpoint_forward(s.t.graph, 0, x);
    rvli_value_release(s.t.graph, x);
    backward(&s, y);
    assert_told(&s,
                "+512 +512 +512 -512 -512 +512 -512 +512 -512 +512 -512 -512 -256 +256 -512 -256 ");
    end(&s);
}

/* Nothing is rotated then, and what would be has no elements. */
static void a_head_may_have_one_element(void **state)
{
    (void)state;
    rvl_model *model = parse_model(
        "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":2,\"vocab_size\":32,"
        "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":24}");
    const rvli_training_shape shape = {.train = RVL_MODEL_TRAIN_DDP,
                                       .train_ranks = 1,
                                       .flags = RVL_MODEL_RECOMPUTE,
                                       .micro_batch = 1,
                                       .seq_len = TOKENS};
    rvli_trained trained;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
    assert_true(trained.passes.allocated_bytes > 0);
    rvl_model_close(model);
}

/* ---- Texts ---- */

static void texts_of_all_families_can_be_read(void **state)
{
    (void)state;
    for (size_t i = 0; rvl_model_family(i) != NULL; i++) {
        const char *texts[RVLI_TEXTS_MAX];
        rvl_model model = {.type = rvl_model_family(i)};
        const rvli_training t = {.model = &model};
        assert_true(rvli_texts_of(model.type, texts) > 0);
        rvli_program *program = rvli_program_make(&t);
        if (program->fault[0] != '\0')
            print_error("%s: %s\n", model.type, program->fault);
        assert_string_equal(program->fault, "");
        rvli_program_free(program);
    }
}

static void each_operator_has_a_name_of_its_own(void **state)
{
    (void)state;
    size_t count = 0, twice = 0;
    for (const rvli_operator *o; (o = rvli_operator_at(count)) != NULL; count++) {
        if (rvli_operator_find(o->name, strlen(o->name)) == o)
            continue;
        print_error("%s: the name stands twice\n", o->name);
        twice++;
    }
    assert_true(count > 100);
    assert_int_equal(twice, 0);
}

/* A later text defines a function again. */
static void a_later_text_replaces_a_function(void **state)
{
    (void)state;
    scene s;
    static const char *const texts[] = {
        "def decoder_layer(x):\n    return g(x)\ndef g(x):\n    return x * 2\n",
        "def g(x):\n    return x.float()\n"};
    begin(&s, texts[0], 0);
    memset(s.t.graph->program, 0, sizeof *s.t.graph->program);
    rvli_program_read(s.t.graph->program, &s.t, texts, 2);
    rvli_value *x = hidden(&s);
    rvli_value_release(s.t.graph, forward(&s, x));
    assert_told(&s, "+512 -512 ");
    rvli_value_release(s.t.graph, x);
    rvli_backward_forget(s.t.graph);
    end(&s);
}

static void a_fault_in_a_text_is_told_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fault;
    } cases[] = {
        {"decoder_layer(x):\n", "line 1: def or module"},
        {"def decoder_layer(x)\n", "line 1: :"},
        {"def decoder_layer(x):\n    return\n", "line 2: an expression"},
        {"def decoder_layer(x):\n    return (x\n", "line 2: )"},
        {"def decoder_layer(x):\n    return x x\n", "line 2: the line goes on"},
        {"def decoder_layer(x):\n    if colour:\n        return x\n", "line 2: a condition"},
        {"def decoder_layer(x):\n    for step in layers:\n", "line 2: layer"},
        {"def decoder_layer(x):\n    return nothing\n", "line 3: a name has no value"},
        {"def decoder_layer(x):\n    return unknown(x)\n",
         "line 3: this is neither an operator nor a function, nor a layer with one argument"},
        {"def decoder_layer(x):\n    return x.silu(x)\n",
         "line 3: an operator is called with more or fewer arguments than it has"},
        {"def decoder_layer(x):\n    return decoder_layer(x, x)\n",
         "line 3: a function is called with more or fewer arguments than it has"},
        {"def decoder_layer(x):\n    a, b = x\n",
         "line 2: several names take the results of one call, or a value each"},
        {"# nothing\n  def decoder_layer(x):\n",
         "line 2: a line is indented, but there is no line that it belongs to"},
    };
    rvl_model model = {.type = "llama"};
    const rvli_training t = {.model = &model};
    rvli_program *program = malloc(sizeof *program);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(program, 0, sizeof *program);
        rvli_program_read(program, &t, &cases[i].text, 1);
        assert_string_equal(program->fault, cases[i].fault);
    }
    free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_lets_go_what_it_had),
        cmocka_unit_test(what_has_no_name_goes_at_once),
        cmocka_unit_test(a_module_holds_what_it_was_given),
        cmocka_unit_test(a_product_keeps_its_factors),
        cmocka_unit_test(products_of_weights_are_views),
        cmocka_unit_test(without_a_gradient_nothing_is_kept),
        cmocka_unit_test(a_chunk_has_one_node),
        cmocka_unit_test(a_product_has_the_dimensions_of_both),
        cmocka_unit_test(pairs_of_borders_are_masked),
        cmocka_unit_test(a_sink_stands_beside_each_row),
        cmocka_unit_test(a_change_of_a_part_copies_gradients),
        cmocka_unit_test(a_change_of_a_view_copies_gradients),
        cmocka_unit_test(a_stack_of_a_list_has_one_gradient),
        cmocka_unit_test(a_dictionary_has_keys_of_other_layers),
        cmocka_unit_test(gradients_of_copied_heads_are_views),
        cmocka_unit_test(a_layer_runs_again_up_to_what_is_kept),
        cmocka_unit_test(a_scaled_layer_runs_again_at_once),
        cmocka_unit_test(a_head_may_have_one_element),
        cmocka_unit_test(texts_of_all_families_can_be_read),
        cmocka_unit_test(each_operator_has_a_name_of_its_own),
        cmocka_unit_test(a_later_text_replaces_a_function),
        cmocka_unit_test(a_fault_in_a_text_is_told_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
