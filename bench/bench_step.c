/* SPDX-License-Identifier: MIT */
/*
 * What a training step costs to work out: for each config, the allocations and frees of one step,
 * and the processor time of a step, of all that `reveille model --fine-tune` works out, and of
 * reading the config; best of 5.
 *
 *     bench_step CONFIG.json...
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "predict/llm/llm_internal.h"
#include "predict/llm/step/training.h"
#include "predict/llm/terms.h"

#define ROUNDS 5

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void count(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    (void)bytes;
    (void)stream;
    (void)holder;
    ++*(uint64_t *)user;
}

static void keep_least(uint64_t *least, uint64_t begin)
{
    uint64_t spent = now_ns() - begin;
    if (*least == 0 || spent < *least)
        *least = spent;
}

static void measure(const char *path)
{
    uint64_t open_ns = 0, run_ns = 0, whole_ns = 0, events = 0;
    rvl_model_options options = {.struct_size = sizeof options,
                                 .device = "h200",
                                 .use = RVL_MODEL_USE_FINE_TUNE,
                                 .flags = RVL_MODEL_SEGMENTS};
    for (int i = 0; i < ROUNDS; i++) {
        rvl_model *model;
        rvl_model_step *step;
        rvli_plan plan;
        rvli_trained trained;
        uint64_t begin = now_ns();
        if (rvl_model_open(path, &model) != RVL_OK) {
            fprintf(stderr, "%s: refused\n", path);
            return;
        }
        keep_least(&open_ns, begin);
        begin = now_ns();
        if (rvl_model_step_make(model, &options, &step) != RVL_OK ||
            rvli_plan_make(model, &options, &plan) != RVL_OK) {
            rvl_error error = {.struct_size = sizeof error};
            rvl_last_error(&error);
            fprintf(stderr, "%s: %s\n", path, error.message);
            rvl_model_close(model);
            return;
        }
        keep_least(&whole_ns, begin);
        rvl_model_step_close(step);
        rvli_training_shape shape = rvli_program_shape(&plan.options);
        begin = now_ns();
        rvli_training_run(model, &shape, NULL, &trained);
        keep_least(&run_ns, begin);
        events = 0;
        if (i == 0) {
            rvli_training_run(model, &shape, &(rvli_tape_listener){.told = count, .user = &events},
                              &trained);
            printf("%-28s %9" PRIu64 " %9" PRIu64,
                   strrchr(path, '/') ? strrchr(path, '/') + 1 : path, events, trained.update.call);
        }
        rvl_model_close(model);
    }
    printf(" %8.2f %8.2f %8.2f\n", (double)open_ns / 1e6, (double)run_ns / 1e6,
           (double)whole_ns / 1e6);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        measure(argv[i]);
    return 0;
}
