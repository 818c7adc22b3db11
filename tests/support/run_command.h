/* SPDX-License-Identifier: MIT */
/*
 * The `reveille` command as a user meets it, run by a shell in the test's folder or word by word.
 * What the last one printed and its exit status are in `answer`.
 */
#ifndef RVL_TESTS_SUPPORT_RUN_COMMAND_H
#define RVL_TESTS_SUPPORT_RUN_COMMAND_H

#include <stddef.h>
#include <sys/types.h>

#define ANSWER_BYTES 65536

/* Paths as words of a shell: there may be spaces in them. */
#define COMMAND_WORD "'" RVL_COMMAND_PATH "'"
#define SOURCE_WORD "'" RVL_SOURCE_DIR "'"

extern struct answer {
    int status; /* -1: a signal has ended it */
    int signal; /* which one did, after run_interrupted() */
    char out[ANSWER_BYTES];
    char err[ANSWER_BYTES]; /* empty where stderr goes where stdout goes */
} answer;

/* A line of a shell, in the folder; its stdout is in answer.out. Answers answer.status. */
int run_shell(const char *line);

/* The command with words as a shell takes them, in the folder; stderr goes where stdout goes. */
int run_command(const char *words);

/* The command with words up to NULL, in the current folder; stdout and stderr apart, or as one. */
void run_words(const char *const *words);
void run_words_as_one(const char *const *words);

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/*
 * The same, with SIGINT after a while; or, where a FIFO is named, as soon as the command reads from
 * it, which then gets the text.
 */
void run_interrupted(const char *const *words, const char *fifo, const char *text);

/* Only begins it, with these as stdout and stderr. */
pid_t run_start(const char *const *words, int out, int err);

/*
 * Reads what a child writes until nobody can write there any more, closes that, and waits for the
 * child. Answers what waitpid() does of it.
 */
int run_read(pid_t child, int from, char *text_out, size_t size);

/* The same into answer.out and answer.status. */
void run_finish(pid_t child, int from);

/* Waits for a child: its exit status, or -1. */
int run_wait(pid_t child);

/* Fails the test, and shows the text, if a part is not in it; or not in answer.out. */
void check_contains(const char *text, const char *part);
void check_printed(const char *part);

#endif
