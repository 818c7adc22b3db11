/* SPDX-License-Identifier: MIT */
/*
 * What libreveille offers beside the hook libraries, on the fake driver. No hook library is here,
 * so no region has memory; a context of the library works as any other. The driver is real to the
 * library: the listener of the process hears of it, and memory can be shared.
 */
#include "reveille/hooks.h"

#include <unistd.h>

#include "actions.h"
#include "listening.h"
#include "random.h"
#include "reveille/cuda.h"

/* ---- The driver, and a context of its own ---- */

static void find_entries(caller *by)
{
    void *entry = NULL;
    ANSWER(by, MAY_OK, rvl_cuda_get_entry, "cuCtxGetDevice", 12000, &entry);
    EXPECT(by, entry != NULL, true);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_cuda_get_entry, "cuNoSuchEntry", 12000, &entry);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_cuda_get_entry, NULL, 12000, &entry);
}

static void open_and_close(caller *by)
{
    rvl_context *context = NULL;
    const int first = 0;
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = &first, .device_count = 1};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &cuda};
    ANSWER(by, MAY_OK, rvl_context_open, "cuda", &options, &context);
    ANSWER(by, MAY_OK, rvl_context_close, context, NULL);
    listen_compare(by, &(heard){.opening = 1, .opened = 1, .closed = 1});
}

/* ---- Memory, shared and moved ---- */

static rvl_state state_of(caller *by, rvl_context *context, rvl_addr addr)
{
    rvl_allocation found = {.struct_size = sizeof found};
    ANSWER(by, MAY_OK, rvl_allocation_find, context, addr, &found);
    return found.state;
}

/* Another address of the same memory, as another process would have it. */
static rvl_addr import_from(caller *by, rvl_context *context, rvl_addr addr)
{
    rvl_export done = {.struct_size = sizeof done};
    rvl_import *import = NULL;
    rvl_addr other = 0;
    uint64_t bytes = 0;
    int fd = -1;
    ANSWER(by, MAY_OK, rvl_allocation_export, context, addr, NULL, &fd, &bytes, 1, &done);
    EXPECT(by, done.file_count, 1);
    EXPECT(by, done.block_count, 1);
    EXPECT(by, done.size_bytes, bytes);
    ANSWER(by, MAY_OK, rvl_import_begin, context, bytes, NULL, &import);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_import_finish, import, &other);
    ANSWER(by, MAY_OK, rvl_import_add, import, &fd, &bytes, 1);
    close(fd);
    if (random_one_in(&by->random, 4)) {
        CALL(by, rvl_import_cancel, import);
        return 0;
    }
    ANSWER(by, MAY_OK, rvl_import_finish, import, &other);
    return other;
}

static void move_import(caller *by, rvl_context *context, rvl_addr addr)
{
    EXPECT(by, state_of(by, context, addr), RVL_STATE_ACTIVE);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_import_release, context, addr);
    ANSWER(by, MAY_OK, rvl_import_pause, context, addr);
    EXPECT(by, state_of(by, context, addr), RVL_STATE_PAUSED);
    ANSWER(by, MAY_OK, rvl_import_resume, context, addr);
    EXPECT(by, state_of(by, context, addr), RVL_STATE_ACTIVE);
    if (random_one_in(&by->random, 2)) {
        ANSWER(by, MAY_OK, rvl_import_pause, context, addr);
        ANSWER(by, MAY_OK, rvl_import_release, context, addr);
        EXPECT(by, state_of(by, context, addr), RVL_STATE_LOST);
        ANSWER(by, MAY(RVL_ERR_STATE), rvl_import_resume, context, addr);
    }
}

/* Pausing one leaves it; the listener does not hear of it. */
static void share(caller *by, rvl_context *context, rvl_addr addr)
{
    rvl_addr other = import_from(by, context, addr);
    if (other == 0)
        return;
    rvl_allocation found = {.struct_size = sizeof found};
    ANSWER(by, MAY_OK, rvl_allocation_find, context, other, &found);
    EXPECT(by, found.flags, RVL_ALLOC_IMPORTED);
    move_import(by, context, other);
    ANSWER(by, MAY_OK, rvl_free, context, other);
}

static void move(caller *by, rvl_context *context, const char *name, rvl_addr addr)
{
    rvl_tag tag = 0;
    ANSWER(by, MAY_OK, rvl_tag_find, context, 0, name, &tag);
    EXPECT(by, CALL(by, rvl_address_is_paused, addr), false);
    ANSWER(by, MAY_OK, rvl_pause, context, &tag, 1, NULL);
    EXPECT(by, state_of(by, context, addr), RVL_STATE_PAUSED);
    EXPECT(by, CALL(by, rvl_address_is_paused, addr), true);
    ANSWER(by, MAY_OK, rvl_resume, context, &tag, 1, NULL);
    EXPECT(by, CALL(by, rvl_address_is_paused, addr), false);
}

static void use(owner *o, rvl_context *context)
{
    caller *by = &o->by;
    rvl_addr addr = 0;
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag = o->process_name,
                                 .backup = RVL_BACKUP_HOST,
                                 .flags = RVL_ALLOC_EXPORTABLE};
    rvl_allocation found = {.struct_size = sizeof found};
    ANSWER(by, MAY_OK, rvl_alloc, context, 1, &options, &addr);
    ANSWER(by, MAY_OK, rvl_allocation_find, context, addr, &found);
    listen_compare(
        by, &(heard){.allocated = 1, .allocated_addr = addr, .size_bytes = found.size_bytes});
    share(by, context, addr);
    listen_begin(by);
    move(by, context, o->process_name, addr);
    ANSWER(by, MAY_OK, rvl_stage, context, "heard");
    ANSWER(by, MAY_OK, rvl_step, context);
    ANSWER(by, MAY_OK, rvl_free, context, addr);
    listen_compare(
        by,
        &(heard){.before = 2, .after = 2, .stage = 1, .step = 1, .freeing = 1, .freed_addr = addr});
}

/*
 * A child that was forked while an exported file was open has a copy of it. The fake driver keeps
 * its own end, and the file of the memory, until it next looks whether the child's is closed; that
 * is when somebody asks for memory, or how much there is.
 */
void hooks_settle(void)
{
    rvl_context *context = NULL;
    uint64_t free_bytes = 0, total_bytes = 0;
    if (stress_is_child)
        return; /* it does not use the driver */
    if (rvl_hooks_get_context(0, &context) != RVL_OK ||
        rvl_device_get_memory(context, 0, &free_bytes, &total_bytes) != RVL_OK)
        calls_give_up("the fake driver");
}

/* ---- The action ---- */

static void mark(caller *by)
{
    ANSWER_NONE(by, MAY_OK, rvl_hooks_check_settings);
    EXPECT(by, CALL_NONE(by, rvl_hooks_mode) == NULL, true);
    ANSWER(by, MAY_OK, rvl_hooks_stage, "rollout");
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_hooks_stage, "");
    ANSWER_NONE(by, MAY_OK, rvl_hooks_step);
    ANSWER(by, MAY_OK, rvl_hooks_begin, 1, "forward");
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_hooks_begin, 2, "");
    ANSWER(by, MAY_OK, rvl_hooks_end, 1);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_hooks_get_nccl_bytes, 0, &(uint64_t){0});
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_hooks_pause, "never");
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_hooks_resume, "never");
}

void action_hooks(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = NULL, *same = NULL;
    int device = -1;
    if (stress_is_child)
        return;
    mark(by);
    action_communicators(by);
    ANSWER(by, MAY_OK, rvl_hooks_get_context, 0, &context);
    ANSWER(by, MAY_OK, rvl_hooks_get_context_at, 0, &device, &same);
    EXPECT(by, device, 0);
    EXPECT(by, same == context, true);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_hooks_get_context_at, 1000, &device, &same);
    find_entries(by);
    listen_begin(by);
    open_and_close(by);
    use(o, context);
}
