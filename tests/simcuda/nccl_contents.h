/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_SIMCUDA_NCCL_CONTENTS_H
#define RVL_TESTS_SIMCUDA_NCCL_CONTENTS_H

#include "simcuda/nccl/nccl.h"

/*
 * What operations of NCCL bring: words of nccl_words.h about a sending and a receiving buffer.
 *
 *     put TYPE A,B,..       these go into the sending buffer: i8 u8 i32 u32 i64 u64 f32 f64, or
 * bits of f16 bf16 e4m3 e5m2; a '-' is unknown. ROOT, PEER, OP (sum prod max min avg, or mul: by
 * what factor says) below factor F              factoron F         in host memory, or on the device
 *     broadcast ROOT   reduceto OP ROOT   allreduce OP   reducescatter OP   gather ROOT   allgather
 *     scatter ROOT   alltoall   send PEER   recv PEER        of what was put
 *     swap          the receiving buffer is the sending one
 *     onward        allreduce sum in place, in the receiving buffer
 *     copied        what was received goes to another place, by a copy on the device
 *     over A        one number is written into what was received, at its second place
 *     captured OP   allreduce in a graph, which is launched
 *     streamed OP   allreduce on another stream, which blocks, and is destroyed
 *     keep OP       the same, which launch launches on the stream of operations, as often as said
 *     get N         prints N numbers of what was received, which waits for them
 *     many N        allreduce of one number, so often, and nothing is read
 *     large N FILE  allreduce of 1 MiB of ones, so often, to as many buffers. When all are called,
 *                   makes FILE. Then prints the first byte of the first buffer, and of the last
 *
 * Answers how many words were taken, 0 where it is none of these.
 */
int nccl_contents_act(rvli_comm *comm, char **words, void *(*find)(const char *name));

#endif
