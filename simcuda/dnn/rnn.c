/* SPDX-License-Identifier: MIT */
/*
 * Recurrent networks. The sizes of their weights follow from cuDNN's documented equations: for
 * every gate of every layer and direction an input matrix, a recurrent matrix and their biases,
 * and with a projection one more matrix. The matrices of all layers come before all biases.
 *
 * The reserve, which they keep from the forward pass to the backward pass, and their workspace
 * are not published. These rules are those of an H100 with cuDNN 9.19, measured for 5,706
 * networks (bench/gpu/driver/recurrent.py, recurrent.csv and recurrent_open.csv in
 * bench/results/2026-11-27-h100): relu, tanh, LSTM and GRU of four types, in one and two
 * directions, with one to four layers, by all four algorithms, with packed data, dropout and
 * projections. All reserves and all workspaces of inference are exact to the byte, and so are
 * 5,694 workspaces of training. The other 12 are 64 bytes too large, which is at most 0.0007 %:
 * the static persistent algorithm, float16, 100 hidden units and 7 sequences.
 *
 * The rules were derived from those tables. Two PyTorch programs on the same card have other
 * networks, of three layers with dropout, and of more inputs than units in both directions. They
 * agree to the byte (docs/fidelity/programs.md).
 *
 * cuDNN refused 624 more networks. Of these, 576 were LSTM and GRU of 256 and 384 hidden units
 * by the algorithm for small hidden sizes. PyTorch uses that algorithm up to 192 units there,
 * and here it is not refused. The other 48 had packed sequences, with a longer one behind a
 * shorter one.
 *
 * Not measured, and assumed:
 * - Sequences of different lengths are treated as having the length of the longest.
 * - Persistent algorithms with dropout are treated as the standard one. PyTorch uses the one for
 *   small hidden sizes with dropout, too. The same holds for packed data, for which PyTorch uses
 *   the standard algorithm.
 * - stride_of() between the measured values: 64 and 100 sequences, 100 and 128 steps. From 128
 *   steps on, 32 to 64 sequences were measured. One sequence was measured with 64 steps, all of
 *   them between layers.
 * - Where UNEVEN_UNITS are needed. One shape needed them, with 100 units and 7 sequences. 100
 *   and 250 units with 32 sequences did not, and neither did multiples of 8 units with 33 and 50
 *   sequences.
 * - Persistent algorithms with float64, and the dynamic one with bfloat16, are treated as the
 *   standard one.
 * - The kind of products, which made no difference where two kinds were measured: float32 by the
 *   standard algorithm, and bfloat16. PyTorch uses tensor cores for products of float16, and
 *   default products for bfloat16.
 * - Other devices.
 */
#include <string.h>

#include "simcuda/dnn/describe.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* nothing is computed */

struct cudnnRNNStruct {
    cudnnRNNAlgo_t algorithm;
    cudnnRNNMode_t mode;
    cudnnRNNBiasMode_t bias;
    cudnnDirectionMode_t direction;
    cudnnRNNInputMode_t input;
    cudnnDataType_t type;
    cudnnDataType_t precision;
    cudnnMathType_t math;
    int32_t input_size, hidden_size, projection_size, layers;
    cudnnDropoutDescriptor_t dropout;
    uint32_t flags;
    bool set, drops;
};

struct cudnnRNNDataStruct {
    cudnnDataType_t type;
    cudnnRNNDataLayout_t layout;
    int steps, sequences, vector_size;
    int *lengths;
};

RVLI_DESCRIPTOR(RNNDescriptor, cudnnRNNDescriptor_t)

/* ---- The network ---- */

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t algo,
                                       cudnnRNNMode_t cellMode, cudnnRNNBiasMode_t biasMode,
                                       cudnnDirectionMode_t dirMode, cudnnRNNInputMode_t inputMode,
                                       cudnnDataType_t dataType, cudnnDataType_t mathPrec,
                                       cudnnMathType_t mathType, int32_t inputSize,
                                       int32_t hiddenSize, int32_t projSize, int32_t numLayers,
                                       cudnnDropoutDescriptor_t dropoutDesc, uint32_t auxFlags)
{
    if (rnnDesc == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no network");
    if (inputSize < 1 || hiddenSize < 1 || numLayers < 1 || projSize < 1 || projSize > hiddenSize)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a network has sizes above 0, and projects to "
                                                     "no more than its hidden size");
    if (projSize < hiddenSize && cellMode != CUDNN_LSTM)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "only LSTM projects");
    bool drops = dropoutDesc != NULL && dropoutDesc->probability > 0;
    *rnnDesc = (struct cudnnRNNStruct){
        algo,      cellMode,   biasMode, dirMode,   inputMode,   dataType, mathPrec, mathType,
        inputSize, hiddenSize, projSize, numLayers, dropoutDesc, auxFlags, true,     drops};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNDescriptor_v8(cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t *algo,
                                       cudnnRNNMode_t *cellMode, cudnnRNNBiasMode_t *biasMode,
                                       cudnnDirectionMode_t *dirMode,
                                       cudnnRNNInputMode_t *inputMode, cudnnDataType_t *dataType,
                                       cudnnDataType_t *mathPrec, cudnnMathType_t *mathType,
                                       int32_t *inputSize, int32_t *hiddenSize, int32_t *projSize,
                                       int32_t *numLayers, cudnnDropoutDescriptor_t *dropoutDesc,
                                       uint32_t *auxFlags)
{
    if (rnnDesc == NULL || !rnnDesc->set)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "no network, or nothing was set");
    RVLI_OUT(algo, rnnDesc->algorithm);
    RVLI_OUT(cellMode, rnnDesc->mode);
    RVLI_OUT(biasMode, rnnDesc->bias);
    RVLI_OUT(dirMode, rnnDesc->direction);
    RVLI_OUT(inputMode, rnnDesc->input);
    RVLI_OUT(dataType, rnnDesc->type);
    RVLI_OUT(mathPrec, rnnDesc->precision);
    RVLI_OUT(mathType, rnnDesc->math);
    RVLI_OUT(inputSize, rnnDesc->input_size);
    RVLI_OUT(hiddenSize, rnnDesc->hidden_size);
    RVLI_OUT(projSize, rnnDesc->projection_size);
    RVLI_OUT(numLayers, rnnDesc->layers);
    RVLI_OUT(dropoutDesc, rnnDesc->dropout);
    RVLI_OUT(auxFlags, rnnDesc->flags);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Data of a network ---- */

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *rnnDataDesc)
{
    if (rnnDataDesc == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for it");
    cudnnRNNDataDescriptor_t made = calloc(1, sizeof *made);
    if (made == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no host memory");
    *rnnDataDesc = made;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc)
{
    if (rnnDataDesc != NULL)
        free(rnnDataDesc->lengths);
    free(rnnDataDesc);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc,
                                        cudnnDataType_t dataType, cudnnRNNDataLayout_t layout,
                                        int maxSeqLength, int batchSize, int vectorSize,
                                        const int seqLengthArray[], void *paddingFill)
{
    if (rnnDataDesc == NULL || seqLengthArray == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no data, or no lengths");
    if (maxSeqLength < 1 || batchSize < 1 || vectorSize < 1)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "sizes are above 0");
    for (int i = 0; i < batchSize; i++)
        if (seqLengthArray[i] < 0 || seqLengthArray[i] > maxSeqLength)
            return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "a sequence is longer than the longest");
    int *lengths = malloc((size_t)batchSize * sizeof *lengths);
    if (lengths == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no host memory");
    memcpy(lengths, seqLengthArray, (size_t)batchSize * sizeof *lengths);
    free(rnnDataDesc->lengths);
    *rnnDataDesc =
        (struct cudnnRNNDataStruct){dataType, layout, maxSeqLength, batchSize, vectorSize, lengths};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc,
                                        cudnnDataType_t *dataType, cudnnRNNDataLayout_t *layout,
                                        int *maxSeqLength, int *batchSize, int *vectorSize,
                                        int arrayLengthRequested, int seqLengthArray[],
                                        void *paddingFill)
{
    if (rnnDataDesc == NULL || rnnDataDesc->lengths == NULL || arrayLengthRequested < 0)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "no data, or nothing was set");
    RVLI_OUT(dataType, rnnDataDesc->type);
    RVLI_OUT(layout, rnnDataDesc->layout);
    RVLI_OUT(maxSeqLength, rnnDataDesc->steps);
    RVLI_OUT(batchSize, rnnDataDesc->sequences);
    RVLI_OUT(vectorSize, rnnDataDesc->vector_size);
    int count = arrayLengthRequested < rnnDataDesc->sequences ? arrayLengthRequested
                                                              : rnnDataDesc->sequences;
    if (seqLengthArray != NULL)
        memcpy(seqLengthArray, rnnDataDesc->lengths, (size_t)count * sizeof *seqLengthArray);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Weights of a network ---- */

static size_t gates(const struct cudnnRNNStruct *network)
{
    return network->mode == CUDNN_LSTM ? 4 : network->mode == CUDNN_GRU ? 3 : 1;
}

static size_t directions(const struct cudnnRNNStruct *network)
{
    return network->direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
}

static bool projects(const struct cudnnRNNStruct *network)
{
    return network->projection_size < network->hidden_size;
}

/* A matrix or bias of a layer and direction. rows 0: there is none. */
typedef struct part {
    size_t rows, columns;
    size_t offset; /* in elements, from the start of the weights */
} part;

static size_t columns_of(const struct cudnnRNNStruct *network, size_t layer, bool recurrent)
{
    size_t output = (size_t)network->projection_size;
    return recurrent    ? output
           : layer == 0 ? (size_t)network->input_size
                        : output * directions(network);
}

static bool has_input_matrix(const struct cudnnRNNStruct *network, size_t layer)
{
    return layer > 0 || network->input != CUDNN_SKIP_INPUT;
}

static bool has_bias(const struct cudnnRNNStruct *network, bool recurrent)
{
    return network->bias == CUDNN_RNN_DOUBLE_BIAS ||
           network->bias == (recurrent ? CUDNN_RNN_SINGLE_REC_BIAS : CUDNN_RNN_SINGLE_INP_BIAS);
}

/* Matrix `which` of a layer: first the input matrices, then the recurrent ones, then the
 * projection. */
static part matrix(const struct cudnnRNNStruct *network, size_t layer, size_t which)
{
    size_t count = gates(network), hidden = (size_t)network->hidden_size;
    bool recurrent = which >= count;
    if (which == 2 * count)
        return projects(network) ? (part){(size_t)network->projection_size, hidden, 0} : (part){0};
    if (!recurrent && !has_input_matrix(network, layer))
        return (part){0};
    return (part){hidden, columns_of(network, layer, recurrent), 0};
}

static part bias(const struct cudnnRNNStruct *network, size_t layer, size_t which)
{
    size_t count = gates(network);
    (void)layer;
    return which < 2 * count && has_bias(network, which >= count)
               ? (part){(size_t)network->hidden_size, 1, 0}
               : (part){0};
}

/* The place of a part among all of its kind, which begin at `from`. Past the last, it returns
 * the total number of elements. */
static part find(const struct cudnnRNNStruct *network,
                 part (*kind)(const struct cudnnRNNStruct *, size_t, size_t), size_t pseudo_layer,
                 size_t which, size_t from)
{
    size_t count = 2 * gates(network) + 1;
    for (size_t each = 0; each < pseudo_layer * count + which; each++) {
        part passed = kind(network, each / count / directions(network), each % count);
        from += passed.rows * passed.columns;
    }
    part found = kind(network, pseudo_layer / directions(network), which);
    found.offset = from;
    return found;
}

static size_t pseudo_layers(const struct cudnnRNNStruct *network)
{
    return (size_t)network->layers * directions(network);
}

static size_t matrix_elements(const struct cudnnRNNStruct *network)
{
    return find(network, matrix, pseudo_layers(network), 0, 0).offset;
}

static size_t weight_elements(const struct cudnnRNNStruct *network)
{
    return find(network, bias, pseudo_layers(network), 0, matrix_elements(network)).offset;
}

static cudnnStatus_t known(cudnnHandle_t handle, cudnnRNNDescriptor_t network)
{
    if (handle == NULL || network == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, or no network");
    return network->set ? CUDNN_STATUS_SUCCESS
                        : rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the network is not set");
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                         size_t *weightSpaceSize)
{
    cudnnStatus_t status = known(handle, rnnDesc);
    if (status == CUDNN_STATUS_SUCCESS && weightSpaceSize == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the size");
    if (status == CUDNN_STATUS_SUCCESS)
        *weightSpaceSize = weight_elements(rnnDesc) * rvli_dnn_type_bytes(rnnDesc->type);
    return status;
}

/* Stores the place of a part. If there is none: NULL and no sizes. */
static void tell(const struct cudnnRNNStruct *network, const void *space, part found,
                 cudnnTensorDescriptor_t tensor, void **address)
{
    int rows = (int)found.rows, columns = (int)found.columns;
    if (address != NULL)
        *address =
            rows > 0 ? (char *)(uintptr_t)space + found.offset * rvli_dnn_type_bytes(network->type)
                     : NULL;
    if (tensor != NULL)
        *tensor = (struct cudnnTensorStruct){.type = network->type,
                                             .count = rows > 0 ? 3 : 0,
                                             .sizes = {1, rows, columns},
                                             .strides = {rows * columns, columns, 1}};
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                      int32_t pseudoLayer, size_t weightSpaceSize,
                                      const void *weightSpace, int32_t linLayerID,
                                      cudnnTensorDescriptor_t mDesc, void **mAddr,
                                      cudnnTensorDescriptor_t bDesc, void **bAddr)
{
    cudnnStatus_t status = known(handle, rnnDesc);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (pseudoLayer < 0 || (size_t)pseudoLayer >= pseudo_layers(rnnDesc) || linLayerID < 0 ||
        (size_t)linLayerID > 2 * gates(rnnDesc))
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no such layer or matrix");
    if (weightSpaceSize < weight_elements(rnnDesc) * rvli_dnn_type_bytes(rnnDesc->type))
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the weights have too little memory");
    size_t layer = (size_t)pseudoLayer, which = (size_t)linLayerID;
    tell(rnnDesc, weightSpace, find(rnnDesc, matrix, layer, which, 0), mDesc, mAddr);
    tell(rnnDesc, weightSpace, find(rnnDesc, bias, layer, which, matrix_elements(rnnDesc)), bDesc,
         bAddr);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Reserve and workspace ---- */

#define PART_BYTES 32              /* alignment of each part */
#define OWN_BYTES 256              /* fixed part of reserve and of workspace */
#define PRODUCTS_BYTES (8UL << 20) /* for the products of each layer and direction */
#define STEPS_AT_ONCE 256          /* steps with gates computed together, in one direction */
#define UNEVEN_UNITS 256           /* added for sizes that are not multiples of 8 */

/* The needs of a kind of network, as multiples of its hidden units. */
typedef struct needs {
    size_t kept;       /* per step of a layer, kept for the backward pass */
    size_t states;     /* 2: with cells */
    size_t forward;    /* per layer in the forward pass, by the standard algorithm */
    size_t backward;   /* per layer in the backward pass */
    size_t persistent; /* per step in the backward pass, by the persistent algorithm */
} needs;

/* A network and its data. */
typedef struct space {
    const struct cudnnRNNStruct *network;
    needs needs;
    size_t layers, directions, gates, steps, sequences;
    size_t matrices_bytes, mask_bytes;
    size_t input_bytes, hidden_bytes,
        output_bytes; /* per step of all sequences, in one direction */
    bool packed, persists, projects, drops;
} space;

static needs needs_of(const struct cudnnRNNStruct *network)
{
    return network->mode == CUDNN_LSTM  ? (needs){5, 2, 6, 3, 12}
           : network->mode == CUDNN_GRU ? (needs){6, 1, 3, 1, 14}
                                        : (needs){1, 1, 1, 1, 9};
}

static size_t part_bytes(size_t bytes)
{
    return (bytes + PART_BYTES - 1) / PART_BYTES * PART_BYTES;
}

/* All persistent algorithms have equal needs. With bfloat16, they need what the standard one
 * does. */
static bool persists(const struct cudnnRNNStruct *network)
{
    return network->algorithm != CUDNN_RNN_ALGO_STANDARD &&
           (network->type == CUDNN_DATA_FLOAT || network->type == CUDNN_DATA_HALF);
}

static space space_of(const struct cudnnRNNStruct *network, const struct cudnnRNNDataStruct *data)
{
    size_t type_bytes = rvli_dnn_type_bytes(network->type);
    size_t sequences = (size_t)data->sequences, hidden = (size_t)network->hidden_size;
    return (space){.network = network,
                   .needs = needs_of(network),
                   .layers = (size_t)network->layers,
                   .directions = directions(network),
                   .gates = gates(network),
                   .steps = (size_t)data->steps,
                   .sequences = sequences,
                   .matrices_bytes = matrix_elements(network) * type_bytes,
                   .mask_bytes =
                       (((size_t)data->steps * sequences * hidden * directions(network)) + 7) / 8,
                   .input_bytes = sequences * (size_t)network->input_size * type_bytes,
                   .hidden_bytes = sequences * hidden * type_bytes,
                   .output_bytes = sequences * (size_t)network->projection_size * type_bytes,
                   .packed = data->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                   .persists = persists(network),
                   .projects = projects(network),
                   .drops = network->drops};
}

/* The data that the backward pass reads: the data of each layer, the data between two layers,
 * and for each direction a bit for each input of a layer that dropout may have removed. */
static size_t reserve_bytes(const space *of)
{
    size_t hidden = of->steps * of->directions * of->hidden_bytes;
    size_t output = of->steps * of->directions * of->output_bytes;
    size_t bytes = OWN_BYTES + part_bytes(of->layers * of->needs.kept * hidden) +
                   part_bytes((of->layers - 1) * hidden);
    if (of->projects)
        bytes += part_bytes(of->layers * (hidden + output));
    if (of->drops)
        bytes += (of->layers - 1) * of->directions * part_bytes(of->mask_bytes);
    return bytes;
}

/* Unpacked data is copied: input, output and states, and in the backward pass their gradients.
 * `count`: the number of copies of each. */
static size_t copies_bytes(const space *of, size_t count)
{
    size_t states = of->layers * of->directions;
    if (of->packed)
        return 0;
    size_t bytes = part_bytes(of->steps * of->input_bytes) +
                   part_bytes(of->steps * of->directions * of->output_bytes) +
                   2 * part_bytes(states * of->output_bytes);
    if (of->needs.states > 1)
        bytes += 2 * part_bytes(states * of->hidden_bytes);
    return part_bytes(2 * sizeof(int) * of->sequences) + count * bytes;
}

/* The memory of layers in addition to that for each step. */
static size_t states_bytes(const space *of, size_t standard)
{
    size_t a_unit = of->layers * of->directions * of->hidden_bytes, both = of->directions - 1;
    return of->persists ? of->needs.states * part_bytes(2 * a_unit) + part_bytes(both * a_unit)
                        : part_bytes((standard + 2 * both) * a_unit);
}

static size_t forward_bytes(const space *of)
{
    size_t all = of->steps * of->hidden_bytes, steps = of->steps;
    bool one_way = of->directions == 1;
    if (one_way && !of->persists && steps > STEPS_AT_ONCE)
        steps = STEPS_AT_ONCE;
    size_t bytes = part_bytes(of->gates * of->directions * steps * of->hidden_bytes) +
                   states_bytes(of, of->needs.forward);
    if (of->projects)
        bytes += part_bytes(of->directions * all);
    if (of->persists)
        bytes += part_bytes(4 * of->gates * all);
    if (!one_way)
        bytes += part_bytes(4 * all);
    else if (of->drops)
        bytes += part_bytes(all);
    return bytes + copies_bytes(of, 1);
}

/* The distance in steps between layers that run at the same time. */
static size_t stride_of(const space *of)
{
    size_t stride = of->sequences > 64 ? 2 : of->sequences > 16 ? 4 : of->sequences > 8 ? 8 : 16;
    return of->steps >= 128 && stride < 8 ? 8 : stride;
}

/* The number of steps of gradients between a layer and the one below. */
static size_t between_layers(const space *of)
{
    if (of->layers == 1)
        return of->directions * of->steps;
    if (of->directions == 2 || of->persists)
        return 2 * of->directions * of->steps;
    size_t stride = stride_of(of);
    size_t some = (stride > 8 ? stride : 8) + stride * of->layers;
    return of->sequences > 1 && some < of->steps ? some : of->steps;
}

/* Whether more is needed, which was only seen in the backward pass of float16 by a persistent
 * algorithm. */
static bool is_uneven(const space *of)
{
    return of->persists && of->network->type == CUDNN_DATA_HALF &&
           of->network->hidden_size % 8 != 0 && of->sequences % 8 != 0;
}

static size_t backward_bytes(const space *of)
{
    size_t wider = of->input_bytes > of->hidden_bytes ? of->input_bytes : of->hidden_bytes;
    size_t bytes = part_bytes(between_layers(of) * of->hidden_bytes) +
                   part_bytes(of->directions * of->directions * of->steps * wider) +
                   states_bytes(of, of->needs.backward);
    if (of->projects)
        bytes += part_bytes(of->directions * of->steps * of->hidden_bytes);
    if (of->persists)
        bytes += part_bytes(of->needs.persistent * of->steps * of->hidden_bytes);
    if (is_uneven(of))
        bytes += part_bytes(UNEVEN_UNITS * of->steps * of->sequences *
                            rvli_dnn_type_bytes(of->network->type));
    return bytes + copies_bytes(of, 2);
}

/* The passes of training share one size, the largest. The matrices are copied. */
static size_t workspace_bytes(const space *of, bool training)
{
    size_t pass = forward_bytes(of), backward = training ? backward_bytes(of) : 0;
    return OWN_BYTES + of->layers * of->directions * PRODUCTS_BYTES +
           part_bytes(of->matrices_bytes) + (pass > backward ? pass : backward);
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                        cudnnForwardMode_t fwdMode, cudnnRNNDataDescriptor_t xDesc,
                                        size_t *workSpaceSize, size_t *reserveSpaceSize)
{
    cudnnStatus_t status = known(handle, rnnDesc);
    if (status == CUDNN_STATUS_SUCCESS && (xDesc == NULL || xDesc->lengths == NULL))
        status = rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "no data, or nothing was set");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    bool training = fwdMode == CUDNN_FWD_MODE_TRAINING;
    space of = space_of(rnnDesc, xDesc);
    RVLI_OUT(workSpaceSize, workspace_bytes(&of, training));
    RVLI_OUT(reserveSpaceSize, training ? reserve_bytes(&of) : 0);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Runs ---- */

static cudnnStatus_t run(cudnnHandle_t handle, cudnnRNNDescriptor_t network)
{
    cudnnStatus_t status = known(handle, network);
    return status == CUDNN_STATUS_SUCCESS ? rvli_dnn_launch(handle) : status;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                              cudnnForwardMode_t fwdMode, const int32_t devSeqLengths[],
                              cudnnRNNDataDescriptor_t xDesc, const void *x,
                              cudnnRNNDataDescriptor_t yDesc, void *y,
                              cudnnTensorDescriptor_t hDesc, const void *hx, void *hy,
                              cudnnTensorDescriptor_t cDesc, const void *cx, void *cy,
                              size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize,
                              void *workSpace, size_t reserveSpaceSize, void *reserveSpace)
{
    return run(handle, rnnDesc);
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                      const int32_t devSeqLengths[], cudnnRNNDataDescriptor_t yDesc,
                                      const void *y, const void *dy, cudnnRNNDataDescriptor_t xDesc,
                                      void *dx, cudnnTensorDescriptor_t hDesc, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t cDesc,
                                      const void *cx, const void *dcy, void *dcx,
                                      size_t weightSpaceSize, const void *weightSpace,
                                      size_t workSpaceSize, void *workSpace,
                                      size_t reserveSpaceSize, void *reserveSpace)
{
    return run(handle, rnnDesc);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                         cudnnWgradMode_t addGrad, const int32_t devSeqLengths[],
                                         cudnnRNNDataDescriptor_t xDesc, const void *x,
                                         cudnnTensorDescriptor_t hDesc, const void *hx,
                                         cudnnRNNDataDescriptor_t yDesc, const void *y,
                                         size_t weightSpaceSize, void *dweightSpace,
                                         size_t workSpaceSize, void *workSpace,
                                         size_t reserveSpaceSize, void *reserveSpace)
{
    return run(handle, rnnDesc);
}
