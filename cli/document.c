/* SPDX-License-Identifier: MIT */
#include "document.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "output.h"

/* Whether a trial open could do harm: opening and closing a pipe would end it for its reader. */
static bool is_special(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

static int check_one(const command_spec *command, const char *option, const char *endings,
                     const option_document *asked)
{
    output_file file;
    if (asked == NULL || asked->path == NULL)
        return 0;
    int status = options_check_ending(command, option, asked->path, endings);
    if (status != 0 || is_special(asked->path))
        return status;
    status = output_open(asked->path, &file);
    if (status == 0)
        output_abandon(&file);
    return status;
}

int documents_check(const command_spec *command, const option_document *json,
                    const option_document *markdown)
{
    if (markdown != NULL && document_is_printed(json) && document_is_printed(markdown))
        return options_refuse(command, "--json, --markdown: one of them can be the standard "
                                       "output: write the other to a file, as --json=FILE");
    const output_name outputs[] = {{"--json", json->path},
                                   {"--markdown", markdown != NULL ? markdown->path : NULL}};
    int status = outputs_check_each_other(outputs, 2);
    if (status == 0)
        status = check_one(command, "--json", "json", json);
    return status == 0 ? check_one(command, "--markdown", "md", markdown) : status;
}

int documents_check_inputs(const option_document *json, const option_document *markdown,
                           const char *const *paths, size_t path_count)
{
    const output_name outputs[] = {{"--json", json->path},
                                   {"--markdown", markdown != NULL ? markdown->path : NULL}};
    int status = 0;
    for (size_t i = 0; status == 0 && i < path_count; i++)
        status = outputs_check_input(outputs, 2, paths[i]);
    return status;
}

bool document_is_printed(const option_document *asked)
{
    return asked->wanted && asked->path == NULL;
}

int document_write(const option_document *asked, document_fn write, const void *user)
{
    output_file file = output_to_stdout();
    if (!asked->wanted)
        return 0;
    int status = asked->path != NULL ? output_open(asked->path, &file) : 0;
    status = status != 0 ? status : output_finish(&file, write(file.stream, user));
    if (status == 0 && asked->path != NULL)
        output_tell(asked->path, NULL);
    return status;
}

static bool write_text(FILE *out, const void *text)
{
    if (text != NULL)
        fprintf(out, "%s\n", (const char *)text);
    return text != NULL;
}

int document_write_text(const option_document *asked, const char *text)
{
    return document_write(asked, write_text, text);
}
