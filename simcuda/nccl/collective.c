/* SPDX-License-Identifier: MIT */
/*
 * Operations between ranks. Each is checked, and complete when it is asked for: no rank waits for
 * another, and no bytes travel between processes.
 *
 * Where the driver keeps what memory contains, the receiving buffer gets what this rank has sent
 * itself, in the place of every rank: ranks are taken to bring the same. A sum, a product, a
 * maximum or an average of them is what this rank brings, too. What another rank alone has (a
 * broadcast by another root, a receive) leaves the buffer as it is.
 */
#include "simcuda/nccl/comm.h"

static const unsigned char bytes_of_type[RVLI_NCCL_TYPES] = {
    [RVLI_NCCL_INT8] = 1,     [RVLI_NCCL_UINT8] = 1,       [RVLI_NCCL_INT32] = 4,
    [RVLI_NCCL_UINT32] = 4,   [RVLI_NCCL_INT64] = 8,       [RVLI_NCCL_UINT64] = 8,
    [RVLI_NCCL_FLOAT16] = 2,  [RVLI_NCCL_FLOAT32] = 4,     [RVLI_NCCL_FLOAT64] = 8,
    [RVLI_NCCL_BFLOAT16] = 2, [RVLI_NCCL_FLOAT8_E4M3] = 1, [RVLI_NCCL_FLOAT8_E5M2] = 1,
};

/* ---- Checks ---- */

/* An operation of a communicator on elements of a type, at or with a rank; rank 0 where none is
 * named. */
static rvli_nccl_result check(rvli_comm *comm, size_t count, rvli_nccl_type type, int rank,
                              size_t *bytes_out)
{
    rvli_nccl_result result = rvli_comm_check_ready(comm);
    *bytes_out = 0;
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if ((unsigned)type >= RVLI_NCCL_TYPES)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "%d is no data type", (int)type);
    if (rank < 0 || rank >= comm->ranks)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "rank %d: the communicator has ranks from 0 to %d", rank,
                              comm->ranks - 1);
    if (count > SIZE_MAX / 8 / (size_t)comm->ranks)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "%zu elements are too many", count);
    *bytes_out = count * bytes_of_type[type];
    return RVLI_NCCL_SUCCESS;
}

static rvli_nccl_result check_operation(const rvli_comm *comm, int operation)
{
    unsigned known = RVLI_NCCL_OPERATIONS + comm->operations;
    return operation >= 0 && (unsigned)operation < known
               ? RVLI_NCCL_SUCCESS
               : rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "%d is no operation to reduce by",
                                operation);
}

/* ---- Copies ---- */

static rvli_nccl_result put(void *to, size_t offset, const void *from, size_t bytes,
                            CUstream stream)
{
    CUdeviceptr into = (CUdeviceptr)to + offset;
    if (bytes == 0 || into == (CUdeviceptr)from)
        return RVLI_NCCL_SUCCESS;
    return rvli_nccl_driven(cuMemcpyDtoDAsync(into, (CUdeviceptr)from, bytes, stream));
}

/* The same in the place of every rank; where their number is assumed, in this rank's alone. */
static rvli_nccl_result put_all(const rvli_comm *comm, void *to, const void *from, size_t bytes,
                                CUstream stream)
{
    rvli_nccl_result result = put(to, (size_t)comm->rank * bytes, from, bytes, stream);
    for (int rank = 0; comm->sized && rank < comm->ranks && result == RVLI_NCCL_SUCCESS; rank++)
        if (rank != comm->rank)
            result = put(to, (size_t)rank * bytes, from, bytes, stream);
    return result;
}

static const void *part_of(const void *from, int rank, size_t bytes)
{
    return (const char *)from + (size_t)rank * bytes;
}

/* ---- Operations to reduce by ---- */

rvli_nccl_result ncclRedOpCreatePreMulSum(int *operation, void *scalar, rvli_nccl_type type,
                                          int residence, rvli_comm *comm)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, 1, type, 0, &bytes);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (operation == NULL || scalar == NULL || residence < 0 || residence > 1)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclRedOpCreatePreMulSum: there is no scalar, or no place for the "
                              "operation");
    *operation = RVLI_NCCL_OPERATIONS + (int)comm->operations++;
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result ncclRedOpDestroy(int operation, rvli_comm *comm)
{
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result == RVLI_NCCL_SUCCESS && operation < RVLI_NCCL_OPERATIONS)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclRedOpDestroy: operation %d is NCCL's own", operation);
    return result == RVLI_NCCL_SUCCESS ? check_operation(comm, operation) : result;
}

/* ---- Collectives ---- */

/* What is as it should be takes the memory of a communicator's first collective. */
static rvli_nccl_result with_memory(rvli_comm *comm, rvli_nccl_result checked)
{
    return checked == RVLI_NCCL_SUCCESS ? rvli_comm_use_memory(comm) : checked;
}

rvli_nccl_result ncclReduce(const void *from, void *to, size_t count, rvli_nccl_type type,
                            int operation, int root, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, root, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_operation(comm, operation);
    result = with_memory(comm, result);
    if (result != RVLI_NCCL_SUCCESS || comm->rank != root)
        return result;
    return put(to, 0, from, bytes, stream);
}

rvli_nccl_result ncclBroadcast(const void *from, void *to, size_t count, rvli_nccl_type type,
                               int root, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = with_memory(comm, check(comm, count, type, root, &bytes));
    if (result != RVLI_NCCL_SUCCESS || comm->rank != root)
        return result;
    return put(to, 0, from, bytes, stream);
}

rvli_nccl_result ncclBcast(void *buffer, size_t count, rvli_nccl_type type, int root,
                           rvli_comm *comm, CUstream stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

rvli_nccl_result ncclAllReduce(const void *from, void *to, size_t count, rvli_nccl_type type,
                               int operation, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, 0, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_operation(comm, operation);
    result = with_memory(comm, result);
    return result == RVLI_NCCL_SUCCESS ? put(to, 0, from, bytes, stream) : result;
}

rvli_nccl_result ncclReduceScatter(const void *from, void *to, size_t count, rvli_nccl_type type,
                                   int operation, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, 0, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_operation(comm, operation);
    result = with_memory(comm, result);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    return put(to, 0, part_of(from, comm->rank, bytes), bytes, stream);
}

rvli_nccl_result ncclAllGather(const void *from, void *to, size_t count, rvli_nccl_type type,
                               rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = with_memory(comm, check(comm, count, type, 0, &bytes));
    return result == RVLI_NCCL_SUCCESS ? put_all(comm, to, from, bytes, stream) : result;
}

/* Every rank sends this one what this one sends itself. */
rvli_nccl_result ncclAlltoAll(const void *from, void *to, size_t count, rvli_nccl_type type,
                              rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = with_memory(comm, check(comm, count, type, 0, &bytes));
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    return put_all(comm, to, part_of(from, comm->rank, bytes), bytes, stream);
}

rvli_nccl_result ncclGather(const void *from, void *to, size_t count, rvli_nccl_type type, int root,
                            rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = with_memory(comm, check(comm, count, type, root, &bytes));
    if (result != RVLI_NCCL_SUCCESS || comm->rank != root)
        return result;
    return put_all(comm, to, from, bytes, stream);
}

rvli_nccl_result ncclScatter(const void *from, void *to, size_t count, rvli_nccl_type type,
                             int root, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = with_memory(comm, check(comm, count, type, root, &bytes));
    if (result != RVLI_NCCL_SUCCESS || comm->rank != root)
        return result;
    return put(to, 0, part_of(from, comm->rank, bytes), bytes, stream);
}

/* ---- One to one ---- */

rvli_nccl_result ncclSend(const void *from, size_t count, rvli_nccl_type type, int peer,
                          rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    (void)from;
    (void)stream;
    return check(comm, count, type, peer, &bytes);
}

rvli_nccl_result ncclRecv(void *to, size_t count, rvli_nccl_type type, int peer, rvli_comm *comm,
                          CUstream stream)
{
    size_t bytes;
    (void)to;
    (void)stream;
    return check(comm, count, type, peer, &bytes);
}

RVLI_NCCL_ALSO(ncclRedOpCreatePreMulSum)
RVLI_NCCL_ALSO(ncclRedOpDestroy)
RVLI_NCCL_ALSO(ncclReduce)
RVLI_NCCL_ALSO(ncclBcast)
RVLI_NCCL_ALSO(ncclBroadcast)
RVLI_NCCL_ALSO(ncclAllReduce)
RVLI_NCCL_ALSO(ncclReduceScatter)
RVLI_NCCL_ALSO(ncclAllGather)
RVLI_NCCL_ALSO(ncclAlltoAll)
RVLI_NCCL_ALSO(ncclGather)
RVLI_NCCL_ALSO(ncclScatter)
RVLI_NCCL_ALSO(ncclSend)
RVLI_NCCL_ALSO(ncclRecv)
