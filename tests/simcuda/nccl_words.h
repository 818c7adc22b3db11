/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_SIMCUDA_NCCL_WORDS_H
#define RVL_TESTS_SIMCUDA_NCCL_WORDS_H

#include <stdbool.h>

/*
 * Calls of NCCL, which is opened by name, as everybody does. Words are done in order:
 *
 *     id FILE       makes a unique id and writes it there
 *     init FILE RANK RANKS        a communicator by that id, waited for until it is there
 *     later FILE RANK RANKS       the same, which does not block, and is waited for: as the two
 *     begin FILE RANK RANKS       and
 *     finish
 *     all RANKS     one process has all ranks, on so many devices
 *     split COLOR KEY             of the current one, which the new one then is
 *     share COLOR KEY             the same, in the memory of the old one
 *     shrink RANK   the same, without one rank
 *     who           rank and number of ranks, as RANK/RANKS
 *     reduce        all collectives of 256 floats
 *     destroy       suspend   resume   stats   async   alloc BYTES   memfree   window   unknown
 *     memory        bytes in use on this rank's device
 *     device N      held SECONDS
 *     end           kills itself
 *     sync          waits for the stream of operations    syncdevice   syncevent
 *     syncbehind    waits for a stream that waits for the event
 *     malloc BYTES  free            copy    a byte to it from host memory, by cudaMemcpy
 *     query         what queries answer of the stream, of an event and of a stream behind it, what
 *                   cudaEventElapsedTime does, and the last error after all that
 *     polled        what PyTorch's watchdog sees (nccl_polled.h)
 *     syncblocking  waits for an empty stream that blocks
 *     syncnothing   first: records an event; then waits for it, and for an empty stream that does
 *                   not block
 *     mark FILE     makes it             marked FILE      whether it is there
 *     comes FILE    waits for it: whether it is there
 *     hears FILE TEXT             waits until it has this text
 *     patience SECONDS            REVEILLE_NCCL_TIMEOUT_S from now on
 *
 * and those of nccl_contents.h.
 *
 * Each call prints its result, and NCCL's words for what failed on stderr. Answers the exit status.
 */
int nccl_words(char **words);

/* Makes a file, by which another process knows that this one has come so far. */
void make_mark(const char *file);

/* Waits for such a file, for longer than any machine should need. Whether it is there. */
bool await_mark(const char *file);

#endif
