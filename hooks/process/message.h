/* SPDX-License-Identifier: MIT */
/*
 * Messages of the hooks. They have no caller to return an error to, so they alone write to stderr,
 * one line at a time, and may end the process. Nothing here allocates memory.
 */
#ifndef RVL_HOOKS_PROCESS_MESSAGE_H
#define RVL_HOOKS_PROCESS_MESSAGE_H

#include <stdlib.h>

#include "reveille/status.h"

/* Size of a buffer for a message. */
#define RVLI_MESSAGE_BYTES 512

/* Prints one line: "reveille: " and the text, with harmful characters escaped (base/shown.h). */
void rvli_say(const char *text);

/*
 * Prints one line with all fields of the calling thread's error record. what: "pause of
 * \"weights\"".
 */
void rvli_say_error(const char *what);

/* Removes what must not outlive the process, and aborts. */
void rvli_end_process(void);

/* As rvli_say() and rvli_say_error(), then end the process. */
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
