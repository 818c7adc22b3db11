/* SPDX-License-Identifier: MIT */
/* The simulated backend: the contract on both memories, faults on touch, profiles, sizes, costs. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "base/error.h"
#include "core/prefetch.h"
#include "tests/support/contract.h"
#include "tests/support/support.h"

/* ---- Touching ---- */

/* Signal that a child dies of when it reads addr; 0 if it can. */
static int signal_of_reading(rvl_addr addr)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        unsigned char seen = *(volatile unsigned char *)(uintptr_t)addr;
        _exit(seen == 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void reading_paused_memory_faults(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag tag = support_tag(context, "weights");
    assert_int_equal(signal_of_reading(addr + 100), 0);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_int_equal(signal_of_reading(addr + 100), SIGSEGV);
#endif
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(signal_of_reading(addr + 100), 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Profiles and sizes ---- */

static void profiles_are_described(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "h200",    "h100-80g", "h100-94g", "a100-80g", "a100-40g", "b200",    "l40s", "rtx4090",
        "rtx5090", "h20",      "gh200",    "b300",     "gb300",    "rtx3090", "t4",   "v100"};
    rvl_profile profile = {.struct_size = sizeof profile};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(rvl_profile_find(expected[i], &profile), RVL_OK);
        assert_string_equal(profile.name, expected[i]);
    }
    for (size_t i = 0; i < rvl_profile_count(); i++) {
        assert_int_equal(rvl_profile_get(i, &profile), RVL_OK);
        assert_true(profile.capacity_bytes > 14 * GIB && profile.capacity_bytes < 300 * GIB);
        assert_int_equal(profile.granularity_bytes, GRANULE);
        assert_true(strlen(profile.source) > 10);
        assert_true(strlen(profile.description) > 5);
        assert_true(profile.cost.copy_to_host.fs_per_byte > 0);
    }
    assert_int_equal(rvl_profile_get(rvl_profile_count(), &profile), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_profile_find("H200", &profile), RVL_OK);
    assert_int_equal(profile.capacity_bytes, UINT64_C(150109880320));
    assert_int_equal(rvl_profile_find("80GiB", &profile), RVL_OK);
    assert_null(profile.name);
    assert_int_equal(profile.capacity_bytes, 80 * GIB);
    assert_int_equal(rvl_profile_find("1MiB", &profile), RVL_OK);
    assert_int_equal(rvl_profile_find("1048575", &profile), RVL_ERR_INVALID);
    assert_non_null(
        strstr(rvli_error_get()->message, "write the unit, such as 80GiB: \"1048575\""));
    assert_int_equal(rvl_profile_find("h300", &profile), RVL_ERR_NOT_FOUND);
    assert_non_null(strstr(rvli_error_get()->message, "not a size such as 80GiB: \"h300\""));
    assert_int_equal(rvl_profile_find(NULL, &profile), RVL_ERR_INVALID);
}

/* Totals that PyTorch printed on these cards: within the capacity and its doubt. */
static void printed_totals_lie_within_the_doubt(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double gib;
    } printed[] = {{"rtx4090", 23.68}, {"rtx4090", 23.64}, {"rtx3090", 23.70}, {"rtx3090", 23.69},
                   {"t4", 14.76},      {"t4", 14.56},      {"v100", 31.75},    {"v100", 31.74},
                   {"b300", 267.69},   {"gb300", 276.50},  {"gh200", 94.50},   {"a6000", 47.53}};
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++) {
        rvl_profile profile = {.struct_size = sizeof profile};
        assert_int_equal(rvl_profile_find(printed[i].name, &profile), RVL_OK);
        uint64_t total = (uint64_t)(printed[i].gib * (double)GIB);
        assert_true(total <= profile.capacity_bytes);
        assert_true(total >= profile.capacity_bytes - profile.capacity_doubt_bytes);
    }
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
        {"1", 1},
        {"4096B", 4096},
        {"80GiB", 80 * GIB},
        {"80G", 80 * GIB},
        {"1.5GiB", 3 * GIB / 2},
        {"0.25M", MIB / 4},
        {"2TiB", 2048 * GIB},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", 0},
        {"8388608TiB", 0},
        {"99999999999999999999", 0},
        {"", 0},
        {"0", 0},
        {"-1", 0},
        {"1.", 0},
        {".5G", 0},
        {"1 GiB", 0},
        {"1gib", GIB},
        {"80gib", 80 * GIB},
        {"80g", 80 * GIB},
        {"3b", 3},
        {"80GB", UINT64_C(80000000000)},
        {"80gb", UINT64_C(80000000000)},
        {"1.5kB", 1500},
        {"2MB", 2000000},
        {"1TB", UINT64_C(1000000000000)},
        {"9223372TB", UINT64_C(9223372000000000000)},
        {"9223373TB", 0},
        {"1iB", 0},
        {"1GiBB", 0},
        {"1PB", 0},
        {"0x10", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 42;
        rvl_status status = rvl_size_parse(cases[i].text, &bytes);
        assert_int_equal(status, cases[i].bytes ? RVL_OK : RVL_ERR_INVALID);
        assert_int_equal(bytes, cases[i].bytes ? cases[i].bytes : 42);
    }
    assert_int_equal(rvl_size_parse(NULL, &(uint64_t){0}), RVL_ERR_INVALID);
    assert_int_equal(rvl_size_parse("80 GiB", &(uint64_t){0}), RVL_ERR_INVALID);
    assert_non_null(strstr(rvli_error_get()->message, "not a size: digits, then B, KiB, MiB"));
    assert_non_null(strstr(rvli_error_get()->message, "above 0: \"80 GiB\""));
}

/* ---- Costs ---- */

/* Copies of both directions run side by side; calls do not. */
static void time_passes_as_the_costs_say(void **state)
{
    (void)state;
    const rvl_profile profile = {
        .struct_size = sizeof profile,
        .capacity_bytes = 64 * GIB,
        .granularity_bytes = GRANULE,
        .cost = {.create = {1000, 2}, .copy_to_host = {10, 20000}, .copy_to_device = {30, 10000}},
    };
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options options = {.struct_size = sizeof options,
                               .memory = RVL_SIM_ACCOUNTED,
                               .devices = devices,
                               .device_count = 1};
    const rvli_backend_ops *ops = &rvli_sim_ops;
    rvli_clock clock = {0};
    void *self = NULL, *host = NULL;
    int count = 0;
    uint64_t addr = 0, event = 0;
    rvli_handle block = 0;
    assert_int_equal(ops->open(&options, &clock, &self, &count), RVL_OK);
    assert_int_equal(rvli_clock_now(&clock), 0);
    assert_int_equal(ops->create(self, 0, 1 * GIB, 0, &block), RVL_OK);
    uint64_t created = 1000 + 1 * GIB * 2 / 1000000;
    assert_int_equal(rvli_clock_now(&clock), created);
    assert_int_equal(ops->reserve(self, 0, 1 * GIB, &addr), RVL_OK);
    assert_int_equal(ops->map(self, 0, addr, 1 * GIB, block), RVL_OK);
    assert_int_equal(ops->set_access(self, 0, addr, 1 * GIB, 1), RVL_OK);
    assert_int_equal(ops->host_alloc(self, 0, 1 * GIB, &host), RVL_OK);
    assert_int_equal(ops->copy_to_host(self, 0, host, addr, 1 * GIB), RVL_OK);
    assert_int_equal(ops->copy_to_device(self, 0, addr, host, 1 * GIB), RVL_OK);
    assert_int_equal(rvli_clock_now(&clock), created); /* queued */
    assert_int_equal(ops->record_event(self, 0, &event), RVL_OK);
    assert_int_equal(ops->wait_event(self, 0, event), RVL_OK);
    assert_int_equal(rvli_clock_now(&clock), created + 10 + 1 * GIB / 1000000 * 20000 +
                                                 1 * GIB % 1000000 * 20000 / 1000000);
    assert_int_equal(ops->wait_user(self, NULL), RVL_OK);
    ops->close(self);
}

/* What was released is paid for once, by the next create or release. */
static void released_memory_is_reclaimed(void **state)
{
    (void)state;
    const rvl_profile profile = {
        .struct_size = sizeof profile,
        .capacity_bytes = 64 * GIB,
        .granularity_bytes = GRANULE,
        .cost = {.create = {1000, 0}, .reclaim = {0, 163}},
    };
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options options = {.struct_size = sizeof options,
                               .memory = RVL_SIM_ACCOUNTED,
                               .devices = devices,
                               .device_count = 1};
    rvl_context_options context_options = {.struct_size = sizeof context_options,
                                           .backend_options = &options};
    rvl_context *context = NULL;
    rvl_addr addr = 0;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_context_open("sim", &context_options, &context), RVL_OK);
    rvl_alloc_options kv = {.struct_size = sizeof kv, .tag = "kv"};
    rvl_alloc_options copy = {.struct_size = sizeof copy, .tag = "copy"};
    assert_int_equal(rvl_alloc(context, 10 * GIB, &kv, &addr), RVL_OK);
    rvl_tag tag = 0;
    assert_int_equal(rvl_tag_find(context, 0, "kv", &tag), RVL_OK);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_alloc(context, 4 * GIB, &copy, &addr), RVL_OK);
    assert_int_equal(rvl_clock_ns(context), 2 * 1000 + 10 * GIB * 163 / 1000000);
    assert_int_equal(rvl_free(context, addr), RVL_OK);
    assert_int_equal(rvl_resume_forecast(context, &tag, 1, NULL, &forecast), RVL_OK);
    assert_int_equal(forecast.time_ns, 1000 + 4 * GIB * 163 / 1000000);
    uint64_t before = rvl_clock_ns(context);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_clock_ns(context) - before, forecast.time_ns);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Two GiB of device memory that only waits are paid for. */
#define WAITING_ROOM (2 * GIB)

static rvl_context *open_waiting(rvl_cost_model cost, rvl_cost_waits waits)
{
    const rvl_profile profile = {.struct_size = sizeof profile,
                                 .capacity_bytes = WAITING_ROOM,
                                 .granularity_bytes = GRANULE,
                                 .cost = cost,
                                 .waits = waits};
    const rvl_profile *devices[] = {&profile};
    const rvl_sim_options options = {.struct_size = sizeof options,
                                     .memory = RVL_SIM_ACCOUNTED,
                                     .devices = devices,
                                     .device_count = 1};
    const rvl_context_options context_options = {.struct_size = sizeof context_options,
                                                 .backend_options = &options};
    rvl_context *context = NULL;
    assert_int_equal(rvl_context_open("sim", &context_options, &context), RVL_OK);
    return context;
}

static rvl_tag alloc_tagged(rvl_context *context, const char *tag, uint64_t size, rvl_backup backup)
{
    const rvl_alloc_options options = {.struct_size = sizeof options, .tag = tag, .backup = backup};
    rvl_addr addr = 0;
    rvl_tag found = 0;
    assert_int_equal(rvl_alloc(context, size, &options, &addr), RVL_OK);
    assert_int_equal(rvl_tag_find(context, 0, tag, &found), RVL_OK);
    return found;
}

/* How long it took; the forecast said so. */
static uint64_t timed(rvl_context *context, rvl_tag tag, bool pausing)
{
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    uint64_t begin_ns = rvl_clock_ns(context);
    assert_int_equal(pausing ? rvl_pause_forecast(context, &tag, 1, NULL, &forecast)
                             : rvl_resume_forecast(context, &tag, 1, NULL, &forecast),
                     RVL_OK);
    assert_int_equal(rvl_clock_ns(context), begin_ns);
    assert_int_equal(
        pausing ? rvl_pause(context, &tag, 1, NULL) : rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(forecast.time_ns, rvl_clock_ns(context) - begin_ns);
    return forecast.time_ns;
}

/*
 * The driver clears a GiB in 2.7 ms, block by block. A resume that fits into what is cleared waits
 * for nothing, and pays for nothing; one that does not waits for the blocks that it lacks; one that
 * comes later pays for all.
 */
static void creates_wait_for_cleared_memory(void **state)
{
    (void)state;
    const uint64_t clear_ns = GIB / 1000000 * 2500 + GIB % 1000000 * 2500 / 1000000;
    const uint64_t half_ns = GIB / 2 / 1000000 * 100 + GIB / 2 % 1000000 * 100 / 1000000;
    rvl_context *context =
        open_waiting((rvl_cost_model){.reclaim = {0, 100}}, (rvl_cost_waits){.clear = {0, 2500}});
    rvl_tag small = alloc_tagged(context, "small", GIB / 2, RVL_BACKUP_NONE);
    rvl_tag large = alloc_tagged(context, "large", GIB, RVL_BACKUP_NONE);
    assert_int_equal(timed(context, small, true), 0);
    assert_int_equal(timed(context, small, false), 0); /* half a GiB was free and clear */
    /* What small has left behind has not been cleared, and not been paid for: half of what large
       needs, and the other half lies in large's own block. */
    assert_int_equal(timed(context, large, true), 0);
    uint64_t waited_ns = timed(context, large, false);
    assert_in_range(waited_ns, clear_ns * 3 / 2 + 3 * half_ns - 10,
                    clear_ns * 3 / 2 + 3 * half_ns + 10);
    /* Much later all of it is clear, and is paid for. */
    assert_int_equal(timed(context, small, true), 0);
    assert_int_equal(rvl_private_let_pass(context, UINT64_C(1000000000)), RVL_OK);
    assert_in_range(timed(context, small, false), half_ns - 2, half_ns + 2);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    assert_int_equal(rvl_private_let_pass(NULL, 1), RVL_ERR_INVALID);
}

/* A release pays for the blocks before it that have been cleared; a later create for the rest. */
static void releases_pay_for_cleared_memory(void **state)
{
    (void)state;
    const uint64_t half_ns = GIB / 2 * 100 / 1000000, clear_ns = GIB / 2 * 2500 / 1000000;
    rvl_context *context =
        open_waiting((rvl_cost_model){.reclaim = {0, 100}}, (rvl_cost_waits){.clear = {0, 2500}});
    rvl_tag first = alloc_tagged(context, "first", GIB / 2, RVL_BACKUP_NONE);
    rvl_tag then = alloc_tagged(context, "then", GIB / 2, RVL_BACKUP_NONE);
    rvl_tag last = alloc_tagged(context, "last", GIB / 2, RVL_BACKUP_NONE);
    assert_int_equal(timed(context, first, true), 0);
    assert_int_equal(timed(context, then, true), 0); /* nothing is cleared yet */
    assert_int_equal(rvl_private_let_pass(context, clear_ns * 3 / 2), RVL_OK);
    assert_int_equal(timed(context, last, true), half_ns); /* one is, and half of the other */
    assert_int_equal(rvl_private_let_pass(context, UINT64_C(1000000000)), RVL_OK);
    assert_in_range(timed(context, first, false), 2 * half_ns, 2 * half_ns + 1);
    assert_int_equal(timed(context, then, false), 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* What comes while the driver clears takes longer: by its call, and by its bytes. */
static void calls_take_longer_while_it_clears(void **state)
{
    (void)state;
    rvl_context *context = open_waiting((rvl_cost_model){.unmap = {10, 0}, .release = {100, 0}},
                                        (rvl_cost_waits){.clear = {0, 2500},
                                                         .idle_clearing = {5000, 0},
                                                         .unmap_clearing = {600, 0},
                                                         .release_clearing = {70000, 0}});
    rvl_tag first = alloc_tagged(context, "first", GIB, RVL_BACKUP_NONE);
    rvl_tag then = alloc_tagged(context, "then", GRANULE, RVL_BACKUP_NONE);
    assert_int_equal(timed(context, first, true), 10 + 100);
    assert_int_equal(timed(context, then, true), 5000 + 600 + 10 + 70000 + 100);
    assert_int_equal(timed(context, then, false), 0);
    assert_int_equal(rvl_private_let_pass(context, UINT64_C(1000000000)), RVL_OK);
    assert_int_equal(timed(context, then, true), 10 + 100);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/*
 * Host memory is made in chunks of 64 MiB. A pause begins to make it once, for a buffer of four
 * chunks and for eight buffers of half a chunk: all is asked for before the first copy. The first
 * pause begins later.
 */
static void host_memory_begins_in_chunks(void **state)
{
    (void)state;
    const uint64_t chunk = RVL_HOST_CHUNK_BYTES;
    const uint64_t chunk_ns = chunk / 1000000 * 1000 + chunk % 1000000 * 1000 / 1000000;
    rvl_context *context =
        open_waiting((rvl_cost_model){.host_alloc = {0, 1000}},
                     (rvl_cost_waits){.host_first = {9000000, 0}, .host_start = {2000000, 0}});
    rvl_tag whole = alloc_tagged(context, "whole", 4 * chunk, RVL_BACKUP_HOST);
    rvl_tag cut = 0;
    for (int i = 0; i < 8; i++)
        cut = alloc_tagged(context, "cut", chunk / 2, RVL_BACKUP_HOST);
    uint64_t whole_ns = timed(context, whole, true);
    assert_in_range(whole_ns, 9000000 + 2000000 + 4 * chunk_ns,
                    9000000 + 2000000 + 4 * chunk_ns + 4);
    uint64_t cut_ns = timed(context, cut, true);
    assert_in_range(cut_ns, 2000000 + 4 * chunk_ns, 2000000 + 4 * chunk_ns + 8);
    /* All is made: a second round waits for nothing. */
    assert_int_equal(timed(context, whole, false), 0);
    assert_int_equal(timed(context, cut, false), 0);
    assert_int_equal(timed(context, cut, true), 0);
    assert_int_equal(timed(context, whole, true), 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Copies of early buffers run while later ones are made. Only the last adds its own time. */
static void buffers_are_filled_while_others_are_made(void **state)
{
    (void)state;
    const uint64_t chunk = RVL_HOST_CHUNK_BYTES;
    const uint64_t chunk_ns = chunk / 1000000 * 1000 + chunk % 1000000 * 1000 / 1000000;
    rvl_context *context =
        open_waiting((rvl_cost_model){.host_alloc = {0, 1000}, .copy_to_host = {0, 400}},
                     (rvl_cost_waits){.host_start = {2000000, 0}});
    rvl_tag cut = 0;
    for (int i = 0; i < 8; i++)
        cut = alloc_tagged(context, "cut", chunk / 2, RVL_BACKUP_HOST);
    const uint64_t first_ns = 2000000 + 4 * chunk_ns + chunk_ns / 5;
    assert_in_range(timed(context, cut, true), first_ns, first_ns + 8);
    assert_int_equal(timed(context, cut, false), 0);
    assert_in_range(timed(context, cut, true), 8 * (chunk_ns / 5), 8 * (chunk_ns / 5) + 8);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* Host memory is made once, beside the copy to it; the copy ends no earlier. */
static void host_memory_is_made_once(void **state)
{
    (void)state;
    const rvl_profile profile = {
        .struct_size = sizeof profile,
        .capacity_bytes = 64 * GIB,
        .granularity_bytes = GRANULE,
        .cost = {.host_alloc = {7, 50000}, .copy_to_host = {0, 20000}},
    };
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options options = {.struct_size = sizeof options,
                               .memory = RVL_SIM_ACCOUNTED,
                               .devices = devices,
                               .device_count = 1};
    const uint64_t size = 500 * GRANULE, made_ns = size / 1000000 * 50000 + size % 1000000 / 20;
    const uint64_t copied_ns = size / 1000000 * 20000 + size % 1000000 / 50;
    rvli_backend_ops ops = rvli_sim_ops;
    rvli_clock clock = {0};
    void *self = NULL, *host = NULL;
    int count = 0;
    uint64_t addr = 0;
    rvli_handle block = 0;
    assert_int_equal(ops.open(&options, &clock, &self, &count), RVL_OK);
    assert_int_equal(ops.create(self, 0, size, 0, &block), RVL_OK);
    assert_int_equal(ops.reserve(self, 0, size, &addr), RVL_OK);
    assert_int_equal(ops.map(self, 0, addr, size, block), RVL_OK);
    assert_int_equal(ops.set_access(self, 0, addr, size, 1), RVL_OK);
    uint64_t expected = 0;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ops.host_alloc(self, 0, size, &host), RVL_OK);
        expected += 7;
        assert_int_equal(rvli_clock_now(&clock), expected); /* in the making */
        assert_int_equal(ops.copy_to_host(self, 0, host, addr, size), RVL_OK);
        assert_int_equal(ops.synchronize(self, 0), RVL_OK);
        expected += round == 0 ? made_ns : copied_ns;
        assert_int_equal(rvli_clock_now(&clock), expected);
        assert_int_equal(ops.host_free(self, 0, host, size), RVL_OK);
        assert_int_equal(ops.host_free(self, 0, host, size), RVL_ERR_INVALID);
    }
    ops.close(self);
}

/* Digests are queued with the copies of their direction. */
static void digests_take_their_time(void **state)
{
    (void)state;
    const rvl_profile profile = {
        .struct_size = sizeof profile,
        .capacity_bytes = 8 * GRANULE,
        .granularity_bytes = GRANULE,
        .cost = {.fill = {0, 1000000}, .digest = {100, 3000000}},
    };
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options options = {
        .struct_size = sizeof options, .devices = devices, .device_count = 1};
    const rvli_backend_ops *ops = &rvli_sim_ops;
    rvli_clock clock = {0};
    void *self = NULL;
    int count = 0;
    uint64_t addr = 0;
    rvli_handle block = 0;
    rvli_digest digest;
    assert_int_equal(ops->open(&options, &clock, &self, &count), RVL_OK);
    assert_int_equal(ops->create(self, 0, GRANULE, 0, &block), RVL_OK);
    assert_int_equal(ops->reserve(self, 0, GRANULE, &addr), RVL_OK);
    assert_int_equal(ops->map(self, 0, addr, GRANULE, block), RVL_OK);
    assert_int_equal(ops->set_access(self, 0, addr, GRANULE, 1), RVL_OK);
    assert_int_equal(ops->fill(self, 0, addr, GRANULE, 1), RVL_OK);
    assert_int_equal(ops->digest(self, 0, addr, GRANULE, false, NULL, &digest), RVL_OK);
    assert_int_equal(rvli_clock_now(&clock), 0);
    assert_int_equal(ops->synchronize(self, 0), RVL_OK);
    assert_int_equal(rvli_clock_now(&clock), 100 + 3 * GRANULE); /* beside the filling */
    assert_int_equal(ops->fill(self, 0, addr, GRANULE, 1), RVL_OK);
    assert_int_equal(ops->digest(self, 0, addr, GRANULE, true, NULL, &digest), RVL_OK);
    assert_int_equal(ops->synchronize(self, 0), RVL_OK);
    assert_int_equal(rvli_clock_now(&clock), 200 + 7 * GRANULE); /* after it */
    ops->close(self);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    const rvli_backend_ops *ops = &rvli_sim_ops;
    rvli_clock clock = {0};
    void *self = NULL;
    int count = 0;
    rvl_profile profile = {.struct_size = sizeof profile};
    assert_int_equal(rvl_profile_find("1GiB", &profile), RVL_OK);
    const rvl_profile *devices[] = {&profile};
    rvl_sim_options good = {
        .struct_size = sizeof good, .devices = devices, .device_count = 1, .poison = 1};
    rvl_sim_options bad = good;
    bad.memory = (rvl_sim_memory)7;
    assert_int_equal(ops->open(&bad, &clock, &self, &count), RVL_ERR_INVALID);
    bad = good;
    bad.poison = 256;
    assert_int_equal(ops->open(&bad, &clock, &self, &count), RVL_ERR_INVALID);
    bad = good;
    bad.device_count = 0;
    assert_int_equal(ops->open(&bad, &clock, &self, &count), RVL_ERR_INVALID);
    profile.granularity_bytes = 3000;
    assert_int_equal(ops->open(&good, &clock, &self, &count), RVL_ERR_INVALID);
    profile.granularity_bytes = GRANULE;
    profile.capacity_bytes = 0;
    assert_int_equal(ops->open(&good, &clock, &self, &count), RVL_ERR_INVALID);
    assert_null(self);
}

static void overcommitted_devices_go_on(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.memory = RVL_SIM_ACCOUNTED,
                                                          .capacity_bytes = 4 * MIB,
                                                          .overcommit = true},
                                        NULL);
    rvl_addr huge = support_alloc(context, "t", 0, UINT64_C(1) << 50, RVL_BACKUP_NONE);
    assert_int_equal(support_stats(context, 0).used_bytes, UINT64_C(1) << 50);
    rvl_addr none = 0;
    /* Beyond the simulated address space. */
    assert_int_equal(rvl_alloc(context, UINT64_C(1) << 60, NULL, &none), RVL_ERR_DEVICE_OOM);
    assert_int_equal(rvl_free(context, huge), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_paused_memory_faults),
        cmocka_unit_test(profiles_are_described),
        cmocka_unit_test(printed_totals_lie_within_the_doubt),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(time_passes_as_the_costs_say),
        cmocka_unit_test(released_memory_is_reclaimed),
        cmocka_unit_test(creates_wait_for_cleared_memory),
        cmocka_unit_test(releases_pay_for_cleared_memory),
        cmocka_unit_test(calls_take_longer_while_it_clears),
        cmocka_unit_test(host_memory_begins_in_chunks),
        cmocka_unit_test(buffers_are_filled_while_others_are_made),
        cmocka_unit_test(host_memory_is_made_once),
        cmocka_unit_test(digests_take_their_time),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(overcommitted_devices_go_on),
    };
    rvl_profile profile = {.struct_size = sizeof profile};
    rvl_profile_find("64MiB", &profile);
    const rvl_profile *devices[] = {&profile, &profile};
    rvl_sim_options options = {
        .struct_size = sizeof options, .devices = devices, .device_count = 2};
    const rvli_backend_ops *ops = &rvli_sim_ops;
    int failed = contract_run("contract, backed", ops, &options);
    options.memory = RVL_SIM_ACCOUNTED;
    failed += contract_run("contract, accounted", ops, &options);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
