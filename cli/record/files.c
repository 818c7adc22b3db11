/* SPDX-License-Identifier: MIT */
/*
 * The files of a recording. Each process writes its own file, with its id in the name. If there is
 * only one file, it is renamed to the output's name. Files that have not changed since the start
 * are of earlier runs.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/output.h"
#include "command.h"
#include "output.h"
#include "record.h"

/* ---- Names ---- */

static bool complain_path(const char *output, const char *why)
{
    complain(0, "%s: %s: name a file in a directory that exists and can be written", output, why);
    return false;
}

static bool split(record_files *files, const char *output)
{
    char *slash, *dot;
    if (strlen(output) >= PATH_MAX - 64)
        return complain_path(output, "too long");
    snprintf(files->output, PATH_MAX, "%s", output);
    snprintf(files->directory, PATH_MAX, "%s", output);
    slash = strrchr(files->directory, '/');
    snprintf(files->stem, PATH_MAX, "%s", slash != NULL ? slash + 1 : output);
    if (slash == NULL)
        snprintf(files->directory, PATH_MAX, ".");
    else
        slash[slash == files->directory] = '\0';
    if (files->stem[0] == '\0')
        return complain_path(output, "names no file");
    dot = strrchr(files->stem, '.');
    if (dot != NULL && dot != files->stem) {
        snprintf(files->extension, PATH_MAX, "%s", dot);
        *dot = '\0';
    }
    return true;
}

/* Appends a name to a pattern, with %% for each %. false: too long. */
static bool add_name(char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    for (; *name != '\0' && length < PATH_MAX - 3; name++) {
        if (*name == '%')
            pattern[length++] = '%';
        pattern[length++] = *name;
    }
    pattern[length] = '\0';
    return *name == '\0';
}

bool record_files_pattern(const record_files *files, char pattern[PATH_MAX])
{
    char directory[PATH_MAX];
    pattern[0] = '\0';
    if (realpath(files->directory, directory) == NULL || !add_name(pattern, directory) ||
        !add_name(pattern, "/") || !add_name(pattern, files->stem))
        return false;
    size_t length = strlen(pattern);
    snprintf(pattern + length, PATH_MAX - length, ".%%p");
    return length + sizeof ".%p" <= PATH_MAX && add_name(pattern, files->extension);
}

/* Whether the text between stem and extension is a process's number, as ".4242" or ".4242.2". */
static bool is_number(const char *text, size_t length)
{
    size_t numbers = 0;
    while (length > 1 && text[0] == '.' && isdigit((unsigned char)text[1])) {
        text++, length--, numbers++;
        while (length > 0 && isdigit((unsigned char)text[0]))
            text++, length--;
    }
    return length == 0 && numbers >= 1 && numbers <= 2;
}

static bool is_one(const record_files *files, const char *name)
{
    size_t length = strlen(name), stem = strlen(files->stem), end = strlen(files->extension);
    return length > stem + end && strncmp(name, files->stem, stem) == 0 &&
           strcmp(name + length - end, files->extension) == 0 &&
           is_number(name + stem, length - stem - end);
}

/* ---- Existing files ---- */

static int compare(const void *left, const void *right)
{
    return strverscmp(((const record_file *)left)->name, ((const record_file *)right)->name);
}

static void free_list(record_file *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].name);
    free(list);
}

static record_file file_of(char *name, const struct stat *facts)
{
    return (record_file){name, facts->st_mtim, facts->st_size, facts->st_ino, facts->st_uid};
}

static bool is_same(const record_file *left, const record_file *right)
{
    return left->number == right->number && left->size == right->size &&
           left->changed.tv_sec == right->changed.tv_sec &&
           left->changed.tv_nsec == right->changed.tv_nsec;
}

static bool add_file(record_file **list, size_t *count, int directory, const char *name)
{
    struct stat facts;
    if (fstatat(directory, name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode))
        return true; /* not a recording: those are regular files */
    record_file *grown = realloc(*list, (*count + 1) * sizeof *grown);
    char *copy = grown != NULL ? strdup(name) : NULL;
    if (grown != NULL)
        *list = grown;
    if (copy == NULL)
        return false;
    grown[(*count)++] = file_of(copy, &facts);
    return true;
}

static record_file *list_files(const record_files *files, size_t *count_out)
{
    record_file *list = NULL;
    DIR *entries = opendir(files->directory);
    *count_out = 0;
    if (entries == NULL)
        return NULL;
    for (struct dirent *each; (each = readdir(entries)) != NULL;)
        if (is_one(files, each->d_name) &&
            !add_file(&list, count_out, dirfd(entries), each->d_name))
            break;
    closedir(entries);
    if (list != NULL)
        qsort(list, *count_out, sizeof *list, compare);
    return list;
}

static bool is_new(const record_files *files, const record_file *file)
{
    for (size_t i = 0; i < files->before_count; i++)
        if (strcmp(files->before[i].name, file->name) == 0)
            return !is_same(&files->before[i], file);
    return true;
}

/* Whether this run wrote the file: it is new, and belongs to this user. */
static bool is_written(const record_files *files, const record_file *file)
{
    return is_new(files, file) && file->owner == geteuid();
}

/* Checks that the output can be written, and notes a file that exists there. false: has complained.
 */
static bool try_output(record_files *files, const char *output)
{
    struct stat facts;
    rvli_output tried;
    if (rvli_output_open(output, RVLI_OUTPUT_CHOSEN, &tried) != RVL_OK) {
        complain(0, "%s", rvli_error_get()->message);
        return false;
    }
    bool regular = tried.folder >= 0;
    rvli_output_close(&tried);
    if (!regular)
        return complain_path(output, "no regular file");
    if (stat(output, &facts) != 0)
        return true;
    files->output_before = file_of(NULL, &facts);
    if (lstat(output, &facts) == 0 && S_ISLNK(facts.st_mode) &&
        realpath(output, files->output) == NULL) /* keep a link, and replace its target */
        return complain_path(output, strerror(errno));
    return true;
}

bool record_files_begin(record_files *files, const char *output)
{
    size_t length = strlen(output);
    *files = (record_files){0};
    if (length >= 4 && strcmp(output + length - 4, ".zst") == 0) {
        complain(0, "%s: recording writes plain text: name it .rvt and compress it afterwards",
                 output);
        return false;
    }
    if (!split(files, output) || !try_output(files, output))
        return false;
    files->before = list_files(files, &files->before_count);
    return true;
}

/* ---- Report ---- */

/* Reads the whole file. Prints its number of events, and whether it is cut off. */
static void tell_file(const char *path)
{
    rvl_error error = {.struct_size = sizeof error};
    const rvl_trace_reader_options options = {.struct_size = sizeof options,
                                              .flags = RVL_TRACE_PARTIAL};
    rvl_trace_progress progress = {.struct_size = sizeof progress};
    char events[COUNT_TEXT_BYTES];
    rvl_trace_event event;
    rvl_trace_reader *reader = NULL;
    rvl_status status = rvl_trace_reader_open(&path, 1, &options, &reader);
    rvl_last_error(&error);
    if (status == RVL_OK)
        while ((status = rvl_trace_reader_next(reader, &event, sizeof event)) == RVL_OK)
            ;
    rvl_last_error(&error);
    if (status != RVL_ERR_NOT_FOUND) {
        complain(0, "%s:%" PRIu32 ": %s", path, error.line, error.message);
    } else {
        rvl_trace_reader_get_progress(reader, &progress);
        complain(0, "%s: %s%s", path, format_count(progress.events, "event", "events", events),
                 progress.cut_files > 0
                     ? ", breaks off (the process was killed): replay it with --partial"
                     : "");
    }
    rvl_trace_reader_close(reader);
}

static void path_of(const record_files *files, const char *name, char path[PATH_MAX])
{
    bool here = strchr(files->output, '/') == NULL;
    snprintf(path, PATH_MAX, "%.2048s%s%.2000s", here ? "" : files->directory,
             here || strcmp(files->directory, "/") == 0 ? "" : "/", name);
    if (strcmp(files->directory, "/") == 0)
        snprintf(path, PATH_MAX, "/%.2000s", name);
}

/* Removes an output of an earlier run, unless another recording has replaced it in the meantime. */
static void remove_old_output(const record_files *files)
{
    struct stat facts;
    if (files->output_before.number == 0 || stat(files->output, &facts) != 0)
        return;
    const record_file there = file_of(NULL, &facts);
    if (is_same(&there, &files->output_before) && unlink(files->output) == 0)
        complain(0, "%s was of an earlier run, and is removed", files->output);
}

/* Names files of earlier runs: a pattern for the files of this run would match them, too. */
static void tell_old(const record_files *files, const record_file *list, size_t count)
{
    size_t old = 0;
    const char *first = NULL;
    for (size_t i = 0; i < count; i++)
        if (!is_new(files, &list[i]) && old++ == 0)
            first = list[i].name;
    if (old == 0)
        return;
    char more[48] = "";
    if (old > 1)
        snprintf(more, sizeof more, " and %zu more like it", old - 1);
    complain(0, "of earlier runs: %s%s: remove them before a pattern names them with these", first,
             more);
}

/* Names new files of other users. A command that changes its user also writes such files. */
static void tell_others(const record_files *files, const record_file *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_new(files, &list[i]) && !is_written(files, &list[i]))
            complain(0, "%s belongs to another user, and is left alone", list[i].name);
}

void record_files_tell(record_files *files)
{
    size_t count = 0, written = 0;
    char path[PATH_MAX];
    record_file *list = list_files(files, &count);
    const record_file *only = NULL;
    for (size_t i = 0; i < count; i++)
        if (is_written(files, &list[i])) {
            only = &list[i];
            written++;
        }
    if (written == 1) {
        path_of(files, only->name, path);
        const char *name = rename(path, files->output) == 0 ? files->output : path;
        tell_file(name);
        output_tell(name, "reveille replay %s");
    } else {
        remove_old_output(files);
    }
    for (size_t i = 0; written > 1 && i < count; i++)
        if (is_written(files, &list[i])) {
            path_of(files, list[i].name, path);
            tell_file(path);
        }
    tell_others(files, list, count);
    if (written > 1)
        tell_old(files, list, count);
    if (written == 0)
        complain(0,
                 "nothing was recorded: no process used a GPU in a way that is seen (docs/hooks.md "
                 "says in which); on a machine without one, `reveille run` simulates it");
    free_list(list, count);
}

void record_files_end(record_files *files)
{
    free_list(files->before, files->before_count);
}
