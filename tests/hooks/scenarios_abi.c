/* SPDX-License-Identifier: MIT */
/* What torch_memory_saver's interface promises, as its Python package and its tests use it. */
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

/* ---- Settings ---- */

static void *check_defaults(void *unused)
{
    EXPECT(h.tms_get_interesting_region(), false);
    EXPECT(h.tms_get_enable_cpu_backup(), false);
    EXPECT(h.tms_get_enable_disk_backup(), false);
    EXPECT_TEXT(h.tms_get_current_tag(), "default");
    EXPECT_TEXT(h.tms_get_cpu_backup_backend(), "pinned");
    return unused;
}

static void settings(void)
{
    char name[] = "weights";
    check_defaults(NULL);
    h.tms_set_current_tag(name);
    name[0] = 'W'; /* what was passed is the caller's */
    h.tms_set_interesting_region(true);
    h.tms_set_enable_cpu_backup(true);
    h.tms_set_enable_disk_backup(true);
    h.tms_set_cpu_backup_backend("mmap");
    EXPECT_TEXT(h.tms_get_current_tag(), "weights");
    EXPECT(h.tms_get_interesting_region(), true);
    EXPECT(h.tms_get_enable_cpu_backup(), true);
    EXPECT(h.tms_get_enable_disk_backup(), true);
    EXPECT_TEXT(h.tms_get_cpu_backup_backend(), "mmap");
    h.tms_set_cpu_backup_backend("");
    EXPECT_TEXT(h.tms_get_cpu_backup_backend(), "pinned");
    pthread_t other;
    EXPECT(pthread_create(&other, NULL, check_defaults, NULL), 0);
    EXPECT(pthread_join(other, NULL), 0);
    EXPECT(h.tms_get_retain_cpu_backup(), false);
    h.tms_set_retain_cpu_backup(true);
    EXPECT(h.tms_get_retain_cpu_backup(), true);
    h.tms_set_retain_cpu_backup(false);
    EXPECT(h.tms_get_retain_cpu_backup(), false);
}

static void *check_environment(void *unused)
{
    EXPECT(h.tms_get_interesting_region(), true);
    EXPECT(h.tms_get_enable_cpu_backup(), true);
    EXPECT_TEXT(h.tms_get_cpu_backup_backend(), "mmap");
    EXPECT(h.tms_get_retain_cpu_backup(), true);
    EXPECT_TEXT(h.tms_get_current_tag(), "default");
    return unused;
}

/* With TMS_INIT_ENABLE and its like set: every thread begins inside. */
static void environment(void)
{
    pthread_t other;
    check_environment(NULL);
    EXPECT(pthread_create(&other, NULL, check_environment, NULL), 0);
    EXPECT(pthread_join(other, NULL), 0);
    uint8_t *at = hook_malloc(SIZE, 0);
    fill(at, 9);
    EXPECT(h.tms_pause(NULL), 0);
    EXPECT(used(0), 0);
    EXPECT(h.tms_resume(NULL), 0);
    EXPECT(holds(at, 9), true);
    hook_free(at);
}

static void disk_environment(void)
{
    EXPECT(h.tms_get_enable_disk_backup(), true);
    EXPECT(h.tms_get_interesting_region(), true);
    EXPECT(h.tms_get_enable_cpu_backup(), false);
}

/* ---- Pausing and resuming ---- */

static void cycle(void)
{
    uint8_t *outside = hook_malloc(SIZE, 0);
    fill(outside, 1);
    uint8_t *kept = in_region("default", HOST, 0, 2);
    uint8_t *lost = in_region("default", NOTHING, 0, 3);
    EXPECT(used(0), 3 * SIZE);
    EXPECT(h.tms_get_cpu_backup_pointer(kept, SIZE) == NULL, true);

    EXPECT(h.tms_pause(NULL), 0);
    EXPECT(used(0), SIZE);
    EXPECT(holds(outside, 1), true);
    const uint8_t *backup = h.tms_get_cpu_backup_pointer(kept, SIZE);
    EXPECT(backup != NULL, true);
    EXPECT(holds(backup, 2), true);
    EXPECT(registered(backup), true);
    EXPECT(h.tms_get_cpu_backup_pointer(kept + 5, SIZE - 5) == backup + 5, true);
    EXPECT(h.tms_get_cpu_backup_pointer(kept + 5, SIZE) == NULL, true);
    EXPECT(h.tms_get_cpu_backup_pointer(lost, 1) == NULL, true);
    EXPECT(h.tms_get_cpu_backup_pointer(outside, 1) == NULL, true);

    EXPECT(h.tms_resume(NULL), 0);
    EXPECT(used(0), 3 * SIZE);
    EXPECT(holds(kept, 2), true);
    EXPECT(holds(lost, 3), false);
    EXPECT(h.tms_get_cpu_backup_pointer(kept, SIZE) == NULL, true);
    hook_free(kept);
    hook_free(lost);
    hook_free(outside);
    EXPECT(used(0), 0);
}

static void tags(void)
{
    uint8_t *weights = in_region("weights", HOST, 0, 4);
    uint8_t *cache = in_region("kv_cache", NOTHING, 0, 5);
    EXPECT(h.tms_pause("never used"), 0);
    EXPECT(h.tms_pause("weights"), 0);
    EXPECT(used(0), SIZE);
    EXPECT(holds(cache, 5), true);
    uint8_t *more = in_region("weights", HOST, 0, 6); /* under a paused tag */
    EXPECT(holds(more, 6), true);
    EXPECT(h.tms_pause(NULL), 0); /* everything, part of which is paused already */
    EXPECT(used(0), 0);
    EXPECT(h.tms_resume("weights"), 0);
    EXPECT(used(0), 2 * SIZE);
    EXPECT(h.tms_resume(""), 0);
    EXPECT(used(0), 3 * SIZE);
    EXPECT(holds(weights, 4), true);
    EXPECT(holds(more, 6), true);
    EXPECT(h.rvl_hooks_pause("never used"), RVL_ERR_NOT_FOUND);
    EXPECT(h.rvl_hooks_resume("never used"), RVL_ERR_NOT_FOUND);
}

static void devices(void)
{
    uint8_t *first = in_region("t", HOST, 0, 7);
    EXPECT(fake_stats_get().live.context_references, h.preload ? 3 : 2);
    uint8_t *second = in_region("t", HOST, 1, 8);
    EXPECT(used(0), SIZE);
    EXPECT(used(1), SIZE);
    EXPECT(h.tms_pause("t"), 0);
    EXPECT(used(0) + used(1), 0);
    EXPECT(h.tms_resume("t"), 0);
    EXPECT(used(0), SIZE);
    EXPECT(used(1), SIZE);
    EXPECT(holds(first, 7), true);
    EXPECT(holds(second, 8), true);
    rvl_context *context = NULL, *same = NULL;
    EXPECT(h.rvl_hooks_get_context(1, &context), RVL_OK);
    EXPECT(h.rvl_hooks_get_context(1, &same), RVL_OK);
    EXPECT(context != NULL && context == same, true);
    EXPECT(h.rvl_hooks_get_context(-1, &same), RVL_ERR_INVALID);
    EXPECT(h.rvl_hooks_get_context(64, &same), RVL_ERR_NO_DEVICE);
    for (int device = 0; device < 2; device++) {
        int found = -1;
        EXPECT(h.rvl_hooks_get_context_at((size_t)device, &found, &same), RVL_OK);
        EXPECT(found, device);
        EXPECT(same == context, device == 1);
    }
    int device = -1;
    EXPECT(h.rvl_hooks_get_context_at(2, &device, &same), RVL_ERR_NOT_FOUND);
    EXPECT(h.rvl_hooks_get_context_at(0, NULL, &same), RVL_ERR_INVALID);
    EXPECT(device, -1);
}

static void *free_it(void *pointer)
{
    hook_free(pointer);
    return NULL;
}

/* Outside a region, in another thread, while it is paused: freeing is freeing. */
static void freeing(void)
{
    pthread_t other;
    uint8_t *at = in_region("a", HOST, 0, 1);
    EXPECT(pthread_create(&other, NULL, free_it, at), 0);
    EXPECT(pthread_join(other, NULL), 0);
    EXPECT(used(0), 0);
    at = in_region("a", NOTHING, 0, 2);
    EXPECT(h.tms_pause("a"), 0);
    hook_free(at);
    EXPECT(h.tms_resume("a"), 0);
    EXPECT(used(0), 0);
    at = in_region("a", NOTHING, 0, 3);
    h.tms_set_interesting_region(true);
    hook_free(at);
    uint8_t *nothing = hook_malloc(0, 0);
    EXPECT(nothing == NULL, true);
    hook_free(NULL);
    EXPECT(fake_stats_get().live.handles + fake_stats_get().live.mappings, 0);
}

/* ---- Backups in host memory ---- */

static void retain(void)
{
    uint8_t *at = in_region("r", HOST, 0, 10);
    EXPECT(h.tms_pause("r"), 0);
    const uint8_t *first = h.tms_get_cpu_backup_pointer(at, SIZE);
    EXPECT(holds(first, 10), true);
    h.tms_set_retain_cpu_backup(true);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(h.tms_get_cpu_backup_pointer(at, SIZE) == first, true);
    h.tms_set_retain_cpu_backup(false); /* what is retained stays until the next resume */
    EXPECT(h.tms_get_cpu_backup_pointer(at + 1, 1) == first + 1, true);
    EXPECT(holds(first, 10), true);
    fill(at, 11);
    EXPECT(h.tms_pause("r"), 0);
    EXPECT(h.tms_get_cpu_backup_pointer(at, SIZE) == first, true);
    EXPECT(holds(first, 11), true);
    h.tms_set_retain_cpu_backup(true);
    EXPECT(h.tms_resume(NULL), 0);
    EXPECT(h.tms_get_cpu_backup_pointer(at, SIZE) == first, true);
    EXPECT(holds(at, 11), true);
    h.tms_set_retain_cpu_backup(false);
    EXPECT(h.tms_pause("r"), 0);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(h.tms_get_cpu_backup_pointer(at, SIZE) == NULL, true);
    EXPECT(holds(at, 11), true);
}

/* Host memory that is retained goes with the allocation, be it active or paused. */
static void retained_free(void)
{
    h.tms_set_retain_cpu_backup(true);
    for (int paused = 0; paused < 2; paused++) {
        uint8_t *at = in_region("r", HOST, 0, 12);
        EXPECT(h.tms_pause("r"), 0);
        const uint8_t *backup = h.tms_get_cpu_backup_pointer(at, SIZE);
        EXPECT(registered(backup), true);
        if (!paused)
            EXPECT(h.tms_resume("r"), 0);
        hook_free(at);
        EXPECT(registered(backup), false);
    }
}

static rvl_host_memory host_memory(void)
{
    rvl_context *context = NULL;
    rvl_host_memory memory = {.struct_size = sizeof memory};
    EXPECT(h.rvl_hooks_get_context(0, &context), RVL_OK);
    EXPECT(h.rvl_host_get_memory(context, &memory), RVL_OK);
    return memory;
}

/* "mmap" memory is the system's again after the resume, "pinned" memory is kept for the next. */
static void reclaim(void)
{
    uint8_t *kept = in_region("kept", HOST, 0, 1);
    EXPECT(h.tms_pause("kept"), 0);
    EXPECT(h.tms_resume("kept"), 0);
    uint64_t made = host_memory().pinned_bytes;
    EXPECT(made >= SIZE, true);
    hook_free(kept);
    uint8_t *at = in_region("r", RECLAIMED, 0, 13);
    EXPECT(h.tms_pause("r"), 0);
    const uint8_t *backup = h.tms_get_cpu_backup_pointer(at, SIZE);
    EXPECT(holds(backup, 13), true);
    EXPECT(host_memory().pinned_bytes, made);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(holds(at, 13), true);
    EXPECT(host_memory().pinned_bytes, 0);
    EXPECT(registered(backup), false);
}

/* With RVL_HOST_KEEP=none. */
static void keep_none(void)
{
    uint8_t *at = in_region("kept", HOST, 0, 1);
    EXPECT(h.tms_pause("kept"), 0);
    EXPECT(h.tms_resume("kept"), 0);
    EXPECT(host_memory().pinned_bytes, 0);
    EXPECT(holds(at, 1), true);
}

/* With RVL_HOST_PAGEABLE=1. */
static void pageable(void)
{
    uint8_t *at = in_region("r", HOST, 0, 1);
    EXPECT(h.tms_pause("r"), 0);
    EXPECT(registered(h.tms_get_cpu_backup_pointer(at, SIZE)), false);
    EXPECT(host_memory().pinned_bytes, 0);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(host_memory().registering_refused, 0);
    EXPECT(holds(at, 1), true);
}

/* Others may have the process sleep if REVEILLE_CONTROL says so. A flag that nobody knows shows it.
 */
static void control(void)
{
    const char *asked = getenv("REVEILLE_CONTROL");
    const rvl_control_request request = {
        .struct_size = sizeof request, .verb = RVL_CONTROL_SLEEP, .flags = 1u << 20};
    uint8_t *at = in_region("r", HOST, 0, 17);
    EXPECT(h.rvl_control_ask(getpid(), &request, NULL),
           asked != NULL ? RVL_ERR_VERSION : RVL_ERR_NOT_FOUND);
    EXPECT(holds(at, 17), true);
}

/* With REVEILLE_POISON, if it is set. */
static void poison(void)
{
    const char *asked = getenv("REVEILLE_POISON");
    uint8_t *kept = in_region("r", HOST, 0, 18);
    uint8_t *lost = in_region("r", NOTHING, 0, 19);
    EXPECT(h.tms_pause("r"), 0);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(holds(kept, 18), true);
    EXPECT(holds(lost, 0xFF), asked != NULL);
}

/* With REVEILLE_STORE. */
static void in_store(void)
{
    uint8_t *at = in_region("r", HOST, 0, 14);
    uint8_t *same = in_region("r", HOST, 0, 14);
    EXPECT(h.tms_pause("r"), 0);
    EXPECT(host_memory().store_bytes, 2 * SIZE);
    EXPECT(host_memory().store_found_bytes, SIZE);
    EXPECT(host_memory().used_bytes, 0);
    const uint8_t *backup = h.tms_get_cpu_backup_pointer(at, SIZE);
    EXPECT(registered(backup), false);
    EXPECT(holds(backup, 14), true);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(host_memory().store_bytes, 0);
    EXPECT(holds(at, 14), true);
    EXPECT(holds(same, 14), true);
}

/* With a store that has no room, and REVEILLE_STORE_FULL=disk. */
static void store_full(void)
{
    uint8_t *at = in_region("r", HOST, 0, 15);
    EXPECT(h.tms_pause("r"), 0);
    EXPECT(host_memory().store_bytes, 0);
    EXPECT(host_memory().used_bytes, 0);
    EXPECT(h.tms_get_cpu_backup_pointer(at, SIZE) == NULL, true);
    EXPECT(h.tms_resume("r"), 0);
    EXPECT(holds(at, 15), true);
}

/* ---- Backups on disk ---- */

static uint64_t count_files(const char *directory, uint64_t *bytes_out)
{
    uint64_t count = 0;
    *bytes_out = 0;
    DIR *files = opendir(directory);
    EXPECT(files != NULL, true);
    for (struct dirent *each; (each = readdir(files)) != NULL;) {
        char path[PATH_MAX];
        struct stat facts;
        if (each->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, each->d_name);
        EXPECT(stat(path, &facts), 0);
        EXPECT(S_ISREG(facts.st_mode), true);
        *bytes_out += (uint64_t)facts.st_size;
        count++;
    }
    closedir(files);
    return count;
}

/* Files are listed by name and size while memory is paused, one for each allocation. */
static void disk(void)
{
    const char *directory = getenv("PROGRAM_DIRECTORY");
    uint64_t bytes = 0, first_bytes = 0;
    h.tms_set_disk_backup_dir(directory);
    uint8_t *a = in_region("default", DISK, 0, 21);
    uint8_t *b = in_region("default", DISK, 0, 22);
    uint8_t *none = in_region("default", NOTHING, 0, 23);
    EXPECT(count_files(directory, &bytes), 0);
    for (int i = 0; i < 3; i++) {
        EXPECT(h.tms_pause(NULL), 0);
        EXPECT(used(0), 0);
        EXPECT(count_files(directory, &bytes), 2);
        EXPECT(bytes >= 2 * SIZE, true);
        first_bytes = i == 0 ? bytes : first_bytes;
        EXPECT(bytes, first_bytes);
        EXPECT(h.tms_get_cpu_backup_pointer(a, 1) == NULL, true);
        EXPECT(h.tms_resume(NULL), 0);
        EXPECT(count_files(directory, &bytes), 0);
        EXPECT(holds(a, 21), true);
        EXPECT(holds(b, 22), true);
        EXPECT(holds(none, 23), false);
        fill(none, 23);
    }
    EXPECT(h.tms_pause("default"), 0);
    hook_free(a);
    EXPECT(count_files(directory, &bytes), 1);
    /* The rest goes with the process. */
}

/* A second directory, made on demand, for what is allocated from then on. */
static void disk_directories(void)
{
    char other[PATH_MAX];
    uint64_t bytes = 0;
    const char *directory = getenv("PROGRAM_DIRECTORY");
    snprintf(other, sizeof other, "%s/made/on demand", directory);
    h.tms_set_disk_backup_dir(directory);
    uint8_t *a = in_region("t", DISK, 0, 31);
    h.tms_set_disk_backup_dir(other);
    uint8_t *b = in_region("t", DISK, 0, 32);
    EXPECT(h.tms_pause("t"), 0);
    EXPECT(count_files(other, &bytes), 1);
    EXPECT(h.tms_resume("t"), 0);
    EXPECT(count_files(other, &bytes), 0);
    EXPECT(holds(a, 31), true);
    EXPECT(holds(b, 32), true);
    EXPECT(rmdir(other), 0);
    snprintf(other, sizeof other, "%s/made", directory);
    EXPECT(rmdir(other), 0);
}

/* TMS_DISK_BACKUP_DIR and TMS_RETAIN_CPU_BACKUP: a file that is kept keeps its name. */
static void disk_retained(void)
{
    uint64_t bytes = 0;
    const char *directory = getenv("TMS_DISK_BACKUP_DIR");
    uint8_t *a = in_region("t", DISK, 0, 41);
    EXPECT(h.tms_pause("t"), 0);
    EXPECT(count_files(directory, &bytes), 1);
    EXPECT(h.tms_resume("t"), 0);
    EXPECT(count_files(directory, &bytes), 1);
    fill(a, 42);
    EXPECT(h.tms_pause("t"), 0);
    EXPECT(count_files(directory, &bytes), 1);
    h.tms_set_retain_cpu_backup(false);
    EXPECT(h.tms_resume("t"), 0);
    EXPECT(count_files(directory, &bytes), 0);
    EXPECT(holds(a, 42), true);
}

/* ---- What memory there is ---- */

/* The margin is that of the allocation's device, not of the thread's. */
static void margin(void)
{
    uint64_t capacity = 1024 * MIB;
    uint8_t *at = in_region("m", NOTHING, 1, 1);
    EXPECT(fake_take(1, capacity - SIZE - 64 * MIB), true);
    h.set_memory_margin_bytes(32 * MIB);
    h.tms_set_interesting_region(true);
    void *fits = hook_malloc(32 * MIB, 1);
    EXPECT(fits != NULL, true);
    EXPECT(hook_malloc(1, 1) == NULL, true); /* 2 MiB of 32 + 32 */
    void *other = hook_malloc(32 * MIB, 0);
    EXPECT(other != NULL, true);
    h.set_memory_margin_bytes(0);
    EXPECT(hook_malloc(1, 1) != NULL, true);
    h.tms_set_interesting_region(false);
    hook_free(at);
}

/* Without a word: PyTorch frees what it can and tries again. */
static void out_of_memory(void)
{
    h.tms_set_interesting_region(true);
    EXPECT(hook_malloc(2048 * MIB, 0) == NULL, true);
    EXPECT(hook_malloc(2048 * MIB, 1) == NULL, true);
    if (h.preload) {
        void *pointer = NULL;
        EXPECT(cudaMalloc(&pointer, 2048 * MIB), 2);
        EXPECT(pointer == NULL, true);
        EXPECT(h.cudaGetLastError(), 0);
    }
    EXPECT(hook_malloc(512 * MIB, 0) != NULL, true);
}

static void both_backups(void)
{
    h.tms_set_interesting_region(true);
    h.tms_set_enable_cpu_backup(true);
    h.tms_set_enable_disk_backup(true);
    EXPECT(hook_malloc(SIZE, 0) == NULL, true);
}

static void bad_directory(void)
{
    h.tms_set_disk_backup_dir("/proc/none");
    h.tms_set_interesting_region(true);
    h.tms_set_enable_disk_backup(true);
    EXPECT(hook_malloc(SIZE, 0) == NULL, true);
    h.tms_set_enable_disk_backup(false);
    EXPECT(hook_malloc(SIZE, 0) != NULL, true);
}

static void free_fails(void)
{
    uint8_t *at = in_region("f", NOTHING, 0, 1);
    EXPECT(fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false), true);
    if (h.preload)
        EXPECT(cudaFree(at), 999);
    else
        h.tms_torch_free(at, 0, 0, NULL);
    EXPECT(holds(at, 1), true);
    hook_free(at);
    EXPECT(used(0), 0);
}

/* ---- Failure ---- */

static void pause_fails(void)
{
    in_region("weights", HOST, 0, 1);
    EXPECT(fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false), true);
    h.tms_pause("weights");
    printf("still alive\n");
}

static void resume_fails(void)
{
    in_region("kv_cache", NOTHING, 0, 1);
    EXPECT(h.tms_pause(NULL), 0);
    EXPECT(fake_take(0, 1024 * MIB - 2 * MIB), true);
    h.tms_resume("kv_cache");
    printf("still alive\n");
}

/* As Reveille's own Python layer does it: told, nothing lost, tried again. */
static void resume_told(void)
{
    rvl_error error = {.struct_size = sizeof error};
    uint8_t *at = in_region("kv_cache", HOST, 1, 51);
    EXPECT(h.rvl_hooks_pause("kv_cache"), RVL_OK);
    EXPECT(fake_take(1, 1024 * MIB - 2 * MIB), true);
    EXPECT(h.rvl_hooks_resume("kv_cache"), RVL_ERR_DEVICE_OOM);
    EXPECT(h.rvl_last_error(&error), RVL_OK);
    EXPECT(error.requested_bytes, SIZE);
    EXPECT(error.free_bytes, 2 * MIB);
    EXPECT_TEXT(error.tag, "kv_cache");
    EXPECT(error.device, 1);
    EXPECT(strstr(error.message, "needs 4.0 MiB, 2.0 MiB free on device 1: ") != NULL, true);
    EXPECT(used(1), 0);
    EXPECT(fake_take(1, 0), true);
    EXPECT(h.rvl_hooks_resume(NULL), RVL_OK);
    EXPECT(holds(at, 51), true);
}

static void bad_kind(void)
{
    h.tms_set_cpu_backup_backend("numa");
}

static void bad_tag(void)
{
    h.tms_set_current_tag(NULL);
}

static void long_tag(void)
{
    char name[300];
    memset(name, 'x', sizeof name);
    name[255] = '\0';
    h.tms_set_current_tag(name);
    EXPECT_TEXT(h.tms_get_current_tag(), name);
    name[255] = 'x';
    name[256] = '\0';
    h.tms_set_current_tag(name);
}

static void no_directory(void)
{
    h.tms_set_disk_backup_dir("");
}

const scenario abi_scenarios[] = {
#define SCENARIO(name)                                                                             \
    {                                                                                              \
#name, name                                                                                \
    }
    SCENARIO(settings),
    SCENARIO(environment),
    SCENARIO(disk_environment),
    SCENARIO(cycle),
    SCENARIO(tags),
    SCENARIO(devices),
    SCENARIO(freeing),
    SCENARIO(retain),
    SCENARIO(retained_free),
    SCENARIO(reclaim),
    SCENARIO(keep_none),
    SCENARIO(pageable),
    SCENARIO(control),
    SCENARIO(poison),
    SCENARIO(in_store),
    SCENARIO(store_full),
    SCENARIO(disk),
    SCENARIO(disk_directories),
    SCENARIO(disk_retained),
    SCENARIO(margin),
    SCENARIO(out_of_memory),
    SCENARIO(both_backups),
    SCENARIO(bad_directory),
    SCENARIO(free_fails),
    SCENARIO(pause_fails),
    SCENARIO(resume_fails),
    SCENARIO(resume_told),
    SCENARIO(bad_kind),
    SCENARIO(bad_tag),
    SCENARIO(long_tag),
    SCENARIO(no_directory),
    {NULL, NULL},
};
