/* SPDX-License-Identifier: MIT */
/*
 * Processor time of reading a config, and of all that `reveille model --fine-tune` works out of it
 * for an H200; best of 5.
 *
 *     bench_step CONFIG.json...
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "reveille/model.h"

#define ROUNDS 5

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void keep_least(uint64_t *least, uint64_t begin)
{
    uint64_t spent = now_ns() - begin;
    if (*least == 0 || spent < *least)
        *least = spent;
}

static void require(bool holds, const char *path)
{
    rvl_error error = {.struct_size = sizeof error};
    if (holds)
        return;
    rvl_last_error(&error);
    fprintf(stderr, "bench_step: %s: %s\n", path, error.message);
    exit(1);
}

static void measure(const char *path)
{
    const rvl_model_options options = {.struct_size = sizeof options,
                                       .device = "h200",
                                       .use = RVL_MODEL_USE_FINE_TUNE,
                                       .flags = RVL_MODEL_SEGMENTS};
    uint64_t open_ns = 0, step_ns = 0;
    for (int i = 0; i < ROUNDS; i++) {
        rvl_model *model;
        rvl_model_step *step;
        uint64_t begin = now_ns();
        require(rvl_model_open(path, &model) == RVL_OK, path);
        keep_least(&open_ns, begin);
        begin = now_ns();
        require(rvl_model_step_make(model, &options, &step) == RVL_OK, path);
        keep_least(&step_ns, begin);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
    printf("%8.2f ms read, %8.2f ms worked out: %s\n", (double)open_ns / 1e6, (double)step_ns / 1e6,
           path);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        measure(argv[i]);
    return 0;
}
