/* SPDX-License-Identifier: MIT */
/*
 * cuFFT: plans, and the memory that they take (fft_size.h). A transform launches a kernel that
 * does nothing.
 *
 * PyTorch makes plans with cufftXtMakePlanMany(), gives each transform a workspace from its own
 * allocator, and keeps up to 4096 plans. The names are NVIDIA's; the prototypes of its header
 * are not included.
 *
 * Code: a PyTorch process that made about sixty plans of one kind took 18 to 20 MiB
 * (torch_math.csv, the columns in use): 8 MiB with the first plan of single precision, 6 MiB
 * with the first of double precision, 2 to 4 MiB later. Where the output is real, 8 MiB came
 * with it. Which plan loads which kernel is unknown.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/math/fft_size.h"
#include "simcuda/math/library.h"

#define SUCCESS 0
#define INVALID_PLAN 1
#define ALLOC_FAILED 2
#define INVALID_VALUE 4
#define EXEC_FAILED 6
#define INVALID_SIZE 8
#define NOT_SUPPORTED 16

#define CODE_BYTES ((uint64_t)8 << 20)
#define CODE_BYTES_DOUBLE ((uint64_t)6 << 20)
#define CODE_BYTES_CHIRP ((uint64_t)2 << 20)

typedef struct plan {
    rvli_math_memory tables; /* and the workspace, unless the caller provides one */
    rvli_fft_plan is;
    void *stream;
    size_t workspace_bytes;
    bool made, caller_allocates;
} plan;

int cufftCreate(int *handle);
int cufftDestroy(int handle);
int cufftSetStream(int handle, void *stream);
int cufftSetAutoAllocation(int handle, int allocates);
int cufftSetWorkArea(int handle, void *area);
int cufftGetSize(int handle, size_t *bytes);
int cufftGetVersion(int *version);
int cufftXtMakePlanMany(int handle, int dimensions, long long *lengths, long long *in_embed,
                        long long in_stride, long long in_distance, int in_type,
                        long long *out_embed, long long out_stride, long long out_distance,
                        int out_type, long long batch, size_t *bytes, int type);
int cufftMakePlanMany64(int handle, int dimensions, long long *lengths, long long *in_embed,
                        long long in_stride, long long in_distance, long long *out_embed,
                        long long out_stride, long long out_distance, int type, long long batch,
                        size_t *bytes);
int cufftMakePlanMany(int handle, int dimensions, int *lengths, int *in_embed, int in_stride,
                      int in_distance, int *out_embed, int out_stride, int out_distance, int type,
                      int batch, size_t *bytes);
int cufftMakePlan1d(int handle, int n, int type, int batch, size_t *bytes);
int cufftMakePlan2d(int handle, int n0, int n1, int type, size_t *bytes);
int cufftMakePlan3d(int handle, int n0, int n1, int n2, int type, size_t *bytes);
int cufftPlan1d(int *handle, int n, int type, int batch);
int cufftPlan2d(int *handle, int n0, int n1, int type);
int cufftPlan3d(int *handle, int n0, int n1, int n2, int type);
int cufftPlanMany(int *handle, int dimensions, int *lengths, int *in_embed, int in_stride,
                  int in_distance, int *out_embed, int out_stride, int out_distance, int type,
                  int batch);

/* ---- Handles: numbers from 1 on ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static plan **plans;
static size_t plan_count;

/* Puts a plan in a free place, and returns it. -1: out of memory. */
static long place_of(plan *made)
{
    for (size_t i = 0; i < plan_count; i++)
        if (plans[i] == NULL) {
            plans[i] = made;
            return (long)i;
        }
    plan **more = realloc(plans, (plan_count + 1) * sizeof *more);
    if (more == NULL)
        return -1;
    plans = more;
    plans[plan_count] = made;
    return (long)plan_count++;
}

static plan *find(int handle)
{
    pthread_mutex_lock(&mutex);
    plan *found = handle > 0 && (size_t)handle <= plan_count ? plans[handle - 1] : NULL;
    pthread_mutex_unlock(&mutex);
    return found;
}

int cufftCreate(int *handle)
{
    if (handle == NULL)
        return INVALID_VALUE;
    plan *made = calloc(1, sizeof *made);
    if (made == NULL)
        return ALLOC_FAILED;
    pthread_mutex_lock(&mutex);
    const long place = place_of(made);
    pthread_mutex_unlock(&mutex);
    if (place < 0) {
        free(made);
        return ALLOC_FAILED;
    }
    *handle = (int)place + 1;
    return SUCCESS;
}

int cufftDestroy(int handle)
{
    plan *of = find(handle);
    if (of == NULL)
        return INVALID_PLAN;
    pthread_mutex_lock(&mutex);
    plans[handle - 1] = NULL;
    pthread_mutex_unlock(&mutex);
    if (of->made)
        rvli_math_give_back(&of->tables);
    free(of);
    return SUCCESS;
}

int cufftSetStream(int handle, void *stream)
{
    plan *of = find(handle);
    if (of == NULL)
        return INVALID_PLAN;
    of->stream = stream;
    return SUCCESS;
}

int cufftSetAutoAllocation(int handle, int allocates)
{
    plan *of = find(handle);
    if (of == NULL)
        return INVALID_PLAN;
    of->caller_allocates = allocates == 0;
    return SUCCESS;
}

int cufftSetWorkArea(int handle, void *area)
{
    (void)area;
    return find(handle) != NULL ? SUCCESS : INVALID_PLAN;
}

int cufftGetSize(int handle, size_t *bytes)
{
    const plan *of = find(handle);
    if (of == NULL || !of->made)
        return INVALID_PLAN;
    if (bytes == NULL)
        return INVALID_VALUE;
    *bytes = of->workspace_bytes;
    return SUCCESS;
}

/* ---- Plans ---- */

/* Whether one side is real, and the bytes of a complex number. */
typedef struct kind {
    uint64_t number_bytes;
    bool real, real_out;
} kind;

static bool kind_of(int in_type, int out_type, kind *found)
{
    static const struct {
        int real, complex;
        uint64_t bytes;
    } types[] = {{0, 4, 8}, {1, 5, 16}, {2, 6, 4}, {14, 15, 4}}; /* values of cudaDataType */
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const bool in = in_type == types[i].complex, out = out_type == types[i].complex;
        if ((in || in_type == types[i].real) && (out || out_type == types[i].real) && (in || out)) {
            *found = (kind){types[i].bytes, !(in && out), !out};
            return true;
        }
    }
    return false;
}

static CUresult load(const rvli_fft_plan *is, bool real_out)
{
    const bool wide = is->number_bytes == 16;
    CUresult result = rvli_math_load(wide ? "cufft double" : "cufft single",
                                     wide ? CODE_BYTES_DOUBLE : CODE_BYTES);
    if (result == CUDA_SUCCESS && real_out)
        result = rvli_math_load("cufft real", CODE_BYTES);
    if (result == CUDA_SUCCESS && rvli_fft_table_bytes(is) > 0)
        result = rvli_math_load("cufft chirp", CODE_BYTES_CHIRP);
    return result;
}

static int take(plan *of, bool real_out)
{
    of->workspace_bytes = rvli_fft_workspace_bytes(&of->is);
    const size_t sizes[] = {rvli_fft_table_bytes(&of->is),
                            of->caller_allocates ? 0 : of->workspace_bytes};
    CUresult result = rvli_math_take(&of->tables, sizes, sizeof sizes / sizeof *sizes);
    if (result == CUDA_SUCCESS) {
        of->made = true;
        result = load(&of->is, real_out);
    }
    return result == CUDA_SUCCESS ? SUCCESS : ALLOC_FAILED;
}

static bool describe(rvli_fft_plan *is, int dimensions, const long long *lengths, long long batch)
{
    if (dimensions < 1 || dimensions > RVLI_FFT_DIMENSIONS || lengths == NULL || batch < 1)
        return false;
    is->dimensions = dimensions;
    is->batch = (uint64_t)batch;
    for (int i = 0; i < dimensions; i++) {
        if (lengths[i] < 1)
            return false;
        is->lengths[i] = (uint64_t)lengths[i];
    }
    return true;
}

static int make(int handle, int dimensions, const long long *lengths, kind by, bool apart,
                long long batch, size_t *bytes)
{
    plan *of = find(handle);
    if (of == NULL || of->made)
        return INVALID_PLAN;
    rvli_fft_plan is = {.number_bytes = by.number_bytes, .real = by.real, .apart = apart};
    if (!describe(&is, dimensions, lengths, batch))
        return INVALID_SIZE;
    of->is = is;
    const int result = take(of, by.real_out);
    if (result == SUCCESS && bytes != NULL)
        *bytes = of->workspace_bytes;
    return result;
}

/* Without an embedding shape, the stride is ignored. */
static bool are_apart(const void *embed, long long stride)
{
    return embed != NULL && stride > 1;
}

#pragma GCC diagnostic ignored "-Wunused-parameter" /* distances are not read */
int cufftXtMakePlanMany(int handle, int dimensions, long long *lengths, long long *in_embed,
                        long long in_stride, long long in_distance, int in_type,
                        long long *out_embed, long long out_stride, long long out_distance,
                        int out_type, long long batch, size_t *bytes, int type)
{
    kind by;
    if (!kind_of(in_type, out_type, &by))
        return NOT_SUPPORTED;
    return make(handle, dimensions, lengths, by,
                are_apart(in_embed, in_stride) || are_apart(out_embed, out_stride), batch, bytes);
}

/* ---- By cufftType ---- */

static bool kind_of_type(int type, kind *found)
{
    static const struct {
        int type;
        kind is;
    } types[] = {{0x29, {8, false, false}},  {0x2a, {8, true, false}},  {0x2c, {8, true, true}},
                 {0x69, {16, false, false}}, {0x6a, {16, true, false}}, {0x6c, {16, true, true}}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) {
            *found = types[i].is;
            return true;
        }
    return false;
}

static int make_of_type(int handle, int dimensions, const long long *lengths, int type, bool apart,
                        long long batch, size_t *bytes)
{
    kind by;
    if (!kind_of_type(type, &by))
        return INVALID_VALUE;
    return make(handle, dimensions, lengths, by, apart, batch, bytes);
}

int cufftMakePlanMany64(int handle, int dimensions, long long *lengths, long long *in_embed,
                        long long in_stride, long long in_distance, long long *out_embed,
                        long long out_stride, long long out_distance, int type, long long batch,
                        size_t *bytes)
{
    return make_of_type(handle, dimensions, lengths, type,
                        are_apart(in_embed, in_stride) || are_apart(out_embed, out_stride), batch,
                        bytes);
}

int cufftMakePlanMany(int handle, int dimensions, int *lengths, int *in_embed, int in_stride,
                      int in_distance, int *out_embed, int out_stride, int out_distance, int type,
                      int batch, size_t *bytes)
{
    long long wide[RVLI_FFT_DIMENSIONS] = {0};
    for (int i = 0; i < dimensions && i < RVLI_FFT_DIMENSIONS && lengths != NULL; i++)
        wide[i] = lengths[i];
    return make_of_type(handle, dimensions, wide, type,
                        are_apart(in_embed, in_stride) || are_apart(out_embed, out_stride), batch,
                        bytes);
}

int cufftMakePlan1d(int handle, int n, int type, int batch, size_t *bytes)
{
    return cufftMakePlanMany(handle, 1, &n, NULL, 1, 1, NULL, 1, 1, type, batch, bytes);
}

int cufftMakePlan2d(int handle, int n0, int n1, int type, size_t *bytes)
{
    int lengths[] = {n0, n1};
    return cufftMakePlanMany(handle, 2, lengths, NULL, 1, 1, NULL, 1, 1, type, 1, bytes);
}

int cufftMakePlan3d(int handle, int n0, int n1, int n2, int type, size_t *bytes)
{
    int lengths[] = {n0, n1, n2};
    return cufftMakePlanMany(handle, 3, lengths, NULL, 1, 1, NULL, 1, 1, type, 1, bytes);
}

/* The older calls make the handle as well, and destroy it on failure. */
static int kept(int result, int *handle)
{
    if (result != SUCCESS)
        (void)cufftDestroy(*handle);
    return result;
}

int cufftPlanMany(int *handle, int dimensions, int *lengths, int *in_embed, int in_stride,
                  int in_distance, int *out_embed, int out_stride, int out_distance, int type,
                  int batch)
{
    const int result = cufftCreate(handle);
    if (result != SUCCESS)
        return result;
    return kept(cufftMakePlanMany(*handle, dimensions, lengths, in_embed, in_stride, in_distance,
                                  out_embed, out_stride, out_distance, type, batch, NULL),
                handle);
}

int cufftPlan1d(int *handle, int n, int type, int batch)
{
    return cufftPlanMany(handle, 1, &n, NULL, 1, 1, NULL, 1, 1, type, batch);
}

int cufftPlan2d(int *handle, int n0, int n1, int type)
{
    int lengths[] = {n0, n1};
    return cufftPlanMany(handle, 2, lengths, NULL, 1, 1, NULL, 1, 1, type, 1);
}

int cufftPlan3d(int *handle, int n0, int n1, int n2, int type)
{
    int lengths[] = {n0, n1, n2};
    return cufftPlanMany(handle, 3, lengths, NULL, 1, 1, NULL, 1, 1, type, 1);
}

/* ---- Transforms ---- */

static int transform(int handle)
{
    const plan *of = find(handle);
    if (of == NULL || !of->made)
        return INVALID_PLAN;
    return rvli_math_launch("cufft", 0, of->stream) == CUDA_SUCCESS ? SUCCESS : EXEC_FAILED;
}

#define TRANSFORM(name, arguments)                                                                 \
    int name arguments;                                                                            \
    int name arguments                                                                             \
    {                                                                                              \
        return transform(handle);                                                                  \
    }

TRANSFORM(cufftXtExec, (int handle, void *in, void *out, int direction))
TRANSFORM(cufftExecC2C, (int handle, void *in, void *out, int direction))
TRANSFORM(cufftExecZ2Z, (int handle, void *in, void *out, int direction))
TRANSFORM(cufftExecR2C, (int handle, void *in, void *out))
TRANSFORM(cufftExecC2R, (int handle, void *in, void *out))
TRANSFORM(cufftExecD2Z, (int handle, void *in, void *out))
TRANSFORM(cufftExecZ2D, (int handle, void *in, void *out))

int cufftGetVersion(int *version)
{
    if (version == NULL)
        return INVALID_VALUE;
    *version = RVLI_FFT_VERSION;
    return SUCCESS;
}
