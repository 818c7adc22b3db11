/* SPDX-License-Identifier: MIT */
/*
 * Content after thousands of random steps: tags of every kind of backup are allocated, written,
 * paused, resumed and freed in any order, and every byte that must have survived is compared.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { SLOTS = 32, TAGS = 4 };

/* What tells the tags apart. Sizes are granules of 2 MiB: the coalesced ones fit their blocks. */
static const struct {
    const char *name;
    rvl_backup backup;
    uint64_t most_granules;
    rvl_tag_options options;
} kinds[TAGS] = {
    {"plain", RVL_BACKUP_HOST, 6, {0}},
    {"coalesced", RVL_BACKUP_HOST, 3, {.coalesce_bytes = 16 * MIB}},
    {"retained", RVL_BACKUP_HOST, 6, {.flags = RVL_TAG_RETAIN_BACKUPS}},
    {"disk", RVL_BACKUP_DISK, 6, {.flags = RVL_TAG_RETAIN_BACKUPS}},
};

typedef struct slot {
    rvl_addr addr; /* 0: none */
    uint64_t size;
    uint64_t seed;
    int tag;
    bool backed_up;
    bool known; /* its content is what the seed says */
} slot;

typedef struct walk {
    rvl_context *context;
    uint64_t random;
    slot slots[SLOTS];
    rvl_tag tags[TAGS];
    uint64_t checks;
} walk;

static uint64_t roll(walk *w, uint64_t sides)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % sides;
}

static bool is_active(const walk *w, const slot *s)
{
    return s->addr != 0 && support_state(w->context, s->addr) == RVL_STATE_ACTIVE;
}

static void write_content(walk *w, slot *s)
{
    s->seed = roll(w, 1u << 30);
    gpu_fill(w->context, 0, s->addr, s->size, s->seed);
    s->known = true;
}

static void allocate(walk *w, slot *s)
{
    int tag = (int)roll(w, TAGS);
    *s = (slot){.size = (1 + roll(w, kinds[tag].most_granules)) * 2 * MIB, .tag = tag};
    s->backed_up = roll(w, 3) != 0;
    s->addr = support_alloc(w->context, kinds[tag].name, 0, s->size,
                            s->backed_up ? kinds[tag].backup : RVL_BACKUP_NONE);
    write_content(w, s);
}

static void check(walk *w, const slot *s)
{
    if (!s->known || !is_active(w, s))
        return;
    assert_true(gpu_holds(w->context, 0, s->addr, s->size, s->seed));
    w->checks++;
}

static void pause_tag(walk *w, int tag)
{
    rvl_pause_options options = {.struct_size = sizeof options,
                                 .flags = (roll(w, 8) == 0) ? RVL_PAUSE_DISCARD : 0};
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &w->slots[i];
        if (s->tag == tag && is_active(w, s) &&
            ((options.flags & RVL_PAUSE_DISCARD) || !s->backed_up))
            s->known = false;
    }
    assert_int_equal(rvl_pause(w->context, &w->tags[tag], 1, &options), RVL_OK);
}

/* In a random order; what has arrived is compared while the rest is on its way. */
static rvl_status resume_in_order(walk *w, int tag)
{
    rvl_addr order[SLOTS];
    const slot *slots[SLOTS];
    size_t count = 0;
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].tag == tag && w->slots[i].addr != 0) {
            size_t place = roll(w, count + 1);
            slots[count] = slots[place];
            slots[place] = &w->slots[i];
            count++;
        }
    for (size_t i = 0; i < count; i++)
        order[i] = slots[i]->addr;
    const rvl_resume_options options = {
        .struct_size = sizeof options, .order = order, .order_count = count};
    rvl_resuming *wake = NULL;
    rvl_status status = rvl_resume_start(w->context, &w->tags[tag], 1, &options, &wake);
    for (size_t i = 0; i < count && status == RVL_OK; i++) {
        status = rvl_allocation_wait(w->context, order[i], RVL_WAIT_FOREVER);
        if (status == RVL_OK)
            check(w, slots[i]);
    }
    rvl_status finished = wake != NULL ? rvl_resume_finish(wake) : status;
    return status != RVL_OK ? status : finished;
}

static void resume_tag(walk *w, int tag)
{
    rvl_status status =
        roll(w, 2) == 0 ? rvl_resume(w->context, &w->tags[tag], 1, NULL) : resume_in_order(w, tag);
    if (status != RVL_OK)
        fail_msg("%s: %s", rvl_status_name(status), rvli_error_get()->message);
}

static void free_slot(walk *w, slot *s)
{
    check(w, s);
    assert_int_equal(rvl_free(w->context, s->addr), RVL_OK);
    *s = (slot){0};
}

static void step(walk *w)
{
    slot *s = &w->slots[roll(w, SLOTS)];
    int tag = (int)roll(w, TAGS);
    uint64_t turn = roll(w, 10);
    if (turn < 2)
        pause_tag(w, tag);
    else if (turn < 5)
        resume_tag(w, tag);
    else if (s->addr == 0)
        allocate(w, s);
    else if (turn == 5)
        free_slot(w, s);
    else if (turn == 6 && is_active(w, s))
        write_content(w, s);
    else
        check(w, s);
}

static void random_steps(uint64_t keep_bytes, uint64_t steps)
{
    walk w = {.random = UINT64_C(0x243F6A8885A308D3)};
    rvl_context_options options = {.struct_size = sizeof options,
                                   .keep_bytes = keep_bytes,
                                   .disk_directory = ".",
                                   .flags = RVL_CONTEXT_DISK_TMPFS};
    rvl_status status = rvl_context_open("cuda", &options, &w.context);
    if (status != RVL_OK)
        fail_msg("%s", rvli_error_get()->message);
    for (int tag = 0; tag < TAGS; tag++) {
        rvl_tag_options of = kinds[tag].options;
        of.struct_size = sizeof of;
        assert_int_equal(rvl_tag_define(w.context, kinds[tag].name, &of, &w.tags[tag]), RVL_OK);
    }
    for (uint64_t i = 0; i < steps; i++)
        step(&w);
    for (int tag = 0; tag < TAGS; tag++)
        resume_tag(&w, tag);
    for (int i = 0; i < SLOTS; i++)
        if (w.slots[i].addr != 0)
            free_slot(&w, &w.slots[i]);
    assert_true(w.checks > steps / 20);
    rvl_device_stats stats = support_stats(w.context, 0);
    assert_int_equal(stats.used_bytes, stats.kept_bytes);
    assert_in_range(stats.kept_bytes, 0, keep_bytes);
    assert_int_equal(stats.host_backup_bytes, 0);
    assert_int_equal(stats.disk_backup_bytes, 0);
    assert_int_equal(rvl_context_close(w.context, NULL), RVL_OK);
}

static uint64_t steps_of(uint64_t on_a_card, uint64_t elsewhere)
{
    return gpu_is_fake() || gpu_is_simulated() ? elsewhere : on_a_card;
}

static void content_survives_random_steps(void **state)
{
    (void)state;
    random_steps(0, steps_of(6000, 300));
}

static void content_survives_hand_over(void **state)
{
    (void)state;
    random_steps(48 * MIB, steps_of(3000, 200));
}

/* ---- Blocks that change hands ---- */

static bool is_zero(rvl_context *context, rvl_addr addr, uint64_t size)
{
    char *zeros = calloc(1, size), *seen = malloc(size);
    uint64_t event = 0;
    assert_true(zeros != NULL && seen != NULL);
    memset(seen, 1, size);
    assert_int_equal(context->ops.copy_to_host(context->self, 0, seen, addr, size), RVL_OK);
    assert_int_equal(context->ops.record_event(context->self, 0, &event), RVL_OK);
    assert_int_equal(context->ops.wait_event(context->self, 0, event), RVL_OK);
    bool zero = memcmp(seen, zeros, size) == 0;
    free(zeros);
    free(seen);
    return zero;
}

/* Whatever came to a tag that was another's is zero there: by allocating, and by resuming. */
static void nothing_leaks_between_tags(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    rvl_context_options options = {.struct_size = sizeof options, .keep_bytes = 256 * MIB};
    assert_int_equal(rvl_context_open("cuda", &options, &context), RVL_OK);
    rvl_addr secret = support_alloc(context, "secret", 0, 64 * MIB, RVL_BACKUP_NONE);
    rvl_addr taker = support_alloc(context, "taker", 0, 64 * MIB, RVL_BACKUP_NONE);
    rvl_tag secret_tag = support_tag(context, "secret"), taker_tag = support_tag(context, "taker");
    assert_int_equal(rvl_pause(context, &taker_tag, 1, NULL), RVL_OK);
    gpu_fill(context, 0, secret, 64 * MIB, 1);
    assert_int_equal(rvl_pause(context, &secret_tag, 1, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).kept_bytes, 128 * MIB);
    assert_int_equal(rvl_resume(context, &taker_tag, 1, NULL), RVL_OK);
    assert_true(is_zero(context, taker, 64 * MIB));
    rvl_addr born = support_alloc(context, "born", 0, 64 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).kept_bytes, 0);
    assert_true(is_zero(context, born, 64 * MIB));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* What is kept for hand-over stands in nobody's way: it is given up before a call would fail. */
static void kept_blocks_are_given_up(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    rvl_context_options options = {.struct_size = sizeof options, .keep_bytes = 512 * MIB};
    assert_int_equal(rvl_context_open("cuda", &options, &context), RVL_OK);
    support_alloc(context, "kept", 0, 512 * MIB, RVL_BACKUP_NONE);
    rvl_tag kept = support_tag(context, "kept");
    assert_int_equal(rvl_pause(context, &kept, 1, NULL), RVL_OK);
    uint64_t free_bytes = gpu_free_bytes(context) / (2 * MIB) * (2 * MIB);
    assert_int_equal(support_stats(context, 0).kept_bytes, 512 * MIB);
    /* More than is free, and less than that with what is kept. */
    rvl_addr addr = support_alloc(context, "large", 0, free_bytes + 256 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).kept_bytes, 0);
    assert_int_equal(rvl_resume(context, &kept, 1, NULL), RVL_ERR_DEVICE_OOM);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rvl_resume(context, &kept, 1, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_survives_random_steps),
        cmocka_unit_test(content_survives_hand_over),
        cmocka_unit_test(nothing_leaks_between_tags),
        cmocka_unit_test(kept_blocks_are_given_up),
    };
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
