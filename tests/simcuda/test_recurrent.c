/* SPDX-License-Identifier: MIT */
/*
 * The needs of recurrent networks, compared with an H100 with cuDNN 9.19: test_recurrent FILE,
 * under `reveille run`. FILE comes from bench/gpu/driver/recurrent.py. tests/data has some of
 * the networks of recurrent.csv and recurrent_open.csv in bench/results/2026-11-27-h100. They
 * cover each pair of settings, and each number of steps and sequences at which a rule changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simcuda/dnn/functions.h"

#define GOOD CUDNN_STATUS_SUCCESS
#define NETWORKS_LEAST 150
#define LENGTHS_MOST 256
/* Excess for persistent backward passes of float16, if the hidden size and the number of
 * sequences are not multiples of 8. */
#define BEYOND_MOST 64

typedef struct sizes {
    size_t weights, training_workspace, training_reserve, workspace, reserve;
} sizes;

typedef struct line {
    float dropout;
    int packed, both, layers, hidden, input, sequences, steps, algorithm, math, projection;
    char mode[16], type[16];
    sizes said;
} line;

static int number_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return (int)i;
    fail_msg("%s is unknown", name);
    return -1;
}

static cudnnDataType_t type_of(const line *from)
{
    static const char *const names[] = {"float32", "float64", "float16", "bfloat16"};
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF,
                                            CUDNN_DATA_BFLOAT16};
    return types[number_of(from->type, names, sizeof names / sizeof *names)];
}

static cudnnRNNMode_t mode_of(const line *from)
{
    static const char *const names[] = {"relu", "tanh", "lstm", "gru"};
    return number_of(from->mode, names, sizeof names / sizeof *names);
}

static void set_network(cudnnRNNDescriptor_t network, cudnnDropoutDescriptor_t dropout,
                        const line *from)
{
    cudnnDataType_t type = type_of(from);
    assert_int_equal(
        cudnnSetRNNDescriptor_v8(network, from->algorithm, mode_of(from), CUDNN_RNN_DOUBLE_BIAS,
                                 from->both, CUDNN_LINEAR_INPUT, type,
                                 type == CUDNN_DATA_DOUBLE ? type : CUDNN_DATA_FLOAT, from->math,
                                 from->input, from->hidden,
                                 from->projection > 0 ? from->projection : from->hidden,
                                 from->layers, dropout, from->packed ? 0 : 1),
        GOOD);
}

static void set_data(cudnnRNNDataDescriptor_t data, const line *from)
{
    int lengths[LENGTHS_MOST];
    assert_in_range(from->sequences, 1, LENGTHS_MOST);
    for (int i = 0; i < from->sequences; i++)
        lengths[i] = from->steps;
    assert_int_equal(
        cudnnSetRNNDataDescriptor(data, type_of(from),
                                  from->packed ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
                                               : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                                  from->steps, from->sequences, from->input, lengths, NULL),
        GOOD);
}

static sizes asked(cudnnHandle_t handle, const line *from)
{
    sizes got = {0};
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDescriptor_t network;
    cudnnRNNDataDescriptor_t data;
    assert_int_equal(cudnnCreateDropoutDescriptor(&dropout), GOOD);
    assert_int_equal(cudnnCreateRNNDescriptor(&network), GOOD);
    assert_int_equal(cudnnCreateRNNDataDescriptor(&data), GOOD);
    assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, from->dropout, NULL, 0, 0), GOOD);
    set_network(network, dropout, from);
    set_data(data, from);
    assert_int_equal(cudnnGetRNNWeightSpaceSize(handle, network, &got.weights), GOOD);
    assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_TRAINING, data,
                                               &got.training_workspace, &got.training_reserve),
                     GOOD);
    assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_INFERENCE, data,
                                               &got.workspace, &got.reserve),
                     GOOD);
    assert_int_equal(cudnnDestroyRNNDataDescriptor(data), GOOD);
    assert_int_equal(cudnnDestroyRNNDescriptor(network), GOOD);
    assert_int_equal(cudnnDestroyDropoutDescriptor(dropout), GOOD);
    return got;
}

/* 0: the rule is exact. */
static size_t bound_of(const line *from)
{
    return from->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC && type_of(from) == CUDNN_DATA_HALF &&
                   from->hidden % 8 != 0 && from->sequences % 8 != 0
               ? BEYOND_MOST
               : 0;
}

static bool read_line(FILE *file, line *into)
{
    char text[256];
    line made = {0};
    sizes *said = &made.said;
    while (fgets(text, sizeof text, file) != NULL)
        if (sscanf(text, "%f,%d,%15[^,],%15[^,],%d,%d,%d,%d,%d,%d,%d,%d,%d,%zu,%zu,%zu,%zu,%zu",
                   &made.dropout, &made.packed, made.mode, made.type, &made.both, &made.layers,
                   &made.hidden, &made.input, &made.sequences, &made.steps, &made.algorithm,
                   &made.math, &made.projection, &said->weights, &said->training_workspace,
                   &said->training_reserve, &said->workspace, &said->reserve) == 18) {
            *into = made;
            return true;
        }
    return false;
}

static void check(cudnnHandle_t handle, const line *from)
{
    sizes got = asked(handle, from);
    const sizes *said = &from->said;
    if (got.weights != said->weights || got.training_reserve != said->training_reserve ||
        got.workspace != said->workspace || got.reserve != said->reserve ||
        got.training_workspace < said->training_workspace ||
        got.training_workspace - said->training_workspace > bound_of(from))
        fail_msg("%s of %s, %d x %d, %d x %d, %d layers, both %d, algorithm %d, packed %d, dropout "
                 "%.1f, projection %d: weights %zu (%zu on the card), training %zu + %zu "
                 "(%zu + %zu), inference %zu + %zu (%zu + %zu)",
                 from->mode, from->type, from->hidden, from->input, from->sequences, from->steps,
                 from->layers, from->both, from->algorithm, from->packed, (double)from->dropout,
                 from->projection, got.weights, said->weights, got.training_workspace,
                 got.training_reserve, said->training_workspace, said->training_reserve,
                 got.workspace, got.reserve, said->workspace, said->reserve);
}

static void networks_need_what_they_need_on_a_card(void **state)
{
    line each;
    size_t count = 0;
    cudnnHandle_t handle = NULL;
    FILE *file = fopen(*state, "r");
    assert_non_null(file);
    assert_int_equal(cudnnCreate(&handle), GOOD);
    for (; read_line(file, &each); count++)
        check(handle, &each);
    fclose(file);
    assert_true(count >= NETWORKS_LEAST);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(networks_need_what_they_need_on_a_card, argv[1]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
