/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_SIMCUDA_NCCL_CONTENTS_H
#define RVL_TESTS_SIMCUDA_NCCL_CONTENTS_H

#include "simcuda/nccl/nccl.h"

/*
 * The data of NCCL operations: words of nccl_words.h about a sending and a receiving buffer.
 *
 *     put TYPE A,B,..       writes them to the sending buffer: i8 u8 i32 u32 i64 u64 f32 f64, or
 *                           bits of f16 bf16 e4m3 e5m2; a '-' is unknown
 *     factor F              the factor of mul, in host memory
 *     factoron F            the same, on the device
 *     broadcast ROOT   reduceto OP ROOT   allreduce OP   reducescatter OP   gather ROOT   allgather
 *     scatter ROOT   alltoall   send PEER   recv PEER        with the sending buffer's data.
 *                           OP: sum prod max min avg mul
 *     swap          the receiving buffer becomes the sending one
 *     onward        allreduce sum in place, in the receiving buffer
 *     copied        copies what was received to another place, on the device
 *     over A        overwrites the second received number
 *     captured OP   allreduce in a graph, which is launched
 *     streamed OP   allreduce on another, blocking stream, which is destroyed
 *     keep OP       as captured OP; each word launch launches it on the stream of operations
 *     get N         prints N received numbers, which waits for them
 *     many N        N times allreduce of one number, without reading
 *     large N FILE  N times allreduce of 1 MiB of ones, to separate buffers. Makes FILE after all
 *                   calls. Then prints the first byte of the first buffer, and of the last
 *
 * Returns the number of words used, or 0 for any other word.
 */
int nccl_contents_act(rvli_comm *comm, char **words, void *(*find)(const char *name));

#endif
