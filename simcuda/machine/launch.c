/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static struct sigaction before[sizeof passed_on / sizeof *passed_on];
static volatile pid_t group;

static void pass_on(int number)
{
    kill(-group, number);
}

/* What this process ignores, the command does, too. */
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

/* The terminal's foreground goes to a group: a process behind may not ask without this. */
static void give_terminal(pid_t to)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGTTOU, &ignored, &old);
    tcsetpgrp(STDIN_FILENO, to);
    sigaction(SIGTTOU, &old, NULL);
}

static _Noreturn void become(const char *path, char **words, const sigset_t *mask, int told)
{
    int number;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(path, words);
    number = errno;
    _exit(write(told, &number, sizeof number) == (ssize_t)sizeof number ? 127 : 126);
}

static _Noreturn void keep(int pipe_in, int pipe_out, pid_t kept)
{
    char byte;
    close(pipe_out);
    setpgid(0, 0); /* what a terminal sends to its group is not meant for the keeper */
    while (read(pipe_in, &byte, 1) < 0 && errno == EINTR)
        ;
    kill(-kept, SIGKILL);
    _exit(0);
}

/* The program runs when the pipe closes without a word. */
static bool has_begun(int from)
{
    int number = 0;
    ssize_t length;
    while ((length = read(from, &number, sizeof number)) < 0 && errno == EINTR)
        ;
    errno = number;
    return length == 0;
}

static bool start_command(const char *path, char **words, const sigset_t *mask, rvli_launch *launch)
{
    int told[2];
    if (pipe2(told, O_CLOEXEC) != 0)
        return false;
    launch->command = fork();
    if (launch->command == 0)
        become(path, words, mask, told[1]);
    int number = errno;
    close(told[1]);
    errno = number;
    bool begun = launch->command > 0;
    if (begun) {
        setpgid(launch->command, launch->command);
        begun = has_begun(told[0]);
        if (!begun) {
            number = errno;
            waitpid(launch->command, NULL, 0);
        }
    }
    number = begun ? 0 : number;
    close(told[0]);
    errno = number;
    return begun;
}

static bool start_keeper(rvli_launch *launch)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    launch->keeper = fork();
    if (launch->keeper == 0)
        keep(ends[0], ends[1], launch->command);
    close(ends[0]);
    launch->keeper_in = ends[1];
    return launch->keeper > 0;
}

bool rvli_launch_start(const char *path, char **words, rvli_launch *launch_out)
{
    sigset_t all, mask;
    rvli_launch launch = {.ended = -1, .keeper_in = -1};
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask); /* until there is somebody to pass them to */
    launch.foreground = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
    bool started = start_command(path, words, &mask, &launch);
    if (started) {
        group = launch.command;
        launch.ended = (int)syscall(SYS_pidfd_open, launch.command, 0);
        started = launch.ended >= 0 && start_keeper(&launch);
        int number = errno;
        if (started) {
            handle_signals();
            if (launch.foreground)
                give_terminal(group);
        } else {
            kill(-group, SIGKILL);
            waitpid(launch.command, NULL, 0);
        }
        errno = number;
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (started)
        *launch_out = launch;
    return started;
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

int rvli_launch_finish(rvli_launch *launch)
{
    if (launch->foreground)
        give_terminal(getpgrp());
    int status = wait_for(launch->command);
    restore_signals();
    close(launch->ended);
    close(launch->keeper_in); /* and the keeper kills what is left */
    wait_for(launch->keeper);
    return status;
}
