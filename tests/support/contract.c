/* SPDX-License-Identifier: MIT */
#include "contract.h"

#include <stdlib.h>
#include <string.h>

#include "support.h"

static const rvli_backend_ops *suite_ops;
static const void *suite_options;

/* An open instance and the facts of its device 0. */
typedef struct instance {
    rvli_backend_ops ops;
    rvli_clock clock;
    void *self;
    int device_count;
    rvli_device_facts facts;
    uint64_t granule;
    bool strict; /* the simulator tells every misuse; a driver may trust its caller */
} instance;

static int open_instance(void **state)
{
    instance *i = calloc(1, sizeof *i);
    assert_int_equal(rvli_backend_ops_copy(&i->ops, suite_ops), RVL_OK);
    assert_int_equal(i->ops.open(suite_options, &i->clock, &i->self, &i->device_count), RVL_OK);
    assert_int_equal(i->ops.device_facts(i->self, 0, &i->facts), RVL_OK);
    i->granule = i->facts.granularity_bytes;
    i->strict = i->ops.simulated;
    *state = i;
    return 0;
}

static int close_instance(void **state)
{
    instance *i = *state;
    i->ops.close(i->self);
    free(i);
    return 0;
}

/* A call that must not succeed. Drivers differ in what they call it. */
#define refused(i, call)                                                                           \
    do {                                                                                           \
        rvl_status refusal = (call);                                                               \
        if ((i)->strict || refusal != RVL_ERR_NOT_SUPPORTED)                                       \
            assert_int_equal(refusal, RVL_ERR_INVALID);                                            \
    } while (0)

static uint64_t free_bytes(instance *i)
{
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(i->ops.memory_info(i->self, 0, &free_bytes, &total), RVL_OK);
    assert_int_equal(total, i->facts.capacity_bytes);
    return free_bytes;
}

static uint64_t reserve(instance *i, uint64_t size)
{
    uint64_t addr = 0;
    assert_int_equal(i->ops.reserve(i->self, 0, size, &addr), RVL_OK);
    assert_int_equal(addr % i->granule, 0);
    assert_true(addr != 0);
    return addr;
}

static rvli_handle create(instance *i, uint64_t size)
{
    rvli_handle block = 0;
    assert_int_equal(i->ops.create(i->self, 0, size, 0, &block), RVL_OK);
    assert_true(block != 0);
    return block;
}

static void facts_are_sane(void **state)
{
    instance *i = *state;
    assert_true(i->device_count >= 1);
    assert_true(i->facts.capacity_bytes > 0);
    assert_int_equal(i->granule & (i->granule - 1), 0);
    rvli_device_facts facts;
    assert_int_equal(i->ops.device_facts(i->self, i->device_count, &facts), RVL_ERR_NO_DEVICE);
    assert_int_equal(i->ops.device_facts(i->self, -1, &facts), RVL_ERR_NO_DEVICE);
    uint64_t out = 7;
    assert_int_equal(i->ops.reserve(i->self, -1, i->granule, &out), RVL_ERR_NO_DEVICE);
    assert_int_equal(out, 7);
}

static void memory_is_taken_and_given_back(void **state)
{
    instance *i = *state;
    uint64_t before = free_bytes(i);
    rvli_handle block = create(i, 3 * i->granule);
    assert_int_equal(free_bytes(i), before - 3 * i->granule);
    assert_int_equal(i->ops.release(i->self, 0, block, 3 * i->granule), RVL_OK);
    assert_int_equal(free_bytes(i), before);
    if (i->strict)
        assert_int_equal(i->ops.release(i->self, 0, block, 3 * i->granule), RVL_ERR_INVALID);
}

static void odd_sizes_are_refused(void **state)
{
    instance *i = *state;
    uint64_t addr = 7;
    rvli_handle block = 7;
    assert_int_equal(i->ops.reserve(i->self, 0, i->granule + 1, &addr), RVL_ERR_INVALID);
    assert_int_equal(i->ops.reserve(i->self, 0, 0, &addr), RVL_ERR_INVALID);
    assert_int_equal(i->ops.create(i->self, 0, i->granule - 1, 0, &block), RVL_ERR_INVALID);
    assert_int_equal(i->ops.create(i->self, 0, 0, 0, &block), RVL_ERR_INVALID);
    assert_int_equal(addr, 7);
    assert_int_equal(block, 7);
}

static void blocks_are_mapped_whole(void **state)
{
    instance *i = *state;
    uint64_t g = i->granule;
    uint64_t addr = reserve(i, 8 * g);
    rvli_handle two = create(i, 2 * g), three = create(i, 3 * g);
    rvli_backend_ops *ops = &i->ops;

    refused(i, ops->map(i->self, 0, addr, g, two));
    refused(i, ops->map(i->self, 0, addr + 1, 2 * g, two));
    if (i->strict) {
        refused(i, ops->map(i->self, 0, addr + 7 * g, 2 * g, two));
        refused(i, ops->map(i->self, 0, addr, 2 * g, 999999));
    }
    assert_int_equal(ops->map(i->self, 0, addr, 2 * g, two), RVL_OK);
    refused(i, ops->map(i->self, 0, addr + g, 3 * g, three));
    assert_int_equal(ops->map(i->self, 0, addr + 2 * g, 3 * g, three), RVL_OK);
    /* The same block at a second address. */
    assert_int_equal(ops->map(i->self, 0, addr + 6 * g, 2 * g, two), RVL_OK);

    refused(i, ops->set_access(i->self, 0, addr, g, 1));
    assert_int_equal(ops->set_access(i->self, 0, addr, 5 * g, UINT64_C(1) << 63), RVL_ERR_INVALID);
    assert_int_equal(ops->set_access(i->self, 0, addr, 5 * g, 1), RVL_OK);
    refused(i, ops->unmap(i->self, 0, addr, g));
    refused(i, ops->unmap(i->self, 0, addr + g, 2 * g));
    if (i->strict) { /* CUDA unmaps whole mappings and passes over holes */
        refused(i, ops->unmap(i->self, 0, addr, 6 * g));
        refused(i, ops->release(i->self, 0, two, 2 * g));
    }
    assert_int_equal(ops->unmap(i->self, 0, addr, 5 * g), RVL_OK);
    if (i->strict) {
        refused(i, ops->unmap(i->self, 0, addr, 5 * g));
        refused(i, ops->release_range(i->self, 0, addr, 8 * g));
    }
    assert_int_equal(ops->unmap(i->self, 0, addr + 6 * g, 2 * g), RVL_OK);
    refused(i, ops->release_range(i->self, 0, addr, 4 * g));
    refused(i, ops->release_range(i->self, 0, addr + g, 7 * g));
    assert_int_equal(ops->release_range(i->self, 0, addr, 8 * g), RVL_OK);
    refused(i, ops->release_range(i->self, 0, addr, 8 * g));
    assert_int_equal(ops->release(i->self, 0, two, 2 * g), RVL_OK);
    assert_int_equal(ops->release(i->self, 0, three, 3 * g), RVL_OK);
}

/* Copies in, moves the block to another address, copies out: the content is the block's. */
static void content_belongs_to_the_block(void **state)
{
    instance *i = *state;
    uint64_t g = i->granule;
    uint64_t first = reserve(i, g), second = reserve(i, g);
    rvli_handle block = create(i, g);
    void *host = NULL;
    uint64_t event = 0;
    assert_int_equal(i->ops.host_alloc(i->self, 0, g, &host), RVL_OK);
    if (i->strict)
        assert_int_equal(i->ops.copy_to_device(i->self, 0, first, host, g), RVL_ERR_INVALID);
    assert_int_equal(i->ops.map(i->self, 0, first, g, block), RVL_OK);
    if (i->strict)
        assert_int_equal(i->ops.copy_to_host(i->self, 0, host, first, g), RVL_ERR_INVALID);
    if (i->strict)
        assert_int_equal(i->ops.fill(i->self, 0, first, g, 0), RVL_ERR_INVALID);
    assert_int_equal(i->ops.set_access(i->self, 0, first, g, 1), RVL_OK);
    if (!i->facts.host_accounted)
        for (uint64_t at = 0; at < g; at++)
            ((unsigned char *)host)[at] = (unsigned char)(at * 7 >> 3);
    assert_int_equal(i->ops.copy_to_device(i->self, 0, first, host, g), RVL_OK);
    assert_int_equal(i->ops.record_event(i->self, 0, &event), RVL_OK);
    assert_int_equal(i->ops.wait_event(i->self, 0, event), RVL_OK);
    assert_int_equal(i->ops.unmap(i->self, 0, first, g), RVL_OK);
    assert_int_equal(i->ops.map(i->self, 0, second, g, block), RVL_OK);
    assert_int_equal(i->ops.set_access(i->self, 0, second, g, 1), RVL_OK);
    if (!i->facts.host_accounted)
        memset(host, 0, g);
    assert_int_equal(i->ops.copy_to_host(i->self, 0, host, second + 8, g - 8), RVL_OK);
    if (i->strict)
        assert_int_equal(i->ops.copy_to_host(i->self, 0, host, second + 8, g), RVL_ERR_INVALID);
    assert_int_equal(i->ops.synchronize(i->self, 0), RVL_OK);
    if (!i->facts.host_accounted)
        for (uint64_t at = 0; at < g - 8; at++)
            assert_int_equal(((unsigned char *)host)[at], (unsigned char)((at + 8) * 7 >> 3));
    assert_int_equal(i->ops.fill(i->self, 0, second, g, 0x5C), RVL_OK);
    assert_int_equal(i->ops.copy_to_host(i->self, 0, host, second, g), RVL_OK);
    assert_int_equal(i->ops.synchronize(i->self, 0), RVL_OK);
    if (!i->facts.host_accounted)
        assert_int_equal(((unsigned char *)host)[g - 1], 0x5C);
    assert_int_equal(i->ops.host_free(i->self, 0, host, g), RVL_OK);
    assert_int_equal(i->ops.unmap(i->self, 0, second, g), RVL_OK);
    assert_int_equal(i->ops.release(i->self, 0, block, g), RVL_OK);
    assert_int_equal(i->ops.release_range(i->self, 0, first, g), RVL_OK);
    assert_int_equal(i->ops.release_range(i->self, 0, second, g), RVL_OK);
}

/* Maps three granules and makes them differ. */
static uint64_t fill_three(instance *i, rvli_handle block, uint64_t *host)
{
    uint64_t g = i->granule, addr = reserve(i, 3 * g);
    assert_int_equal(i->ops.map(i->self, 0, addr, 3 * g, block), RVL_OK);
    assert_int_equal(i->ops.set_access(i->self, 0, addr, 3 * g, 1), RVL_OK);
    for (uint64_t at = 0; at < 3 * g / 8; at++)
        host[at] = (at + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ at << 40;
    assert_int_equal(i->ops.copy_to_device(i->self, 0, addr, host, 3 * g), RVL_OK);
    return addr;
}

static void check_digests(const rvli_digest *digests, const void *host, uint64_t granule,
                          uint64_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        rvli_digest expected = rvli_digest_of((const char *)host + k * granule, granule);
        assert_int_equal(digests[k].low, expected.low);
        assert_int_equal(digests[k].high, expected.high);
    }
}

static void check_secret_digests(const rvli_secret *secret, const rvli_digest *digests,
                                 const void *host, uint64_t granule, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        rvli_digest expected =
            rvli_secret_digest_of(secret, (const char *)host + k * granule, granule);
        assert_int_equal(digests[k].low, expected.low);
        assert_int_equal(digests[k].high, expected.high);
    }
}

static void check_without_digests(instance *i)
{
    rvli_digest digest = {7, 7};
    assert_int_equal(i->ops.digest(i->self, 0, i->granule, i->granule, false, NULL, &digest),
                     RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(digest.low, 7);
    assert_int_equal(digest.high, 7);
}

static void digests_are_those_of_the_content(void **state)
{
    instance *i = *state;
    uint64_t g = i->granule, event = 0;
    void *host = NULL;
    const rvli_secret secrets[2] = {rvli_secret_of("a secret of test"),
                                    rvli_secret_of("another of tests")};
    rvli_digest digests[3] = {{0}}, by_secret[2][3] = {{{0}}}, refused_one = {7, 7};
    if (!i->facts.digests) {
        check_without_digests(i);
        return;
    }
    rvli_handle block = create(i, 3 * g);
    assert_int_equal(i->ops.host_alloc(i->self, 0, 3 * g, &host), RVL_OK);
    uint64_t addr = fill_three(i, block, host);
    assert_int_equal(i->ops.digest(i->self, 0, addr, 3 * g, true, NULL, digests), RVL_OK);
    assert_int_equal(i->ops.record_event(i->self, 0, &event), RVL_OK);
    assert_int_equal(i->ops.wait_event(i->self, 0, event), RVL_OK);
    check_digests(digests, host, g, 3);

    /* Kinds and secrets side by side. */
    memset(digests, 0, sizeof digests);
    assert_int_equal(i->ops.digest(i->self, 0, addr, 3 * g, false, &secrets[0], by_secret[0]),
                     RVL_OK);
    assert_int_equal(i->ops.digest(i->self, 0, addr, 3 * g, false, NULL, digests), RVL_OK);
    assert_int_equal(i->ops.digest(i->self, 0, addr, 2 * g, false, &secrets[0], by_secret[1]),
                     RVL_OK);
    assert_int_equal(i->ops.digest(i->self, 0, addr, 2 * g, false, &secrets[1], by_secret[1]),
                     RVL_OK);
    assert_int_equal(i->ops.synchronize(i->self, 0), RVL_OK);
    check_digests(digests, host, g, 3);
    check_secret_digests(&secrets[0], by_secret[0], host, g, 3);
    check_secret_digests(&secrets[1], by_secret[1], host, g, 2);
    assert_int_equal(by_secret[1][2].low | by_secret[1][2].high, 0);

    /* Before they leave: of two granules, one of which has changed since. */
    assert_int_equal(i->ops.fill(i->self, 0, addr + g, g, 0x5C), RVL_OK);
    assert_int_equal(i->ops.synchronize(i->self, 0), RVL_OK);
    assert_int_equal(i->ops.digest(i->self, 0, addr + g, 2 * g, false, NULL, digests), RVL_OK);
    assert_int_equal(i->ops.copy_to_host(i->self, 0, host, addr + g, 2 * g), RVL_OK);
    assert_int_equal(i->ops.synchronize(i->self, 0), RVL_OK);
    assert_int_equal(*(const unsigned char *)host, 0x5C);
    check_digests(digests, host, g, 2);

    rvli_backend_ops *ops = &i->ops;
    assert_int_equal(ops->digest(i->self, 0, addr, g + 8, true, NULL, &refused_one),
                     RVL_ERR_INVALID);
    assert_int_equal(ops->digest(i->self, 0, addr, 0, true, NULL, &refused_one), RVL_ERR_INVALID);
    assert_int_equal(ops->digest(i->self, 0, addr + 8, g, true, NULL, &refused_one),
                     RVL_ERR_INVALID);
    assert_int_equal(ops->digest(i->self, -1, addr, g, true, NULL, &refused_one),
                     RVL_ERR_NO_DEVICE);
    assert_int_equal(ops->unmap(i->self, 0, addr, 3 * g), RVL_OK);
    if (i->strict)
        assert_int_equal(ops->digest(i->self, 0, addr, g, true, NULL, &refused_one),
                         RVL_ERR_INVALID);
    assert_int_equal(refused_one.low, 7);
    assert_int_equal(refused_one.high, 7);
    assert_int_equal(ops->host_free(i->self, 0, host, 3 * g), RVL_OK);
    assert_int_equal(ops->release(i->self, 0, block, 3 * g), RVL_OK);
    assert_int_equal(ops->release_range(i->self, 0, addr, 3 * g), RVL_OK);
}

static void out_of_memory_says_how_much(void **state)
{
    instance *i = *state;
    rvli_handle block = 7;
    uint64_t free_now = free_bytes(i);
    uint64_t size = (free_now / i->granule + 1) * i->granule;
    assert_int_equal(i->ops.create(i->self, 0, size, 0, &block), RVL_ERR_DEVICE_OOM);
    assert_int_equal(block, 7);
    assert_int_equal(free_bytes(i), free_now);
}

static void nothing_is_captured(void **state)
{
    instance *i = *state;
    bool capturing = true;
    assert_int_equal(i->ops.is_capturing(i->self, NULL, &capturing), RVL_OK);
    assert_false(capturing);
}

/* Closing gives back what is still there; leaks are the sanitizer's, or the fake driver's, to see.
 */
static void closing_takes_everything_back(void **state)
{
    instance *i = *state;
    void *host = NULL;
    if (!i->strict) { /* blocks and ranges are the core's to give back */
        assert_int_equal(i->ops.host_alloc(i->self, 0, 4096, &host), RVL_OK);
        return;
    }
    uint64_t addr = reserve(i, 2 * i->granule);
    rvli_handle block = create(i, i->granule);
    assert_int_equal(i->ops.map(i->self, 0, addr + i->granule, i->granule, block), RVL_OK);
    assert_int_equal(i->ops.host_alloc(i->self, 0, 4096, &host), RVL_OK);
}

int contract_run(const char *name, const rvli_backend_ops *ops, const void *options)
{
#define CONTRACT(test) cmocka_unit_test_setup_teardown(test, open_instance, close_instance)
    const struct CMUnitTest tests[] = {
        CONTRACT(facts_are_sane),
        CONTRACT(memory_is_taken_and_given_back),
        CONTRACT(odd_sizes_are_refused),
        CONTRACT(blocks_are_mapped_whole),
        CONTRACT(content_belongs_to_the_block),
        CONTRACT(digests_are_those_of_the_content),
        CONTRACT(out_of_memory_says_how_much),
        CONTRACT(nothing_is_captured),
        CONTRACT(closing_takes_everything_back),
    };
#undef CONTRACT
    suite_ops = ops;
    suite_options = options;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
