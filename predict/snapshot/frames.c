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

/* Sources and outputs of compilers. The interpreter is C, too. */
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

/* Names in angle brackets, except those of code that was typed in, which is the program's own. */
static bool is_made_up(const char *file, size_t length)
{
    return file[0] == '<' && !begins(file, length, "<string>") &&
           !begins(file, length, "<stdin>") && !begins(file, length, "<ipython-input");
}

/*
 * PyTorch as an installed package, from its source tree, or in a folder of its own in a container.
 */
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

/* Python's own library is in folders lib/python3.N. Packages are below these, or elsewhere. */
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
    /*
     * Code that torch.compile generates lies in a cache folder, under names that tell you nothing.
     */
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
 * Nodes go from the outermost frame inwards. Recordings with frames of both C++ and Python have
 * some Python callers behind the outermost C frame, but keep the order among Python frames.
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
        if (kind <= nearest) { /* further in, and at least as near to the program */
            nearest = kind;
            place.own = frame + 1;
            package = 0;
        } else if (kind == RVLI_FRAME_PACKAGE) {
            package = frame + 1;
        }
    }
    /*
     * A C++ thread, such as that of backward, even if `reveille run` computes small tensors in
     * Python there.
     */
    if (nearest == RVLI_FRAME_NATIVE || (simulated && nearest > RVLI_FRAME_PACKAGE))
        return (rvli_place){0};
    place.via = nearest == RVLI_FRAME_OWN ? package : 0;
    return place;
}
