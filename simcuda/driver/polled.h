/* SPDX-License-Identifier: MIT */
/*
 * What PyTorch's watchdog sees, and when.
 *
 * The watchdog of a group of NCCL is a thread that looks every 100 ms which collectives are done.
 * What the program does not wait for by itself keeps its tensors until then, and until the next
 * collective. So it is a race when the bucket of DDP's first backward pass is freed: 2.3 GiB of 25
 * came and went from run to run. Here such a race always ends in one way, late, which takes more.
 * While it is on (simcuda/python/_reveille_races.py), a collective that the program has not made a
 * stream wait for is not done to the watchdog until rvli_polled_show(), which lets the watchdog
 * look before it returns.
 *
 * Exported, for the simulated NCCL and for simcuda/python.
 */
#ifndef RVL_SIMCUDA_POLLED_H
#define RVL_SIMCUDA_POLLED_H

#include <cuda.h>
#include <stdbool.h>

/* From now on, until the end of it. */
void rvli_polled_begin(void);
void rvli_polled_end(void);

/*
 * Shows the watchdog all collectives so far, and returns when it has looked at them: how many those
 * are. After a time limit it ends, since there is no watchdog.
 */
int rvli_polled_show(void);

/* A race came out as it always does here. what: what a card may do instead. */
void rvli_polled_note(const char *what);

/* A collective was called on a stream. The next event that is recorded there says when it is done.
 */
void rvli_polled_collective(CUstream stream);

/* An event was recorded on a stream; a stream of the program waits for it; it is no more. */
void rvli_polled_record(CUevent event, CUstream stream);
void rvli_polled_drop(CUevent event);

/* Whether the thread that asks may not see yet that an event is done. */
bool rvli_polled_hides(CUevent event);

/* In a forked child: its parent's events are not its own. */
void rvli_polled_forget(void);

#endif
