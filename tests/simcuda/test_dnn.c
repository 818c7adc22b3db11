/* SPDX-License-Identifier: MIT */
/*
 * The simulated cuDNN, in a program under `reveille run`.
 *   test_dnn                  with a planner that stands in for the real library (planner.c)
 *   test_dnn without REASON   without a usable planner, for the reason reported
 *   test_dnn real             with the real library: its plans for a simulated H200
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "simcuda/dnn/functions.h"

/* A stub. */
cudnnStatus_t cudnnGetReductionWorkspaceSize(cudnnHandle_t handle, const void *reduction,
                                             const void *from, const void *to, size_t *bytes);

#define GOOD CUDNN_STATUS_SUCCESS
#define TEXT_BYTES 4096
#define NODES_MOST 8 /* in a graph */

static cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    assert_int_equal(cudnnBackendCreateDescriptor(type, &made), GOOD);
    assert_non_null(made);
    return made;
}

static void drop(cudnnBackendDescriptor_t descriptor)
{
    assert_int_equal(cudnnBackendDestroyDescriptor(descriptor), GOOD);
}

static cudnnHandle_t new_handle(void)
{
    cudnnHandle_t handle = NULL;
    assert_int_equal(cudnnCreate(&handle), GOOD);
    assert_non_null(handle);
    return handle;
}

static void check_reason(const char *expected)
{
    char reason[256] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    assert_string_equal(reason, expected);
}

/* Collects what is written to stderr. */
typedef struct listener {
    FILE *file;
    int stderr_kept;
} listener;

static listener listen(void)
{
    listener made = {tmpfile(), dup(STDERR_FILENO)};
    assert_non_null(made.file);
    fflush(stderr);
    assert_true(dup2(fileno(made.file), STDERR_FILENO) >= 0);
    return made;
}

static void heard(listener *from, char *text)
{
    fflush(stderr);
    dup2(from->stderr_kept, STDERR_FILENO);
    close(from->stderr_kept);
    rewind(from->file);
    text[fread(text, 1, TEXT_BYTES - 1, from->file)] = '\0';
    fclose(from->file);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

/* ---- Handles ---- */

static void a_handle_keeps_its_stream(void **state)
{
    (void)state;
    cudnnHandle_t handle = new_handle();
    cudaStream_t stream = (cudaStream_t)(uintptr_t)1;
    assert_int_equal(cudnnGetStream(handle, &stream), GOOD);
    assert_null(stream);
    assert_int_equal(cudnnSetStream(handle, (cudaStream_t)(uintptr_t)42), GOOD);
    assert_int_equal(cudnnGetStream(handle, &stream), GOOD);
    assert_int_equal((uintptr_t)stream, 42);
    assert_int_equal(cudnnDestroy(handle), GOOD);
    assert_int_equal(cudnnCreate(NULL), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    check_reason("handle is NULL");
    assert_int_equal(cudnnSetStream(NULL, NULL), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    assert_int_equal(cudnnDestroy(NULL), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

static size_t used(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return total_bytes - free_bytes;
}

/* 16 streams, with pages that other streams reuse, and a small piece of memory, which is freed. */
static void a_handle_has_streams(void **state)
{
    const size_t page = 2 << 20;
    (void)state;
    assert_int_equal(cudnnDestroy(new_handle()), GOOD);
    size_t before = used();
    cudnnHandle_t first = new_handle();
    assert_int_equal(used() - before, page);
    cudnnHandle_t second = new_handle();
    assert_int_equal(used() - before, 5 * page);
    assert_int_equal(cudnnDestroy(first), GOOD);
    assert_int_equal(cudnnDestroy(second), GOOD);
    assert_int_equal(used() - before, 4 * page);
}

static void a_handle_that_does_not_fit_takes_nothing(void **state)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUdeviceptr filling = 0;
    cudnnHandle_t handle = NULL;
    (void)state;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&filling, free_bytes >> 21 << 21), CUDA_SUCCESS);
    size_t before = used();
    assert_int_equal(cudnnCreate(&handle), CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    check_reason("no device memory for the handle");
    assert_null(handle);
    assert_int_equal(used(), before);
    assert_int_equal(cuMemFree(filling), CUDA_SUCCESS);
    assert_int_equal(cudnnDestroy(new_handle()), GOOD);
}

static void versions_are_the_real_ones(void **state)
{
    int value = 0;
    (void)state;
    assert_int_equal(cudnnGetVersion(), 91234);
    assert_int_equal(cudnnGetCudartVersion(), 13000);
    assert_int_equal(cudnnGetMaxDeviceVersion(), 1299);
    assert_int_equal(cudnnGetProperty(1, &value), GOOD);
    assert_int_equal(value, 10);
    assert_string_equal(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED), "not fine");
}

/* ---- Device properties given to the planner ---- */

static void read_properties(cudnnBackendDescriptor_t properties, char *text)
{
    int64_t count = 0;
    assert_int_equal(cudnnBackendGetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                              CUDNN_TYPE_CHAR, TEXT_BYTES - 1, &count, text),
                     GOOD);
    assert_in_range(count, 1, TEXT_BYTES - 1);
    text[count] = '\0';
}

static void check_h200(const char *text)
{
    static const char *const parts[] = {
        "{\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,",
        "\"deviceVer\":900,",
        "\"totalGlobalMem\":150109880320,",
        "\"multiProcessorCount\":132,",
        "\"l2CacheSize\":62914560,",
        "\"maxSharedMemoryPerBlockOptin\":232448,",
        "\"smClockRateKHz\":1980000,",
        "\"maxBlockSize\":[1024,1024,64],",
        "\"maxGridSize\":[2147483647,65535,65535]}",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(text, parts[i]) == NULL)
            fail_msg("no %s in %s", parts[i], text);
}

static void a_device_is_described_as_the_profile_has_it(void **state)
{
    char text[TEXT_BYTES];
    int32_t device = 0, no_device = 7;
    (void)state;
    cudnnHandle_t handle = new_handle(), none = NULL;
    cudnnBackendDescriptor_t properties = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    assert_int_equal(cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_DEVICE_ID,
                                              CUDNN_TYPE_INT32, 1, &no_device),
                     CUDNN_STATUS_BAD_PARAM);
    check_reason("there is no such device");
    assert_int_equal(cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &none),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_DEVICE_ID,
                                              CUDNN_TYPE_INT32, 1, &device),
                     GOOD);
    assert_int_equal(cudnnBackendFinalize(properties), GOOD);
    read_properties(properties, text);
    check_h200(text);
    drop(properties);
    properties = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    assert_int_equal(cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &handle),
                     GOOD);
    assert_int_equal(cudnnBackendFinalize(properties), GOOD);
    read_properties(properties, text);
    check_h200(text);
    drop(properties);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

/* ---- Graphs, heuristics, engines, plans ---- */

static cudnnBackendDescriptor_t graph_of(cudnnHandle_t handle)
{
    cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle != NULL)
        assert_int_equal(cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                                  CUDNN_TYPE_HANDLE, 1, &handle),
                         GOOD);
    assert_int_equal(cudnnBackendFinalize(graph), GOOD);
    return graph;
}

static cudnnStatus_t ask_descriptor(cudnnBackendDescriptor_t of, int name,
                                    cudnnBackendDescriptor_t *answer)
{
    int64_t count = 0;
    return cudnnBackendGetAttribute(of, (cudnnBackendAttributeName_t)name,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, (void *)answer);
}

static void a_graph_keeps_its_handle(void **state)
{
    int64_t count = 0;
    (void)state;
    cudnnHandle_t handle = new_handle(), read = NULL, none = NULL;
    cudnnBackendDescriptor_t graph = graph_of(handle);
    assert_int_equal(cudnnBackendGetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &count, (void *)&read),
                     GOOD);
    assert_int_equal(count, 1);
    assert_ptr_equal(read, handle);
    assert_int_equal(cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &none),
                     CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    drop(graph);
    graph = graph_of(NULL); /* possibly at the address of the previous one */
    assert_int_equal(cudnnBackendGetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &count, (void *)&read),
                     CUDNN_STATUS_BAD_PARAM);
    check_reason("the planner's reason");
    drop(graph);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

/* Objects made from a graph are made for the device of the graph's handle. */
static void check_device_given(cudnnBackendDescriptorType_t type, int graph_name, int device_name)
{
    char text[TEXT_BYTES];
    cudnnHandle_t handle = new_handle();
    for (int with_handle = 0; with_handle < 2; with_handle++) {
        cudnnBackendDescriptor_t properties = NULL, read = NULL;
        cudnnBackendDescriptor_t graph = graph_of(with_handle ? handle : NULL), made = make(type);
        assert_int_equal(cudnnBackendSetAttribute(made, (cudnnBackendAttributeName_t)graph_name,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph),
                         GOOD);
        assert_int_equal(cudnnBackendFinalize(made), GOOD);
        assert_int_equal(ask_descriptor(made, graph_name, &read), GOOD);
        assert_ptr_equal(read, graph);
        assert_int_equal(ask_descriptor(made, device_name, &properties),
                         with_handle ? GOOD : CUDNN_STATUS_BAD_PARAM);
        if (with_handle) {
            read_properties(properties, text);
            check_h200(text);
        }
        drop(made);
        drop(graph);
    }
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

static void heuristics_and_engines_are_for_the_device(void **state)
{
    (void)state;
    check_device_given(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                       CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    check_device_given(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                       CUDNN_ATTR_ENGINE_DEVICEPROP);
}

static void a_plan_has_a_handle_or_not(void **state)
{
    char text[TEXT_BYTES];
    (void)state;
    cudnnHandle_t handle = new_handle();
    cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), properties;
    assert_int_equal(cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &handle),
                     GOOD);
    assert_int_equal(cudnnBackendFinalize(plan), GOOD);
    assert_int_equal(ask_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &properties), GOOD);
    read_properties(properties, text);
    check_h200(text);
    drop(plan);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

static void set_workspace(cudnnBackendDescriptor_t plan, int64_t size_bytes,
                          cudnnBackendDescriptor_t pack, void *workspace)
{
    assert_int_equal(cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                              CUDNN_TYPE_INT64, 1, &size_bytes),
                     GOOD);
    assert_int_equal(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                              CUDNN_TYPE_VOID_PTR, 1, (void *)&workspace),
                     GOOD);
}

static void a_plan_runs_with_its_workspace(void **state)
{
    const int64_t workspace_bytes = 4096;
    void *workspace = NULL;
    (void)state;
    cudnnHandle_t handle = new_handle();
    cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnnBackendDescriptor_t pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set_workspace(plan, workspace_bytes, pack, workspace);
    assert_int_equal(cudnnBackendFinalize(pack), GOOD);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    assert_int_equal(cudnnBackendFinalize(plan), GOOD);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    check_reason("the plan has no workspace");
    workspace = &handle;
    assert_int_equal(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                              CUDNN_TYPE_VOID_PTR, 1, (void *)&workspace),
                     GOOD);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack), GOOD);
    assert_int_equal(cudnnBackendExecute(NULL, plan, pack), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    drop(plan);
    drop(pack);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

/* The number of kernels in a captured graph. */
static size_t captured_kernels(CUstream stream)
{
    CUgraph graph;
    CUgraphNode nodes[NODES_MOST];
    CUgraphNodeType type;
    size_t count = NODES_MOST, kernels = 0;
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(cuGraphNodeGetType(nodes[i], &type), CUDA_SUCCESS);
        kernels += type == CU_GRAPH_NODE_TYPE_KERNEL;
    }
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    return kernels;
}

static cudnnStatus_t normalize(cudnnHandle_t handle)
{
    return cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, NULL,
                                                   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                                   NULL, NULL, 1e-5);
}

static void what_is_computed_is_captured(void **state)
{
    CUstream stream;
    (void)state;
    cudnnHandle_t handle = new_handle();
    cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    cudnnBackendDescriptor_t pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set_workspace(plan, 0, pack, NULL);
    assert_int_equal(cudnnBackendFinalize(plan), GOOD);
    assert_int_equal(cudnnBackendFinalize(pack), GOOD);
    assert_int_equal(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cudnnSetStream(handle, (cudaStream_t)stream), GOOD);
    assert_int_equal(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack), GOOD);
    assert_int_equal(normalize(handle), GOOD);
    assert_int_equal(cudnnRNNForward(handle, NULL, CUDNN_FWD_MODE_TRAINING, NULL, NULL, NULL, NULL,
                                     NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0,
                                     NULL),
                     CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    assert_int_equal(captured_kernels(stream), 2);

    assert_int_equal(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(cudnnBackendExecute(handle, plan, pack),
                     CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
    check_reason("the kernel cannot be launched on the handle's stream");
    drop(plan);
    drop(pack);
    assert_int_equal(cudnnDestroy(handle), GOOD);
    assert_int_equal(cuStreamDestroy(stream), CUDA_SUCCESS);
}

/* ---- The older functions ---- */

static void tensors_and_filters_are_read_back(void **state)
{
    const int sizes[] = {2, 3, 4, 5}, strides[] = {60, 1, 15, 3}, bad[] = {2, 0, 4, 5};
    int count = 0, read_sizes[4] = {0}, read_strides[4] = {0};
    size_t size_bytes = 0;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
    cudnnTensorDescriptor_t tensor;
    cudnnFilterDescriptor_t filter;
    (void)state;
    assert_int_equal(cudnnCreateTensorDescriptor(&tensor), GOOD);
    assert_int_equal(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_HALF, 4, bad, strides),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_HALF, 9, sizes, strides),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_HALF, 4, sizes, strides), GOOD);
    assert_int_equal(cudnnGetTensorNdDescriptor(tensor, 4, &type, &count, read_sizes, read_strides),
                     GOOD);
    assert_int_equal(type, CUDNN_DATA_HALF);
    assert_int_equal(count, 4);
    assert_memory_equal(read_sizes, sizes, sizeof sizes);
    assert_memory_equal(read_strides, strides, sizeof strides);
    assert_int_equal(cudnnGetTensorSizeInBytes(tensor, &size_bytes), GOOD);
    assert_int_equal(size_bytes, 2 * 3 * 4 * 5 * 2);
    assert_int_equal(cudnnDestroyTensorDescriptor(tensor), GOOD);
    assert_int_equal(cudnnCreateFilterDescriptor(&filter), GOOD);
    assert_int_equal(
        cudnnSetFilterNdDescriptor(filter, CUDNN_DATA_HALF, CUDNN_TENSOR_NCHW, 4, sizes), GOOD);
    assert_int_equal(cudnnGetFilterNdDescriptor(filter, 2, &type, &format, &count, read_strides),
                     GOOD);
    assert_int_equal(format, CUDNN_TENSOR_NCHW);
    assert_int_equal(count, 4);
    assert_int_equal(read_strides[1], 3);
    assert_int_equal(read_strides[2], 15); /* two were requested */
    assert_int_equal(cudnnDestroyFilterDescriptor(filter), GOOD);
}

static cudnnStatus_t set_network(cudnnRNNDescriptor_t network, cudnnRNNMode_t mode, int layers,
                                 int projection)
{
    return cudnnSetRNNDescriptor_v8(network, CUDNN_RNN_ALGO_STANDARD, mode, CUDNN_RNN_DOUBLE_BIAS,
                                    CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                    CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 123, 320, projection,
                                    layers, NULL, CUDNN_RNN_PADDED_IO_DISABLED);
}

/* The networks of pytorch/pytorch issue 2895, which has their reserves and numbers of weights.
 * Its cuDNN 7 does not add 256 bytes to the reserve. test_recurrent.c has an H100's figures. */
static void check_network(cudnnHandle_t handle, cudnnRNNMode_t mode, size_t weights, size_t reserve)
{
    int lengths[25];
    size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 1;
    cudnnRNNDescriptor_t network;
    cudnnRNNDataDescriptor_t data;
    for (int i = 0; i < 25; i++)
        lengths[i] = 1000;
    assert_int_equal(cudnnCreateRNNDescriptor(&network), GOOD);
    assert_int_equal(cudnnGetRNNWeightSpaceSize(handle, network, &weight_bytes),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(set_network(network, mode, 4, 320), GOOD);
    assert_int_equal(cudnnGetRNNWeightSpaceSize(handle, network, &weight_bytes), GOOD);
    assert_int_equal(weight_bytes, weights * 4);
    assert_int_equal(cudnnCreateRNNDataDescriptor(&data), GOOD);
    assert_int_equal(cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT,
                                               CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 999, 25, 123,
                                               lengths, NULL),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT,
                                               CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 1000, 25,
                                               123, lengths, NULL),
                     GOOD);
    assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_TRAINING, data,
                                               &work_bytes, &reserve_bytes),
                     GOOD);
    assert_int_equal(reserve_bytes, reserve + 256);
    assert_int_equal(cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_INFERENCE, data,
                                               &work_bytes, &reserve_bytes),
                     GOOD);
    assert_int_equal(reserve_bytes, 0);
    assert_int_equal(cudnnDestroyRNNDataDescriptor(data), GOOD);
    assert_int_equal(cudnnDestroyRNNDescriptor(network), GOOD);
}

static void networks_have_the_sizes_that_are_known(void **state)
{
    (void)state;
    cudnnHandle_t handle = new_handle();
    check_network(handle, CUDNN_LSTM, 3038090 - 3210, 736000000);
    check_network(handle, CUDNN_GRU, 2279370 - 3210, 864000000);
    check_network(handle, CUDNN_RNN_TANH, 761930 - 3210, 224000000);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

/* Matrices one after another, then biases. Each begins where the previous one ends. */
static void weights_lie_where_they_should(void **state)
{
    char *matrix = NULL, *bias = NULL, *space = (char *)4096;
    size_t space_bytes = 0, at = 0, bias_at = 0;
    int count = 0, sizes[3] = {0}, strides[3];
    cudnnDataType_t type;
    cudnnRNNDescriptor_t network;
    cudnnTensorDescriptor_t shape;
    (void)state;
    cudnnHandle_t handle = new_handle();
    assert_int_equal(cudnnCreateRNNDescriptor(&network), GOOD);
    assert_int_equal(cudnnCreateTensorDescriptor(&shape), GOOD);
    assert_int_equal(set_network(network, CUDNN_GRU, 2, 64), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(set_network(network, CUDNN_LSTM, 2, 64), GOOD); /* 64: projected */
    assert_int_equal(cudnnGetRNNWeightSpaceSize(handle, network, &space_bytes), GOOD);
    bias_at = space_bytes - 2UL * 8 * 320 * sizeof(float);
    for (int layer = 0; layer < 2; layer++)
        for (int which = 0; which < 9; which++) {
            int rows = which < 8 ? 320 : 64;
            int columns = which == 8 ? 320 : which < 4 && layer == 0 ? 123 : 64;
            assert_int_equal(cudnnGetRNNWeightParams(handle, network, layer, space_bytes, space,
                                                     which, shape, (void **)&matrix, NULL,
                                                     (void **)&bias),
                             GOOD);
            assert_int_equal(cudnnGetTensorNdDescriptor(shape, 3, &type, &count, sizes, strides),
                             GOOD);
            assert_int_equal(sizes[1], rows);
            assert_int_equal(sizes[2], columns);
            assert_int_equal(matrix - space, at);
            at += (size_t)rows * (size_t)columns * sizeof(float);
            assert_int_equal(which < 8 ? (size_t)(bias - space) : (size_t)bias,
                             which < 8 ? bias_at : 0);
            bias_at += which < 8 ? 320 * sizeof(float) : 0;
        }
    assert_int_equal(bias_at, space_bytes);
    assert_int_equal(cudnnGetRNNWeightParams(handle, network, 2, space_bytes, space, 0, shape,
                                             (void **)&matrix, NULL, (void **)&bias),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnGetRNNWeightParams(handle, network, 0, space_bytes - 1, space, 0, shape,
                                             (void **)&matrix, NULL, (void **)&bias),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnDestroyTensorDescriptor(shape), GOOD);
    assert_int_equal(cudnnDestroyRNNDescriptor(network), GOOD);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

static void a_spatial_transformer_launches_its_kernels(void **state)
{
    const int sizes[] = {2, 3, 4, 5};
    cudnnSpatialTransformerDescriptor_t transformer;
    (void)state;
    cudnnHandle_t handle = new_handle();
    assert_int_equal(cudnnCreateSpatialTransformerDescriptor(&transformer), GOOD);
    assert_int_equal(cudnnSpatialTfGridGeneratorForward(handle, transformer, NULL, NULL),
                     CUDNN_STATUS_BAD_PARAM);
    check_reason("the transformer has no sizes");
    assert_int_equal(
        cudnnSetSpatialTransformerNdDescriptor(transformer, 0, CUDNN_DATA_FLOAT, 5, sizes),
        CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(
        cudnnSetSpatialTransformerNdDescriptor(transformer, 0, CUDNN_DATA_FLOAT, 4, sizes), GOOD);
    assert_int_equal(
        cudnnSpatialTfSamplerForward(handle, transformer, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        GOOD);
    assert_int_equal(
        cudnnSpatialTfSamplerForward(NULL, transformer, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    assert_int_equal(cudnnSpatialTfSamplerBackward(handle, transformer, NULL, NULL, NULL, NULL,
                                                   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
                     GOOD);
    assert_int_equal(cudnnSpatialTfGridGeneratorForward(handle, transformer, NULL, NULL), GOOD);
    assert_int_equal(cudnnSpatialTfGridGeneratorBackward(handle, transformer, NULL, NULL), GOOD);
    assert_int_equal(cudnnDestroySpatialTransformerDescriptor(transformer), GOOD);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

static void dropout_keeps_what_is_set(void **state)
{
    size_t states_bytes = 0;
    float probability = 0;
    void *states = NULL, *place = &states_bytes;
    unsigned long long seed = 0;
    cudnnDropoutDescriptor_t dropout;
    (void)state;
    cudnnHandle_t handle = new_handle();
    assert_int_equal(cudnnDropoutGetStatesSize(handle, &states_bytes), GOOD);
    assert_int_equal(states_bytes, 6488064);
    assert_int_equal(cudnnCreateDropoutDescriptor(&dropout), GOOD);
    assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, 0.5f, place, states_bytes - 1, 7),
                     CUDNN_STATUS_INVALID_VALUE);
    assert_int_equal(cudnnSetDropoutDescriptor(dropout, handle, 0.5f, place, states_bytes, 7),
                     GOOD);
    assert_int_equal(cudnnGetDropoutDescriptor(dropout, handle, &probability, &states, &seed),
                     GOOD);
    assert_true(probability == 0.5f);
    assert_ptr_equal(states, place);
    assert_int_equal(seed, 7);
    assert_int_equal(cudnnDestroyDropoutDescriptor(dropout), GOOD);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

static void batch_normalization_without_activation(void **state)
{
    size_t bytes = 1;
    (void)state;
    cudnnHandle_t handle = new_handle();
    assert_int_equal(
        cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
            handle, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN, NULL, NULL, &bytes),
        GOOD);
    assert_int_equal(bytes, 0);
    bytes = 1;
    assert_int_equal(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
                         handle, CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
                         CUDNN_BATCHNORM_OPS_BN_ACTIVATION, NULL, NULL, &bytes),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(bytes, 1);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

static void what_is_not_simulated_is_told_once(void **state)
{
    char text[TEXT_BYTES];
    size_t bytes = 0;
    (void)state;
    cudnnHandle_t handle = new_handle();
    listener from = listen();
    cudnnStatus_t first = cudnnGetReductionWorkspaceSize(handle, NULL, NULL, NULL, &bytes);
    cudnnStatus_t second = cudnnGetReductionWorkspaceSize(handle, NULL, NULL, NULL, &bytes);
    heard(&from, text);
    assert_int_equal(first, CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(second, CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(count_of(text, "cudnnGetReductionWorkspaceSize, asked for by"), 1);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

/* ---- Without a planner ---- */

static void without_a_planner_nothing_is_supported(void **state)
{
    char text[TEXT_BYTES];
    cudnnHandle_t handle = NULL;
    cudnnBackendDescriptor_t made = NULL;
    const char *reason = *state;
    listener from = listen();
    cudnnStatus_t first = cudnnCreate(&handle);
    cudnnStatus_t second = cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &made);
    heard(&from, text);
    assert_int_equal(first, CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED);
    assert_int_equal(second, CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED);
    assert_null(handle);
    assert_null(made);
    check_reason("there is no real cuDNN");
    assert_int_equal(count_of(text, reason), 1);
    assert_int_equal(count_of(text, "LD_LIBRARY_PATH"), 1);
    assert_int_equal(cudnnGetVersion(), 91900);
}

/* ---- With the real planner ---- */

static void set_int64(cudnnBackendDescriptor_t of, int name, int64_t count, const int64_t *values)
{
    assert_int_equal(cudnnBackendSetAttribute(of, (cudnnBackendAttributeName_t)name,
                                              CUDNN_TYPE_INT64, count, values),
                     GOOD);
}

static void set_descriptor(cudnnBackendDescriptor_t of, int name, cudnnBackendDescriptor_t value)
{
    assert_int_equal(cudnnBackendSetAttribute(of, (cudnnBackendAttributeName_t)name,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (void *)&value),
                     GOOD);
}

static void set_type(cudnnBackendDescriptor_t of, int name, cudnnDataType_t type)
{
    assert_int_equal(cudnnBackendSetAttribute(of, (cudnnBackendAttributeName_t)name,
                                              CUDNN_TYPE_DATA_TYPE, 1, &type),
                     GOOD);
}

/* bfloat16, channels last. */
static cudnnBackendDescriptor_t image(int64_t id, int64_t n, int64_t c, int64_t edge)
{
    const int64_t sizes[] = {n, c, edge, edge}, strides[] = {c * edge * edge, 1, edge * c, c};
    const int64_t align = 16;
    cudnnBackendDescriptor_t made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_BFLOAT16);
    set_int64(made, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, sizes);
    set_int64(made, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    set_int64(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_int64(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align);
    assert_int_equal(cudnnBackendFinalize(made), GOOD);
    return made;
}

/* The first convolution of ResNet-50 on 128 images, forward. The result has edges of
 * result_edge. */
static cudnnStatus_t convolution(cudnnBackendDescriptor_t operation, int64_t result_edge)
{
    const int64_t dimensions = 2, two[] = {2, 2}, three[] = {3, 3}, one[] = {1, 1};
    const double alpha = 1, beta = 0;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    assert_int_equal(cudnnBackendSetAttribute(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                              CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode),
                     GOOD);
    set_int64(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dimensions);
    set_int64(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, two);
    set_int64(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, three);
    set_int64(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, three);
    set_int64(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, one);
    assert_int_equal(cudnnBackendFinalize(how), GOOD);
    set_descriptor(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, image(1, 128, 3, 224));
    set_descriptor(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, image(2, 64, 3, 7));
    set_descriptor(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                   image(3, 128, 64, result_edge));
    set_descriptor(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how);
    assert_int_equal(cudnnBackendSetAttribute(operation,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                              CUDNN_TYPE_DOUBLE, 1, &alpha),
                     GOOD);
    assert_int_equal(cudnnBackendSetAttribute(operation,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                              CUDNN_TYPE_DOUBLE, 1, &beta),
                     GOOD);
    return cudnnBackendFinalize(operation);
}

static void a_wrong_convolution_is_refused(void **state)
{
    char reason[256] = "";
    (void)state;
    cudnnBackendDescriptor_t operation =
        make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    cudnnStatus_t status = convolution(operation, 100);
    assert_in_range(status, CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_NOT_SUPPORTED - 1);
    cudnnGetLastErrorString(reason, sizeof reason);
    assert_true(strlen(reason) > 0);
}

/*
 * The workspace of the plan that PyTorch would choose. Images with 3 channels are padded to 8
 * for the tensor cores: 128 x 224 x 224 x 8 x 2 bytes, and a few kilobytes. On an H200, the step
 * of traces of ResNet-50 has its peak there (docs/fidelity.md).
 */
static void the_first_plan_needs_what_it_needs_on_a_card(void **state)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_B;
    int64_t count = 0, workspace_bytes = 0;
    (void)state;
    cudnnHandle_t handle = new_handle();
    cudnnBackendDescriptor_t operation =
        make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t configuration = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnnBackendDescriptor_t plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    assert_int_equal(convolution(operation, 112), GOOD);
    set_descriptor(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    assert_int_equal(cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &handle),
                     GOOD);
    assert_int_equal(cudnnBackendFinalize(graph), GOOD);
    set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    assert_int_equal(cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                                              CUDNN_TYPE_HEUR_MODE, 1, &mode),
                     GOOD);
    assert_int_equal(cudnnBackendFinalize(heuristics), GOOD);
    assert_int_equal(ask_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, &configuration),
                     GOOD);
    set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    assert_int_equal(cudnnBackendFinalize(plan), GOOD);
    assert_int_equal(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                              CUDNN_TYPE_INT64, 1, &count, &workspace_bytes),
                     GOOD);
    assert_in_range(workspace_bytes, 128 * 224 * 224 * 8 * 2, 128 * 224 * 224 * 8 * 2 + 65536);
    assert_int_equal(cudnnDestroy(handle), GOOD);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest standing_in[] = {
        cmocka_unit_test(a_handle_keeps_its_stream),
        cmocka_unit_test(a_handle_has_streams),
        cmocka_unit_test(a_handle_that_does_not_fit_takes_nothing),
        cmocka_unit_test(versions_are_the_real_ones),
        cmocka_unit_test(a_device_is_described_as_the_profile_has_it),
        cmocka_unit_test(a_graph_keeps_its_handle),
        cmocka_unit_test(heuristics_and_engines_are_for_the_device),
        cmocka_unit_test(a_plan_has_a_handle_or_not),
        cmocka_unit_test(a_plan_runs_with_its_workspace),
        cmocka_unit_test(what_is_computed_is_captured),
        cmocka_unit_test(tensors_and_filters_are_read_back),
        cmocka_unit_test(networks_have_the_sizes_that_are_known),
        cmocka_unit_test(weights_lie_where_they_should),
        cmocka_unit_test(a_spatial_transformer_launches_its_kernels),
        cmocka_unit_test(dropout_keeps_what_is_set),
        cmocka_unit_test(batch_normalization_without_activation),
        cmocka_unit_test(what_is_not_simulated_is_told_once),
    };
    const struct CMUnitTest without[] = {
        cmocka_unit_test_prestate(without_a_planner_nothing_is_supported,
                                  argc > 2 ? argv[2] : NULL),
    };
    const struct CMUnitTest real[] = {
        cmocka_unit_test(a_wrong_convolution_is_refused),
        cmocka_unit_test(the_first_plan_needs_what_it_needs_on_a_card),
    };
    if (argc < 2)
        return cmocka_run_group_tests(standing_in, NULL, NULL);
    if (strcmp(argv[1], "without") == 0 && argc > 2)
        return cmocka_run_group_tests(without, NULL, NULL);
    return cmocka_run_group_tests(real, NULL, NULL);
}
