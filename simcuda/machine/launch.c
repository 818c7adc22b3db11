/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static struct sigaction before[sizeof passed_on / sizeof *passed_on];
static volatile pid_t group;

static void pass_on(int number)
{
    kill(-group, number);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        if (passed_on[i] == number && before[i].sa_handler != SIG_DFL)
            before[i].sa_handler(number);
}

/* The command inherits ignored signals, so signals that this process ignores stay ignored. */
static void handle_signals(void)
{
    const struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        sigaction(passed_on[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(passed_on[i], &action, NULL);
    }
}

static void restore_signals(void)
{
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaction(passed_on[i], &before[i], NULL);
}

/* Makes a group the terminal's foreground. SIGTTOU is ignored meanwhile: a background process
 * that asks for this is stopped otherwise. */
static void give_terminal(pid_t to)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGTTOU, &ignored, &old);
    tcsetpgrp(STDIN_FILENO, to);
    sigaction(SIGTTOU, &old, NULL);
}

/* ---- Whole messages through pipes ---- */

static bool put(int into, int number)
{
    ssize_t length;
    while ((length = write(into, &number, sizeof number)) < 0 && errno == EINTR)
        ;
    return length == (ssize_t)sizeof number;
}

/* false: the writing end is closed. */
static bool take(int from, int *number_out)
{
    ssize_t length;
    while ((length = read(from, number_out, sizeof *number_out)) < 0 && errno == EINTR)
        ;
    return length == (ssize_t)sizeof *number_out;
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* ---- Processes that are left ---- */

static pid_t parent_of(pid_t process)
{
    char path[32], line[512] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, line, sizeof line - 1) : 0;
    const char *after = length > 0 ? strrchr(line, ')') : NULL; /* a name may contain ')' */
    if (after != NULL && sscanf(after, ") %*c %d", &parent) != 1)
        parent = 0;
    if (file >= 0)
        close(file);
    return parent;
}

/* Kills all children. Their children become ours. */
static void kill_children(void)
{
    DIR *folder = opendir("/proc");
    const struct dirent *each;
    while (folder != NULL && (each = readdir(folder)) != NULL) {
        pid_t process = (pid_t)strtol(each->d_name, NULL, 10);
        if (process > 0 && parent_of(process) == getpid())
            kill(process, SIGKILL);
    }
    if (folder != NULL)
        closedir(folder);
}

/* Repeats until no child is left. No child's id can have been reused, since only we wait. */
static void kill_all(void)
{
    do
        kill_children();
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

/* ---- Descriptors ---- */

static bool lifted;
static struct rlimit descriptors; /* the limit before, which the command keeps */

/* Raises the limit: each process of the command needs a descriptor here, and so does each
 * exported file of shared memory. */
static void lift_descriptors(void)
{
    struct rlimit limit;
    if (lifted || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    descriptors = limit;
    limit.rlim_cur = limit.rlim_max;
    lifted = setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* ---- The command ---- */

static bool arrange(const rvli_launch_options *options)
{
    if (options->folder != NULL && chdir(options->folder) != 0)
        return false;
    if (options->output < 0)
        return true;
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
           dup2(options->output, STDOUT_FILENO) >= 0 && dup2(options->output, STDERR_FILENO) >= 0;
}

static _Noreturn void become(const rvli_launch_options *options, const sigset_t *mask, int told)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (lifted)
        (void)setrlimit(RLIMIT_NOFILE, &descriptors);
    if (arrange(options))
        execv(options->path, options->words);
    _exit(put(told, errno) ? 127 : 126);
}

/* ---- The keeper ---- */

typedef struct pipes {
    int control[2]; /* this process holds the writing end; it breaks when this process ends */
    int report[2];  /* from the keeper: the command's id, then its status */
    int told[2];    /* from the command: the errno of execv() */
} pipes;

/* Reaps children that have ended. true: the command is one of them. */
static bool reap(pid_t command, int *status_out)
{
    pid_t ended;
    int status;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
        if (ended == command) {
            *status_out = status;
            return true;
        }
    return false;
}

/* Waits until the command has ended. false: the process that started it has ended, or waiting
 * failed. */
static bool wait_for_end(pid_t command, int control, int *status_out)
{
    struct signalfd_siginfo heard;
    sigset_t children; /* blocked, like all signals here */
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    struct pollfd files[] = {{.fd = signalfd(-1, &children, SFD_CLOEXEC), .events = POLLIN},
                             {.fd = control, .events = POLLIN}};
    while (files[0].fd >= 0 && !reap(command, status_out)) {
        if (poll(files, 2, -1) < 0 || files[1].revents != 0 ||
            read(files[0].fd, &heard, sizeof heard) < 0)
            return false;
    }
    return files[0].fd >= 0;
}

static _Noreturn void keep(const rvli_launch_options *options, const sigset_t *mask,
                           const pipes *ends)
{
    int status = 0;
    close(ends->control[1]);
    close(ends->report[0]);
    close(ends->told[0]);
    setpgid(0, 0); /* keeps signals of the terminal from the keeper */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t command = fork();
    if (command == 0)
        become(options, mask, ends->told[1]);
    close(ends->told[1]);
    if (command > 0 && put(ends->report[1], command) &&
        wait_for_end(command, ends->control[0], &status))
        (void)put(ends->report[1], status);
    kill_all();
    _exit(0);
}

/* ---- Starting ---- */

static void close_pair(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
        ends[i] = -1;
    }
}

static bool open_pipes(pipes *ends)
{
    *ends = (pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    return pipe2(ends->control, O_CLOEXEC) == 0 && pipe2(ends->report, O_CLOEXEC) == 0 &&
           pipe2(ends->told, O_CLOEXEC) == 0;
}

static void close_pipes(pipes *ends)
{
    int number = errno;
    close_pair(ends->control);
    close_pair(ends->report);
    close_pair(ends->told);
    errno = number;
}

/* The program runs once the pipe closes without a message. */
static bool has_begun(pipes *ends)
{
    int number;
    close(ends->told[1]);
    ends->told[1] = -1;
    if (!take(ends->told[0], &number))
        return true;
    errno = number;
    return false;
}

static bool start(const rvli_launch_options *options, const sigset_t *mask, pipes *ends,
                  rvli_launch *launch)
{
    int command;
    launch->keeper = fork();
    if (launch->keeper == 0)
        keep(options, mask, ends);
    if (launch->keeper < 0)
        return false;
    close(ends->report[1]);
    ends->report[1] = -1;
    bool forked = take(ends->report[0], &command);
    launch->command = forked ? command : 0;
    errno = EAGAIN; /* why the keeper could not fork is unknown */
    if (forked && has_begun(ends))
        return true;
    int number = errno;
    close_pair(ends->control); /* tells the keeper to end */
    wait_for(launch->keeper);
    errno = number;
    return false;
}

bool rvli_launch_start(const rvli_launch_options *options, rvli_launch *launch_out)
{
    sigset_t all, mask;
    pipes ends;
    rvli_launch launch = {0};
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask); /* until there is a process to pass signals to */
    launch.foreground =
        options->output < 0 && isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    bool started = open_pipes(&ends) && start(options, &mask, &ends, &launch);
    lift_descriptors();
    if (started) {
        group = launch.command;
        launch.ended = ends.report[0];
        launch.keeper_in = ends.control[1];
        ends.report[0] = ends.control[1] = -1;
        handle_signals();
        if (launch.foreground)
            give_terminal(group);
        *launch_out = launch;
    }
    close_pipes(&ends);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return started;
}

void rvli_launch_kill(rvli_launch *launch)
{
    close(launch->keeper_in); /* the keeper takes this for the end of this process */
    launch->keeper_in = -1;
}

int rvli_launch_finish(rvli_launch *launch)
{
    int status = SIGKILL;
    bool told = take(launch->ended, &status);
    if (launch->foreground)
        give_terminal(getpgrp());
    if (launch->keeper_in >= 0)
        close(launch->keeper_in); /* makes the keeper kill what is left */
    wait_for(launch->keeper);
    if (!told)
        kill_all();
    restore_signals();
    close(launch->ended);
    return told ? status : SIGKILL;
}
