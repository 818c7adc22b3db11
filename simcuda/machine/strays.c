/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/strays.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/wire/wire.h"

#define DRIVER "/libcuda.so"
#define DEPTH_MAX 64

static FILE *open_of(pid_t process, const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, what);
    return fopen(path, "re");
}

/* Reads the environment as it was when the program began. An environment that cannot be
 * read belongs to another user, and is not reported. */
static bool has_lost_environment(pid_t process)
{
    char *text = NULL;
    size_t room = 0;
    bool found = false;
    FILE *file = open_of(process, "environ");
    if (file == NULL)
        return false;
    while (!found && getdelim(&text, &room, '\0', file) > 0)
        found = strncmp(text, RVLI_WIRE_VARIABLE "=", sizeof RVLI_WIRE_VARIABLE) == 0;
    bool whole = !ferror(file);
    free(text);
    fclose(file);
    return whole && !found;
}

/* Finds a driver in a process's maps, by the path at the end of a line. Skips our own folder. */
static bool find_driver(pid_t process, const char *own, char library[PATH_MAX])
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = open_of(process, "maps");
    library[0] = '\0';
    while (file != NULL && library[0] == '\0' && getline(&line, &room, file) > 0) {
        const char *path = strchr(line, '/'), *name = path != NULL ? strstr(path, DRIVER) : NULL;
        if (name == NULL || strchr(name + 1, '/') != NULL)
            continue;
        if (strlen(own) != (size_t)(name - path) || strncmp(path, own, strlen(own)) != 0)
            snprintf(library, PATH_MAX, "%.*s", (int)strcspn(path, "\n"), path);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return library[0] != '\0';
}

static void read_program(pid_t process, char *program, size_t size)
{
    FILE *file = open_of(process, "comm");
    snprintf(program, size, "?");
    if (file != NULL && fgets(program, (int)size, file) != NULL)
        program[strcspn(program, "\n")] = '\0';
    if (file != NULL)
        fclose(file);
}

static void look_at(rvli_strays *strays, pid_t process)
{
    if (!has_lost_environment(process) || !find_driver(process, strays->own, strays->library))
        return;
    strays->process = process;
    read_program(process, strays->program, sizeof strays->program);
}

static void look_below(rvli_strays *strays, pid_t process, int depth)
{
    char children[64];
    int child;
    snprintf(children, sizeof children, "task/%d/children", (int)process);
    FILE *file = depth < DEPTH_MAX ? open_of(process, children) : NULL;
    while (file != NULL && strays->process == 0 && fscanf(file, "%d", &child) == 1) {
        look_at(strays, child);
        look_below(strays, child, depth + 1);
    }
    if (file != NULL)
        fclose(file);
}

void rvli_strays_look(rvli_strays *strays, pid_t root)
{
    if (strays->process == 0)
        look_below(strays, root, 0);
}
