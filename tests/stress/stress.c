/* SPDX-License-Identifier: MIT */
/*
 * Random calls of the whole public API, compared with a small model, while signals, forks and kills
 * fall in.
 *
 * Rounds follow each other until the time is over: each has a context of its own, drawn at random.
 * With one thread a seed gives the same calls and answers every time, and the digest that is
 * printed says so. docs/testing.md has how to read a failure.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "actions.h"
#include "adversary.h"
#include "random.h"
#include "round.h"

#define STEPS 250
#define DEFAULT_SECONDS 5
#define KILL_EVERY 12 /* rounds */

char stress_folder[256] = "/tmp/reveille-stress-XXXXXX";
char stress_disk_folder[300];

typedef struct settings {
    uint64_t seed;
    uint64_t seconds;
    uint64_t rounds; /* 0: until the time is over */
    int threads;     /* 0: drawn for each round */
    const char *victim;
    bool calm; /* no signals, forks and kills */
} settings;

void stress_folders_make(void)
{
    if (mkdir(stress_folder, 0700) != 0 && errno != EEXIST)
        calls_give_up(stress_folder);
    snprintf(stress_disk_folder, sizeof stress_disk_folder, "%s/disk", stress_folder);
    if (mkdir(stress_disk_folder, 0700) != 0 && errno != EEXIST)
        calls_give_up(stress_disk_folder);
}

void stress_folders_remove(void)
{
    char line[400];
    snprintf(line, sizeof line, "rm -rf '%s'", stress_folder);
    if (system(line) != 0)
        calls_give_up(stress_folder);
}

/* ---- Arguments ---- */

static uint64_t number_of(const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0' || errno != 0) {
        fprintf(stderr, "stress: \"%s\" is not a number\n", text);
        exit(2);
    }
    return value;
}

static _Noreturn void explain(void)
{
    fputs("usage: stress [--seed N] [--seconds S] [--threads T] [--rounds R] [--calm]\n"
          "Without --seed it is drawn, and printed. RVL_STRESS_SEED and RVL_STRESS_SECONDS are "
          "the defaults.\n",
          stderr);
    exit(2);
}

static settings read_settings(int count, char **words)
{
    const char *seconds = getenv("RVL_STRESS_SECONDS"), *seed = getenv("RVL_STRESS_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    settings s = {.seconds = seconds != NULL ? number_of(seconds) : DEFAULT_SECONDS,
                  .seed =
                      seed != NULL
                          ? number_of(seed)
                          : stress_mix((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20) >> 32};
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        if (strcmp(word, "--calm") == 0) {
            s.calm = true;
            continue;
        }
        if (i + 1 == count)
            explain();
        const char *value = words[++i];
        if (strcmp(word, "--victim") == 0)
            s.victim = value;
        else if (strcmp(word, "--seed") == 0)
            s.seed = number_of(value);
        else if (strcmp(word, "--seconds") == 0)
            s.seconds = number_of(value);
        else if (strcmp(word, "--rounds") == 0)
            s.rounds = number_of(value);
        else if (strcmp(word, "--threads") == 0)
            s.threads = (int)number_of(value);
        else
            explain();
    }
    if (s.threads < 0 || s.threads > THREADS_MAX)
        explain();
    return s;
}

/* ---- The run ---- */

static bool is_over(const settings *s, time_t begin_s, uint64_t round)
{
    struct timespec now;
    if (s->rounds > 0)
        return round == s->rounds;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return round > 0 && (uint64_t)(now.tv_sec - begin_s) >= s->seconds;
}

static int threads_of(const settings *s, uint64_t *random)
{
    static const int often[] = {1, 1, 2, 3, 4, 6};
    uint64_t drawn = random_below(random, sizeof often / sizeof *often);
    return s->threads > 0 ? s->threads : often[drawn];
}

/* Both kinds, one after the other. */
static void kill_one(const settings *s, uint64_t *random, uint64_t round)
{
    caller by = {.seed = s->seed, .thread = -1, .step = round, .random = random_next(random)};
    if (round / KILL_EVERY % 2 == 0)
        kill_a_recorder(&by);
    else
        kill_a_command(&by);
}

static uint64_t run(const settings *s)
{
    struct timespec begin;
    uint64_t random = s->seed, digest = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t round = 0; !is_over(s, begin.tv_sec, round); round++) {
        const round_options options = {.seed = s->seed,
                                       .random = &random,
                                       .threads = threads_of(s, &random),
                                       .steps = STEPS,
                                       .tour = round == 0,
                                       .forks = !s->calm};
        round_run(&options, &digest);
        if (!s->calm && (round % KILL_EVERY == 0 || round == 1))
            kill_one(s, &random, round == 1 ? KILL_EVERY : round);
    }
    return digest;
}

/* Records and keeps backups on disk until it is killed. */
static _Noreturn void be_victim(const settings *s)
{
    uint64_t random = s->seed, digest = 0;
    snprintf(stress_folder, sizeof stress_folder, "%s", s->victim);
    stress_folders_make();
    alarm(2 * DEADLINE_S); /* the process that should kill it may be gone */
    for (;;) {
        const round_options options = {
            .seed = s->seed, .random = &random, .threads = 1, .steps = STEPS, .keeps_trace = true};
        round_run(&options, &digest);
    }
}

static void report(const settings *s, uint64_t digest)
{
    printf(
        "stress: %llu rounds, %llu calls of %d functions, %llu of them refused as they had to be; "
        "%llu faults, %llu refused requests for memory, %llu allocations lost by faults; "
        "%llu signals, %llu forks (%llu killed), %llu kills\n",
        (unsigned long long)counts->rounds, (unsigned long long)calls_total(), (int)API_COUNT,
        (unsigned long long)counts->failed_answers, (unsigned long long)counts->faults,
        (unsigned long long)counts->refused_requests, (unsigned long long)counts->lost,
        (unsigned long long)counts->signals, (unsigned long long)counts->forks,
        (unsigned long long)counts->killed_children, (unsigned long long)counts->kills);
    if (s->threads == 1)
        printf("stress: digest %016llx\n", (unsigned long long)digest);
}

int main(int count, char **words)
{
    settings s = read_settings(count, words);
    calls_begin();
    if (s.victim != NULL)
        be_victim(&s);
    if (mkdtemp(stress_folder) == NULL)
        calls_give_up(stress_folder);
    stress_folders_make();
    printf("stress: --seed %llu --seconds %llu --threads %d\n", (unsigned long long)s.seed,
           (unsigned long long)s.seconds, s.threads);
    fflush(stdout);
    if (!s.calm)
        adversary_start(s.seed);
    uint64_t digest = run(&s);
    if (!s.calm)
        adversary_stop();
    report(&s, digest);
    stress_folders_remove();
    return calls_report_missing() == 0 ? 0 : 1;
}
