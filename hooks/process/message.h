/* SPDX-License-Identifier: MIT */
/*
 * What hooks say. They have no caller to answer, so that they alone in this project write to
 * stderr, a line at a time, and may end the process. Nothing here allocates.
 */
#ifndef RVL_HOOKS_PROCESS_MESSAGE_H
#define RVL_HOOKS_PROCESS_MESSAGE_H

#include <stdlib.h>

#include "reveille/status.h"

/* Room for a sentence of a hook's own. */
#define RVLI_MESSAGE_BYTES 512

/* One line: "reveille: " and the text, made harmless (base/shown.h). */
void rvli_say(const char *text);

/* One line with all that the calling thread's error record knows. what: "pause of \"weights\"". */
void rvli_say_error(const char *what);

/* What must not outlive the process is taken away, and the process aborts. */
void rvli_end_process(void);

/* rvli_say() and rvli_say_error(), and the end. */
static inline _Noreturn void rvli_give_up(const char *text)
{
    rvli_say(text);
    rvli_end_process();
    abort();
}

static inline _Noreturn void rvli_give_up_error(const char *what)
{
    rvli_say_error(what);
    rvli_end_process();
    abort();
}

#endif
