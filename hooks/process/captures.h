/* SPDX-License-Identifier: MIT */
/*
 * Which streams are being captured, as far as the hooks have seen it: no call of CUDA answers
 * whether anybody captures. Meanwhile nothing may be paused or resumed, and no device waited for.
 */
#ifndef RVL_HOOKS_PROCESS_CAPTURES_H
#define RVL_HOOKS_PROCESS_CAPTURES_H

#include <stdbool.h>

/* The stream that a call means: NULL is another one for the calls of per-thread default streams. */
const void *rvli_capture_stream(const void *stream, bool per_thread);

/* A stream begins to be captured, in a mode of CUDA. Telling it twice does nothing. */
void rvli_capture_begin(const void *stream, int mode);

/*
 * The end of a capture, or of a stream, was asked for and answered an error (0: none). If there is
 * one, the driver says whether the capture goes on.
 */
void rvli_capture_end(int error, const void *stream);

bool rvli_capture_running(void);

/* Whether CUDA refuses what disturbs captures, such as cudaFree(), to this thread just now. */
bool rvli_capture_forbids_frees(void);

#endif
