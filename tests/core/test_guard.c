/* SPDX-License-Identifier: MIT */
/*
 * What the owner of a context asks of it beside memory: a guard before and after every transition,
 * waiting for a device, one setting of a tag; and the listener of the process.
 */
#include <string.h>

#include "reveille/listen.h"
#include "tests/support/support.h"

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

/* ---- A guard that notes what it sees ---- */

typedef struct watch {
    rvl_context *context;
    rvl_status answer;
    int before, after, done;
    rvl_transition_kind kind;
    rvl_tag tags[4];
    uint64_t watched_id;
    uint32_t at_first, at_end;
    rvl_state state;
    uint64_t watched_addr;
    rvl_status tried;
} watch;

static rvl_status ask(void *user, const rvl_transition *transition)
{
    watch *w = user;
    w->before++;
    assert_ptr_equal(rvl_transition_get_context(transition), w->context);
    w->kind = rvl_transition_get_kind(transition);
    for (size_t i = 0; i < 4; i++)
        w->tags[i] = rvl_transition_get_tag(transition, i);
    w->at_first = rvl_transition_find(transition, w->watched_id);
    w->state = support_state(w->context, w->watched_addr);
    w->tried = rvl_free(w->context, w->watched_addr);
    return w->answer;
}

static void hear_end(void *user, const rvl_transition *transition, bool done)
{
    watch *w = user;
    w->after++;
    w->done += done;
    w->at_end = rvl_transition_find(transition, w->watched_id);
    (void)rvl_device_get_info(w->context, 7, NULL); /* leaves an error that nobody is to see */
}

static watch begin(support_options options, fault_injector **fault_out)
{
    watch w = {.context = support_open(options, fault_out)};
    w.watched_addr = support_alloc(w.context, "weights", 0, 2 * GRANULE, RVL_BACKUP_HOST);
    support_alloc(w.context, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    support_fill(w.watched_addr, 2 * GRANULE, 5);
    rvl_allocation facts = {.struct_size = sizeof facts};
    assert_int_equal(rvl_allocation_find(w.context, w.watched_addr, &facts), RVL_OK);
    w.watched_id = facts.id;
    return w;
}

static void guard(watch *w)
{
    const rvl_guard g = {.struct_size = sizeof g, .before = ask, .after = hear_end, .user = w};
    assert_int_equal(rvl_context_set_guard(w->context, &g), RVL_OK);
}

static void end(watch *w)
{
    assert_true(support_holds(w->watched_addr, 2 * GRANULE, 5));
    assert_int_equal(rvl_context_close(w->context, NULL), RVL_OK);
}

static void guards_see_every_transition(void **state)
{
    (void)state;
    watch w = begin((support_options){0}, NULL);
    rvl_tag weights = support_tag(w.context, "weights"), cache = support_tag(w.context, "cache");
    guard(&w);
    assert_int_equal(rvl_pause(w.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(w.before, 1);
    assert_int_equal(w.after, 1);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.kind, RVL_TRANSITION_PAUSE);
    assert_int_equal(w.tags[0], weights);
    assert_int_equal(w.tags[1], 0);
    assert_int_equal(w.at_first, RVL_TRANSITION_MOVES);
    assert_int_equal(w.at_end, RVL_TRANSITION_MOVES);
    assert_int_equal(w.state, RVL_STATE_PAUSING);
    assert_int_equal(w.tried, RVL_ERR_STATE); /* as in a tag's callback */

    assert_int_equal(rvl_pause(w.context, &weights, 1, NULL), RVL_OK); /* nothing moves */
    assert_int_equal(w.before, 1);
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(w.tags[0], cache);
    assert_int_equal(w.at_first, 0);
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(w.kind, RVL_TRANSITION_RESUME);
    assert_int_equal(w.tags[0], weights < cache ? weights : cache);
    assert_int_equal(w.tags[1], weights < cache ? cache : weights);
    assert_int_equal(w.tags[2], 0);
    assert_int_equal(w.state, RVL_STATE_RESUMING);
    assert_int_equal(w.before, 3);
    assert_int_equal(w.done, 3);

    assert_int_equal(rvl_context_set_guard(w.context, NULL), RVL_OK);
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(w.before, 3);
    assert_int_equal(w.after, 3);
    end(&w);
}

/* What it answers is what the caller gets, with a record also where it has written none. */
static void guards_may_refuse(void **state)
{
    (void)state;
    watch w = begin((support_options){0}, NULL);
    guard(&w);
    w.answer = RVL_ERR_TIMEOUT;
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_ERR_TIMEOUT);
    assert_int_equal(last_error().status, RVL_ERR_TIMEOUT);
    assert_string_equal(last_error().message, "the context's guard refused");
    assert_int_equal(w.before, 1);
    assert_int_equal(w.after, 0);
    assert_int_equal(support_state(w.context, w.watched_addr), RVL_STATE_ACTIVE);
    assert_int_equal(support_stats(w.context, 0).pauses, 0);
    assert_int_equal(support_stats(w.context, 0).used_bytes, 3 * GRANULE);

    w.answer = RVL_OK;
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    w.answer = RVL_ERR_STATE; /* which its own try to free has left in the record */
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_ERR_STATE);
    assert_string_equal(last_error().message, "a callback may only read statistics");
    assert_int_equal(support_state(w.context, w.watched_addr), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(w.context, 0).resumes, 0);
    assert_int_equal(w.after, 1);
    w.answer = RVL_OK;
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);
    end(&w);
}

/* A failure is what the caller hears of, not what the guard did when it was told. */
static void guards_hear_of_failures(void **state)
{
    (void)state;
    fault_injector *fault;
    watch w = begin((support_options){0}, &fault);
    guard(&w);
    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_unmap, .countdown = 1});
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_ERR_IO);
    assert_string_equal(last_error().op, "unmap");
    assert_int_equal(last_error().device, 0);
    assert_int_equal(w.before, 1);
    assert_int_equal(w.after, 1);
    assert_int_equal(w.done, 0);
    assert_int_equal(w.at_end, RVL_TRANSITION_MOVES);

    /* The first allocation's block is gone when the second's is refused, and is made again. */
    fault_set(
        fault,
        &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_release, .countdown = 2, .for_good = true});
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_ERR_IO);
    fault_set(fault, &(fault_plan){0});
    assert_int_equal(w.at_first, RVL_TRANSITION_MOVES);
    assert_int_equal(w.at_end, RVL_TRANSITION_MOVES | RVL_TRANSITION_RENEWED);
    assert_int_equal(w.done, 0);

    fault_set(fault, &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_map, .countdown = 1});
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_ERR_IO);
    assert_int_equal(w.kind, RVL_TRANSITION_RESUME);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.after, 4);
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);
    end(&w);
}

static void bad_guards_are_refused(void **state)
{
    (void)state;
    watch w = begin((support_options){0}, NULL);
    guard(&w);
    const rvl_guard none = {0};
    const struct {
        rvl_guard known;
        uint64_t later;
    } newer = {.known = {.struct_size = sizeof newer}, .later = 1};
    assert_int_equal(rvl_context_set_guard(NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_context_set_guard(w.context, &none), RVL_ERR_INVALID);
    assert_int_equal(rvl_context_set_guard(w.context, &newer.known), RVL_ERR_VERSION);
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(w.before, 1); /* the one before is still there */
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);

    const rvl_guard silent = {.struct_size = sizeof silent};
    assert_int_equal(rvl_context_set_guard(w.context, &silent), RVL_OK);
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(w.before, 2);
    end(&w);
}

/* ---- Waiting for a device ---- */

static void devices_are_waited_for(void **state)
{
    (void)state;
    fault_injector *fault;
    rvl_context *context = support_open((support_options){.devices = 2}, &fault);
    const fault_plan plan = {.op_mask = UINT64_C(1) << RVLI_OP_synchronize, .countdown = 2};
    fault_set(fault, &plan);
    assert_int_equal(rvl_device_synchronize(context, 0), RVL_OK);
    assert_int_equal(fault_calls(fault, RVLI_OP_synchronize), 1);
    assert_int_equal(rvl_device_synchronize(context, 1), RVL_ERR_IO);
    assert_string_equal(last_error().op, "synchronize");
    assert_int_equal(last_error().device, 1);
    assert_int_equal(rvl_device_synchronize(context, 1), RVL_OK);
    assert_int_equal(rvl_device_synchronize(context, 2), RVL_ERR_NO_DEVICE);
    assert_int_equal(rvl_device_synchronize(context, -1), RVL_ERR_NO_DEVICE);
    assert_int_equal(rvl_device_synchronize(NULL, 0), RVL_ERR_INVALID);
    assert_int_equal(fault_calls(fault, RVLI_OP_synchronize), 3);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- One setting of a tag ---- */

static rvl_status veto(void *user, rvl_tag tag)
{
    (void)tag;
    ++*(int *)user;
    return RVL_ERR_BUSY;
}

static void backups_are_retained_by_one_setting(void **state)
{
    (void)state;
    watch w = begin((support_options){0}, NULL);
    rvl_tag weights = support_tag(w.context, "weights");
    assert_int_equal(rvl_tag_set_retain_backups(w.context, weights, true), RVL_OK);
    assert_int_equal(rvl_pause(w.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(w.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(support_stats(w.context, 0).host_backup_bytes, 2 * GRANULE);
    assert_int_equal(rvl_tag_set_retain_backups(w.context, weights, false), RVL_OK);
    assert_int_equal(rvl_pause(w.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(w.context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(support_stats(w.context, 0).host_backup_bytes, 0);
    end(&w);
}

static void the_other_settings_stay(void **state)
{
    (void)state;
    watch w = begin((support_options){0}, NULL);
    int calls = 0;
    rvl_tag weights;
    const rvl_tag_options options = {
        .struct_size = sizeof options, .before_unmap = veto, .callback_user = &calls};
    assert_int_equal(rvl_tag_define(w.context, "weights", &options, &weights), RVL_OK);
    assert_int_equal(rvl_tag_set_retain_backups(w.context, weights, true), RVL_OK);
    assert_int_equal(rvl_pause(w.context, &weights, 1, NULL), RVL_ERR_VETOED);
    assert_int_equal(calls, 1);
    assert_int_equal(rvl_tag_set_retain_backups(w.context, 0, true), RVL_ERR_INVALID);
    assert_int_equal(rvl_tag_set_retain_backups(w.context, 99, true), RVL_ERR_INVALID);
    assert_int_equal(rvl_tag_set_retain_backups(NULL, weights, true), RVL_ERR_INVALID);
    end(&w);
}

/* ---- The listener: what it hears is tested where devices are real ---- */

static int heard;

static void hear_use(uint64_t *bytes)
{
    (void)bytes;
    heard++;
}
static void hear_opened(uint64_t ordinals, const uint64_t *bytes)
{
    (void)ordinals, (void)bytes;
    heard++;
}
static void hear_closed(uint64_t ordinals)
{
    (void)ordinals;
    heard++;
}
static void hear_allocated(const rvl_listened *what)
{
    (void)what;
    heard++;
}
static void hear_freeing(const rvl_context *c, rvl_addr addr)
{
    (void)c, (void)addr;
    heard++;
}
static void hear_transition(const rvl_transition *t)
{
    (void)t;
    heard++;
}
static void hear_stage(const rvl_context *c, const char *name)
{
    (void)c, (void)name;
    heard++;
}
static void hear_step(const rvl_context *c)
{
    (void)c;
    heard++;
}

static void a_process_has_one_listener(void **state)
{
    (void)state;
    const rvl_listener first = {.struct_size = sizeof first,
                                .opening = hear_use,
                                .opened = hear_opened,
                                .closed = hear_closed,
                                .allocated = hear_allocated,
                                .freeing = hear_freeing,
                                .before = hear_transition,
                                .after = hear_transition,
                                .stage = hear_stage,
                                .step = hear_step};
    const rvl_listener second = first;
    rvl_listener broken = first;
    broken.freeing = NULL;
    assert_int_equal(rvl_listener_set(&broken), RVL_ERR_INVALID);
    broken = first;
    broken.struct_size = offsetof(rvl_listener, step); /* the last that must be is not there */
    assert_int_equal(rvl_listener_set(&broken), RVL_ERR_INVALID);
    broken.struct_size = offsetof(rvl_listener, refused); /* as before there were refusals */
    assert_int_equal(rvl_listener_set(&broken), RVL_OK);
    assert_int_equal(rvl_listener_set(NULL), RVL_OK);
    struct {
        rvl_listener known;
        uint64_t later;
    } newer = {.known = first, .later = 1};
    newer.known.struct_size = sizeof newer;
    assert_int_equal(rvl_listener_set(&newer.known), RVL_ERR_VERSION);
    newer.later = 0;
    assert_int_equal(rvl_listener_set(&newer.known), RVL_OK);
    assert_int_equal(rvl_listener_set(NULL), RVL_OK);
    assert_int_equal(rvl_listener_set(&first), RVL_OK);
    assert_int_equal(rvl_listener_set(&first), RVL_OK);
    assert_int_equal(rvl_listener_set(&second), RVL_ERR_STATE);

    watch w = begin((support_options){0}, NULL); /* simulated devices are not heard of */
    assert_int_equal(rvl_pause(w.context, NULL, 0, NULL), RVL_OK);
    assert_false(rvl_address_is_paused(w.watched_addr));
    assert_int_equal(rvl_resume(w.context, NULL, 0, NULL), RVL_OK);
    end(&w);
    assert_int_equal(heard, 0);
    assert_int_equal(rvl_listener_set(NULL), RVL_OK);
    assert_int_equal(rvl_listener_set(&second), RVL_OK);
    assert_int_equal(rvl_listener_set(NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guards_see_every_transition),
        cmocka_unit_test(guards_may_refuse),
        cmocka_unit_test(guards_hear_of_failures),
        cmocka_unit_test(bad_guards_are_refused),
        cmocka_unit_test(devices_are_waited_for),
        cmocka_unit_test(backups_are_retained_by_one_setting),
        cmocka_unit_test(the_other_settings_stay),
        cmocka_unit_test(a_process_has_one_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
