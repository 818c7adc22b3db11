/* SPDX-License-Identifier: MIT */
/*
 * Pausing and resuming on a real GPU: Reveille, torch_memory_saver, and the bare limits, on the
 * same work in the same run.
 *
 * Each measurement is a process of its own, so that nobody profits from what another left behind;
 * limits are measured between them. Prints one JSON object a line; bench/gpu/table.py makes the
 * table with its ratios.
 *
 *     bench_gpu --peer LIBRARY --disk DIRECTORY     everything
 *     bench_gpu --one WORK SUBJECT                  one measurement, here
 *
 * To try it out without a GPU: RVL_CUDA_LIBRARY=.../libcuda-fake.so bench_gpu --small. What the
 * library adds to its driver calls shows best where those cost nothing, on any machine:
 * RVL_CUDA_LIBRARY=.../libcuda-costless.so bench_gpu --overhead
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "driver.h"
#include "limits.h"
#include "need.h"
#include "overhead.h"
#include "subject.h"

#define CYCLES 5
#define CHANGE_CYCLES 3
#define VERIFY_CYCLES 10
#define DISK_CYCLES 3
#define DISK_ENOUGH_S 60.0 /* on a slow disk two cycles must do */

static const work works[] = {
    {.name = "plain_256x160MiB", .count = 256, .size = 160 * MIB},
    {.name = "plain_8192x2MiB", .count = 8192, .size = 2 * MIB},
    {.name = "coalesced_8192x2MiB", .count = 8192, .size = 2 * MIB, .coalesce_bytes = 128 * MIB},
    {.name = "kept_102x160MiB", .count = 102, .size = 160 * MIB, .backup = BACKUP_KEPT},
    {.name = "given_back_102x160MiB", .count = 102, .size = 160 * MIB, .backup = BACKUP_GIVEN_BACK},
    {.name = "plain_2000x2MiB", .count = 2000, .size = 2 * MIB},
    {.name = "kept_2000x2MiB", .count = 2000, .size = 2 * MIB, .backup = BACKUP_KEPT},
    {.name = "coalesced_kept_2000x2MiB",
     .count = 2000,
     .size = 2 * MIB,
     .backup = BACKUP_KEPT,
     .coalesce_bytes = 128 * MIB},
    {.name = "kept_1x4GiB", .count = 1, .size = 4 * GIB, .backup = BACKUP_KEPT},
    {.name = "hand_over_256x160MiB", .count = 256, .size = 160 * MIB, .kind = WORK_HAND_OVER},
    {.name = "changed_102x160MiB",
     .count = 102,
     .size = 160 * MIB,
     .backup = BACKUP_KEPT,
     .kind = WORK_CHANGES,
     .retain_backups = true},
    {.name = "verified_102x160MiB",
     .count = 102,
     .size = 160 * MIB,
     .backup = BACKUP_KEPT,
     .kind = WORK_VERIFIED},
    {.name = "disk", .size = 160 * MIB, .backup = BACKUP_ON_DISK}, /* as much as --disk-gib says */
};
#define WORKS (sizeof works / sizeof works[0])

static const work overhead_work = {.name = "overhead", .count = 8192, .size = 2 * MIB};

/* What the command line says. */
static struct {
    const char *peer, *only, *disk;
    uint64_t disk_bytes;
    int rounds;
    bool small;
    char *words[64]; /* all of it: processes of their own are started with the same */
    int word_count;
} given = {.disk_bytes = 8 * GIB, .rounds = 15};

static const subject *const subjects[] = {&subject_bare, &subject_reveille, &subject_peer};
#define SUBJECTS (sizeof subjects / sizeof subjects[0])

static bool rehearsing; /* what is done is not measured */

/* ---- One measurement ---- */

static void print_cycle(const char *name, const work *w, const subject *s, int cycle,
                        double pause_s, double resume_s, const char *found)
{
    printf("{\"work\":\"%s\",\"subject\":\"%s\",\"cycle\":%d,\"count\":%zu,\"bytes\":%llu,"
           "\"pause_s\":%.6f,\"resume_s\":%.6f,\"content\":\"%s\"}\n",
           name, s->name, cycle, w->count, (unsigned long long)(w->count * w->size), pause_s,
           resume_s, found);
    fflush(stdout);
}

static uint64_t *addresses_of(const work *w)
{
    uint64_t *addrs = calloc(w->count, sizeof *addrs);
    need(addrs != NULL, "host memory");
    return addrs;
}

static void run_cycles(const work *w, const subject *s)
{
    int cycles = rehearsing ? 1 : w->backup == BACKUP_ON_DISK ? DISK_CYCLES : CYCLES;
    double started = now_s();
    uint64_t *addrs = addresses_of(w);
    content *written = NULL;
    s->open(w, given.peer);
    s->allocate(w, "first", addrs);
    if (w->backup != BACKUP_NONE) {
        written = content_new(w, addrs);
        content_change_all(written);
    }
    for (int cycle = 0; cycle < cycles; cycle++) {
        if (w->backup == BACKUP_ON_DISK && cycle > 0 && now_s() - started > DISK_ENOUGH_S)
            cycles = cycle + 1;
        if (w->backup == BACKUP_ON_DISK) { /* a disk is not as fast at all times */
            measure_disk(w->disk_directory, w->count * w->size, 1);
            measure_disk(w->disk_directory, w->count * w->size, 4);
        }
        double begin = now_s();
        s->pause("first");
        double paused = now_s();
        /*
         * The driver clears what was just released before it gives it out again. Where contents are
         * backed up, somebody else works in between, and copying is what is measured.
         */
        if (w->backup != BACKUP_NONE)
            usleep(300000);
        double middle = now_s();
        s->resume("first");
        double end = now_s();
        const char *found = "none";
        if (written != NULL)
            found = content_is_there(written, cycle == cycles - 1) ? "same" : "DIFFERENT";
        print_cycle(w->name, w, s, cycle, paused - begin, end - middle, found);
        if (w->backup == BACKUP_GIVEN_BACK)
            sleep(
                1); /* what goes on behind the caller's back must not be timed as the next pause */
    }
}

/* One tag's pause with another's resume: the step from trainer to engine and back. */
static void run_hand_over(const work *w, const subject *s)
{
    static const char *const tags[] = {"first", "second"};
    uint64_t *addrs = addresses_of(w);
    s->open(w, given.peer);
    s->allocate(w, tags[0], addrs);
    s->pause(tags[0]);
    s->allocate(w, tags[1], addrs);
    for (int cycle = 0; cycle < 2 * CYCLES; cycle++) {
        double begin = now_s();
        s->pause(tags[(cycle + 1) % 2]);
        double middle = now_s();
        s->resume(tags[cycle % 2]);
        print_cycle(w->name, w, s, cycle, middle - begin, now_s() - middle, "none");
    }
}

/* ---- Backups that are retained ---- */

static void change_nothing(content *written)
{
    (void)written;
}

/* Every other pause follows a change of everything: it finds nothing that is right by chance. */
static void run_changes(const work *w, const subject *s)
{
    static const struct {
        const char *name;
        void (*change)(content *written);
    } cases[] = {{"changed_all_102x160MiB", content_change_all},
                 {"changed_none_102x160MiB", change_nothing},
                 {"changed_granule_102x160MiB", content_change_some}};
    uint64_t *addrs = addresses_of(w);
    s->open(w, given.peer);
    s->allocate(w, "first", addrs);
    content *written = content_new(w, addrs);
    for (int cycle = 0; cycle < (rehearsing ? 1 : CHANGE_CYCLES); cycle++)
        for (int i = 0; i < 3; i++) {
            cases[i].change(written);
            double begin = now_s();
            s->pause("first");
            double paused = now_s();
            usleep(300000);
            double middle = now_s();
            s->resume("first");
            double end = now_s();
            bool there = content_is_there(written, cycle == CHANGE_CYCLES - 1);
            print_cycle(cases[i].name, w, s, cycle, paused - begin, end - middle,
                        there ? "same" : "DIFFERENT");
        }
}

/* ---- With and without digests ---- */

typedef struct arm {
    work w;
    struct rvl_context *context;
    uint64_t *addrs;
    content *written;
} arm;

static void open_arm(arm *a, const work *w, bool no_verify)
{
    a->w = *w;
    a->w.no_verify = no_verify;
    a->context = reveille_open(&a->w);
    a->addrs = addresses_of(w);
    reveille_allocate(a->context, &a->w, "first", a->addrs);
    a->written = content_new(&a->w, a->addrs);
    content_change_all(a->written);
}

static void run_arm(arm *a, int cycle)
{
    double begin = now_s();
    reveille_pause(a->context, "first");
    double paused = now_s();
    usleep(300000);
    double middle = now_s();
    reveille_resume(a->context, "first");
    double end = now_s();
    print_cycle(a->w.no_verify ? "verified_not_102x160MiB" : "verified_102x160MiB", &a->w,
                &subject_reveille, cycle, paused - begin, end - middle,
                content_is_there(a->written, false) ? "same" : "DIFFERENT");
}

/* In turns, and who is first changes too: what is to be seen is smaller than what time changes. */
static void run_verified(const work *w)
{
    arm arms[2];
    open_arm(&arms[0], w, false);
    open_arm(&arms[1], w, true);
    for (int cycle = 0; cycle < (rehearsing ? 1 : VERIFY_CYCLES); cycle++) {
        run_arm(&arms[cycle % 2], cycle);
        run_arm(&arms[1 - cycle % 2], cycle);
    }
}

/* ---- By name ---- */

/* As the command line wants it. */
static work fitted(const work *plain)
{
    work w = *plain;
    if (w.backup == BACKUP_ON_DISK) {
        w.disk_directory = given.disk;
        w.count = (size_t)(given.disk_bytes / w.size);
    }
    if (given.small) {
        w.count = w.count > 4 ? 4 : w.count;
        w.size = w.size > 8 * MIB ? 8 * MIB : w.size;
    }
    if (given.small && w.coalesce_bytes != 0)
        w.coalesce_bytes = 8 * MIB;
    return w;
}

static void run_work(const work *w, const subject *s)
{
    driver_open();
    if (w->kind == WORK_HAND_OVER)
        run_hand_over(w, s);
    else if (w->kind == WORK_CHANGES)
        run_changes(w, s);
    else if (w->kind == WORK_VERIFIED)
        run_verified(w);
    else
        run_cycles(w, s);
}

/*
 * Memory that a virtual machine has not used lately is far slower to touch, since its host may have
 * taken it back: the first process on an idle machine takes twice as long as the second. So one
 * cycle of the same work is done by a process of its own just before. (Touching more than that is
 * worse: the machine then reports to its host what was freed, beside the measurement.)
 */
static void rehearse(const work *w, const subject *s)
{
    pid_t child = fork();
    if (child == 0) {
        rehearsing = true;
        need(freopen("/dev/null", "w", stdout) != NULL, "/dev/null");
        run_work(w, s);
        exit(0);
    }
    int status = 0;
    need(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the rehearsal");
}

static int run_one(const char *work_name, const char *subject_name)
{
    const work *plain = NULL;
    const subject *s = NULL;
    for (size_t i = 0; i < WORKS; i++)
        if (strcmp(works[i].name, work_name) == 0)
            plain = &works[i];
    for (size_t i = 0; i < SUBJECTS; i++)
        if (strcmp(subjects[i]->name, subject_name) == 0)
            s = subjects[i];
    need(plain != NULL && s != NULL, "no such work, or nobody of that name");
    work w = fitted(plain);
    if (w.backup == BACKUP_ON_DISK) {
        need(w.disk_directory != NULL, "this work needs --disk DIRECTORY");
        need_disk(w.disk_directory, w.count * w.size);
    }
    if (w.backup == BACKUP_KEPT || w.backup == BACKUP_GIVEN_BACK)
        rehearse(&w, s);
    run_work(&w, s);
    return 0;
}

/* ---- Everything ---- */

/* A process of its own, with our words and more; its lines go where ours go. Its exit status. */
static int in_a_process(const char *mode, const char *work_name, const char *subject_name)
{
    const char *words[sizeof given.words / sizeof given.words[0] + 4];
    int count = 0;
    for (; count < given.word_count; count++)
        words[count] = given.words[count];
    words[count++] = mode;
    words[count++] = work_name;
    words[count++] = subject_name;
    words[count] = NULL;
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", (char *const *)words);
        _exit(127);
    }
    int status = 0;
    need(child > 0 && waitpid(child, &status, 0) == child, "starting a process");
    if (status != 0)
        fprintf(stderr, "bench_gpu: %s %s %s failed\n", mode, work_name ? work_name : "",
                subject_name ? subject_name : "");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool possible(const work *w, const subject *s)
{
    bool ours = w->kind == WORK_CHANGES || w->kind == WORK_VERIFIED ||
                w->backup == BACKUP_ON_DISK || w->coalesce_bytes != 0;
    if (w->backup == BACKUP_ON_DISK && given.disk == NULL)
        return false;
    if (s == &subject_bare)
        return w->backup == BACKUP_NONE;
    return s == &subject_reveille || (given.peer != NULL && !ours);
}

static int run_all(void)
{
    if (given.disk != NULL) /* now, and not after minutes */
        need_disk(given.disk, given.small ? 32 * MIB : given.disk_bytes);
    int status = in_a_process("--limits", NULL, NULL);
    if (status == SKIPPED)
        return status;
    bool failed = status != 0;
    for (size_t i = 0; i < WORKS; i++) {
        if (given.only != NULL && strstr(works[i].name, given.only) == NULL)
            continue;
        for (size_t k = 0; k < SUBJECTS; k++)
            if (possible(&works[i], subjects[k]))
                failed |= in_a_process("--one", works[i].name, subjects[k]->name) != 0;
    }
    if (given.only == NULL || strstr("overhead", given.only) != NULL)
        failed |= in_a_process("--overhead", NULL, NULL) != 0;
    return failed;
}

static int run_overhead(void)
{
    work w = overhead_work;
    if (given.small)
        w.count = 256;
    driver_open();
    measure_overhead(&w, given.rounds);
    return 0;
}

static int run_limits(void)
{
    driver_open();
    measure_limits(given.small);
    return 0;
}

/* ---- The command line ---- */

static int print_usage(int status)
{
    puts("usage: bench_gpu [--peer LIBRARY] [--disk DIRECTORY [--disk-gib N]] [--rounds N] "
         "[--small]\n"
         "                 [--only PART_OF_A_WORK'S_NAME | --one WORK SUBJECT | --limits | "
         "--overhead]\n"
         "--disk: measures backups on the disk that the directory is on, of N GiB (8)\n"
         "--rounds: of the overhead (15); --small: a few MiB each, to try the program out");
    return status;
}

static uint64_t number_of(const char *text)
{
    char *end = NULL;
    uint64_t number = strtoull(text, &end, 10);
    need(number >= 1 && number <= 1000 && *end == '\0', "a number of 1 to 1000 is needed");
    return number;
}

/* The mode that was asked for, 'a' for everything, 'h' for help or '?'. */
static int read_words(int argc, char **argv)
{
    static const struct option options[] = {{"peer", required_argument, NULL, 'p'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"disk", required_argument, NULL, 'd'},
                                            {"disk-gib", required_argument, NULL, 'g'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"small", no_argument, NULL, 's'},
                                            {"one", no_argument, NULL, '1'},
                                            {"limits", no_argument, NULL, 'l'},
                                            {"overhead", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int mode = 'a';
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p')
            given.peer = optarg;
        else if (option == 'o')
            given.only = optarg;
        else if (option == 'd')
            given.disk = optarg;
        else if (option == 'g')
            given.disk_bytes = number_of(optarg) * GIB;
        else if (option == 'r')
            given.rounds = (int)number_of(optarg);
        else if (option == 's')
            given.small = true;
        else
            mode = option;
    }
    return mode;
}

int main(int argc, char **argv)
{
    need((size_t)argc < sizeof given.words / sizeof given.words[0], "too many words");
    for (given.word_count = 0; given.word_count < argc; given.word_count++)
        given.words[given.word_count] = argv[given.word_count];
    switch (read_words(argc, argv)) {
    case 'a':
        return optind == argc ? run_all() : print_usage(2);
    case '1':
        need(argc - optind == 2, "--one: name a work and a subject");
        return run_one(argv[optind], argv[optind + 1]);
    case 'l':
        return run_limits();
    case 'v':
        return run_overhead();
    case 'h':
        return print_usage(0);
    default:
        return print_usage(2);
    }
}
