/* SPDX-License-Identifier: MIT */
/*
 * Backups: digests that tell damage from change, backups that outlive a resume, and files.
 *
 * Linked with --wrap for the disk's calls, which can so be made to fail at any turn.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/backup/disk/queue.h"
#include "base/error.h"
#include "tests/support/support.h"

#define COUNT 4
#define BYTES (3 * GRANULE)

static char directory[] = "/tmp/reveille-backup-XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) != NULL ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

/* ---- The disk's calls ---- */

/* The n-th call from now on fails; 0: none does. */
static int fail_open, fail_submit, fail_wait, fail_queue;
static bool full_for_good;     /* and a second try of opening fails, too */
static _Atomic int files_open; /* now */
static int last_fd;            /* of the file opened last */

static bool is_turn(int *countdown)
{
    return *countdown > 0 && --*countdown == 0;
}

rvl_status __real_rvli_disk_file_open(const char *path, uint64_t size, rvli_disk_file *file_out);
rvl_status __wrap_rvli_disk_file_open(const char *path, uint64_t size, rvli_disk_file *file_out);
rvl_status __wrap_rvli_disk_file_open(const char *path, uint64_t size, rvli_disk_file *file_out)
{
    if (is_turn(&fail_open)) {
        fail_open = full_for_good ? 1 : 0;
        full_for_good = false;
        return rvli_error(RVL_ERR_DISK_FULL, "the disk is full");
    }
    rvl_status status = __real_rvli_disk_file_open(path, size, file_out);
    files_open += status == RVL_OK;
    last_fd = status == RVL_OK ? file_out->fd : last_fd;
    return status;
}

void __real_rvli_disk_file_close(rvli_disk_file *file);
void __wrap_rvli_disk_file_close(rvli_disk_file *file);
void __wrap_rvli_disk_file_close(rvli_disk_file *file)
{
    files_open--;
    __real_rvli_disk_file_close(file);
}

rvl_status __real_rvli_disk_queue_open(rvli_disk_engine engine, unsigned depth,
                                       rvli_disk_queue **queue_out);
rvl_status __wrap_rvli_disk_queue_open(rvli_disk_engine engine, unsigned depth,
                                       rvli_disk_queue **queue_out);
rvl_status __wrap_rvli_disk_queue_open(rvli_disk_engine engine, unsigned depth,
                                       rvli_disk_queue **queue_out)
{
    if (is_turn(&fail_queue))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a queue");
    return __real_rvli_disk_queue_open(engine, depth, queue_out);
}

rvl_status __real_rvli_disk_queue_submit(rvli_disk_queue *queue, rvli_disk_request *request);
rvl_status __wrap_rvli_disk_queue_submit(rvli_disk_queue *queue, rvli_disk_request *request);
rvl_status __wrap_rvli_disk_queue_submit(rvli_disk_queue *queue, rvli_disk_request *request)
{
    if (is_turn(&fail_submit))
        return rvli_error(RVL_ERR_IO, "the disk answers no more");
    return __real_rvli_disk_queue_submit(queue, request);
}

rvl_status __real_rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request);
rvl_status __wrap_rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request);
rvl_status __wrap_rvli_disk_queue_wait(rvli_disk_queue *queue, rvli_disk_request *request)
{
    rvl_status status = __real_rvli_disk_queue_wait(queue, request);
    return is_turn(&fail_wait) ? rvli_error(RVL_ERR_IO, "the disk has lost a request") : status;
}

/* ---- A scene ---- */

typedef struct scene {
    rvl_context *context;
    fault_injector *fault;
    rvl_tag tag;
    rvl_addr addrs[COUNT];
} scene;

static scene open_scene(rvl_backup backup, bool retain, bool no_verify)
{
    scene s = {0};
    s.context = support_open((support_options){.capacity_bytes = 128 * MIB,
                                               .disk_directory = directory,
                                               .no_verify = no_verify},
                             &s.fault);
    rvl_tag_options options = {.struct_size = sizeof options,
                               .flags = retain ? RVL_TAG_RETAIN_BACKUPS : 0};
    assert_int_equal(rvl_tag_define(s.context, "w", &options, &s.tag), RVL_OK);
    for (int i = 0; i < COUNT; i++) {
        s.addrs[i] = support_alloc(s.context, "w", 0, BYTES, backup);
        support_fill(s.addrs[i], BYTES, (uint64_t)i);
    }
    return s;
}

static rvl_status pause_all(const scene *s)
{
    return rvl_pause(s->context, &s->tag, 1, NULL);
}

static rvl_status resume_all(const scene *s)
{
    return rvl_resume(s->context, &s->tag, 1, NULL);
}

static void check_content(const scene *s)
{
    for (int i = 0; i < COUNT; i++)
        assert_true(support_holds(s->addrs[i], BYTES, (uint64_t)i));
}

static uint64_t copied_out(const scene *s)
{
    return support_stats(s->context, 0).backup_out_bytes;
}

static uint64_t *backup_word(const scene *s, int i, uint64_t offset)
{
    const void *host = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(s->context, s->addrs[i] + offset, &host, &size), RVL_OK);
    return (uint64_t *)(uintptr_t)host;
}

/* ---- Digests ---- */

static void damage_is_found_and_costs_nothing(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_HOST, false, false);
    assert_int_equal(pause_all(&s), RVL_OK);
    uint64_t *word = backup_word(&s, 2, GRANULE + 8);
    *word ^= 1;
    assert_int_equal(resume_all(&s), RVL_ERR_DIGEST_MISMATCH);
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_string_equal(error.op, "digest");
    assert_non_null(strstr(error.message, "no_restore"));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(support_state(s.context, s.addrs[i]), RVL_STATE_PAUSED);
    assert_int_equal(support_stats(s.context, 0).used_bytes, 0);
    assert_int_equal(support_stats(s.context, 0).host_backup_bytes, COUNT * BYTES);
    assert_ptr_equal(backup_word(&s, 2, GRANULE + 8), word);
    *word ^= 1;
    assert_int_equal(resume_all(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

static void damage_passes_where_nobody_looks(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_HOST, false, true);
    assert_int_equal(pause_all(&s), RVL_OK);
    uint64_t *word = backup_word(&s, 1, 0);
    uint64_t damaged = *word ^= 1;
    assert_int_equal(resume_all(&s), RVL_OK);
    assert_int_equal(*(volatile uint64_t *)(uintptr_t)s.addrs[1], damaged);

    /* And where it was asked not to restore. */
    scene t = open_scene(RVL_BACKUP_HOST, false, false);
    assert_int_equal(pause_all(&t), RVL_OK);
    *backup_word(&t, 1, 0) ^= 1;
    rvl_resume_options options = {.struct_size = sizeof options, .flags = RVL_RESUME_NO_RESTORE};
    assert_int_equal(rvl_resume(t.context, &t.tag, 1, &options), RVL_OK);
    assert_int_equal(support_stats(t.context, 0).host_backup_bytes, 0);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    assert_int_equal(rvl_context_close(t.context, NULL), RVL_OK);
}

/* ---- Retained backups ---- */

static void only_what_changed_is_copied(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_HOST, true, false);
    rvl_context *context = s.context;
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(copied_out(&s), COUNT * BYTES);
    assert_int_equal(resume_all(&s), RVL_OK);
    assert_int_equal(support_stats(context, 0).host_backup_bytes, COUNT * BYTES);

    /* While the memory is in use the backup is nobody's business. */
    const void *host = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(context, s.addrs[0], &host, &size), RVL_ERR_NOT_FOUND);

    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(copied_out(&s), COUNT * BYTES);
    assert_int_equal(resume_all(&s), RVL_OK);
    check_content(&s);

    support_fill(s.addrs[1] + GRANULE, GRANULE, 50);     /* one in the middle */
    support_fill(s.addrs[3] + GRANULE, 2 * GRANULE, 51); /* two to the end */
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(copied_out(&s), COUNT * BYTES + 3 * GRANULE);
    assert_int_equal(resume_all(&s), RVL_OK);
    assert_true(support_holds(s.addrs[1], GRANULE, 1));
    assert_true(support_holds(s.addrs[1] + GRANULE, GRANULE, 50));
    assert_true(support_holds(s.addrs[3], GRANULE, 3));
    assert_true(support_holds(s.addrs[3] + GRANULE, 2 * GRANULE, 51));

    /* Freed, its backup goes too. */
    assert_int_equal(rvl_free(context, s.addrs[3]), RVL_OK);
    assert_int_equal(support_stats(context, 0).host_backup_bytes, 3 * BYTES);
    /* Thrown away, content must not come back from an older pause. */
    rvl_pause_options discard = {.struct_size = sizeof discard, .flags = RVL_PAUSE_DISCARD};
    assert_int_equal(rvl_pause(context, &s.tag, 1, &discard), RVL_OK);
    assert_int_equal(support_stats(context, 0).host_backup_bytes, 0);
    assert_int_equal(resume_all(&s), RVL_OK);
    assert_false(support_holds(s.addrs[0], BYTES, 0));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* A pause that fails half way leaves a backup that is half of each: it must not be trusted. */
static void half_a_copy_is_not_trusted(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_HOST, true, false);
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(resume_all(&s), RVL_OK);
    for (int i = 0; i < COUNT; i++)
        support_fill(s.addrs[i], BYTES, (uint64_t)(i + 100));
    uint64_t before = copied_out(&s);
    fault_set(s.fault,
              &(fault_plan){.op_mask = UINT64_C(1) << RVLI_OP_copy_to_host, .countdown = 3});
    assert_int_not_equal(pause_all(&s), RVL_OK);
    fault_set(s.fault, &(fault_plan){0});
    assert_int_equal(copied_out(&s), before);
    for (int i = 0; i < COUNT; i++)
        support_fill(s.addrs[i], BYTES, (uint64_t)i); /* what the digests remember */
    assert_int_equal(pause_all(&s), RVL_OK);
    /* The first three had been copied to, or were about to be. */
    assert_int_equal(copied_out(&s), before + 3 * BYTES);
    assert_int_equal(resume_all(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

#define HOST_CALLS (UINT64_C(1) << RVLI_OP_host_alloc | UINT64_C(1) << RVLI_OP_copy_to_host)

static void check_nothing_happened(scene *s)
{
    const fault_plan counting = {.op_mask = HOST_CALLS};
    assert_int_equal(support_stats(s->context, 0).host_backup_bytes, 0);
    check_content(s);
    fault_set(s->fault, &counting);
}

/*
 * Host memory is made behind host_alloc, and a copy waits for it. So all is asked for before the
 * first copy, and given back if that or a later one cannot be had.
 */
static void host_memory_is_asked_for_before_the_first_copy(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_HOST, false, false);
    fault_set(s.fault, &(fault_plan){.op_mask = HOST_CALLS, .countdown = COUNT});
    assert_int_equal(pause_all(&s), RVL_ERR_HOST_OOM); /* the last host_alloc */
    assert_int_equal(fault_calls(s.fault, RVLI_OP_host_alloc), COUNT);
    assert_int_equal(fault_calls(s.fault, RVLI_OP_copy_to_host), 0);
    assert_int_equal(fault_calls(s.fault, RVLI_OP_host_free), COUNT - 1);
    check_nothing_happened(&s);
    fault_set(s.fault, &(fault_plan){.op_mask = HOST_CALLS, .countdown = COUNT + 1});
    assert_int_not_equal(pause_all(&s), RVL_OK); /* the first copy */
    assert_int_equal(fault_calls(s.fault, RVLI_OP_host_alloc), COUNT);
    assert_int_equal(fault_calls(s.fault, RVLI_OP_copy_to_host), 1);
    assert_int_equal(fault_calls(s.fault, RVLI_OP_host_free), COUNT);
    check_nothing_happened(&s);
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(fault_calls(s.fault, RVLI_OP_host_alloc), COUNT);
    assert_int_equal(fault_calls(s.fault, RVLI_OP_copy_to_host), COUNT);
    assert_int_equal(support_stats(s.context, 0).host_backup_bytes, COUNT * BYTES);
    assert_int_equal(resume_all(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

/* Accounted memory has no content to compare: all of it is copied, into the same host memory. */
static void without_digests_all_is_copied(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.memory = RVL_SIM_ACCOUNTED}, NULL);
    rvl_tag tag = 0;
    rvl_tag_options options = {.struct_size = sizeof options, .flags = RVL_TAG_RETAIN_BACKUPS};
    assert_int_equal(rvl_tag_define(context, "w", &options, &tag), RVL_OK);
    support_alloc(context, "w", 0, BYTES, RVL_BACKUP_HOST);
    for (uint64_t round = 1; round <= 3; round++) {
        assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
        assert_int_equal(support_stats(context, 0).backup_out_bytes, round * BYTES);
        assert_int_equal(support_stats(context, 0).host_backup_bytes, BYTES);
    }
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Forecasts ---- */

static void forecasts_are_what_happens(void **state)
{
    (void)state;
    const struct {
        rvl_sim_memory memory;
        rvl_backup backup;
        bool retain, no_verify;
    } cases[] = {
        {RVL_SIM_BACKED, RVL_BACKUP_HOST, false, false},
        {RVL_SIM_BACKED, RVL_BACKUP_HOST, false, true},
        {RVL_SIM_ACCOUNTED, RVL_BACKUP_HOST, false, false},
        {RVL_SIM_ACCOUNTED, RVL_BACKUP_HOST, true, false},
        {RVL_SIM_ACCOUNTED, RVL_BACKUP_DISK, false, false},
        {RVL_SIM_ACCOUNTED, RVL_BACKUP_DISK, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rvl_context *context = support_open(
            (support_options){.memory = cases[i].memory, .no_verify = cases[i].no_verify}, NULL);
        rvl_tag tag = 0;
        rvl_tag_options options = {.struct_size = sizeof options,
                                   .flags = cases[i].retain ? RVL_TAG_RETAIN_BACKUPS : 0};
        assert_int_equal(rvl_tag_define(context, "w", &options, &tag), RVL_OK);
        for (int k = 0; k < COUNT; k++)
            support_alloc(context, "w", 0, BYTES, cases[i].backup);
        for (int round = 0; round < 3; round++) {
            rvl_forecast forecast = {.struct_size = sizeof forecast};
            assert_int_equal(rvl_pause_forecast(context, &tag, 1, NULL, &forecast), RVL_OK);
            uint64_t start_ns = rvl_clock_ns(context);
            assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
            assert_int_equal(rvl_clock_ns(context) - start_ns, forecast.time_ns);
            assert_int_equal(rvl_resume_forecast(context, &tag, 1, NULL, &forecast), RVL_OK);
            start_ns = rvl_clock_ns(context);
            assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
            assert_int_equal(rvl_clock_ns(context) - start_ns, forecast.time_ns);
        }
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    }
}

/* ---- Disk ---- */

static int files_in_directory(void)
{
    int count = 0;
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    for (const struct dirent *each = readdir(listing); each != NULL; each = readdir(listing))
        count += each->d_name[0] != '.' || each->d_name[1] != '\0';
    closedir(listing);
    return count - 1; /* ".." */
}

/* What lies in the file is the content, which the same bytes in memory show after resuming. */
static unsigned char from_file[4096] __attribute__((aligned(4096)));

static void check_in_file(const scene *s, rvl_addr addr, uint64_t size)
{
    int fd = -1;
    uint64_t offset = 1, left = 0;
    assert_int_equal(rvl_backup_find_file(s->context, addr, &fd, &offset, &left), RVL_OK);
    assert_int_equal(fd, last_fd);
    assert_int_equal(left, size);
    assert_int_equal(pread(fd, from_file, sizeof from_file, (off_t)offset), sizeof from_file);
    assert_int_equal(rvl_backup_find_file(s->context, addr, NULL, &offset, &left), RVL_ERR_INVALID);
}

static void files_keep_content(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_DISK, false, false);
    rvl_addr large = support_alloc(s.context, "w", 0, 34 * GRANULE, RVL_BACKUP_DISK);
    support_fill(large, 34 * GRANULE, 60); /* more than the ring of buffers holds */
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_pause_forecast(s.context, &s.tag, 1, NULL, &forecast), RVL_OK);
    assert_int_equal(forecast.disk_bytes, COUNT * BYTES + 34 * GRANULE);
    assert_int_equal(forecast.host_bytes, 0);
    assert_int_equal(pause_all(&s), RVL_OK);
    rvl_device_stats stats = support_stats(s.context, 0);
    assert_int_equal(stats.disk_backup_bytes, COUNT * BYTES + 34 * GRANULE);
    assert_int_equal(stats.host_backup_bytes, 0);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(files_in_directory(), 0); /* it has no name */
    const void *host = NULL;
    uint64_t size = 0;
    assert_int_equal(rvl_backup_find(s.context, large, &host, &size), RVL_ERR_NOT_FOUND);
    check_in_file(&s, large + GRANULE, 34 * GRANULE - GRANULE);

    assert_int_equal(rvl_free(s.context, s.addrs[0]), RVL_OK);
    assert_int_equal(support_stats(s.context, 0).disk_backup_bytes, 3 * BYTES + 34 * GRANULE);
    assert_int_equal(resume_all(&s), RVL_OK);
    for (int i = 1; i < COUNT; i++)
        assert_true(support_holds(s.addrs[i], BYTES, (uint64_t)i));
    assert_true(support_holds(large, 34 * GRANULE, 60));
    assert_memory_equal((const void *)(uintptr_t)(large + GRANULE), from_file, sizeof from_file);
    assert_int_equal(rvl_backup_find_file(s.context, large, &last_fd, &size, &size),
                     RVL_ERR_NOT_FOUND);
    stats = support_stats(s.context, 0);
    assert_int_equal(stats.disk_backup_bytes, 0);
    assert_int_equal(stats.disk_peak_bytes, COUNT * BYTES + 34 * GRANULE);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

static void retained_files_are_brought_up_to_date(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_DISK, true, false);
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(resume_all(&s), RVL_OK);
    support_fill(s.addrs[2], GRANULE, 70);
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(copied_out(&s), COUNT * BYTES + GRANULE);
    assert_int_equal(resume_all(&s), RVL_OK);
    assert_true(support_holds(s.addrs[2], GRANULE, 70));
    assert_true(support_holds(s.addrs[1], BYTES, 1));
    assert_int_equal(support_stats(s.context, 0).disk_backup_bytes, COUNT * BYTES);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

/* Fails one call of the disk at every turn; returns whether there was such a turn. */
static bool disk_fails_at(int *countdown, int turn, bool pausing, rvl_status expected)
{
    scene s = open_scene(RVL_BACKUP_DISK, false, false);
    if (!pausing)
        assert_int_equal(pause_all(&s), RVL_OK);
    *countdown = turn;
    full_for_good = countdown == &fail_open;
    rvl_status status = pausing ? pause_all(&s) : resume_all(&s);
    bool hit = *countdown == 0;
    *countdown = 0;
    full_for_good = false;
    assert_int_equal(status, hit ? expected : RVL_OK);
    if (hit) {
        rvl_state state = pausing ? RVL_STATE_ACTIVE : RVL_STATE_PAUSED;
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(support_state(s.context, s.addrs[i]), state);
        rvl_device_stats stats = support_stats(s.context, 0);
        assert_int_equal(stats.disk_backup_bytes, pausing ? 0 : COUNT * BYTES);
        assert_int_equal(stats.used_bytes, pausing ? COUNT * BYTES : 0);
        assert_int_equal(pausing ? pause_all(&s) : resume_all(&s), RVL_OK);
    }
    if (pausing)
        assert_int_equal(resume_all(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    return hit;
}

static void a_failing_disk_changes_nothing(void **state)
{
    (void)state;
    struct {
        int *countdown;
        rvl_status status;
        bool pauses, resumes; /* takes part in them */
    } calls[] = {
        {&fail_open, RVL_ERR_DISK_FULL, true, false},
        {&fail_queue, RVL_ERR_HOST_OOM, true, true},
        {&fail_submit, RVL_ERR_IO, true, true},
        {&fail_wait, RVL_ERR_IO, true, true},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int pausing = 0; pausing < 2; pausing++) {
            int turn = 1;
            while (disk_fails_at(calls[i].countdown, turn, pausing, calls[i].status))
                turn++;
            assert_int_equal(turn > 1, pausing ? calls[i].pauses : calls[i].resumes);
        }
}

/* Waits, at most some seconds, for what another thread does. */
static bool comes_true(bool (*question)(uint64_t), uint64_t about)
{
    for (int i = 0; i < 1000 && !question(about); i++)
        usleep(5000);
    return question(about);
}

static bool file_takes(uint64_t bytes)
{
    struct stat facts;
    assert_int_equal(fstat(last_fd, &facts), 0);
    return (uint64_t)facts.st_blocks * 512 == bytes;
}

static bool files_are_open(uint64_t count)
{
    return (uint64_t)files_open == count;
}

/* Of one backup at once, of the last one with the file. */
static void space_is_given_back(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_DISK, false, false);
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_true(files_are_open(1));
    assert_true(file_takes(COUNT * BYTES));
    assert_int_equal(rvl_free(s.context, s.addrs[1]), RVL_OK);
    assert_true(comes_true(file_takes, (COUNT - 1) * BYTES));
    assert_int_equal(resume_all(&s), RVL_OK);
    assert_true(comes_true(files_are_open, 0));
    assert_true(support_holds(s.addrs[2], BYTES, 2));
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
    assert_true(files_are_open(0)); /* closing waits */
}

/* What is being given back is room, too. */
static void a_full_disk_is_tried_again(void **state)
{
    (void)state;
    scene s = open_scene(RVL_BACKUP_DISK, false, false);
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(resume_all(&s), RVL_OK);
    fail_open = 1;
    assert_int_equal(pause_all(&s), RVL_OK);
    assert_int_equal(fail_open, 0);
    assert_true(files_are_open(1)); /* the first one was closed before the second try */
    assert_int_equal(resume_all(&s), RVL_OK);
    check_content(&s);
    assert_int_equal(rvl_context_close(s.context, NULL), RVL_OK);
}

static void directories_are_checked(void **state)
{
    (void)state;
    const struct {
        const char *directory;
        bool tmpfs;
        rvl_status status;
    } cases[] = {
        {"/nonexistent/reveille", false, RVL_ERR_INVALID},
        {"/dev/null", false, RVL_ERR_INVALID},
        {"/dev/shm", false, RVL_ERR_INVALID},
        {"/dev/shm", true, RVL_OK},
        {NULL, false, RVL_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rvl_context_options options = {.struct_size = sizeof options,
                                       .disk_directory = cases[i].directory,
                                       .flags = cases[i].tmpfs ? RVL_CONTEXT_DISK_TMPFS : 0};
        rvl_context *context = NULL;
        assert_int_equal(rvl_context_open("sim", &options, &context), cases[i].status);
        if (cases[i].status == RVL_OK)
            assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
        else
            assert_null(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_found_and_costs_nothing),
        cmocka_unit_test(damage_passes_where_nobody_looks),
        cmocka_unit_test(only_what_changed_is_copied),
        cmocka_unit_test(half_a_copy_is_not_trusted),
        cmocka_unit_test(host_memory_is_asked_for_before_the_first_copy),
        cmocka_unit_test(without_digests_all_is_copied),
        cmocka_unit_test(forecasts_are_what_happens),
        cmocka_unit_test(files_keep_content),
        cmocka_unit_test(retained_files_are_brought_up_to_date),
        cmocka_unit_test(a_failing_disk_changes_nothing),
        cmocka_unit_test(space_is_given_back),
        cmocka_unit_test(a_full_disk_is_tried_again),
        cmocka_unit_test(directories_are_checked),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
