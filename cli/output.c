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

static const rvli_output *volatile open_file; /* the handler removes its draft; NULL: none */

/* Signal handler. The raised signal stays blocked until the handler returns, and then ends the
 * process by its default action. */
static void remove_draft(int number)
{
    const rvli_output *file = open_file;
    if (file != NULL)
        rvli_output_remove_draft(file);
    raise(number);
}

/* Only for drafts with a name: the kernel removes the others. Ignored signals stay ignored. */
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

/* Blocks signals until the handler knows the name of the draft. */
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

/* Flushes the stream before the file gets its name: a failure in fclose() would come too late. */
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

/* Returns the path in single quotes, if a shell needs them. The caller frees it. NULL: no memory.
 */
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
    output->file.fd = -1; /* the stream owns it */
    rvli_output_close(&output->file);
    fclose(output->stream);
    leave_signals();
}
