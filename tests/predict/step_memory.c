/* SPDX-License-Identifier: MIT */
#include "tests/support/support.h"

#include "tests/predict/step_memory.h"
#include "tests/support/short_memory.h"

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC

void check_step_without_memory(const rvl_model *model, const rvl_model_options *options)
{
    long tries = 0;
    for (rvl_status status = RVL_ERR_HOST_OOM; status != RVL_OK; tries++) {
        rvl_model_step *step = NULL;
        short_memory_left = tries;
        status = rvl_model_step_make(model, options, &step);
        short_memory_left = -1;
        if (status != RVL_OK) {
            assert_int_equal(status, RVL_ERR_HOST_OOM);
            assert_null(step);
        }
        rvl_model_step_close(step);
    }
    assert_true(tries > 10);
}
