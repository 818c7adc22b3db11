/* SPDX-License-Identifier: MIT */
/* Digests on a GPU: their values, when they arrive, and what happens when they are refused. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "tests/support/short_memory.h"

#define LARGE_BYTES (64 * GRANULE)
#define UNTOUCHED UINT64_C(0x1234)

/* ---- Host memory that runs out ---- */

SHORT_CALLOC

/* ---- A context and its memory ---- */

static rvl_status queue(rvl_context *context, rvl_addr addr, uint64_t size, bool arriving,
                        rvli_digest *digests_out)
{
    return context->ops.digest(context->self, 0, addr, size, arriving, NULL, digests_out);
}

static rvl_status queue_secret(rvl_context *context, rvl_addr addr, uint64_t size,
                               const rvli_secret *secret, rvli_digest *digests_out)
{
    return context->ops.digest(context->self, 0, addr, size, false, secret, digests_out);
}

static uint64_t record(rvl_context *context)
{
    uint64_t event = 0;
    assert_int_equal(context->ops.record_event(context->self, 0, &event), RVL_OK);
    return event;
}

static void wait_for(rvl_context *context, uint64_t event)
{
    assert_int_equal(context->ops.wait_event(context->self, 0, event), RVL_OK);
}

/* An open context with LARGE_BYTES of content without a pattern; *host_out: the content. */
static rvl_context *begin(rvl_addr *addr_out, unsigned char **host_out)
{
    rvl_context *context = gpu_open(NULL, NULL);
    *addr_out = support_alloc(context, "weights", 0, LARGE_BYTES, RVL_BACKUP_NONE);
    *host_out = malloc(LARGE_BYTES);
    assert_non_null(*host_out);
    uint64_t *words = (uint64_t *)(void *)*host_out, x = 88172645463325252u;
    for (uint64_t i = 0; i < LARGE_BYTES / 8; i++) { /* xorshift */
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
    assert_int_equal(
        context->ops.copy_to_device(context->self, 0, *addr_out, *host_out, LARGE_BYTES), RVL_OK);
    return context;
}

/* What is queued may still read from the host's memory. */
static void end(rvl_context *context, unsigned char *host)
{
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    free(host);
}

static void check(const rvli_digest *digests, const unsigned char *host, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        rvli_digest expected = rvli_digest_of(host + i * GRANULE, GRANULE);
        assert_int_equal(digests[i].low, expected.low);
        assert_int_equal(digests[i].high, expected.high);
    }
}

/* ---- Values ---- */

static void values_are_those_of_the_cpu(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 17, 64};
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    assert_int_equal(context->devices[0].facts.digests, true);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        rvli_digest digests[64] = {{0}};
        uint64_t first = 64 - counts[i];
        assert_int_equal(queue(context, addr + first * GRANULE, counts[i] * GRANULE,
                               i == 0 /* the copy has ended after the first */, digests),
                         RVL_OK);
        wait_for(context, record(context));
        check(digests, host + first * GRANULE, counts[i]);
        if (counts[i] < 64)
            assert_int_equal(digests[counts[i]].low | digests[counts[i]].high, 0);
    }
    end(context, host);
}

static void values_by_a_secret_are_those_of_the_cpu(void **state)
{
    (void)state;
    static const char random_bytes[3][16] = {
        {0},
        "sixteen bytes...",
        "\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377"};
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    assert_int_equal(context->ops.synchronize(context->self, 0), RVL_OK);
    memset(host, 0xFF, GRANULE); /* as large as numbers get */
    assert_int_equal(context->ops.copy_to_device(context->self, 0, addr, host, GRANULE), RVL_OK);
    assert_int_equal(context->ops.synchronize(context->self, 0), RVL_OK);
    for (size_t i = 0; i < 3; i++) {
        rvli_digest digests[64] = {{0}};
        const rvli_secret secret = rvli_secret_of(random_bytes[i]);
        assert_int_equal(queue_secret(context, addr, LARGE_BYTES, &secret, digests), RVL_OK);
        wait_for(context, record(context));
        for (uint64_t k = 0; k < 64; k++) {
            rvli_digest expected = rvli_secret_digest_of(&secret, host + k * GRANULE, GRANULE);
            assert_int_equal(digests[k].low, expected.low);
            assert_int_equal(digests[k].high, expected.high);
        }
    }
    end(context, host);
}

/* One flipped bit in the last byte, and all-zero next to all-one granules. */
static void changes_are_seen(void **state)
{
    (void)state;
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    rvli_digest before[4], after[4];
    assert_int_equal(queue(context, addr, 4 * GRANULE, true, before), RVL_OK);
    assert_int_equal(context->ops.synchronize(context->self, 0), RVL_OK);
    check(before, host, 4);
    host[GRANULE - 1] ^= 0x80;
    memset(host + 2 * GRANULE, 0, GRANULE);
    memset(host + 3 * GRANULE, 0xFF, GRANULE);
    assert_int_equal(context->ops.copy_to_device(context->self, 0, addr, host, 4 * GRANULE),
                     RVL_OK);
    assert_int_equal(queue(context, addr, 4 * GRANULE, true, after), RVL_OK);
    assert_int_equal(context->ops.synchronize(context->self, 0), RVL_OK);
    check(after, host, 4);
    assert_int_not_equal(before[0].low, after[0].low);
    assert_int_equal(before[1].low, after[1].low);
    assert_int_not_equal(after[2].low, after[3].low);
    end(context, host);
}

/* ---- When they arrive ---- */

static void they_arrive_with_their_event(void **state)
{
    (void)state;
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    rvli_digest first = {UNTOUCHED, 0}, second = {UNTOUCHED, 0};
    assert_int_equal(queue(context, addr, GRANULE, true, &first), RVL_OK);
    uint64_t event = record(context);
    assert_int_equal(queue(context, addr + GRANULE, GRANULE, true, &second), RVL_OK);
    uint64_t later = record(context);
    assert_int_equal(first.low, UNTOUCHED);
    wait_for(context, event);
    check(&first, host, 1);
    assert_int_equal(second.low, UNTOUCHED);
    wait_for(context, later);
    check(&second, host + GRANULE, 1);
    end(context, host);
}

/* More is queued than there is room for results: it goes on, and all of it arrives. */
static void any_number_can_be_queued(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    uint64_t rounds = context->devices[0].facts.capacity_bytes / GRANULE / COUNT + 3;
    rvli_digest *digests = calloc(rounds * COUNT, sizeof *digests);
    rvli_digest expected[COUNT];
    assert_non_null(digests);
    for (uint64_t i = 0; i < COUNT; i++)
        expected[i] = rvli_digest_of(host + i * GRANULE, GRANULE);
    assert_int_equal(context->ops.synchronize(context->self, 0), RVL_OK);
    for (uint64_t round = 0; round < rounds; round++)
        assert_int_equal(queue(context, addr, COUNT * GRANULE, round % 2, digests + round * COUNT),
                         RVL_OK);
    assert_memory_equal(digests, expected, sizeof expected); /* made room for the last ones */
    wait_for(context, record(context));
    for (uint64_t round = 0; round < rounds; round++)
        assert_memory_equal(digests + round * COUNT, expected, sizeof expected);
    assert_int_equal(queue(context, addr, (rounds * COUNT + 1) * GRANULE, true, digests),
                     RVL_ERR_INVALID); /* more than the device has */
    free(digests);
    end(context, host);
}

static void those_that_were_never_waited_for_are_forgotten(void **state)
{
    (void)state;
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    rvli_digest digest = {UNTOUCHED, 0};
    assert_int_equal(queue(context, addr, GRANULE, true, &digest), RVL_OK);
    /* Closing of the backend, without the core, which waits. */
    rvli_cuda_instance *instance = rvli_learner_inner(context->learner);
    assert_non_null(instance->devices[0].digests.first);
    end(context, host);
}

static void without_host_memory_nothing_is_queued(void **state)
{
    (void)state;
    rvl_addr addr;
    unsigned char *host;
    rvl_context *context = begin(&addr, &host);
    rvli_digest digest = {UNTOUCHED, 0};
    short_memory_left = 0;
    rvl_status status = queue(context, addr, GRANULE, true, &digest);
    short_memory_left = -1;
    assert_int_equal(status, RVL_ERR_HOST_OOM);
    assert_int_equal(context->ops.synchronize(context->self, 0), RVL_OK);
    assert_int_equal(digest.low, UNTOUCHED);
    end(context, host);
}

/* ---- Threads ---- */

enum { THREADS = 6 };

static pthread_barrier_t start;

typedef struct thread_work {
    rvl_context *context;
    rvl_addr addr;
    const unsigned char *host; /* 2 granules */
    uint64_t wrong;
} thread_work;

static void *work(void *argument)
{
    thread_work *mine = argument;
    pthread_barrier_wait(&start);
    rvli_digest expected[2] = {rvli_digest_of(mine->host, GRANULE),
                               rvli_digest_of(mine->host + GRANULE, GRANULE)};
    for (int round = 0; round < 20; round++) {
        uint64_t event = 0;
        rvli_digest digests[2] = {{0}};
        rvl_context *context = mine->context;
        if (queue(context, mine->addr, 2 * GRANULE, round % 2, digests) != RVL_OK ||
            context->ops.record_event(context->self, 0, &event) != RVL_OK ||
            context->ops.wait_event(context->self, 0, event) != RVL_OK)
            mine->wrong++;
        mine->wrong += memcmp(digests, expected, sizeof expected) != 0;
    }
    return NULL;
}

static void threads_get_their_own(void **state)
{
    (void)state;
    rvl_addr addr;
    unsigned char *host;
    pthread_t threads[THREADS];
    thread_work works[THREADS];
    rvl_context *context = begin(&addr, &host);
    wait_for(context, record(context));
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uint64_t i = 0; i < THREADS; i++) {
        works[i] = (thread_work){
            .context = context, .addr = addr + i * 2 * GRANULE, .host = host + i * 2 * GRANULE};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &works[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(works[i].wrong, 0);
    }
    end(context, host);
}

/* A build without nvcc, or a card that the kernel was not compiled for. */
static bool digests_are_there(void)
{
    rvl_context *context = gpu_open(NULL, NULL);
    bool there = context->devices[0].facts.digests;
    rvli_digest digest;
    if (!there) {
        assert_int_equal(queue(context, 0, GRANULE, false, &digest), RVL_ERR_NOT_SUPPORTED);
        SKIP_LINE("%s", rvli_error_get()->message);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    return there;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_cpu),
        cmocka_unit_test(values_by_a_secret_are_those_of_the_cpu),
        cmocka_unit_test(changes_are_seen),
        cmocka_unit_test(they_arrive_with_their_event),
        cmocka_unit_test(any_number_can_be_queued),
        cmocka_unit_test(those_that_were_never_waited_for_are_forgotten),
        cmocka_unit_test(without_host_memory_nothing_is_queued),
        cmocka_unit_test(threads_get_their_own),
    };
    if (!gpu_is_there() || !digests_are_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
