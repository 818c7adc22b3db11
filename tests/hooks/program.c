/* SPDX-License-Identifier: MIT */
/* usage: program preload|torch SCENARIO */
#include "program.h"

#include <dlfcn.h>

hook h;

static void find(const char *name, void *function_out)
{
    bool common = strncmp(name, "rvl_", 4) == 0; /* to all hook libraries: libreveille has it */
    void *symbol = dlsym(common ? RTLD_DEFAULT : h.library, name);
    if (symbol == NULL) {
        printf("the hook library lacks %s\n", name);
        exit(1);
    }
    memcpy(function_out, &symbol, sizeof symbol);
}

static void open_hook(bool preload)
{
    h.preload = preload;
    h.library = preload ? RTLD_DEFAULT : dlopen(RVL_TORCH_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!preload && h.library == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    if (!preload) {
        find("tms_torch_malloc", &h.tms_torch_malloc);
        find("tms_torch_free", &h.tms_torch_free);
    }
#define FIND(name) find(#name, &h.name)
    FIND(tms_set_current_tag);
    FIND(tms_get_current_tag);
    FIND(tms_set_interesting_region);
    FIND(tms_get_interesting_region);
    FIND(tms_set_enable_cpu_backup);
    FIND(tms_get_enable_cpu_backup);
    FIND(tms_set_cpu_backup_backend);
    FIND(tms_get_cpu_backup_backend);
    FIND(tms_set_enable_disk_backup);
    FIND(tms_get_enable_disk_backup);
    FIND(tms_set_disk_backup_dir);
    FIND(tms_pause);
    FIND(tms_resume);
    FIND(set_memory_margin_bytes);
    FIND(tms_set_retain_cpu_backup);
    FIND(tms_get_retain_cpu_backup);
    FIND(tms_get_cpu_backup_pointer);
    FIND(cudaGetLastError);
    FIND(cudaHostGetFlags);
    FIND(rvl_hooks_get_context);
    FIND(rvl_hooks_get_context_at);
    FIND(rvl_hooks_pause);
    FIND(rvl_hooks_resume);
    FIND(rvl_hooks_check_settings);
    FIND(rvl_hooks_mode);
    FIND(rvl_last_error);
    FIND(rvl_pause);
    FIND(rvl_resume);
    FIND(rvl_host_get_memory);
    FIND(rvl_control_ask);
    FIND(rvl_sleep_forecast);
#undef FIND
}

/* ---- What scenarios share ---- */

void expect_failed(const char *file, int line, const char *what, long long got, long long wanted)
{
    printf("%s:%d: %s is %lld, not %lld\n", file, line, what, got, wanted);
    fflush(stdout);
    _Exit(1);
}

void *hook_malloc(size_t size, int device)
{
    void *pointer = NULL;
    int before = 0;
    if (!h.preload)
        return h.tms_torch_malloc((ssize_t)size, device, NULL);
    cudaGetDevice(&before);
    cudaSetDevice(device);
    int error = cudaMalloc(&pointer, size);
    cudaSetDevice(before);
    return error == 0 ? pointer : NULL;
}

void hook_free(void *pointer)
{
    if (h.preload)
        EXPECT(cudaFree(pointer), 0);
    else
        h.tms_torch_free(pointer, 0, 0, NULL);
}

void fill(uint8_t *at, uint8_t value)
{
    memset(at, value, SIZE);
}

bool holds(const uint8_t *at, uint8_t value)
{
    for (uint64_t i = 0; i < SIZE; i++)
        if (at[i] != value)
            return false;
    return true;
}

uint8_t *in_region(const char *tag, keeping backup, int device, uint8_t value)
{
    h.tms_set_current_tag(tag);
    h.tms_set_enable_cpu_backup(backup == HOST || backup == RECLAIMED);
    h.tms_set_cpu_backup_backend(backup == RECLAIMED ? "mmap" : "pinned");
    h.tms_set_enable_disk_backup(backup == DISK);
    h.tms_set_interesting_region(true);
    uint8_t *at = hook_malloc(SIZE, device);
    h.tms_set_interesting_region(false);
    EXPECT(at != NULL, true);
    fill(at, value);
    return at;
}

uint64_t used(int device)
{
    return fake_stats_get().used_bytes[device];
}

bool registered(const void *host)
{
    unsigned flags = 0;
    int error = h.cudaHostGetFlags(&flags, (void *)(uintptr_t)host);
    EXPECT(h.cudaGetLastError(), error);
    return error == 0;
}

/* ---- Before main, and after ---- */

static uint8_t *early;

__attribute__((constructor)) static void allocate_before_main(void)
{
    if (getenv("PROGRAM_BEFORE_MAIN") != NULL && cudaMalloc((void **)&early, SIZE) != 0)
        _Exit(3);
}

__attribute__((destructor)) static void free_after_main(void)
{
    if (early != NULL && cudaFree(early) != 0)
        _Exit(4);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    open_hook(strcmp(argv[1], "preload") == 0);
#ifdef PROGRAM_HAS_PRELOAD /* linked to it: then that is the mode */
    EXPECT_TEXT(h.rvl_hooks_mode(), "preload");
#else
    EXPECT_TEXT(h.rvl_hooks_mode(), argv[1]);
#endif
    const scenario *const lists[] = {abi_scenarios, process_scenarios};
    for (size_t i = 0; i < 2; i++)
        for (const scenario *each = lists[i]; each->name != NULL; each++)
            if (strcmp(each->name, argv[2]) == 0) {
                each->run();
                return 0;
            }
    printf("no scenario %s\n", argv[2]);
    return 2;
}
