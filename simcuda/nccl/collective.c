/* SPDX-License-Identifier: MIT */
/*
 * Operations between ranks. Each call is checked, and never waits for another rank. A program
 * that waits for a stream waits for the other ranks (simcuda/driver/owed.h).
 *
 * First, the receiving buffer gets this rank's own data, at the place of every rank. So the
 * driver sees the buffers, and a communicator of one rank is done. If there are other ranks,
 * their data replaces it (carry.h).
 *
 * An operation of several ranks launches a kernel (simcuda/wire/kernel.h). All operations of one
 * communicator in a group share one kernel. An operation without elements launches none, and
 * neither does a communicator of one rank.
 */
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/polled.h"
#include "simcuda/nccl/carry.h"
#include "simcuda/nccl/comm.h"
#include "simcuda/nccl/reduce.h"
#include "simcuda/wire/kernel.h"

/* ---- Checks ---- */

/* Checks an operation of a communicator on elements of a type. rank: the root or peer; 0: none. */
static rvli_nccl_result check(rvli_comm *comm, size_t count, rvli_nccl_type type, int rank,
                              size_t *bytes_out)
{
    rvli_nccl_result result = rvli_comm_check_ready(comm);
    *bytes_out = 0;
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if ((unsigned)type >= RVLI_NCCL_TYPES)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "%d is not a data type", (int)type);
    if (rank < 0 || rank >= comm->ranks)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "rank %d: the communicator has ranks from 0 to %d", rank,
                              comm->ranks - 1);
    if (count > SIZE_MAX / 8 / (size_t)comm->ranks)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "%zu elements are too many", count);
    *bytes_out = count * rvli_type_bytes(type);
    return RVLI_NCCL_SUCCESS;
}

static rvli_nccl_result check_operation(const rvli_comm *comm, int operation)
{
    unsigned known = RVLI_NCCL_OPERATIONS + comm->operations;
    return operation >= 0 && (unsigned)operation < known
               ? RVLI_NCCL_SUCCESS
               : rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "%d is not an operation to reduce by",
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

/* Copies the data to the place of every rank. If the number of ranks is assumed, only to this
 * rank's. */
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

/* ---- Kernels ---- */

static rvli_nccl_result launch(rvli_comm *comm, size_t bytes, CUstream stream)
{
    uint64_t group = rvli_group_number();
    rvli_polled_collective(stream);
    if (comm->ranks == 1 || bytes == 0 || (group != 0 && comm->group == group))
        return RVLI_NCCL_SUCCESS;
    rvli_nccl_result result = rvli_nccl_driven(rvli_library_kernel(stream));
    if (result == RVLI_NCCL_SUCCESS)
        comm->group = group;
    return result;
}

/* ---- Reduction operators made by the program ---- */

#define SCALAR_ON_DEVICE 0 /* ncclScalarDevice */

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
    rvli_scalar *more = realloc(comm->scalars, (comm->operations + 1) * sizeof *more);
    if (more == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    comm->scalars = more;
    more[comm->operations] = (rvli_scalar){.type = type};
    if (residence == SCALAR_ON_DEVICE)
        more[comm->operations].on_device = (CUdeviceptr)scalar;
    else
        memcpy(more[comm->operations].value, scalar, bytes);
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

/* If the checks passed, takes the memory of the communicator's first collective, and launches a
 * kernel. */
static rvli_nccl_result begin(rvli_comm *comm, rvli_nccl_result checked, size_t bytes,
                              CUstream stream)
{
    rvli_nccl_result result = checked == RVLI_NCCL_SUCCESS ? rvli_comm_use_memory(comm) : checked;
    return result == RVLI_NCCL_SUCCESS ? launch(comm, bytes, stream) : result;
}

/* A call that all ranks make. brought, got: the number of parts that each brings and gets. */
static rvli_carried all_call(rvli_comm *comm, const char *name, CUstream stream, size_t bytes,
                             int brought, int got)
{
    return (rvli_carried){.comm = comm,
                          .name = name,
                          .stream = stream,
                          .bytes = bytes,
                          .from_bytes = bytes * (size_t)brought,
                          .largest = bytes * (size_t)(brought > got ? brought : got),
                          .peer = -1};
}

static void set_reduction(rvli_carried *call, rvli_nccl_type type, int operation)
{
    call->reduces = true;
    call->type = type;
    call->operation = operation;
}

rvli_nccl_result ncclReduce(const void *from, void *to, size_t count, rvli_nccl_type type,
                            int operation, int root, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, root, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_operation(comm, operation);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclReduce", stream, bytes, 1, 1);
    bool is_root = comm->rank == root;
    call.way = is_root ? RVLI_CARRY_REDUCE : RVLI_CARRY_NOTHING;
    set_reduction(&call, type, operation);
    call.from = from;
    call.to = to;
    rvli_carry_read(&call);
    return rvli_carry(&call, is_root ? put(to, 0, from, bytes, stream) : result);
}

rvli_nccl_result ncclBroadcast(const void *from, void *to, size_t count, rvli_nccl_type type,
                               int root, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, root, &bytes);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclBroadcast", stream, bytes, 1, 1);
    bool is_root = comm->rank == root;
    call.way = RVLI_CARRY_ONE;
    call.source = root;
    call.from = is_root ? from : NULL;
    call.to = to;
    rvli_carry_read(&call);
    return rvli_carry(&call, is_root ? put(to, 0, from, bytes, stream) : result);
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
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclAllReduce", stream, bytes, 1, 1);
    call.way = RVLI_CARRY_REDUCE;
    set_reduction(&call, type, operation);
    call.from = from;
    call.to = to;
    rvli_carry_read(&call);
    return rvli_carry(&call, put(to, 0, from, bytes, stream));
}

rvli_nccl_result ncclReduceScatter(const void *from, void *to, size_t count, rvli_nccl_type type,
                                   int operation, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, 0, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = check_operation(comm, operation);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclReduceScatter", stream, bytes, comm->ranks, 1);
    call.way = RVLI_CARRY_REDUCE;
    set_reduction(&call, type, operation);
    call.from = from;
    call.to = to;
    call.at = (size_t)comm->rank * bytes;
    rvli_carry_read(&call);
    return rvli_carry(&call, put(to, 0, part_of(from, comm->rank, bytes), bytes, stream));
}

rvli_nccl_result ncclAllGather(const void *from, void *to, size_t count, rvli_nccl_type type,
                               rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, 0, &bytes);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclAllGather", stream, bytes, 1, comm->ranks);
    call.way = RVLI_CARRY_EACH;
    call.from = from;
    call.to = to;
    rvli_carry_read(&call);
    return rvli_carry(&call, put_all(comm, to, from, bytes, stream));
}

rvli_nccl_result ncclAlltoAll(const void *from, void *to, size_t count, rvli_nccl_type type,
                              rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, 0, &bytes);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclAlltoAll", stream, bytes, comm->ranks, comm->ranks);
    call.way = RVLI_CARRY_EACH;
    call.from = from;
    call.to = to;
    call.at = (size_t)comm->rank * bytes;
    rvli_carry_read(&call);
    return rvli_carry(&call, put_all(comm, to, part_of(from, comm->rank, bytes), bytes, stream));
}

rvli_nccl_result ncclGather(const void *from, void *to, size_t count, rvli_nccl_type type, int root,
                            rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, root, &bytes);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclGather", stream, bytes, 1, comm->ranks);
    bool is_root = comm->rank == root;
    call.way = is_root ? RVLI_CARRY_EACH : RVLI_CARRY_NOTHING;
    call.from = from;
    call.to = to;
    rvli_carry_read(&call);
    return rvli_carry(&call, is_root ? put_all(comm, to, from, bytes, stream) : result);
}

rvli_nccl_result ncclScatter(const void *from, void *to, size_t count, rvli_nccl_type type,
                             int root, rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, root, &bytes);
    result = begin(comm, result, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclScatter", stream, bytes, comm->ranks, 1);
    bool is_root = comm->rank == root;
    call.way = RVLI_CARRY_ONE;
    call.source = root;
    call.from = is_root ? from : NULL;
    call.to = to;
    call.at = (size_t)comm->rank * bytes;
    rvli_carry_read(&call);
    if (is_root)
        result = put(to, 0, part_of(from, comm->rank, bytes), bytes, stream);
    return rvli_carry(&call, result);
}

/* ---- One to one ---- */

rvli_nccl_result ncclSend(const void *from, size_t count, rvli_nccl_type type, int peer,
                          rvli_comm *comm, CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, peer, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = launch(comm, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclSend", stream, bytes, 1, 1);
    call.from = from;
    call.peer = peer;
    rvli_carry_read(&call);
    return rvli_carry(&call, result);
}

rvli_nccl_result ncclRecv(void *to, size_t count, rvli_nccl_type type, int peer, rvli_comm *comm,
                          CUstream stream)
{
    size_t bytes;
    rvli_nccl_result result = check(comm, count, type, peer, &bytes);
    if (result == RVLI_NCCL_SUCCESS)
        result = launch(comm, bytes, stream);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    rvli_carried call = all_call(comm, "ncclRecv", stream, bytes, 1, 1);
    call.way = RVLI_CARRY_ONE;
    call.source = call.peer = peer;
    call.to = to;
    rvli_carry_read(&call);
    return rvli_carry(&call, result);
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
