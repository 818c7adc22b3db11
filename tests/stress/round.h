/* SPDX-License-Identifier: MIT */
/*
 * One round: a context with options drawn at random, and threads that use it until all are
 * compared and it is closed.
 */
#ifndef RVL_STRESS_ROUND_H
#define RVL_STRESS_ROUND_H

#include "owner.h"

#define THREADS_MAX 16

typedef struct stress_round {
    arena in;
    owner *owners;
    rvl_tag shared_tags[SHARED_TAGS];
    rvl_addr anchors[SHARED_TAGS]; /* content that must survive */
    unsigned steps;
    bool tours;
    bool forks;
    bool has_guard;
    char trace[300]; /* what is recorded; "" if nothing is */
} stress_round;

/* compare.c: the sums, with nobody else about; and what was recorded, replayed. */
void round_compare(const stress_round *r, caller *by);
void round_compare_recording(const stress_round *r, caller *by);

/* guards.c: sets the guard of the round's context, or takes it away. */
void guard_set(stress_round *r, caller *by, bool on);

/* The round of this thread's transitions from now on; NULL: none. */
void guard_enter(owner *o);

/* Allocations that the model has, of all threads. */
uint64_t round_count_owned(const stress_round *r);

typedef struct round_options {
    uint64_t seed;
    uint64_t *random;
    int threads;
    unsigned steps; /* actions of each thread */
    bool tour;      /* begin with all actions, until every function was called */
    bool forks;     /* actions may fork */
    bool keeps_trace;
} round_options;

/* Runs one; folds what its calls answered into *digest. */
void round_run(const round_options *options, uint64_t *digest);

#endif
