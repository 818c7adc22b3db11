/* SPDX-License-Identifier: MIT */
/*
 * Which frames of a stack are the program's.
 *
 * A recording of PyTorch's defaults (stacks="all") has the frames of C++ and of the interpreter
 * among those of Python, and every stack begins in the allocator. Who asked for memory is the
 * innermost frame that is the program's own: a file of Python that belongs neither to PyTorch, nor
 * to an installed package, nor to Python's own library, nor to us. Where a stack has none, as in a
 * server that is itself a package, it is the innermost of a package, and then of what there is.
 */
#ifndef RVL_PREDICT_SNAPSHOT_FRAMES_H
#define RVL_PREDICT_SNAPSHOT_FRAMES_H

#include "predict/snapshot/pickle.h"

/* The lower, the nearer to the program. */
typedef enum rvli_frame_kind {
    RVLI_FRAME_OWN,       /* the program's */
    RVLI_FRAME_PACKAGE,   /* an installed package's */
    RVLI_FRAME_TORCH,     /* PyTorch's */
    RVLI_FRAME_STANDARD,  /* Python's own library, and code that Python makes up */
    RVLI_FRAME_SIMULATED, /* of `reveille run` */
    RVLI_FRAME_NATIVE     /* C and C++, the interpreter, the driver */
} rvli_frame_kind;

/* What a file's name says of its frames. The name need not end with a NUL. */
rvli_frame_kind rvli_frame_kind_of(const char *file, size_t length);

/* The frames that say where memory was asked for. */
typedef struct rvli_place {
    uint32_t own; /* a frame + 1: the program's, or what is nearest to it; 0: none is Python's */
    uint32_t via; /* a frame + 1: the innermost of a package that it called; 0: none */
} rvli_place;

/* all_frames: own is the innermost frame, whatever it is, and via is 0. */
rvli_place rvli_frames_place(const rvli_pickle *pickle, const uint8_t *kinds, uint32_t stack,
                             bool all_frames);

/* The kind of every frame of a recording; the caller frees it. NULL: no memory. */
uint8_t *rvli_frames_kinds(const rvli_pickle *pickle);

#endif
