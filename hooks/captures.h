/* SPDX-License-Identifier: MIT */
/*
 * Which streams are being captured, as far as the hooks have seen it: no call of CUDA answers
 * whether anybody captures. Meanwhile nothing may be paused, resumed or freed.
 */
#ifndef RVL_HOOKS_CAPTURES_H
#define RVL_HOOKS_CAPTURES_H

#include <stdbool.h>

/* A stream begins or ends to be captured; telling it twice does nothing. */
void rvli_capture_begin(const void *stream);
void rvli_capture_end(const void *stream);
bool rvli_capture_running(void);

#endif
