/* SPDX-License-Identifier: MIT */
/*
 * Recurrent networks. Their weights have sizes that follow from cuDNN's documented equations: for
 * every gate of every layer and direction an input matrix, a recurrent matrix and their biases, and
 * with a projection one matrix more. Matrices of all layers lie before all biases.
 *
 * What they keep from forward to backward (the reserve) is not published. Assumed, in elements for
 * each time step, sequence, hidden unit and direction: 5 a layer for LSTM (four gates and the
 * cell), 6 for GRU, 1 for the plain ones, and 1 between two layers. The rule for LSTM and GRU is
 * that of the one published pair of figures (pytorch/pytorch issue 2895: 736,000,000 and
 * 864,000,000 bytes in four layers of 320 units, which is 23 and 27 times 25,000 x 320 elements;
 * the script has that many steps times sequences only by this reading). It is of cuDNN 7, on a
 * P100. The plain ones' and the workspace, as large as the weights, are guesses; the pair has 1.46
 * times its weights.
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
    bool set;
};

struct cudnnRNNDataStruct {
    cudnnDataType_t type;
    cudnnRNNDataLayout_t layout;
    int steps, sequences, vector_size;
    int *lengths;
};

RVLI_DESCRIPTOR(RNNDescriptor, cudnnRNNDescriptor_t)

/* ---- What a network is ---- */

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
    *rnnDesc = (struct cudnnRNNStruct){algo,     cellMode,  biasMode,    dirMode,   inputMode,
                                       dataType, mathPrec,  mathType,    inputSize, hiddenSize,
                                       projSize, numLayers, dropoutDesc, auxFlags,  true};
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

/* ---- Its data ---- */

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

/* ---- Its weights ---- */

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

/* A matrix or bias of a layer and direction; rows 0: there is none. */
typedef struct part {
    size_t rows, columns;
    size_t offset; /* elements from the start of the weights */
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

/* Matrix `which` of a layer: input ones, recurrent ones, the projection. */
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

/* Where one lies among all of its kind, which begin at `from`; up to the last: how many elements
 * there are. */
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

/* Where a part lies; NULL and no sizes: there is none. */
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

/* ---- What it needs besides ---- */

static size_t kept_a_layer(const struct cudnnRNNStruct *network)
{
    return network->mode == CUDNN_LSTM ? 5 : network->mode == CUDNN_GRU ? 6 : 1;
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
    size_t layers = (size_t)rnnDesc->layers, element_bytes = rvli_dnn_type_bytes(rnnDesc->type);
    size_t kept = layers * kept_a_layer(rnnDesc) + layers - 1;
    size_t units = (size_t)xDesc->steps * (size_t)xDesc->sequences * (size_t)rnnDesc->hidden_size *
                   directions(rnnDesc);
    RVLI_OUT(workSpaceSize, weight_elements(rnnDesc) * element_bytes);
    RVLI_OUT(reserveSpaceSize,
             fwdMode == CUDNN_FWD_MODE_TRAINING ? kept * units * element_bytes : 0);
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
