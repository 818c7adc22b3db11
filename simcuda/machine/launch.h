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

/*
 * Starts a program with these words, which end with NULL, and passes on the signals that ask this
 * process to end. At most one at a time. false, with errno: nothing was started.
 */
bool rvli_launch_start(const char *path, char **words, rvli_launch *launch_out);

/*
 * What waitpid() says of the command, once `ended` can be read; that SIGKILL has ended it where the
 * keeper was killed. What is left of its processes is killed.
 */
int rvli_launch_finish(rvli_launch *launch);

#endif
