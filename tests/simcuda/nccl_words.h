/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_SIMCUDA_NCCL_WORDS_H
#define RVL_TESTS_SIMCUDA_NCCL_WORDS_H

#include <stdbool.h>

/*
 * Calls of NCCL, which is opened by name, as programs do. Executes words in order:
 *
 *     id FILE       makes a unique id and writes it there
 *     init FILE RANK RANKS        makes a communicator by that id, and waits for it
 *     later FILE RANK RANKS       the same, nonblocking, and then waits: as the two words
 *     begin FILE RANK RANKS       and
 *     finish
 *     all RANKS     this process has all ranks, on as many devices
 *     split COLOR KEY             splits the current communicator; the new one becomes current
 *     share COLOR KEY             the same, in the memory of the old one
 *     shrink RANK   the same, without one rank
 *     who           rank and number of ranks, as RANK/RANKS
 *     reduce        all collectives of 256 floats
 *     destroy       suspend   resume   stats   async   alloc BYTES   memfree   window   unknown
 *     memory        bytes in use on this rank's device
 *     device N      held SECONDS
 *     end           kills this process
 *     sync          waits for the stream of operations    syncdevice   syncevent
 *     syncbehind    waits for a stream that waits for the event
 *     malloc BYTES  free            copy    a byte to it from host memory, with cudaMemcpy
 *     query         queries of the stream, of an event and of a stream after it, the result of
 *                   cudaEventElapsedTime, and the last error after these
 *     polled        what PyTorch's watchdog sees (nccl_polled.h)
 *     syncblocking  waits for an empty blocking stream
 *     syncnothing   first records an event; later waits for it, and for an empty nonblocking
 *                   stream
 *     mark FILE     makes it             marked FILE      whether it exists
 *     comes FILE    waits for it: whether it exists
 *     hears FILE TEXT             waits until it contains this text
 *     patience SECONDS            sets REVEILLE_NCCL_TIMEOUT_S
 *
 * and those of nccl_contents.h.
 *
 * Each call prints its result, and on stderr NCCL's text for a failure. Returns the exit status.
 */
int nccl_words(char **words);

/* Makes a file that tells another process that this one has come so far. */
void make_mark(const char *file);

/* Waits for such a file, longer than any machine should need. Returns whether it exists. */
bool await_mark(const char *file);

#endif
