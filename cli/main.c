/* SPDX-License-Identifier: MIT */
/* The `reveille` command: runs the subcommand, and checks that its output was written. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "commands.h"
#include "interrupt.h"

static int help(void)
{
    help_print(&reveille_spec);
    puts("\nCommands:");
    for (const subcommand *each = commands; each->spec != NULL; each++)
        printf("  %-10s  %s\n", each->spec->name, each->spec->summary);
    return EXIT_FITS;
}

static int help_on(const char *name)
{
    const subcommand *found = commands_find(name);
    if (found == NULL)
        return EXIT_BAD_INPUT;
    help_print(found->spec);
    return EXIT_FITS;
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int dispatch(int argc, char **argv)
{
    option_line line;
    if (argc < 2)
        return options_refuse(&reveille_spec, "name a command");
    if (is_help(argv[1]))
        return argc > 2 && !is_help(argv[2]) ? help_on(argv[2]) : help();
    if (argv[1][0] == '-' && !options_parse(&reveille_spec, 2, argv, NULL, &line))
        return line.status;
    const subcommand *found = commands_find(argv[1]);
    return found != NULL ? found->run(argc - 1, argv + 1) : EXIT_BAD_INPUT;
}

static const char *output_remedy(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return ": free some, or write to another disk";
    case EFBIG:
        return ": raise ulimit -f";
    default:
        return ": write to another place";
    }
}

/*
 * Returns the errno of a failed write of the output; 0: all was written. The stream does not keep
 * the errno of an earlier failed write. So we write a line break, which most likely fails for the
 * same reason; the output is cut off in any case.
 */
static int output_error(void)
{
    errno = EIO; /* returned if that line break succeeds */
    if (fflush(stdout) != 0)
        return errno;
    if (!ferror(stdout))
        return 0;
    clearerr(stdout);
    if (putchar('\n') != EOF)
        (void)fflush(stdout);
    return errno;
}

/* Complains if the output was not written, unless its reader closed the pipe. */
static int flush_output(int status)
{
    int number = output_error();
    if (number == 0)
        return status;
    return number == EPIPE ? EXIT_INTERNAL
                           : complain_of_file("writing the output: %s%s", strerror(number),
                                              output_remedy(number));
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* beyond ulimit -f, write() then returns an error */
    int status = flush_output(dispatch(argc, argv));
    interrupt_finish();
    return status;
}
