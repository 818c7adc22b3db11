/* SPDX-License-Identifier: MIT */
#include "run_command.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"

#define WORDS_MAX 16
#define TIMEOUT_S 100u
#define INTERRUPT_AFTER_S 3u
#define HANG_UPS_MAX 5u /* a terminal may say so a moment before its last text arrives */

struct answer answer;

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- By a shell ---- */

int run_shell(const char *line)
{
    char all[4096 + 64];
    snprintf(all, sizeof all, "cd %s && %s", folder, line);
    FILE *pipe = popen(all, "r");
    assert_non_null(pipe);
    answer.out[fread(answer.out, 1, ANSWER_BYTES - 1, pipe)] = '\0';
    answer.err[0] = '\0';
    answer.status = exit_status(pclose(pipe));
    return answer.status;
}

int run_command(const char *words)
{
    char line[4096];
    snprintf(line, sizeof line, COMMAND_WORD " %s 2>&1", words);
    return run_shell(line);
}

/* ---- Word by word ---- */

pid_t run_start(const char *const *words, int out, int err)
{
    char *command[WORDS_MAX + 1] = {RVL_COMMAND_PATH};
    for (size_t i = 0; words[i] != NULL; i++) {
        assert_true(i + 1 < WORDS_MAX);
        command[i + 1] = (char *)(uintptr_t)words[i];
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        alarm(TIMEOUT_S);
        execv(command[0], command);
        _exit(127);
    }
    assert_true(child > 0);
    return child;
}

static int wait_for(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

int run_wait(pid_t child)
{
    return exit_status(wait_for(child));
}

int run_read(pid_t child, int from, char *text_out, size_t size)
{
    size_t length = 0;
    unsigned hung_up = 0;
    while (length < size - 1 && hung_up < HANG_UPS_MAX) {
        ssize_t bytes = read(from, text_out + length, size - 1 - length);
        if (bytes > 0)
            length += (size_t)bytes;
        else if (bytes == 0 || errno != EIO)
            break;
        else if (++hung_up < HANG_UPS_MAX)
            usleep(10000);
    }
    text_out[length] = '\0';
    close(from);
    return wait_for(child);
}

void run_finish(pid_t child, int from)
{
    answer.err[0] = '\0';
    answer.status = exit_status(run_read(child, from, answer.out, ANSWER_BYTES));
}

static void read_all(FILE *file, char *text_out)
{
    rewind(file);
    text_out[fread(text_out, 1, ANSWER_BYTES - 1, file)] = '\0';
    fclose(file);
}

void run_words(const char *const *words)
{
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    answer.status = run_wait(run_start(words, fileno(out), fileno(err)));
    read_all(out, answer.out);
    read_all(err, answer.err);
}

void run_interrupted(const char *const *words, const char *fifo, const char *text)
{
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    pid_t child = run_start(words, fileno(out), fileno(err));
    int end = fifo != NULL ? open(fifo, O_WRONLY) : -1; /* blocks until there is a reader */
    if (fifo == NULL)
        sleep(INTERRUPT_AFTER_S);
    assert_int_equal(kill(child, SIGINT), 0);
    if (fifo != NULL)
        assert_int_equal(write(end, text, strlen(text)), strlen(text));
    close(end);
    int status = wait_for(child);
    answer.status = exit_status(status);
    answer.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    read_all(out, answer.out);
    read_all(err, answer.err);
}

void run_words_as_one(const char *const *words)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = run_start(words, ends[1], ends[1]);
    close(ends[1]);
    run_finish(child, ends[0]);
}

/* ---- Comparing ---- */

void check_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("expected \"%s\" in:\n%s", part, text);
}

void check_printed(const char *part)
{
    check_contains(answer.out, part);
}
