/* SPDX-License-Identifier: MIT */
/*
 * Finds the frames of a stack that are the program's.
 *
 * A recording with PyTorch's defaults (stacks="all") mixes frames of C++ and of the interpreter
 * with those of Python, and every stack begins in the allocator. The program's line is the
 * innermost frame of its own code: a Python file that belongs neither to PyTorch, nor to an
 * installed package, nor to Python's own library, nor to Reveille. A stack may have no such frame,
 * as in a server that is itself a package. Then it is the innermost frame of a package, or else of
 * the next kind that the stack has.
 */
#ifndef RVL_PREDICT_SNAPSHOT_FRAMES_H
#define RVL_PREDICT_SNAPSHOT_FRAMES_H

#include "predict/snapshot/pickle.h"

/* The lower the value, the nearer to the program. */
typedef enum rvli_frame_kind {
    RVLI_FRAME_OWN,       /* the program's */
    RVLI_FRAME_PACKAGE,   /* an installed package's */
    RVLI_FRAME_TORCH,     /* PyTorch's */
    RVLI_FRAME_STANDARD,  /* Python's own library, and generated code */
    RVLI_FRAME_SIMULATED, /* of `reveille run` */
    RVLI_FRAME_NATIVE     /* C and C++, the interpreter, the driver */
} rvli_frame_kind;

/* Returns the kind of a file's frames, from its name. The name need not end with a NUL. */
rvli_frame_kind rvli_frame_kind_of(const char *file, size_t length);

/* The frames that requested memory. */
typedef struct rvli_place {
    uint32_t own; /* a frame + 1: the program's, or the nearest to it; 0: no Python frame */
    uint32_t via; /* a frame + 1: the innermost of a package that own called; 0: none */
} rvli_place;

/* With all_frames, own is the innermost frame of any kind, and via is 0. */
rvli_place rvli_frames_place(const rvli_pickle *pickle, const uint8_t *kinds, uint32_t stack,
                             bool all_frames);

/* Returns the kind of every frame of a recording. The caller frees it. NULL: no memory. */
uint8_t *rvli_frames_kinds(const rvli_pickle *pickle);

#endif
