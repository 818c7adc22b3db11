/* SPDX-License-Identifier: MIT */
/* Kinds of GPU, as the driver and NVML report them. */
#ifndef RVL_SIMCUDA_CARDS_H
#define RVL_SIMCUDA_CARDS_H

/* A kind of GPU as CUDA describes it, except its memory, which is in rvl_profile. */
typedef struct rvli_card {
    const char *profile;
    const char *name;
    int major, minor;
    int multiprocessors;
    int shared_block_bytes; /* opt-in */
    int shared_multiprocessor_bytes;
    int l2_bytes;
    int threads_multiprocessor;
    int blocks_multiprocessor;
    int clock_khz, memory_clock_khz, bus_bits;
} rvli_card;

/* The card of a profile (reveille/sim.h). The H200 for any other name. Never NULL. */
const rvli_card *rvli_card_find(const char *profile);

#endif
