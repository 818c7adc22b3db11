/* SPDX-License-Identifier: MIT */
#include "hooks/process/disk_names.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

struct rvli_disk_name {
    rvli_disk_name *next, *previous;
    pid_t owner;
    char path[];
};

static rvli_disk_name *names;
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

rvli_disk_name *rvli_disk_name_add(const char *directory, int fd, int device, unsigned long long id)
{
    char path[PATH_MAX], target[64];
    rvli_text text = rvli_text_begin(target, sizeof target);
    rvli_text_add(&text, "/proc/");
    rvli_text_add_u64(&text, (uint64_t)getpid());
    rvli_text_add(&text, "/fd/");
    rvli_text_add_u64(&text, (uint64_t)fd);
    text = rvli_text_begin(path, sizeof path);
    rvli_text_add(&text, directory);
    rvli_text_add(&text, "/reveille-");
    rvli_text_add_u64(&text, (uint64_t)getpid());
    rvli_text_add(&text, "-");
    rvli_text_add_u64(&text, (uint64_t)device);
    rvli_text_add(&text, "-");
    rvli_text_add_u64(&text, id);
    rvli_disk_name *name = malloc(sizeof *name + text.length + 1);
    if (name == NULL)
        return NULL;
    memcpy(name->path, path, text.length + 1);
    name->owner = getpid();
    unlink(path); /* left by a killed process that had our number */
    if (symlink(target, path) != 0) {
        free(name);
        return NULL;
    }
    pthread_mutex_lock(&names_lock);
    name->previous = NULL;
    name->next = names;
    if (names != NULL)
        names->previous = name;
    names = name;
    pthread_mutex_unlock(&names_lock);
    return name;
}

void rvli_disk_name_remove(rvli_disk_name *name)
{
    if (name == NULL)
        return;
    pthread_mutex_lock(&names_lock);
    if (name->previous != NULL)
        name->previous->next = name->next;
    else
        names = name->next;
    if (name->next != NULL)
        name->next->previous = name->previous;
    pthread_mutex_unlock(&names_lock);
    if (name->owner == getpid())
        unlink(name->path);
    free(name);
}

/* Keeps the list as it is: other threads may still run while the process ends. */
void rvli_disk_names_remove_all(void)
{
    if (pthread_mutex_trylock(&names_lock) != 0)
        return;
    for (const rvli_disk_name *name = names; name != NULL; name = name->next)
        if (name->owner == getpid())
            unlink(name->path);
    pthread_mutex_unlock(&names_lock);
}

__attribute__((destructor)) static void remove_at_exit(void)
{
    rvli_disk_names_remove_all();
}
