/* SPDX-License-Identifier: MIT */
#include "core/sleep/obstacles.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/sleep_check.h"
#include "base/text.h"
#include "reveille/sleep.h"

typedef struct obstacle {
    struct obstacle *next;
    uint64_t key;
    char why[160];
} obstacle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static obstacle *obstacles; /* newest first */

/* ---- Fork: a child has no memory of other processes open, because it has no device yet ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    obstacles = NULL; /* the records belong to the parent */
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- The list ---- */

rvl_status rvl_sleep_forbid(uint64_t key, const char *why)
{
    if (why == NULL || why[0] == '\0')
        return rvli_error(RVL_ERR_INVALID, "why is NULL or empty: say what to close");
    obstacle *new = malloc(sizeof *new);
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a reason not to sleep");
    new->key = key;
    rvli_text_copy(new->why, sizeof new->why, why);
    pthread_mutex_lock(&lock);
    new->next = obstacles;
    obstacles = new;
    pthread_mutex_unlock(&lock);
    return RVL_OK;
}

rvl_status rvl_sleep_allow(uint64_t key)
{
    pthread_mutex_lock(&lock);
    obstacle **link = &obstacles;
    while (*link != NULL && (*link)->key != key)
        link = &(*link)->next;
    obstacle *gone = *link;
    if (gone != NULL)
        *link = gone->next;
    pthread_mutex_unlock(&lock);
    if (gone == NULL)
        return rvli_error(RVL_ERR_NOT_FOUND, "no rvl_sleep_forbid() has this key");
    free(gone);
    return RVL_OK;
}

static rvl_status check_said(void)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    unsigned more = 0;
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "the process cannot sleep: ");
    pthread_mutex_lock(&lock);
    const obstacle *first = obstacles;
    if (first != NULL)
        rvli_text_add(&text, first->why);
    for (const obstacle *each = first; each != NULL; each = each->next)
        more += each != first;
    pthread_mutex_unlock(&lock);
    if (first == NULL)
        return RVL_OK;
    if (more > 0) {
        rvli_text_add(&text, " (and ");
        rvli_text_add_u64(&text, more);
        rvli_text_add(&text, " more)");
    }
    return rvli_error(RVL_ERR_BUSY, message);
}

/*
 * Runs rvli_sleep_check() first, because it names the communicator. Other reasons only state that
 * memory was opened.
 */
rvl_status rvli_obstacles_check(void)
{
    rvl_status status = rvli_sleep_check();
    return status == RVL_OK ? check_said() : status;
}
