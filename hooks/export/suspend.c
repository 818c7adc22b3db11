/* SPDX-License-Identifier: MIT */
/*
 * A pause of memory that other processes import. It tells the importers to unmap, waits, and names
 * an importer that did not. Afterwards, importers release memory that was paused, and map the rest
 * again.
 *
 * RVL_IPC_TIMEOUT_MS limits the total time that a pause waits for importers, over all contexts and
 * replies. Copying does not count. Part of the time is kept for the replies after the first, so
 * that importers that did unmap get their memory again when the pause fails. An importer that has
 * missed one reply is not waited for again.
 */
#include "hooks/export/export_internal.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "hooks/process/message.h"
#include "hooks/process/settings.h"

#define KEPT_BACK 8 /* 1/8 of the time */

/* One pause of shared memory at a time. Taken before rvli_ipc_lock. */
static pthread_mutex_t rounds = PTHREAD_MUTEX_INITIALIZER;

/* The time that this thread's pause may still wait. */
static _Thread_local uint64_t left_ns __attribute__((tls_model("initial-exec")));

void rvli_ipc_begin_rounds(void)
{
    pthread_mutex_init(&rounds, NULL);
}

/* ---- The time it may take ---- */

static uint64_t timeout_ns(void)
{
    return rvli_settings()->ipc_timeout_ms * UINT64_C(1000000);
}

void rvli_ipc_begin_waiting(void)
{
    left_ns = timeout_ns();
}

static uint64_t at_first_ns(void)
{
    uint64_t kept_ns = timeout_ns() / KEPT_BACK;
    return left_ns > kept_ns ? left_ns - kept_ns : 0;
}

static uint64_t afterwards_ns(void)
{
    uint64_t kept_ns = timeout_ns() / KEPT_BACK, half_ns = left_ns / 2;
    if (half_ns > kept_ns)
        return half_ns; /* the rest is left for further contexts */
    return left_ns < kept_ns ? left_ns : kept_ns;
}

/* ---- What moves ---- */

/* What a transition does with this allocation: RVL_TRANSITION_*, or 0. */
static uint32_t fate_of(const rvl_transition *transition, const rvli_ipc_shared *what)
{
    return what->context == rvl_transition_get_context(transition)
               ? rvl_transition_find(transition, what->allocation_id)
               : 0;
}

static bool any_moves(const rvl_transition *pause)
{
    const rvli_ipc_shared *each = rvli_ipc_exports;
    while (each != NULL && (each->gone || fate_of(pause, each) == 0))
        each = each->next;
    return each != NULL;
}

static bool moves(const rvli_ipc_importer *who)
{
    return who->of != NULL && who->of->moving;
}

/* ---- Its importers ---- */

static const rvli_ipc_importer *find_silent(void)
{
    const rvli_ipc_importer *each = rvli_ipc_importers;
    while (each != NULL && !(moves(each) && each->awaited != 0))
        each = each->next;
    return each;
}

static void tell(rvli_ipc_importer *who, rvli_ipc_kind kind)
{
    const rvli_ipc_message message = rvli_ipc_message_of(kind);
    /* After a missed reply, 0: do not wait again. */
    who->awaited = who->awaited == 0 ? (uint32_t)kind : 0;
    (void)rvli_ipc_send(who->socket, &message, NULL, 0);
}

static void wait_for_answers(uint64_t limit_ns)
{
    uint64_t begin_ns = rvli_monotonic_ns(), end_ns = begin_ns + limit_ns;
    const struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000),
                                 .tv_nsec = (long)(end_ns % 1000000000)};
    while (find_silent() != NULL &&
           pthread_cond_timedwait(&rvli_ipc_changed, &rvli_ipc_lock, &end) == 0) {
    }
    uint64_t waited_ns = rvli_monotonic_ns() - begin_ns;
    left_ns -= waited_ns < left_ns ? waited_ns : left_ns;
}

/*
 * Sends `kind` to all importers of memory that moves, or DROP for memory that is taken. Waits for
 * replies.
 */
static void tell_all(rvli_ipc_kind kind, uint64_t limit_ns)
{
    for (rvli_ipc_importer *each = rvli_ipc_importers; each != NULL; each = each->next)
        if (moves(each))
            tell(each, each->of->taken ? RVLI_IPC_DROP : kind);
    wait_for_answers(limit_ns);
}

static bool has_not_let_go(const rvli_ipc_importer *who)
{
    return moves(who) && (who->awaited != 0 || who->answer != RVL_OK);
}

/*
 * Adds the holders to text: "process 4711 (python) holds 4.0 MiB that it imported (2 imports hold
 * 6.0 MiB)". Stores the bytes of all. Returns the first holder, or NULL.
 */
static const rvli_ipc_importer *name_holders(rvli_text *text, uint64_t *bytes_out)
{
    const rvli_ipc_importer *first = NULL;
    unsigned count = 0;
    *bytes_out = 0;
    for (const rvli_ipc_importer *each = rvli_ipc_importers; each != NULL; each = each->next) {
        if (!has_not_let_go(each))
            continue;
        first = first != NULL ? first : each;
        *bytes_out += each->of->size_bytes;
        count++;
    }
    if (first == NULL)
        return NULL;
    rvli_text_add(text, "process ");
    rvli_text_add_u64(text, (uint64_t)first->process);
    rvli_text_add(text, " (");
    rvli_text_add(text, first->program);
    rvli_text_add(text, ") holds ");
    rvli_text_add_bytes(text, first->of->size_bytes);
    rvli_text_add(text, " that it imported");
    if (count > 1) {
        rvli_text_add(text, " (");
        rvli_text_add_u64(text, count);
        rvli_text_add(text, " imports hold ");
        rvli_text_add_bytes(text, *bytes_out);
        rvli_text_add(text, ")");
    }
    return first;
}

static rvl_status verdict(uint64_t limit_ns)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    uint64_t bytes;
    rvli_text text = rvli_text_begin(message, sizeof message);
    const rvli_ipc_importer *first = name_holders(&text, &bytes);
    if (first == NULL)
        return RVL_OK;
    rvl_status status = first->awaited != 0 ? RVL_ERR_TIMEOUT : RVL_ERR_BUSY;
    if (status == RVL_ERR_TIMEOUT) {
        rvli_text_add(&text, " and does not let go within ");
        rvli_text_add_u64(&text, limit_ns / 1000000);
        rvli_text_add(&text, " ms: free it there, or end it");
    } else {
        rvli_text_add(&text, " and cannot let go: ");
        rvli_text_add(&text, first->text[0] != '\0' ? first->text : "it does not say why");
    }
    rvli_error(status, message);
    rvli_error_op("suspend");
    rvli_error_bytes(RVL_NO_DEVICE, bytes, 0);
    return status;
}

/* ---- A pause ---- */

/* The importers can read nothing stale, but the memory that they hold is not free yet. */
static void warn_of_holders(void)
{
    char message[RVLI_MESSAGE_BYTES];
    uint64_t bytes;
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "memory was paused, but is not free yet: ");
    if (name_holders(&text, &bytes) != NULL)
        rvli_say(message);
}

/* With the lock held. Everything that moves belongs to this round. */
static void end_round(const rvl_transition *pause, bool paused)
{
    for (rvli_ipc_shared *each = rvli_ipc_exports; each != NULL; each = each->next) {
        uint32_t fate = each->moving ? fate_of(pause, each) : 0;
        each->taken = paused ? fate != 0 : (fate & RVL_TRANSITION_RENEWED) != 0;
    }
    tell_all(RVLI_IPC_RESTORE, afterwards_ns());
    if (paused)
        warn_of_holders();
    for (rvli_ipc_shared *each = rvli_ipc_exports, *next; each != NULL; each = next) {
        next = each->next;
        each->gone = each->gone || each->taken;
        each->moving = each->taken = false;
        rvli_ipc_drop_if_unused(each);
    }
}

rvl_status rvli_ipc_suspend(const rvl_transition *pause)
{
    pthread_mutex_lock(&rvli_ipc_lock);
    bool any = any_moves(pause);
    pthread_mutex_unlock(&rvli_ipc_lock);
    if (!any)
        return RVL_OK;
    pthread_mutex_lock(&rounds);
    pthread_mutex_lock(&rvli_ipc_lock);
    for (rvli_ipc_shared *each = rvli_ipc_exports; each != NULL; each = each->next)
        each->moving = !each->gone && fate_of(pause, each) != 0;
    for (rvli_ipc_importer *each = rvli_ipc_importers; each != NULL; each = each->next)
        each->awaited = 0;
    uint64_t limit_ns = at_first_ns();
    tell_all(RVLI_IPC_SUSPEND, limit_ns);
    rvl_status status = verdict(limit_ns);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        end_round(pause, false);
        rvli_error_set(&cause);
    }
    pthread_mutex_unlock(&rvli_ipc_lock);
    if (status != RVL_OK)
        pthread_mutex_unlock(&rounds);
    return status;
}

void rvli_ipc_settle(const rvl_transition *pause, bool paused)
{
    bool any = false;
    pthread_mutex_lock(&rvli_ipc_lock);
    for (const rvli_ipc_shared *each = rvli_ipc_exports; each != NULL && !any; each = each->next)
        any = each->moving && fate_of(pause, each) != 0;
    if (any)
        end_round(pause, paused);
    pthread_mutex_unlock(&rvli_ipc_lock);
    if (any)
        pthread_mutex_unlock(&rounds);
}
