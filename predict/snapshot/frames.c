/* SPDX-License-Identifier: MIT */
#include "predict/snapshot/frames.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool has(const char *file, size_t length, const char *part)
{
    return memmem(file, length, part, strlen(part)) != NULL;
}

static bool begins(const char *file, size_t length, const char *with)
{
    return length >= strlen(with) && memcmp(file, with, strlen(with)) == 0;
}

static bool ends(const char *file, size_t length, const char *with)
{
    size_t size = strlen(with);
    return length >= size && memcmp(file + length - size, with, size) == 0;
}

/* What compilers are given, and what they make. The interpreter is C, too. */
static bool is_native(const char *file, size_t length)
{
    static const char *const endings[] = {".c",   ".cc",  ".cpp", ".cxx", ".cu", ".cuh", ".h",
                                          ".hpp", ".hxx", ".inl", ".S",   ".s",  ".rs",  ".so"};
    for (size_t i = 0; i < COUNT(endings); i++) {
        if (ends(file, length, endings[i]))
            return true;
    }
    return length == 0 || begins(file, length, "??") || has(file, length, ".so.");
}

/* Code that was typed in has such names, and is the program's. */
static bool is_made_up(const char *file, size_t length)
{
    return file[0] == '<' && !begins(file, length, "<string>") &&
           !begins(file, length, "<stdin>") && !begins(file, length, "<ipython-input");
}

/* PyTorch beside its sources, or in a container's folder of its own. */
static bool is_torch(const char *file, size_t length)
{
    static const char *const parts[] = {"/torch/_",          "/torch/nn/",
                                        "/torch/optim/",     "/torch/autograd/",
                                        "/torch/utils/",     "/torch/cuda/",
                                        "/torch/fx/",        "/torch/distributed/",
                                        "/torch/amp/",       "/torch/profiler/",
                                        "/torch/random.py",  "/torch/functional.py",
                                        "/torch/storage.py", "/torch/serialization.py",
                                        "/torch/library.py", "/torch/overrides.py",
                                        "/torch/testing/"};
    if (has(file, length, "-packages/torch/") || begins(file, length, "torch/"))
        return true;
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (has(file, length, parts[i]))
            return true;
    }
    return false;
}

/* Libraries of Python are in folders lib/python3.N; packages are below those, or elsewhere. */
static bool is_standard(const char *file, size_t length)
{
    return has(file, length, "/lib/python3.") || has(file, length, "/lib64/python3.") ||
           begins(file, length, "<");
}

rvli_frame_kind rvli_frame_kind_of(const char *file, size_t length)
{
    if (is_native(file, length))
        return RVLI_FRAME_NATIVE;
    if (has(file, length, "/_reveille_") || has(file, length, "/reveille-cuda/python/") ||
        ends(file, length, "simcuda/python/sitecustomize.py"))
        return RVLI_FRAME_SIMULATED;
    if (is_torch(file, length))
        return RVLI_FRAME_TORCH;
    if (has(file, length, "/site-packages/") || has(file, length, "/dist-packages/"))
        return RVLI_FRAME_PACKAGE;
    /* What torch.compile generates lies in a folder of caches, and its names are of no use. */
    if (is_made_up(file, length) || has(file, length, "/torchinductor_"))
        return RVLI_FRAME_STANDARD;
    return file[0] != '<' && is_standard(file, length) ? RVLI_FRAME_STANDARD : RVLI_FRAME_OWN;
}

uint8_t *rvli_frames_kinds(const rvli_pickle *pickle)
{
    uint8_t *kinds = malloc(pickle->frame_count + (size_t)1);
    for (uint32_t i = 0; kinds != NULL && i < pickle->frame_count; i++) {
        uint32_t text = pickle->frames[i].file;
        const rvli_text_row *row = text > 0 ? &pickle->texts[text - 1] : NULL;
        kinds[i] = row != NULL ? (uint8_t)rvli_frame_kind_of((const char *)pickle->data + row->at,
                                                             row->length)
                               : (uint8_t)RVLI_FRAME_NATIVE;
    }
    return kinds;
}

/*
 * Nodes go from the outermost frame inwards. Recordings of C++ and Python together have some of the
 * callers in Python behind the outermost C frame: order within Python is kept.
 */
rvli_place rvli_frames_place(const rvli_pickle *pickle, const uint8_t *kinds, uint32_t stack,
                             bool all_frames)
{
    rvli_place place = {0};
    uint8_t nearest = UINT8_MAX;
    uint32_t package = 0;
    bool simulated = false;
    for (uint32_t node = stack; node > 0; node = pickle->stacks[node - 1].inner) {
        uint32_t frame = pickle->stacks[node - 1].frame;
        uint8_t kind = all_frames ? RVLI_FRAME_OWN : kinds[frame];
        simulated = simulated || kind == RVLI_FRAME_SIMULATED;
        if (kind <= nearest) { /* further in, and as near */
            nearest = kind;
            place.own = frame + 1;
            package = 0;
        } else if (kind == RVLI_FRAME_PACKAGE) {
            package = frame + 1;
        }
    }
    /* A thread of C++, such as backward's; also where small tensors are computed in Python there.
     */
    if (nearest == RVLI_FRAME_NATIVE || (simulated && nearest > RVLI_FRAME_PACKAGE))
        return (rvli_place){0};
    place.via = nearest == RVLI_FRAME_OWN ? package : 0;
    return place;
}
