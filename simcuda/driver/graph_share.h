/* SPDX-License-Identifier: MIT */
/*
 * The memory that the driver takes on a device for the kernels of instantiated graphs, in
 * addition to what each graph takes itself (share.c). This is arithmetic only: no memory is
 * taken here.
 *
 * Each kernel has a slot for its arguments, in one of three sizes, and a slot for its launch. A
 * destroyed graph leaves its slots to later graphs. A graph that finds too few slots makes the
 * missing ones, side by side: 2 MiB or more get their own pages, and fewer share a page with
 * other graphs if a page has room. A context begins with one nearly empty page of each kind.
 *
 * docs/fidelity/libraries.md ("What graphs take") has the measurements behind these rules.
 */
#ifndef RVL_SIMCUDA_GRAPH_SHARE_H
#define RVL_SIMCUDA_GRAPH_SHARE_H

#include <stddef.h>
#include <stdint.h>

#define RVLI_GRAPH_SLOT_SIZES 3
#define RVLI_GRAPH_ROOMS 8 /* pages with free room that are tracked: those with the most */

/* The needs of one graph. */
typedef struct rvli_graph_needs {
    size_t kernels;
    size_t slots[RVLI_GRAPH_SLOT_SIZES]; /* argument slots, by size */
} rvli_graph_needs;

typedef struct rvli_graph_slots {
    size_t made, used;
} rvli_graph_slots;

/* The state of a device. */
typedef struct rvli_graph_share {
    rvli_graph_slots arguments[RVLI_GRAPH_SLOT_SIZES];
    rvli_graph_slots launches;
    size_t argument_rooms[RVLI_GRAPH_ROOMS],
        launch_rooms[RVLI_GRAPH_ROOMS]; /* bytes free in each tracked page */
} rvli_graph_share;

/* The state of a context without graphs. */
rvli_graph_share rvli_graph_share_begin(void);

/* Adds a kernel with so many bytes of arguments. */
void rvli_graph_needs_add(rvli_graph_needs *needs, uint64_t argument_bytes);

/* Account for a graph that is made, or destroyed. Adding returns how many pages you have to
 * take. */
size_t rvli_graph_share_add(rvli_graph_share *share, const rvli_graph_needs *needs);
void rvli_graph_share_drop(rvli_graph_share *share, const rvli_graph_needs *needs);

#endif
