/* SPDX-License-Identifier: MIT */
/*
 * What hooks say. They have no caller to answer, so that they alone in this project write to
 * stderr, a line at a time, and may end the process. Nothing here allocates.
 */
#ifndef RVL_HOOKS_MESSAGE_H
#define RVL_HOOKS_MESSAGE_H

#include "reveille/status.h"

/* Room for a sentence of a hook's own. */
#define RVLI_MESSAGE_BYTES 512

/* One line: "reveille: " and the text, made harmless (base/shown.h). */
void rvli_say(const char *text);

/* One line with all that the calling thread's error record knows. what: "pause of \"weights\"". */
void rvli_say_error(const char *what);

/* rvli_say() and rvli_say_error(), and the end. */
_Noreturn void rvli_give_up(const char *text);
_Noreturn void rvli_give_up_error(const char *what);

#endif
