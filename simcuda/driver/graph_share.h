/* SPDX-License-Identifier: MIT */
/*
 * What the driver takes on a device for the kernels of instantiated graphs, beside what each graph
 * has by itself (share.c). It is arithmetic alone: nothing is taken here.
 *
 * Each kernel has a slot for its arguments, of one of three sizes, and a slot for its launch. A
 * graph that is destroyed leaves its slots to later ones. A graph that finds too few makes those
 * that are missing, side by side: 2 MiB and more are pages of their own, fewer lie in a page beside
 * those of other graphs, where a page has room. A context has a page of either kind, nearly empty.
 *
 * docs/fidelity/libraries.md ("What graphs take") has the readings of cards that this was found in.
 */
#ifndef RVL_SIMCUDA_GRAPH_SHARE_H
#define RVL_SIMCUDA_GRAPH_SHARE_H

#include <stddef.h>
#include <stdint.h>

#define RVLI_GRAPH_SLOT_SIZES 3
#define RVLI_GRAPH_ROOMS 8 /* pages with room that are kept in mind: those with most */

/* Of one graph. */
typedef struct rvli_graph_needs {
    size_t kernels;
    size_t slots[RVLI_GRAPH_SLOT_SIZES]; /* for arguments, by size */
} rvli_graph_needs;

typedef struct rvli_graph_slots {
    size_t made, used;
} rvli_graph_slots;

/* Of a device. */
typedef struct rvli_graph_share {
    rvli_graph_slots arguments[RVLI_GRAPH_SLOT_SIZES];
    rvli_graph_slots launches;
    size_t argument_rooms[RVLI_GRAPH_ROOMS], launch_rooms[RVLI_GRAPH_ROOMS]; /* bytes, by page */
} rvli_graph_share;

/* Of a context that has no graph yet. */
rvli_graph_share rvli_graph_share_begin(void);

/* The graph has one more kernel, with so many bytes of arguments. */
void rvli_graph_needs_add(rvli_graph_needs *needs, uint64_t argument_bytes);

/* A graph is made, and is no more. Adding answers how many pages have to be taken for it. */
size_t rvli_graph_share_add(rvli_graph_share *share, const rvli_graph_needs *needs);
void rvli_graph_share_drop(rvli_graph_share *share, const rvli_graph_needs *needs);

#endif
