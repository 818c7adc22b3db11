/* SPDX-License-Identifier: MIT */
/*
 * The command that runs on a machine, in its own process group, and its end.
 *
 * Between this process and the command stands another process, the keeper. Processes that the
 * command starts and leaves behind become the keeper's children (PR_SET_CHILD_SUBREAPER), even
 * in another session, such as torchrun gives to each worker. When the command or this process
 * ends, in any way, the keeper kills what is left. So no process outlives the machine that it
 * runs on, even if this process was killed and could not clean up. If the keeper is killed, this
 * process does the cleaning.
 */
#ifndef RVL_SIMCUDA_LAUNCH_H
#define RVL_SIMCUDA_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct rvli_launch {
    pid_t command;
    pid_t keeper;
    int ended;       /* readable once the command has ended */
    int keeper_in;   /* this process's end of the pipe */
    bool foreground; /* the command has the terminal */
} rvli_launch;

typedef struct rvli_launch_options {
    const char *path;
    char **words;       /* terminated by NULL */
    const char *folder; /* working directory; NULL: unchanged */
    int output; /* receives its output, and its input is empty; -1: it shares this process's output
                   and the terminal */
} rvli_launch_options;

/*
 * Starts a program, and passes on to it the signals that ask this process to end. This process
 * still handles these signals as before. At most one program at a time. false, with errno:
 * nothing was started.
 */
bool rvli_launch_start(const rvli_launch_options *options, rvli_launch *launch_out);

/* Kills the command and all that it has started. You still have to call rvli_launch_finish(). */
void rvli_launch_kill(rvli_launch *launch);

/*
 * Returns the command's wait status, as from waitpid(), once `ended` is readable. Returns
 * SIGKILL's if the command or the keeper was killed. Kills what is left of the command's
 * processes.
 */
int rvli_launch_finish(rvli_launch *launch);

#endif
