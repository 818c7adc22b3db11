/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA's figures, by compute capability (CUDA C++ Programming Guide, "Technical Specifications
 * per Compute Capability") or from the card's data sheet or whitepaper: multiprocessors, L2,
 * clocks, width of the memory bus. Only the multiprocessors and L2 of the H200 and of the H100
 * with 80 GB were compared with a card.
 */
#include "simcuda/driver/cards.h"

#include <stddef.h>
#include <string.h>

#define MIB (1 << 20)

static const rvli_card cards[] = {
    {"h200", "NVIDIA H200", 9, 0, 132, 232448, 233472, 60 * MIB, 2048, 32, 1980000, 3201000, 6144},
    {"h100-80g", "NVIDIA H100 80GB HBM3", 9, 0, 132, 232448, 233472, 50 * MIB, 2048, 32, 1980000,
     2619000, 5120},
    {"h100-94g", "NVIDIA H100 NVL", 9, 0, 132, 232448, 233472, 60 * MIB, 2048, 32, 1785000, 2619000,
     6016},
    {"a100-80g", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 167936, 40 * MIB, 2048, 32, 1410000,
     1593000, 5120},
    {"a100-40g", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 166912, 167936, 40 * MIB, 2048, 32, 1410000,
     1215000, 5120},
    {"h20", "NVIDIA H20", 9, 0, 78, 232448, 233472, 60 * MIB, 2048, 32, 1980000, 2619000, 6144},
    {"gh200", "NVIDIA GH200 480GB", 9, 0, 132, 232448, 233472, 60 * MIB, 2048, 32, 1980000, 2619000,
     6144},
    {"a6000", "NVIDIA RTX A6000", 8, 6, 84, 101376, 102400, 6 * MIB, 1536, 16, 1800000, 8001000,
     384},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 101376, 102400, 6 * MIB, 1536, 16, 1695000,
     9751000, 384},
    {"t4", "Tesla T4", 7, 5, 40, 65536, 65536, 4 * MIB, 1024, 16, 1590000, 5001000, 256},
    {"v100", "Tesla V100-SXM2-32GB", 7, 0, 80, 98304, 98304, 6 * MIB, 2048, 32, 1530000, 877000,
     4096},
};

/* A profile without figures here uses the H200's. The device's name shows that. */
const rvli_card *rvli_card_find(const char *profile)
{
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (strcmp(cards[i].profile, profile) == 0)
            return &cards[i];
    return &cards[0];
}
