/* SPDX-License-Identifier: MIT */
#include "hooks/record/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/output.h"
#include "base/text.h"
#include "hooks/record/usage.h"
#include "trace/format.h"

#define NS_PER_S UINT64_C(1000000000)
#define FILE_CLOCK_STEP_NS UINT64_C(10000000) /* file times lag behind the clock */
#define FIELDS_BEFORE_START 19                /* in /proc/self/stat, after the name */
#define NUMBER_BYTES 24                       /* size of a number as text */

static rvl_status invalid(const char *message)
{
    return rvli_error(RVL_ERR_INVALID, message);
}

/* ---- Names ---- */

/* The offset of the path's extension, or of its end. */
static size_t extension_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return dot != NULL && dot != name ? (size_t)(dot - path) : strlen(path);
}

/* Inserts text before the extension. Returns false if the path is too long. */
static bool insert(char path[PATH_MAX], const char *text)
{
    char extension[PATH_MAX];
    if (strlen(path) + strlen(text) >= PATH_MAX - NUMBER_BYTES)
        return false;
    rvli_text out = {path, PATH_MAX, extension_of(path)};
    rvli_text_copy(extension, sizeof extension, path + out.length);
    rvli_text_add(&out, text);
    rvli_text_add(&out, extension);
    return true;
}

static bool good_percents(const char *pattern, bool *has_pid_out)
{
    *has_pid_out = false;
    for (; (pattern = strchr(pattern, '%')) != NULL; pattern += 2) {
        if (pattern[1] != 'p' && pattern[1] != '%')
            return false;
        *has_pid_out = *has_pid_out || pattern[1] == 'p';
    }
    return true;
}

rvl_status rvli_record_file_pattern(const char *given, char pattern[PATH_MAX])
{
    bool has_pid;
    size_t length = strlen(given);
    if (length == 0 || given[length - 1] == '/')
        return invalid("the path of the trace names no file");
    if (!good_percents(given, &has_pid))
        return invalid("the path of the trace has a % that is neither %p (the process) nor %%");
    if (length >= 4 && strcmp(given + length - 4, ".zst") == 0)
        return invalid("recording writes plain text: name it .rvt and compress it afterwards");
    pattern[0] = '\0';
    if (given[0] != '/' && getcwd(pattern, PATH_MAX - 1) == NULL)
        pattern[0] = '\0';
    rvli_text text = {pattern, PATH_MAX, strlen(pattern)};
    if (text.length > 0)
        rvli_text_add(&text, "/");
    rvli_text_add(&text, given);
    if (text.length >= PATH_MAX - NUMBER_BYTES || (!has_pid && !insert(pattern, ".%p")))
        return invalid("the path of the trace is too long");
    return RVL_OK;
}

/* Replaces %p and %%. Returns false if the path is too long. */
static bool expand(const char *pattern, char path[PATH_MAX])
{
    rvli_text text = rvli_text_begin(path, PATH_MAX);
    for (; *pattern != '\0'; pattern++) {
        const char byte[2] = {*pattern, '\0'};
        if (pattern[0] == '%' && pattern[1] == 'p')
            rvli_text_add_u64(&text, (uint64_t)getpid());
        else
            rvli_text_add(&text, byte);
        pattern += pattern[0] == '%';
    }
    return text.length < PATH_MAX - NUMBER_BYTES;
}

/* ---- Checking that files can be created ---- */

rvl_status rvli_record_file_check(const char *pattern)
{
    char path[PATH_MAX];
    rvli_output tried;
    if (!expand(pattern, path))
        return invalid("the path of the trace is too long");
    /* Opening it tells more than a check of permissions, which root always passes. */
    rvl_status status = rvli_output_open(path, RVLI_OUTPUT_GUESSABLE, &tried);
    if (status == RVL_OK)
        rvli_output_close(&tried);
    return status;
}

/* ---- Files that this process wrote before exec() ---- */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* When this process was started, on the wall clock; 0: unknown. exec() does not change it. */
static uint64_t process_start_ns(void)
{
    char text[1024];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    char *at = strrchr(text, ')');
    for (int field = 0; at != NULL && field <= FIELDS_BEFORE_START; field++)
        at = strchr(at + 1, ' ');
    long ticks_per_s = sysconf(_SC_CLK_TCK);
    if (at == NULL || ticks_per_s <= 0)
        return 0;
    uint64_t start_ns = strtoull(at, NULL, 10) * (NS_PER_S / (uint64_t)ticks_per_s);
    return clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_BOOTTIME) - start_ns);
}

static bool is_ours(const char *path, uint64_t process_ns)
{
    struct stat facts;
    if (lstat(path, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid())
        return false;
    uint64_t changed_ns =
        (uint64_t)facts.st_mtim.tv_sec * NS_PER_S + (uint64_t)facts.st_mtim.tv_nsec;
    return changed_ns + FILE_CLOCK_STEP_NS >= process_ns;
}

static bool find_path(const char *pattern, char path[PATH_MAX])
{
    uint64_t process_ns = process_start_ns();
    bool good = expand(pattern, path);
    for (uint64_t number = 2; good && is_ours(path, process_ns); number++) {
        char suffix[NUMBER_BYTES];
        rvli_text text = rvli_text_begin(suffix, sizeof suffix);
        rvli_text_add(&text, ".");
        rvli_text_add_u64(&text, number);
        good = expand(pattern, path) && insert(path, suffix);
    }
    return good;
}

/* ---- The header ---- */

#define BOOT_ID_BYTES 37

static bool read_boot_id(char boot_id[BOOT_ID_BYTES])
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, boot_id, BOOT_ID_BYTES - 1);
    close(file);
    boot_id[length > 0 ? length : 0] = '\0';
    return length == BOOT_ID_BYTES - 1;
}

static size_t describe_devices(rvl_trace_device *devices)
{
    int count = rvli_usage_count();
    for (int i = 0; i < count; i++) {
        const rvli_usage_device *facts = rvli_usage_device_at(i);
        devices[i] = (rvl_trace_device){
            .index = facts->place,
            .profile = facts->name[0] != '\0' ? facts->name : NULL,
            .capacity_bytes = facts->capacity_bytes,
            .granularity_bytes = facts->granularity_bytes,
        };
    }
    return (size_t)count;
}

rvl_status rvli_record_file_open(const char *pattern, uint64_t start_ns,
                                 rvl_trace_writer **writer_out)
{
    char path[PATH_MAX], boot_id[BOOT_ID_BYTES];
    rvl_trace_device devices[RVL_MAX_DEVICES];
    if (!find_path(pattern, path))
        return invalid("the path of the trace is too long");
    uint64_t wall_ns = clock_ns(CLOCK_REALTIME), passed_ns = rvli_monotonic_ns() - start_ns;
    const rvl_trace_header header = {
        .struct_size = sizeof header,
        .boot_id = read_boot_id(boot_id) ? boot_id : NULL,
        .mono_ns = start_ns,
        .wall_ns = wall_ns - passed_ns,
        .devices = devices,
        .device_count = describe_devices(devices),
        .device_size = sizeof *devices,
        .minor = RVLI_TRACE_MINOR_SLEEP,
        .flags = RVL_TRACE_RECORDS_REFUSALS,
    };
    return rvli_trace_writer_open(path, RVLI_OUTPUT_GUESSABLE, &header, writer_out);
}
