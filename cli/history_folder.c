/* SPDX-License-Identifier: MIT */
/* The folder of PyTorch's history, and how its files are named: "python%5B1%5D.2.pickle". */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "folder.h"
#include "history.h"

#define ENDING ".pickle"
#define WHOLE ".end" /* of the file that a process makes after its last history file */
#define FILES_MOST 4096u

int history_begin(const char *named, history *history_out)
{
    *history_out = (history){.kept = named != NULL};
    if (named != NULL) {
        if (mkdir(named, 0777) != 0 && errno != EEXIST)
            return complain(EXIT_BAD_INPUT, "--snapshots %s: %s", named, strerror(errno));
        struct stat facts;
        if (stat(named, &facts) == 0 && !S_ISDIR(facts.st_mode))
            return complain(EXIT_BAD_INPUT, "--snapshots %s: a file: name a folder", named);
        if (realpath(named, history_out->folder) == NULL || access(named, W_OK) != 0)
            return complain(EXIT_BAD_INPUT, "--snapshots %s: %s", named, strerror(errno));
        return 0;
    }
    if (!folder_make("history", history_out->folder)) {
        complain(0, "%s: %s: what memory is for is not followed", history_out->folder,
                 strerror(errno));
        history_out->folder[0] = '\0';
    }
    return 0;
}

void history_end(history *of)
{
    rvli_times_clear(&of->times);
    if (of->folder[0] == '\0' || of->kept)
        return;
    folder_remove(of->folder);
    of->folder[0] = '\0';
}

/* ---- Its files ---- */

/* Returns where the number starts in a file name with the ending. */
static size_t number_at(const char *path)
{
    size_t length = strlen(path) - strlen(ENDING);
    while (length > 0 && path[length - 1] != '.')
        length--;
    return length;
}

bool history_is_whole(const char *path)
{
    char end[PATH_MAX + NAME_MAX + sizeof WHOLE];
    size_t length = number_at(path);
    snprintf(end, sizeof end, "%.*s%s", length > 0 ? (int)length - 1 : 0, path, WHOLE);
    return access(end, F_OK) == 0;
}

bool history_goes_on(const char *path)
{
    char next[PATH_MAX + NAME_MAX + 32];
    size_t length = number_at(path);
    snprintf(next, sizeof next, "%.*s%lu" ENDING, (int)length, path,
             strtoul(path + length, NULL, 10) + 1);
    return access(next, F_OK) == 0;
}

/* Decodes the process name of "python%5B1%5D.2.pickle". false: not a history file. */
static bool process_of(const char *file, char *process_out, size_t size)
{
    size_t length = strlen(file), made = 0;
    if (length <= strlen(ENDING) || strcmp(file + length - strlen(ENDING), ENDING) != 0)
        return false;
    length = number_at(file);
    for (size_t i = 0; i + 1 < length && made + 1 < size; i++) {
        unsigned byte = (unsigned char)file[i];
        if (file[i] == '%' && sscanf(file + i + 1, "%2x", &byte) == 1)
            i += 2;
        process_out[made++] = (char)byte;
    }
    process_out[made] = '\0';
    return made > 0;
}

bool history_each_file(const char *folder, history_file_fn hear, void *user)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, NULL, alphasort);
    bool ok = true;
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX + NAME_MAX + 2], process[NAME_MAX + 1];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (ok && (unsigned)i < FILES_MOST &&
            process_of(entries[i]->d_name, process, sizeof process))
            ok = hear(user, path, process);
        free(entries[i]);
    }
    free(entries);
    return ok;
}
