/* SPDX-License-Identifier: MIT */
/*
 * Replay of text traces, parse included.
 *
 * Writes a trace of N events that keeps about L allocations live (once there are L, one picked at
 * random is freed for every one that is made), replays it and prints events/s, ns for each event
 * and the highest resident memory. Every run is a process of its own, so that memory figures are
 * its own.
 *
 *     bench_replay                          the table: 10^4 to 10^7 events at 10^3 and 10^6 live
 *     bench_replay --events N --live L      one run
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "reveille/replay.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define SEED UINT64_C(0x243F6A8885A308D3)
#define DEVICE "1048576GiB" /* room for everything: what overflows is not what is measured */

typedef struct generator {
    FILE *out;
    uint64_t state;
    uint64_t *ids; /* live */
    uint64_t live;
    uint64_t next_id;
} generator;

static uint64_t random_of(generator *made)
{
    made->state ^= made->state << 13;
    made->state ^= made->state >> 7;
    made->state ^= made->state << 17;
    return made->state;
}

static void write_alloc(generator *made, uint64_t time_ns)
{
    uint64_t bytes = 2 * MIB * (1 + random_of(made) % 8);
    uint64_t id = made->next_id++;
    fprintf(made->out, "alloc %" PRIu64 " engine 1 %" PRIu64 " 0 %" PRIu64 " weights\n", time_ns,
            id, bytes);
    made->ids[made->live++] = id;
}

static void write_free(generator *made, uint64_t time_ns)
{
    uint64_t place = random_of(made) % made->live;
    fprintf(made->out, "free %" PRIu64 " engine 1 %" PRIu64 "\n", time_ns, made->ids[place]);
    made->ids[place] = made->ids[--made->live];
}

static int write_trace(const char *path, uint64_t events, uint64_t live)
{
    generator made = {.out = fopen(path, "w"), .state = SEED, .next_id = 1};
    made.ids = malloc((live + 1) * sizeof *made.ids);
    if (made.out == NULL || made.ids == NULL) {
        perror(path);
        return 1;
    }
    fprintf(made.out, "reveille-trace 1.0\nclock boot=- mono_ns=0 wall_ns=0\n");
    fprintf(made.out,
            "device 0 profile=- capacity_bytes=%" PRIu64 " granularity_bytes=%" PRIu64 "\n",
            1024 * GIB, 2 * MIB);
    fprintf(made.out, "process engine pid=1\n");
    for (uint64_t i = 0; i < events; i++) {
        if (made.live >= live)
            write_free(&made, i * 1000);
        else
            write_alloc(&made, i * 1000);
    }
    fprintf(made.out, "end %" PRIu64 "\n", events);
    free(made.ids);
    return fclose(made.out) != 0;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int replay_once(const char *path, uint64_t events, uint64_t live)
{
    rvl_replay_options options = {.struct_size = sizeof options, .device = DEVICE};
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay *replay;
    struct rusage usage;
    double began_s = now_s();
    rvl_status status = rvl_replay_run(&path, 1, &options, &replay);
    rvl_last_error(&error);
    double took_s = now_s() - began_s;
    if (status != RVL_OK) {
        fprintf(stderr, "%s:%" PRIu32 ": %s\n", path, error.line, error.message);
        return 1;
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("%10" PRIu64 " %10" PRIu64 " %12.0f %9.1f %10.1f\n", events, live,
           (double)events / took_s, took_s * 1e9 / (double)events,
           (double)usage.ru_maxrss / 1024.0);
    rvl_replay_close(replay);
    return 0;
}

/* Writing the trace and replaying it are two processes: the writer's memory is not the replay's. */
static int in_child(int (*work)(const char *, uint64_t, uint64_t), const char *path,
                    uint64_t events, uint64_t live)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int result = work(path, events, live);
        fflush(stdout);
        _exit(result);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int measure(uint64_t events, uint64_t live)
{
    char path[] = "/tmp/reveille-bench-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) {
        perror(path);
        return 1;
    }
    close(file);
    int result = in_child(write_trace, path, events, live);
    if (result == 0)
        result = in_child(replay_once, path, events, live);
    unlink(path);
    return result;
}

static int measure_table(void)
{
    static const uint64_t live[] = {1000, 1000000};
    for (size_t i = 0; i < sizeof live / sizeof live[0]; i++) {
        for (uint64_t events = 10000; events <= 10000000; events *= 10) {
            if (measure(events, live[i]) != 0)
                return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"events", required_argument, NULL, 'e'},
                                            {"live", required_argument, NULL, 'l'},
                                            {NULL, 0, NULL, 0}};
    uint64_t events = 0, live = 1000;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?') {
            fprintf(stderr, "usage: bench_replay [--events N] [--live L]\n");
            return 2;
        }
        *(option == 'e' ? &events : &live) = strtoull(optarg, NULL, 10);
    }
    if (live == 0)
        live = 1;
    printf("%10s %10s %12s %9s %10s\n", "events", "live", "events/s", "ns/event", "peak MiB");
    return events > 0 ? measure(events, live) : measure_table();
}
