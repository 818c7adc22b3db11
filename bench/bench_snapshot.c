/* SPDX-License-Identifier: MIT */
/*
 * Reading a PyTorch snapshot and running its allocations through the model: entries per second from
 * file to peaks, by processor time and by the clock, best of 5, on a snapshot made up here: as it
 * is, and gzipped (FILE.gz).
 *
 *     bench_snapshot [ENTRIES [FILE]]
 *
 * FILE keeps the snapshot; bench/compare_memory_viz.py sets the command against PyTorch's on it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <libdeflate.h>

#include "reveille/snapshot.h"
#include "tests/support/snapshot_writer.h"

#define ROUNDS 5
#define LIVE 256 /* blocks at a time */
#define MIB (UINT64_C(1) << 20)

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "bench_snapshot: %s failed\n", what);
    exit(1);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* A block of each kind of pool, as activations are: most small, some of many MiB. */
static uint64_t block_size(uint64_t *seed)
{
    uint64_t kind = next_random(seed) % 8;
    if (kind < 4)
        return 512 * (1 + next_random(seed) % 1024);
    return kind < 7 ? MIB + 4096 * (next_random(seed) % 2048) : MIB * (10 + next_random(seed) % 60);
}

/* Blocks are freed in the order of a slot chosen at random, and something else takes the slot. */
static void make_up(test_event *events, size_t count)
{
    test_event live[LIVE] = {{0}};
    uint64_t seed = 1, addr = UINT64_C(0x7f0000000000);
    for (size_t i = 0; i < count;) {
        test_event *slot = &live[next_random(&seed) % LIVE];
        if (slot->size > 0 && i + 2 < count) {
            events[i] = *slot;
            events[i++].action = "free_requested";
            events[i] = *slot;
            events[i++].action = "free_completed";
        }
        *slot = (test_event){.action = "alloc", .addr = addr, .size = block_size(&seed)};
        addr += MIB;
        events[i++] = *slot;
    }
}

static void save(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    require(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0,
            "writing the snapshot");
}

/* As gzip packs it where nothing else is said. */
static uint64_t write_packed(const char *path, const written *bytes)
{
    struct libdeflate_compressor *packer = libdeflate_alloc_compressor(6);
    unsigned char *packed = malloc(bytes->size);
    require(packer != NULL && packed != NULL, "packing the snapshot");
    size_t size = libdeflate_gzip_compress(packer, bytes->data, bytes->size, packed, bytes->size);
    require(size > 0, "packing the snapshot");
    save(path, packed, size);
    free(packed);
    libdeflate_free_compressor(packer);
    return size;
}

static void write_files(const char *path, const char *packed_path, size_t count)
{
    test_event *events = calloc(count, sizeof *events);
    require(events != NULL, "making entries");
    make_up(events, count);
    test_snapshot what = {.events = events, .event_count = count};
    written bytes = write_snapshot(&what);
    free(events);
    save(path, bytes.data, bytes.size);
    uint64_t packed_size = write_packed(packed_path, &bytes);
    free(bytes.data);
    printf("%zu entries, %.1f MB, gzipped %.1f MB\n", count, (double)bytes.size / 1e6,
           (double)packed_size / 1e6);
}

static void measure(const char *what, const char *path, const rvl_snapshot_options *options,
                    size_t count)
{
    uint64_t best_ns = UINT64_MAX, best_clock_ns = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        rvl_snapshot *snapshot = NULL;
        uint64_t begin_clock_ns = now_ns(CLOCK_MONOTONIC);
        uint64_t begin_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        require(rvl_snapshot_run(path, options, &snapshot) == RVL_OK, "running it");
        uint64_t took_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
        uint64_t took_clock_ns = now_ns(CLOCK_MONOTONIC) - begin_clock_ns;
        rvl_snapshot_close(snapshot);
        best_ns = took_ns < best_ns ? took_ns : best_ns;
        best_clock_ns = took_clock_ns < best_clock_ns ? took_clock_ns : best_clock_ns;
    }
    printf("%-20s %6.1f ns/entry, %5.2f million entries/s; by the clock %6.1f ns/entry\n", what,
           (double)best_ns / (double)count, (double)count * 1e3 / (double)best_ns,
           (double)best_clock_ns / (double)count);
}

int main(int argc, char **argv)
{
    static const char *const settings[] = {"expandable_segments=true"};
    char packed_path[4096], made_up[] = "/tmp/bench-snapshot-XXXXXX";
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    const char *path = argc > 2 ? argv[2] : made_up;
    rvl_snapshot_options options = {.struct_size = sizeof options};
    struct rusage usage;
    require(count > 3 && (argc > 2 || mkdtemp(made_up) != NULL), "making a file");
    if (argc <= 2)
        require(rmdir(made_up) == 0, "making a file");
    snprintf(packed_path, sizeof packed_path, "%s.gz", path);
    write_files(path, packed_path, count);
    measure("predict", path, &options, count);
    measure("predict, gzipped", packed_path, &options, count);
    options.settings = settings;
    options.setting_count = 1;
    measure("predict, expandable", path, &options, count);
    require(getrusage(RUSAGE_SELF, &usage) == 0, "asking for the memory");
    printf("peak memory %.1f MB, the making of the snapshot included\n",
           (double)usage.ru_maxrss * 1024 / 1e6);
    if (argc <= 2) {
        unlink(path);
        unlink(packed_path);
    }
    return 0;
}
