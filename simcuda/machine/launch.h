/* SPDX-License-Identifier: MIT */
/*
 * The command that runs on a machine, in a process group of its own, and its end.
 *
 * Between this process and the command stands another, the keeper. All that the command starts and
 * leaves becomes the keeper's child (PR_SET_CHILD_SUBREAPER), also where it has a session of its
 * own, as torchrun gives each worker. When the command has ended, or this process has in whatever
 * way, the keeper kills what is left: what runs on a machine does not outlive it, not even where
 * this process was killed and could clean up nothing. If the keeper is killed, this process does
 * the same in its place.
 */
#ifndef RVL_SIMCUDA_LAUNCH_H
#define RVL_SIMCUDA_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct rvli_launch {
    pid_t command;
    pid_t keeper;
    int ended;       /* can be read when the command has ended */
    int keeper_in;   /* the end of the pipe that this process holds */
    bool foreground; /* the command has the terminal */
} rvli_launch;

typedef struct rvli_launch_options {
    const char *path;
    char **words;       /* end with NULL */
    const char *folder; /* where it runs; NULL: here */
    int output; /* takes what it prints, and it reads nothing; -1: as this process, and the terminal
                 */
} rvli_launch_options;

/*
 * Starts a program, and passes on the signals that ask this process to end. What this process does
 * at such a signal, it does as well. At most one at a time. false, with errno: nothing was started.
 */
bool rvli_launch_start(const rvli_launch_options *options, rvli_launch *launch_out);

/* Kills it, with all that it has started. rvli_launch_finish() is still to be called. */
void rvli_launch_kill(rvli_launch *launch);

/*
 * What waitpid() says of the command, once `ended` can be read; that SIGKILL has ended it where it
 * or the keeper was killed. What is left of its processes is killed.
 */
int rvli_launch_finish(rvli_launch *launch);

#endif
