/* SPDX-License-Identifier: MIT */
#include "hooks/process/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "hooks/process/message.h"

#define DEFAULT_DIRECTORY "/tmp"
#define MOST_MILLISECONDS 3600000u

_Thread_local rvli_thread_settings *rvli_settings_at_hand;
static _Thread_local rvli_thread_settings of_thread __attribute__((tls_model("initial-exec")));

static rvli_process_settings process;
static char problem[RVLI_MESSAGE_BYTES]; /* the first problem with the environment; "": none */
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

/* ---- Tags ---- */

typedef struct tag_name {
    struct tag_name *next;
    char name[];
} tag_name;

static _Atomic(tag_name *) tag_names;

static const char *find_name(const char *name)
{
    for (tag_name *each = atomic_load(&tag_names); each != NULL; each = each->next)
        if (strcmp(each->name, name) == 0)
            return each->name;
    return NULL;
}

/* Two threads may both add a name at the same time. Either copy is good. */
const char *rvli_intern(const char *name)
{
    if (strcmp(name, RVLI_TAG_DEFAULT) == 0)
        return RVLI_TAG_DEFAULT;
    const char *known = find_name(name);
    if (known != NULL)
        return known;
    size_t bytes = strlen(name) + 1;
    tag_name *added = malloc(sizeof *added + bytes);
    if (added == NULL)
        return NULL;
    memcpy(added->name, name, bytes);
    added->next = atomic_load(&tag_names);
    while (!atomic_compare_exchange_weak(&tag_names, &added->next, added)) {
    }
    return added->name;
}

/* ---- The environment ---- */

static void describe(const char *variable, const char *value, const char *understood,
                     char message[RVLI_MESSAGE_BYTES])
{
    rvli_text text = rvli_text_begin(message, RVLI_MESSAGE_BYTES);
    rvli_text_add(&text, "environment variable ");
    rvli_text_add(&text, variable);
    rvli_text_add(&text, " has the value \"");
    rvli_text_add(&text, value);
    rvli_text_add(&text, "\", which is not understood: set ");
    rvli_text_add(&text, understood);
    rvli_text_add(&text, ", or unset it");
}

void rvli_say_refused(const char *variable, const char *value, const char *understood)
{
    char message[RVLI_MESSAGE_BYTES];
    describe(variable, value, understood, message);
    rvli_say(message);
}

/* Keeps the first problem. */
static void refuse(const char *variable, const char *value, const char *understood)
{
    if (problem[0] == '\0')
        describe(variable, value, understood, problem);
}

static bool is_one_of(const char *value, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(value, *words) == 0)
            return true;
    return false;
}

static bool read_bool(const char *variable)
{
    static const char *const yes[] = {"1", "true", "TRUE", "yes", "YES", NULL};
    static const char *const no[] = {"0", "false", "FALSE", "no", "NO", NULL};
    const char *value = getenv(variable);
    if (value == NULL || is_one_of(value, no))
        return false;
    if (is_one_of(value, yes))
        return true;
    refuse(variable, value, "1, true, TRUE, yes, YES or 0, false, FALSE, no, NO");
    return false;
}

/* Whether the variable has the second of two words. Unset or empty means the first. */
static bool read_second_of(const char *variable, const char *first, const char *second)
{
    const char *value = getenv(variable);
    if (value == NULL || value[0] == '\0' || strcmp(value, first) == 0)
        return false;
    char understood[64];
    rvli_text text = rvli_text_begin(understood, sizeof understood);
    rvli_text_add(&text, first);
    rvli_text_add(&text, " or ");
    rvli_text_add(&text, second);
    if (strcmp(value, second) != 0)
        refuse(variable, value, understood);
    return true;
}

static const char *read_directory(const char *variable)
{
    const char *value = getenv(variable);
    if (value == NULL)
        return DEFAULT_DIRECTORY;
    if (value[0] == '\0')
        refuse(variable, value, "the path of a directory");
    char *copy = strdup(value); /* the program may change its environment */
    return copy != NULL ? copy : DEFAULT_DIRECTORY;
}

/* Returns NULL if the variable is unset or empty. */
static const char *read_path(const char *variable)
{
    const char *value = getenv(variable);
    if (value == NULL || value[0] == '\0')
        return NULL;
    const char *copy = strdup(value); /* the program may change its environment */
    if (copy == NULL)
        refuse(variable, value, "a path that there is host memory for");
    return copy;
}

/* Reveille chooses the sizes of its writes to disk itself. The number is still checked. */
static void check_number(const char *variable)
{
    const char *value = getenv(variable);
    char *end = NULL;
    if (value == NULL)
        return;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number == 0 ||
        number > 1u << 20)
        refuse(variable, value, "a number of MiB from 1 on");
}

static unsigned read_milliseconds(const char *variable, unsigned otherwise)
{
    const char *value = getenv(variable);
    char *end = NULL;
    if (value == NULL)
        return otherwise;
    unsigned long number = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || number > MOST_MILLISECONDS)
        refuse(variable, value, "a number of milliseconds up to 3600000");
    return (unsigned)number;
}

static void read_environment(void)
{
    bool inside = read_bool("TMS_INIT_ENABLE");
    process.thread = (rvli_thread_settings){
        .tag = RVLI_TAG_DEFAULT,
        .region = inside ? RVLI_REGION_INSIDE : RVLI_REGION_OUTSIDE,
        .host_backup = read_bool("TMS_INIT_ENABLE_CPU_BACKUP"),
        .reclaimed = read_second_of("TMS_INIT_CPU_BACKUP_BACKEND", "pinned", "mmap"),
        .disk_backup = read_bool("TMS_INIT_ENABLE_DISK_BACKUP"),
    };
    process.retain = read_bool("TMS_RETAIN_CPU_BACKUP");
    process.disk_directory = read_directory("TMS_DISK_BACKUP_DIR");
    check_number("TMS_DISK_BACKUP_CHUNK_MB");
    process.ipc_timeout_ms = read_milliseconds("RVL_IPC_TIMEOUT_MS", 2000);
    process.store_path = read_path("REVEILLE_STORE");
    process.store_overflow = read_second_of("REVEILLE_STORE_FULL", "refuse", "disk");
    process.keep_host = !read_second_of("RVL_HOST_KEEP", "all", "none");
    process.host_ahead = process.keep_host && read_bool("RVL_HOST_AHEAD");
    process.host_pageable = read_bool("RVL_HOST_PAGEABLE");
    process.control = read_bool("REVEILLE_CONTROL");
    process.poison = read_bool("REVEILLE_POISON");
    if (process.thread.host_backup && process.thread.disk_backup)
        refuse("TMS_INIT_ENABLE_DISK_BACKUP", getenv("TMS_INIT_ENABLE_DISK_BACKUP"),
               "0 beside TMS_INIT_ENABLE_CPU_BACKUP: a backup lies in host memory or on disk");
}

rvl_status rvli_settings_check(void)
{
    pthread_once(&process_once, read_environment);
    return problem[0] == '\0' ? RVL_OK : rvli_error(RVL_ERR_INVALID, problem);
}

const rvli_process_settings *rvli_settings(void)
{
    pthread_once(&process_once, read_environment);
    if (problem[0] != '\0')
        rvli_give_up(problem);
    return &process;
}

rvli_thread_settings *rvli_settings_of_thread(void)
{
    if (of_thread.region == RVLI_REGION_UNKNOWN)
        of_thread = rvli_settings()->thread;
    return &of_thread;
}

rvli_thread_settings *rvli_thread_settings_fill(void)
{
    return rvli_settings_at_hand = rvli_settings_of_thread();
}
