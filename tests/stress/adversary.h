/* SPDX-License-Identifier: MIT */
/*
 * What happens to the program from outside: signals at every moment, and kills of programs that
 * write files. (Forks are an action of the threads: forks.c.)
 */
#ifndef RVL_STRESS_ADVERSARY_H
#define RVL_STRESS_ADVERSARY_H

#include "calls.h"

#define DEADLINE_S 60

/* ---- Signals ---- */

/*
 * Starts a thread that interrupts those which have entered, by SIGUSR1 and SIGALRM, without
 * SA_RESTART. It ends the run if no call begins for DEADLINE_S.
 */
void adversary_start(uint64_t seed);
void adversary_stop(void);

/* The calling thread may be interrupted from now on; answers its place. */
int adversary_enter(const caller *by);
void adversary_leave(int place);

/* In a forked child: nobody interrupts it. */
void adversary_forget(void);

/* ---- Kills ---- */

/*
 * Starts this program as one that records and keeps backups on disk, kills it at a random moment,
 * and looks at what is left: nothing but whole names, and a trace that can be read to its last
 * whole line.
 */
void kill_a_recorder(caller *by);

/* The same for commands that write a file: it is whole or not there, and nothing else is. */
void kill_a_command(caller *by);

/* Waits for a child, DEADLINE_S at most; what waitpid() says of it. */
int wait_for_child(int child);

#endif
