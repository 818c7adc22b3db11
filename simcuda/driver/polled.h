/* SPDX-License-Identifier: MIT */
/*
 * Controls what PyTorch's watchdog sees, and when.
 *
 * The watchdog of an NCCL group is a thread that checks every 100 ms which collectives are
 * complete. If the program does not wait for a collective itself, the collective keeps its
 * tensors until that check, and until the next collective. So the time at which the bucket of
 * DDP's first backward pass is freed is a race: 2.3 GiB of 25 varied from run to run. Here, such
 * a race always ends late, which takes more memory. While this is on
 * (simcuda/python/_reveille_races.py), the watchdog sees a collective as incomplete if no stream
 * of the program waits for it, until rvli_polled_show(). That call lets the watchdog check
 * before it returns.
 *
 * Exported, for the simulated NCCL and for simcuda/python.
 */
#ifndef RVL_SIMCUDA_POLLED_H
#define RVL_SIMCUDA_POLLED_H

#include <cuda.h>
#include <stdbool.h>

/* Turn it on, and off. */
void rvli_polled_begin(void);
void rvli_polled_end(void);

/*
 * Shows all collectives so far to the watchdog, and waits until it has checked them. Returns
 * their number. If the watchdog does not check within a time limit, there is none, and this is
 * turned off.
 */
int rvli_polled_show(void);

/* Reports a race that has one outcome here. what: what a card may do instead. */
void rvli_polled_note(const char *what);

/* A collective was called on a stream. The next event recorded there marks its end. */
void rvli_polled_collective(CUstream stream);

/* record: an event was recorded on a stream. drop: a stream of the program waits for the event,
 * or it is destroyed. */
void rvli_polled_record(CUevent event, CUstream stream);
void rvli_polled_drop(CUevent event);

/* Whether the event's completion is hidden from the calling thread. */
bool rvli_polled_hides(CUevent event);

/* For a forked child: the events are the parent's. */
void rvli_polled_forget(void);

#endif
