/* SPDX-License-Identifier: MIT */
/* Steps of training when host memory runs out. */
#ifndef RVL_TESTS_PREDICT_STEP_MEMORY_H
#define RVL_TESTS_PREDICT_STEP_MEMORY_H

#include "reveille/model.h"

/* Fails each allocation of making the step in turn: each is told, and nothing is made. */
void check_step_without_memory(const rvl_model *model, const rvl_model_options *options);

#endif
