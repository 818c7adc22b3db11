/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "command.h"

/* ---- Signals ---- */

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define ENDING_COUNT (sizeof ending / sizeof ending[0])

static const rvli_output *volatile open_file; /* what the handler removes; NULL: nothing */

/* The signal is blocked while its handler runs, and then ends the process as it would have. */
static void remove_draft(int number)
{
    const rvli_output *file = open_file;
    if (file != NULL)
        rvli_output_remove_draft(file);
    raise(number);
}

/* The kernel removes drafts without a name. Signals that are ignored stay so. */
static void handle_signals(const rvli_output *file)
{
    struct sigaction before, action = {.sa_handler = remove_draft, .sa_flags = (int)SA_RESETHAND};
    open_file = file;
    for (size_t i = 0; i < ENDING_COUNT; i++)
        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(ending[i], &action, NULL);
}

static void leave_signals(void)
{
    struct sigaction now;
    for (size_t i = 0; i < ENDING_COUNT; i++)
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler == remove_draft)
            signal(ending[i], SIG_DFL);
    open_file = NULL;
}

/* ---- Files ---- */

static int complain_last(void)
{
    return complain_of_file("%s", rvli_error_get()->message);
}

/* A signal may come when the draft has a name, and not before the handler knows it. */
static bool open_file_and_handler(const char *path, rvli_output *file)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    bool opened = rvli_output_open(path, RVLI_OUTPUT_CHOSEN, file) == RVL_OK;
    if (opened && file->draft[0] != '\0')
        handle_signals(file);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return opened;
}

int output_open(const char *path, output_file *output_out)
{
    if (!open_file_and_handler(path, &output_out->file))
        return complain(EXIT_BAD_INPUT, "%s", rvli_error_get()->message);
    output_out->stream = fdopen(output_out->file.fd, "w");
    if (output_out->stream != NULL)
        return 0;
    rvli_output_fail(&output_out->file, errno);
    int status = complain_last();
    rvli_output_close(&output_out->file);
    leave_signals();
    return status;
}

output_file output_to_stdout(void)
{
    return (output_file){.stream = stdout, .file = {.fd = -1, .folder = -1}};
}

/* fclose() is too late to fail: what it would write is written before the file takes its name. */
static rvl_status end_file(output_file *output, bool whole)
{
    errno = whole ? errno : ENOMEM;
    if (!whole || ferror(output->stream) || fflush(output->stream) != 0)
        return rvli_output_fail(&output->file, errno);
    return rvli_output_publish(&output->file, true);
}

int output_finish(output_file *output, bool whole)
{
    if (output->stream == stdout)
        return whole ? 0 : complain(EXIT_INTERNAL, "out of host memory");
    int status = end_file(output, whole) == RVL_OK ? 0 : complain_last();
    output_abandon(output);
    return status;
}

/* Within single quotes, unless a shell takes all of it as it is. The caller frees it. */
static char *quoted(const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
    char *shown_path = printable(path), *text = NULL;
    size_t size = 0;
    if (shown_path == NULL || shown_path[strspn(shown_path, plain)] == '\0')
        return shown_path;
    FILE *out = open_memstream(&text, &size);
    for (const char *at = shown_path; out != NULL && *at != '\0'; at++)
        fprintf(out, *at == '\'' ? "'\\%c'" : "%c", *at);
    free(shown_path);
    if (out == NULL || fclose(out) != 0)
        return NULL;
    char *all = NULL;
    int length = asprintf(&all, "'%s'", text);
    free(text);
    return length >= 0 ? all : NULL;
}

void output_tell(const char *path, const char *next)
{
    if (isatty(STDERR_FILENO) != 1)
        return;
    char *name = quoted(path);
    fflush(stdout);
    if (name != NULL)
        fprintf(stderr, "wrote %s", name);
    for (const char *at = next; name != NULL && at != NULL && *at != '\0'; at++) {
        if (at == next)
            fputs("; next: ", stderr);
        if (at[0] == '%' && at[1] == 's') {
            fputs(name, stderr);
            at++;
        } else {
            putc(*at, stderr);
        }
    }
    fputs(name != NULL ? "\n" : "", stderr);
    free(name);
}

void output_abandon(output_file *output)
{
    output->file.fd = -1; /* the stream's */
    rvli_output_close(&output->file);
    fclose(output->stream);
    leave_signals();
}
