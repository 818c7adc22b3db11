/* SPDX-License-Identifier: MIT */
/*
 * Host memory that the driver has not registered, on the fake driver: what is copied by staging
 * comes back as it was, statistics say so, and a copy that fails half-way leaves nothing in use.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cuda/pinned.h"
#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"

#define CHUNK_BYTES (64 * MIB)
#define WEIGHTS_BYTES (70 * MIB) /* more than a chunk: 16 pieces and 2 */

typedef struct scene {
    rvl_context *context;
    rvl_tag tag;
    rvl_addr addr;
} scene;

static unsigned threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > RVLI_STAGING_THREADS_MAX ? RVLI_STAGING_THREADS_MAX : (unsigned)cores;
}

/* What staging takes with buffers of so many bytes. */
static uint64_t staging_bytes(uint64_t buffer_bytes)
{
    return threads() * RVLI_STAGING_BUFFERS * buffer_bytes;
}

static void add_weights(scene *s, const rvl_cuda_options *options)
{
    s->context = gpu_open(options, NULL);
    s->addr = support_alloc(s->context, "weights", 0, WEIGHTS_BYTES, RVL_BACKUP_HOST);
    s->tag = support_tag(s->context, "weights");
    gpu_fill(s->context, 0, s->addr, WEIGHTS_BYTES, 1);
}

/* limit_bytes: what the driver still pins, 0: all; registering is refused whatever it is. */
static void begin(scene *s, rvl_host_keep keep, uint64_t limit_bytes)
{
    const int first = 0;
    const fake_config config = {
        .devices = 1, .capacity_bytes = 512 * MIB, .registered_limit_bytes = limit_bytes};
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = &first, .device_count = 1, .host_keep = keep};
    fake_configure(&config);
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    assert_true(fake_fail("cuMemHostRegister", 1, CUDA_ERROR_NOT_PERMITTED, true));
    add_weights(s, &cuda);
}

/* As an owner who wants nothing registered. */
static void begin_pageable(scene *s)
{
    const rvl_cuda_options cuda = {.struct_size = sizeof cuda, .flags = RVL_CUDA_HOST_PAGEABLE};
    const fake_config config = {.devices = 1, .capacity_bytes = 512 * MIB};
    fake_configure(&config);
    gpu_fake_kernels();
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    add_weights(s, &cuda);
}

static void end(scene *s)
{
    assert_int_equal(rvl_context_close(s->context, NULL), RVL_OK);
    check_nothing_left();
}

static rvl_status do_pause(scene *s)
{
    return rvl_pause(s->context, &s->tag, 1, NULL);
}

static rvl_status do_resume(scene *s)
{
    return rvl_resume(s->context, &s->tag, 1, NULL);
}

static void check_content(scene *s)
{
    assert_int_equal(support_state(s->context, s->addr), RVL_STATE_ACTIVE);
    assert_true(gpu_holds(s->context, 0, s->addr, WEIGHTS_BYTES, 1));
}

static rvl_host_memory host_memory(scene *s)
{
    rvl_host_memory memory = {.struct_size = sizeof memory};
    rvli_pinned_settle();
    assert_int_equal(rvl_host_get_memory(s->context, &memory), RVL_OK);
    return memory;
}

static void check_memory(scene *s, uint64_t used, uint64_t pageable, uint64_t staged,
                         uint64_t refused)
{
    rvl_host_memory memory = host_memory(s);
    assert_int_equal(memory.used_bytes, used);
    assert_int_equal(memory.pinned_bytes, 0);
    assert_int_equal(memory.pageable_bytes, pageable);
    assert_int_equal(memory.staged_copy_bytes, staged);
    assert_int_equal(memory.registering_refused, refused);
}

/* ---- What goes well ---- */

static void refused_memory_is_staged(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, 0);
    check_memory(&s, 0, 0, 0, 0);
    fake_stats before = fake_stats_get();
    assert_int_equal(before.live.host_allocations, 0); /* no buffers before they are needed */
    assert_int_equal(do_pause(&s), RVL_OK);
    check_memory(&s, WEIGHTS_BYTES, 2 * CHUNK_BYTES, WEIGHTS_BYTES, 2);
    assert_int_equal(do_resume(&s), RVL_OK);
    check_memory(&s, 0, 2 * CHUNK_BYTES, 2 * WEIGHTS_BYTES, 2);
    fake_stats after = fake_stats_get();
    assert_int_equal(after.to_host_pinned_bytes - before.to_host_pinned_bytes, WEIGHTS_BYTES);
    assert_int_equal(after.to_device_pinned_bytes - before.to_device_pinned_bytes, WEIGHTS_BYTES);
    assert_int_equal(after.to_host_pageable_bytes, before.to_host_pageable_bytes);
    assert_int_equal(after.to_device_pageable_bytes, before.to_device_pageable_bytes);
    assert_int_equal(after.live.host_allocations, 1); /* for both directions */
    assert_int_equal(after.pinned_bytes, staging_bytes(4 * MIB));
    check_content(&s);
    end(&s);
}

static void refused_memory_is_given_back(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_NONE, 0);
    assert_int_equal(do_pause(&s), RVL_OK);
    check_memory(&s, WEIGHTS_BYTES, 2 * CHUNK_BYTES, WEIGHTS_BYTES, 2);
    assert_int_equal(do_resume(&s), RVL_OK);
    check_memory(&s, 0, 0, 2 * WEIGHTS_BYTES, 2);
    check_content(&s);
    assert_int_equal(do_pause(&s), RVL_OK); /* it is made again, and refused again */
    check_memory(&s, WEIGHTS_BYTES, 2 * CHUNK_BYTES, 3 * WEIGHTS_BYTES, 4);
    assert_int_equal(do_resume(&s), RVL_OK);
    check_content(&s);
    end(&s);
}

/* Just too little for buffers of 2 MiB. */
static void smaller_buffers_do(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, staging_bytes(2 * MIB) - 1);
    assert_int_equal(do_pause(&s), RVL_OK);
    assert_int_equal(fake_stats_get().pinned_bytes, staging_bytes(MIB));
    assert_int_equal(do_resume(&s), RVL_OK);
    assert_int_equal(fake_stats_get().pinned_bytes, staging_bytes(MIB));
    check_memory(&s, 0, 2 * CHUNK_BYTES, 2 * WEIGHTS_BYTES, 2);
    check_content(&s);
    end(&s);
}

static void without_buffers_the_driver_copies(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, 0);
    assert_true(fake_fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, true));
    fake_stats before = fake_stats_get();
    assert_int_equal(do_pause(&s), RVL_OK);
    assert_int_equal(do_resume(&s), RVL_OK);
    fake_stats after = fake_stats_get();
    assert_int_equal(after.to_host_pageable_bytes - before.to_host_pageable_bytes, WEIGHTS_BYTES);
    assert_int_equal(after.to_device_pageable_bytes - before.to_device_pageable_bytes,
                     WEIGHTS_BYTES);
    assert_int_equal(after.live.host_allocations, 0);
    assert_int_equal(after.live.events, before.live.events); /* those of staging went */
    check_memory(&s, 0, 2 * CHUNK_BYTES, 0, 2);
    check_content(&s);
    end(&s);
}

static void without_events_the_driver_copies(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, 0);
    uint64_t events = fake_stats_get().live.events;
    assert_true(fake_fail("cuEventCreate", 3, CUDA_ERROR_OUT_OF_MEMORY, true));
    assert_int_equal(do_pause(&s), RVL_OK); /* the event that it waits for is there already */
    assert_int_equal(fake_stats_get().live.events, events);
    check_memory(&s, WEIGHTS_BYTES, 2 * CHUNK_BYTES, 0, 2);
    assert_true(fake_fail("cuEventCreate", 0, CUDA_SUCCESS, false));
    assert_int_equal(do_resume(&s), RVL_OK);
    check_memory(&s, 0, 2 * CHUNK_BYTES, WEIGHTS_BYTES, 2); /* asked again, and had */
    check_content(&s);
    end(&s);
}

/* ---- Where nobody wants it registered ---- */

static void what_nobody_wants_registered_is_not(void **state)
{
    (void)state;
    const rvl_cuda_options usual = {.struct_size = sizeof usual};
    rvl_context *other = NULL;
    scene s;
    begin_pageable(&s);
    for (uint64_t turn = 1; turn <= 2; turn++) {
        assert_int_equal(do_pause(&s), RVL_OK);
        check_memory(&s, WEIGHTS_BYTES, 2 * CHUNK_BYTES, (2 * turn - 1) * WEIGHTS_BYTES, 0);
        assert_int_equal(do_resume(&s), RVL_OK); /* digests say that the content is right */
        check_memory(&s, 0, 2 * CHUNK_BYTES, 2 * turn * WEIGHTS_BYTES, 0);
    }
    assert_int_equal(fake_calls("cuMemHostRegister"), 0);
    check_content(&s);
    /* One who does decides for all. */
    other = gpu_open(&usual, NULL);
    assert_int_equal(rvl_host_trim(s.context, 0), RVL_OK);
    assert_int_equal(do_pause(&s), RVL_OK);
    assert_int_equal(host_memory(&s).pinned_bytes, 2 * CHUNK_BYTES);
    assert_int_equal(host_memory(&s).pageable_bytes, 0);
    assert_int_equal(do_resume(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvl_context_close(other, NULL), RVL_OK);
    end(&s);
}

/* Staging and fills have streams of their own. */
static void a_fill_and_a_copy_keep_their_order(void **state)
{
    (void)state;
    void *host = NULL;
    scene s;
    begin_pageable(&s);
    const rvli_backend_ops *ops = &s.context->ops;
    void *self = s.context->self;
    assert_int_equal(ops->host_alloc(self, 0, CHUNK_BYTES, &host), RVL_OK);
    rvli_pinned_settle();
    memset(host, 3, CHUNK_BYTES);
    for (int filled_last = 0; filled_last < 2; filled_last++) {
        if (!filled_last)
            assert_int_equal(ops->fill(self, 0, s.addr, CHUNK_BYTES, 7), RVL_OK);
        assert_int_equal(ops->copy_to_device(self, 0, s.addr, host, CHUNK_BYTES), RVL_OK);
        if (filled_last)
            assert_int_equal(ops->fill(self, 0, s.addr, CHUNK_BYTES, 7), RVL_OK);
        assert_int_equal(ops->synchronize(self, 0), RVL_OK);
        assert_int_equal(ops->copy_to_host(self, 0, host, s.addr, CHUNK_BYTES), RVL_OK);
        assert_int_equal(ops->synchronize(self, 0), RVL_OK);
        for (uint64_t i = 0; i < CHUNK_BYTES; i++)
            if (((char *)host)[i] != (filled_last ? 7 : 3))
                fail_msg("byte %llu, filled last: %d", (unsigned long long)i, filled_last);
    }
    assert_int_equal(ops->host_free(self, 0, host, CHUNK_BYTES), RVL_OK);
    end(&s);
}

/* A failure is told to all events behind it, and to no later one. */
static void a_failure_is_told_to_all_who_wait(void **state)
{
    (void)state;
    void *host = NULL;
    uint64_t events[3], after = 0;
    scene s;
    begin_pageable(&s);
    const rvli_backend_ops *ops = &s.context->ops;
    void *self = s.context->self;
    assert_int_equal(ops->host_alloc(self, 0, CHUNK_BYTES, &host), RVL_OK);
    rvli_pinned_settle();
    assert_int_equal(ops->copy_to_host(self, 0, host, s.addr, 8 * MIB), RVL_OK);
    assert_int_equal(ops->record_event(self, 0, &events[0]), RVL_OK);
    assert_int_equal(ops->wait_event(self, 0, events[0]), RVL_OK);
    assert_true(fake_fail("cuMemcpyDtoHAsync", 2, CUDA_ERROR_OUT_OF_MEMORY, false));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->copy_to_host(self, 0, host, s.addr, 16 * MIB), RVL_OK);
        assert_int_equal(ops->record_event(self, 0, &events[i]), RVL_OK);
    }
    for (int i = 2; i >= 0; i--)
        assert_int_equal(ops->wait_event(self, 0, events[i]), RVL_ERR_DEVICE_OOM);
    assert_int_equal(ops->copy_to_host(self, 0, host, s.addr, 16 * MIB), RVL_OK);
    assert_int_equal(ops->record_event(self, 0, &after), RVL_OK);
    assert_int_equal(ops->wait_event(self, 0, after), RVL_OK);
    assert_int_equal(ops->synchronize(self, 0), RVL_OK);
    assert_int_equal(ops->host_free(self, 0, host, CHUNK_BYTES), RVL_OK);
    end(&s);
}

/* A copy that failed without an event behind it is told by who waits for the device. */
static void a_failure_is_told_once_by_waiting_for_the_device(void **state)
{
    (void)state;
    void *host = NULL;
    scene s;
    begin_pageable(&s);
    const rvli_backend_ops *ops = &s.context->ops;
    void *self = s.context->self;
    assert_int_equal(ops->host_alloc(self, 0, CHUNK_BYTES, &host), RVL_OK);
    rvli_pinned_settle();
    assert_true(fake_fail("cuMemcpyHtoDAsync", 1, CUDA_ERROR_OUT_OF_MEMORY, false));
    assert_int_equal(ops->copy_to_device(self, 0, s.addr, host, 16 * MIB), RVL_OK);
    assert_int_equal(ops->synchronize(self, 0), RVL_ERR_DEVICE_OOM);
    assert_int_equal(ops->synchronize(self, 0), RVL_OK);
    gpu_fill(s.context, 0, s.addr, WEIGHTS_BYTES, 1);
    check_content(&s);
    assert_int_equal(ops->host_free(self, 0, host, CHUNK_BYTES), RVL_OK);
    end(&s);
}

/* ---- Any size, from anywhere ---- */

static void copy_there_and_back(scene *s, char *host, rvl_addr addr, uint64_t size)
{
    const rvli_backend_ops *ops = &s->context->ops;
    uint64_t event = 0;
    host[-1] = 0;
    for (uint64_t i = 0; i < size; i++)
        host[i] = (char)(i * 31 + i / 251);
    assert_int_equal(ops->fill(s->context->self, 0, addr, size + 1, 7), RVL_OK);
    assert_int_equal(ops->copy_to_device(s->context->self, 0, addr, host, size), RVL_OK);
    assert_int_equal(ops->record_event(s->context->self, 0, &event), RVL_OK);
    assert_int_equal(ops->wait_event(s->context->self, 0, event), RVL_OK);
    memset(host, 0, size);
    assert_int_equal(ops->copy_to_host(s->context->self, 0, host, addr, size + 1), RVL_OK);
    assert_int_equal(ops->record_event(s->context->self, 0, &event), RVL_OK);
    assert_int_equal(ops->wait_event(s->context->self, 0, event), RVL_OK);
    for (uint64_t i = 0; i < size; i++)
        if (host[i] != (char)(i * 31 + i / 251))
            fail_msg("byte %llu of %llu", (unsigned long long)i, (unsigned long long)size);
    assert_int_equal(host[-1], 0);
    assert_int_equal(host[size], 7); /* filled before, and not overwritten */
}

static void every_size_is_copied(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1,       1023 * 1024, 4 * MIB,      4 * MIB + 1,
                              8 * MIB, 16 * MIB,    16 * MIB + 3, 41 * MIB - 5};
    scene s;
    void *host = NULL;
    uint64_t staged = 0;
    begin(&s, RVL_HOST_KEEP_NONE, 0);
    const rvli_backend_ops *ops = &s.context->ops;
    assert_int_equal(ops->host_alloc(s.context->self, 0, CHUNK_BYTES, &host), RVL_OK);
    rvli_pinned_settle();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        copy_there_and_back(&s, (char *)host + 7, s.addr + 3 * i, sizes[i]);
        staged += 2 * sizes[i] + 1;
        check_memory(&s, CHUNK_BYTES, CHUNK_BYTES, staged, 1);
    }
    assert_int_equal(ops->host_free(s.context->self, 0, host, CHUNK_BYTES), RVL_OK);
    end(&s);
}

/* ---- What fails half-way ---- */

static void pause_fails_at(scene *s, const char *symbol, uint64_t nth)
{
    uint64_t failures = fake_failures();
    assert_true(fake_fail(symbol, nth, CUDA_ERROR_OUT_OF_MEMORY, false));
    assert_int_equal(do_pause(s), RVL_ERR_DEVICE_OOM);
    assert_true(fake_failures() > failures);
    rvli_pinned_settle();
    rvl_device_stats stats = support_stats(s->context, 0);
    assert_int_equal(stats.used_bytes, WEIGHTS_BYTES);
    assert_int_equal(stats.host_backup_bytes, 0);
    assert_int_equal(host_memory(s).used_bytes, 0);
    assert_int_equal(support_state(s->context, s->addr), RVL_STATE_ACTIVE);
}

static void resume_fails_at(scene *s, const char *symbol, uint64_t nth)
{
    rvl_host_memory before = host_memory(s);
    assert_true(fake_fail(symbol, nth, CUDA_ERROR_OUT_OF_MEMORY, false));
    assert_int_equal(do_resume(s), RVL_ERR_DEVICE_OOM);
    assert_int_equal(support_state(s->context, s->addr), RVL_STATE_PAUSED);
    rvl_device_stats stats = support_stats(s->context, 0);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.host_backup_bytes, WEIGHTS_BYTES);
    assert_int_equal(host_memory(s).used_bytes, before.used_bytes);
}

/* Pieces 1 to 16 are of the first chunk. */
static void a_copy_that_fails_is_undone(void **state)
{
    (void)state;
    const uint64_t places[] = {1, 3, 9, 16, 18};
    const char *const out[] = {"cuMemcpyDtoHAsync", "cuEventRecord", "cuEventSynchronize"};
    const char *const in[] = {"cuMemcpyHtoDAsync", "cuEventRecord", "cuEventSynchronize"};
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, 0);
    for (size_t place = 0; place < sizeof places / sizeof places[0]; place++) {
        for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
            pause_fails_at(&s, out[i], places[place]);
        check_content(&s);
        assert_int_equal(do_pause(&s), RVL_OK);
        for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
            resume_fails_at(&s, in[i], places[place]);
        assert_int_equal(do_resume(&s), RVL_OK);
        check_content(&s);
    }
    end(&s);
}

/* While it is not known that the link has let go of a buffer, nothing is copied. */
static void buffers_in_use_are_waited_for(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, 0);
    assert_true(fake_fail("cuStreamSynchronize", 1, CUDA_ERROR_OUT_OF_MEMORY, true));
    pause_fails_at(&s, "cuMemcpyDtoHAsync", 3);
    uint64_t copies = fake_calls("cuMemcpyDtoHAsync");
    assert_int_equal(do_pause(&s), RVL_ERR_DEVICE_OOM);
    assert_int_equal(fake_calls("cuMemcpyDtoHAsync"), copies);
    assert_true(fake_fail("cuStreamSynchronize", 0, CUDA_SUCCESS, false));
    check_content(&s);
    assert_int_equal(do_pause(&s), RVL_OK);
    assert_true(fake_fail("cuStreamSynchronize", 1, CUDA_ERROR_OUT_OF_MEMORY, true));
    resume_fails_at(&s, "cuMemcpyHtoDAsync", 3);
    copies = fake_calls("cuMemcpyHtoDAsync");
    assert_int_equal(do_resume(&s), RVL_ERR_DEVICE_OOM);
    assert_int_equal(fake_calls("cuMemcpyHtoDAsync"), copies);
    assert_true(fake_fail("cuStreamSynchronize", 0, CUDA_SUCCESS, false));
    assert_int_equal(do_resume(&s), RVL_OK);
    check_content(&s);
    end(&s);
}

static void a_device_lost_half_way_is_closed(void **state)
{
    (void)state;
    scene s;
    begin(&s, RVL_HOST_KEEP_ALL, 0);
    assert_true(fake_fail("cuMemcpyDtoHAsync", 5, CUDA_ERROR_LAUNCH_FAILED, false));
    assert_int_equal(do_pause(&s), RVL_ERR_DEVICE_LOST);
    assert_int_not_equal(rvl_context_close(s.context, NULL), RVL_OK);
    fake_live left = fake_reset();
    assert_int_equal(left.host_allocations, 0);
    assert_int_equal(left.events, 0);
    assert_int_equal(left.streams, 0);
}

/* ---- In the store of the node ---- */

static pid_t start_store(const rvl_store_options *options)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t owner = fork();
    if (owner == 0) {
        rvl_store *store = NULL;
        if (rvl_store_open(options, &store) != RVL_OK || write(ready[1], "r", 1) != 1)
            _exit(1);
        _exit(rvl_store_serve(store, -1) == RVL_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return owner;
}

static rvl_context *open_with_store(const char *path)
{
    rvl_context *context = NULL;
    const rvl_context_options options = {.struct_size = sizeof options, .store_path = path};
    assert_int_equal(rvl_context_open("cuda", &options, &context), RVL_OK);
    return context;
}

/*
 * Into pinned buffers, and back from pages that cannot be pinned. The second context keeps no byte
 * of its own.
 */
static void segments_of_a_store_are_staged(void **state)
{
    (void)state;
    char path[] = "/tmp/reveille-staging-XXXXXX";
    int name = mkstemp(path);
    assert_true(name >= 0);
    close(name);
    assert_int_equal(unlink(path), 0);
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = path, .budget_bytes = WEIGHTS_BYTES + 16 * MIB};
    const fake_config config = {.devices = 1, .capacity_bytes = 512 * MIB};
    pid_t owner = start_store(&options);
    fake_configure(&config);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    scene scenes[2];
    for (int i = 0; i < 2; i++) {
        scene *s = &scenes[i];
        s->context = open_with_store(path);
        s->addr = support_alloc(s->context, "weights", 0, WEIGHTS_BYTES, RVL_BACKUP_HOST);
        s->tag = support_tag(s->context, "weights");
        gpu_fill(s->context, 0, s->addr, WEIGHTS_BYTES, 1);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(do_pause(&scenes[i]), RVL_OK);
        rvl_host_memory memory = host_memory(&scenes[i]);
        assert_int_equal(memory.store_bytes, WEIGHTS_BYTES);
        assert_int_equal(memory.store_found_bytes, (uint64_t)i * WEIGHTS_BYTES);
        assert_int_equal(memory.used_bytes, 0);
        assert_int_equal(memory.pinned_bytes, 2 * CHUNK_BYTES); /* for the buffers of the next */
        assert_int_equal(memory.staged_copy_bytes, 0);
    }
    rvl_store_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_store_get_stats(path, &stats), RVL_OK);
    assert_int_equal(stats.kept_bytes, WEIGHTS_BYTES);
    assert_int_equal(stats.referenced_bytes, 2 * WEIGHTS_BYTES);
    assert_int_equal(stats.user_count, 2);
    kill(owner, SIGKILL); /* what is mapped stays */
    assert_int_equal(waitpid(owner, NULL, 0), owner);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(do_resume(&scenes[i]), RVL_OK);
        assert_int_equal(host_memory(&scenes[i]).staged_copy_bytes,
                         (uint64_t)(i + 1) * WEIGHTS_BYTES);
        check_content(&scenes[i]);
        assert_int_equal(rvl_context_close(scenes[i].context, NULL), RVL_OK);
    }
    check_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_memory_is_staged),
        cmocka_unit_test(refused_memory_is_given_back),
        cmocka_unit_test(smaller_buffers_do),
        cmocka_unit_test(without_buffers_the_driver_copies),
        cmocka_unit_test(without_events_the_driver_copies),
        cmocka_unit_test(what_nobody_wants_registered_is_not),
        cmocka_unit_test(a_fill_and_a_copy_keep_their_order),
        cmocka_unit_test(a_failure_is_told_to_all_who_wait),
        cmocka_unit_test(a_failure_is_told_once_by_waiting_for_the_device),
        cmocka_unit_test(every_size_is_copied),
        cmocka_unit_test(a_copy_that_fails_is_undone),
        cmocka_unit_test(buffers_in_use_are_waited_for),
        cmocka_unit_test(segments_of_a_store_are_staged),
        cmocka_unit_test(a_device_lost_half_way_is_closed),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    fake_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
