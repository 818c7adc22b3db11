/* SPDX-License-Identifier: MIT */
/*
 * The stream captures that the hooks have seen begin. CUDA has no call that returns whether any
 * stream is being captured. During a capture, nothing may be paused or resumed, and no device may
 * be synchronized.
 */
#ifndef RVL_HOOKS_PROCESS_CAPTURES_H
#define RVL_HOOKS_PROCESS_CAPTURES_H

#include <stdbool.h>

/*
 * The stream that a call refers to. With per-thread default streams, NULL is the thread's own
 * stream.
 */
const void *rvli_capture_stream(const void *stream, bool per_thread);

/* A capture of the stream has begun, in a mode of CUDA. Calling this twice does nothing more. */
void rvli_capture_begin(const void *stream, int mode);

/*
 * A call to end the capture, or to destroy the stream, has returned `error` (0: success). On an
 * error, asks the driver whether the capture goes on.
 */
void rvli_capture_end(int error, const void *stream);

bool rvli_capture_running(void);

/* Whether CUDA refuses calls that disturb captures, such as cudaFree(), from this thread now. */
bool rvli_capture_forbids_frees(void);

#endif
