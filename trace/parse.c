/* SPDX-License-Identifier: MIT */
#include "trace/parse.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/format.h"

#define BYTES_MAX ((uint64_t)INT64_MAX)

/* ---- Cursor ---- */

static bool fail_at(rvli_cursor *cursor, const char *at, const char *why)
{
    cursor->status = RVL_ERR_CORRUPT_TRACE;
    cursor->why = why;
    cursor->column = (uint32_t)(at - cursor->line) + 1;
    return false;
}

static bool fail_here(rvli_cursor *cursor, const char *why)
{
    return fail_at(cursor, cursor->at, why);
}

/* Consumes a text that must come next. */
static bool literal(rvli_cursor *cursor, const char *text, size_t length, const char *why)
{
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length) != 0)
        return fail_here(cursor, why);
    cursor->at += length;
    return true;
}

static bool space(rvli_cursor *cursor, const char *why)
{
    if (cursor->at == cursor->end || *cursor->at != ' ')
        return fail_here(cursor, why);
    cursor->at++;
    return true;
}

static bool is_digit(char byte)
{
    return (unsigned)(byte - '0') < 10;
}

#define EVERY_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

/*
 * Returns the value of the leading decimal digits of the eight bytes at `at`, and stores their
 * count. The bytes are loaded as one 64-bit number, the first byte lowest. Adjacent digits are
 * joined to pairs, pairs to fours, and fours to the value.
 */
static uint64_t eight_digits(const char *at, unsigned *count_out)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    bytes = le64toh(bytes) ^ EVERY_BYTE('0'); /* digits become 0 to 9, other bytes become more */
    /* A carry out of a non-digit changes the bytes above it, which are not used. */
    uint64_t others = ((bytes + EVERY_BYTE(0x76)) | bytes) & EVERY_BYTE(0x80);
    unsigned count = others != 0 ? (unsigned)__builtin_ctzll(others) / 8 : 8;
    *count_out = count;
    if (count == 0)
        return 0;
    bytes <<= 8 * (8 - count); /* drop the bytes after the digits, and add leading zeros */
    bytes = (bytes * 10 + (bytes >> 8)) & UINT64_C(0x00FF00FF00FF00FF);
    bytes = (bytes * 100 + (bytes >> 16)) & UINT64_C(0x0000FFFF0000FFFF);
    return (bytes * 10000 + (bytes >> 32)) & UINT64_C(0xFFFFFFFF);
}

/* Reads any number of decimal digits. Returns false if they do not fit into 64 bits. */
static bool digits(const char **at, uint64_t *value_out)
{
    static const uint64_t powers[] = {1,      10,      100,      1000,     10000,
                                      100000, 1000000, 10000000, 100000000};
    unsigned count;
    uint64_t value = eight_digits(*at, &count);
    *at += count;
    if (count == 8) {
        uint64_t low = eight_digits(*at, &count);
        value = value * powers[count] + low;
        *at += count;
    }
    for (; is_digit(**at); ++*at)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value))
            return false;
    *value_out = value;
    return true;
}

/* Reads decimal digits without leading zeros. The newline after the line ends them. */
static bool number(rvli_cursor *cursor, uint64_t *value_out, const char *why)
{
    const char *begin = cursor->at;
    const char *at = begin;
    if (is_digit(at[0]) && !is_digit(at[1])) { /* usually a thread or a device */
        *value_out = (uint64_t)(at[0] - '0');
        cursor->at++;
        return true;
    }
    if (!digits(&at, value_out))
        return fail_at(cursor, begin, "the number does not fit into 64 bits");
    if (at == begin)
        return fail_at(cursor, begin, why);
    if (*begin == '0' && at - begin > 1)
        return fail_at(cursor, begin, "a number has no leading zeros");
    cursor->at = at;
    return true;
}

/* Reads the field up to the next space or the end of the line. */
static const char *word(rvli_cursor *cursor, size_t *length_out)
{
    const char *begin = cursor->at;
    const char *found = memchr(begin, ' ', (size_t)(cursor->end - begin));
    cursor->at = found != NULL ? found : cursor->end;
    *length_out = (size_t)(cursor->at - begin);
    return begin;
}

/*
 * Consumes and returns the last name looked up, if it comes next: successive events often repeat
 * it. Returns NULL otherwise.
 */
static rvli_name *repeated(rvli_cursor *cursor, const rvli_names *names)
{
    rvli_name *last = names->last;
    if (last == NULL || (size_t)(cursor->end - cursor->at) < last->raw_length ||
        memcmp(cursor->at, last->raw, last->raw_length) != 0)
        return NULL;
    const char *behind = cursor->at + last->raw_length;
    if (behind != cursor->end && *behind != ' ')
        return NULL;
    cursor->at = behind;
    return last;
}

static bool is_word(const char *text, size_t length, const char *expected)
{
    return strlen(expected) == length && memcmp(text, expected, length) == 0;
}

static bool name(rvli_cursor *cursor, rvli_names *names, rvli_name **name_out)
{
    size_t length, fault = 0;
    const char *why = NULL;
    *name_out = repeated(cursor, names);
    if (*name_out != NULL)
        return true;
    const char *begin = word(cursor, &length);
    rvl_status status = rvli_names_get(names, begin, length, name_out, &why, &fault);
    if (status == RVL_OK)
        return true;
    fail_at(cursor, begin + fault, why != NULL ? why : "out of host memory");
    cursor->status = status;
    return false;
}

/* Reads a name; NULL for `-`. */
static bool name_or_none(rvli_cursor *cursor, rvli_names *names, rvli_name **name_out)
{
    const char *at = cursor->at;
    *name_out = NULL;
    if (at == cursor->end || *at != '-' || (at + 1 < cursor->end && at[1] != ' '))
        return name(cursor, names, name_out);
    cursor->at++;
    return true;
}

static bool line_end(rvli_cursor *cursor)
{
    if (cursor->at == cursor->end)
        return true;
    return fail_here(cursor, cursor->at + 1 == cursor->end && *cursor->at == '\r'
                                 ? "the line should end here: a carriage return stands before "
                                   "the newline, as Windows writes it (dos2unix takes it out)"
                                 : "the line should end here");
}

/* Skips the rest of the line. */
static bool skip_rest(rvli_cursor *cursor)
{
    const char *nul = memchr(cursor->at, '\0', (size_t)(cursor->end - cursor->at));
    if (nul != NULL)
        return fail_at(cursor, nul, "a trace is text: it has no bytes of value 0");
    cursor->at = cursor->end;
    return true;
}

/* ---- Fields of events ---- */

static bool time_and_process(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    size_t length;
    uint64_t thread;
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the time in ns should follow") ||
        !number(cursor, &event->time_ns, "the time in ns should stand here"))
        return false;
    if (event->time_ns < file->last_ns)
        return fail_at(cursor, begin, "time goes back");
    if (!space(cursor, "a space and the process should follow"))
        return false;
    const rvli_name *found = repeated(cursor, &file->process_names);
    if (found == NULL) {
        begin = word(cursor, &length);
        found = rvli_names_find(&file->process_names, begin, length);
    }
    if (found == NULL)
        return fail_at(cursor, begin, "this process has not been declared: process NAME pid=N");
    event->process_index = found->index; /* index in this file; the reader converts it */
    begin = cursor->at + 1;
    if (!space(cursor, "a space and the thread should follow") ||
        !number(cursor, &thread, "the number of the thread should stand here"))
        return false;
    if (thread > UINT32_MAX)
        return fail_at(cursor, begin, "the number of the thread does not fit into 32 bits");
    event->thread = (uint32_t)thread;
    return true;
}

/* The id of a range that ends; 0: all ranges. */
static bool range_field(rvli_cursor *cursor, rvl_trace_event *event)
{
    return space(cursor, "a space and the id should follow") &&
           number(cursor, &event->id, "the id should stand here");
}

static bool id_field(rvli_cursor *cursor, rvl_trace_event *event)
{
    const char *begin = cursor->at + 1;
    if (!range_field(cursor, event))
        return false;
    return event->id != 0 || fail_at(cursor, begin, "ids begin at 1");
}

static bool device_field(rvli_cursor *cursor, const rvli_trace_file *file, rvl_trace_event *event)
{
    uint64_t device;
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the device should follow") ||
        !number(cursor, &device, "the number of the device should stand here"))
        return false;
    if (device >= RVL_MAX_DEVICES || !(file->device_mask >> device & 1))
        return fail_at(cursor, begin, "this device has not been declared: device N profile=...");
    event->device = (uint32_t)device;
    return true;
}

static bool bytes_field(rvli_cursor *cursor, rvl_trace_event *event, bool zero_allowed)
{
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the bytes should follow") ||
        !number(cursor, &event->bytes, "the number of bytes should stand here"))
        return false;
    if (event->bytes > BYTES_MAX)
        return fail_at(cursor, begin, "a size of 2^63 bytes or more");
    if (event->bytes == 0 && !zero_allowed)
        return fail_at(cursor, begin, "a size of 0 bytes");
    return true;
}

static bool tag_field(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    rvli_name *found;
    if (!space(cursor, "a space and the tag (- for none) should follow") ||
        !name_or_none(cursor, file->tags, &found))
        return false;
    if (found == NULL)
        return true;
    event->tag = found->text;
    event->tag_index = found->index;
    return true;
}

static bool name_field(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    rvli_name *found;
    if (!space(cursor, "a space and a name should follow") || !name(cursor, file->names, &found))
        return false;
    event->name = found->text;
    return true;
}

/* ---- Options: key=value in a fixed order; only newer versions may have unknown ones ---- */

/* Skips options of a newer minor version. In a version that we know, they are an error. */
static bool newer_options(rvli_cursor *cursor, const rvli_trace_file *file)
{
    if (file->minor <= RVL_TRACE_MINOR || cursor->at == cursor->end)
        return line_end(cursor);
    return space(cursor, "a space or the end of the line should follow") && skip_rest(cursor);
}

/* If " key" comes next, consumes it and returns true. */
static bool option(rvli_cursor *cursor, const char *key)
{
    size_t length = strlen(key);
    if (cursor->at == cursor->end || *cursor->at != ' ' ||
        (size_t)(cursor->end - cursor->at) < length + 1 || memcmp(cursor->at + 1, key, length) != 0)
        return false;
    cursor->at += length + 1;
    return true;
}

static bool backup_option(rvli_cursor *cursor, rvl_trace_event *event)
{
    size_t length;
    const char *begin = word(cursor, &length);
    if (is_word(begin, length, "host"))
        event->backup = RVL_BACKUP_HOST;
    else if (is_word(begin, length, "disk"))
        event->backup = RVL_BACKUP_DISK;
    else
        return fail_at(cursor, begin, "a backup is host or disk");
    return true;
}

static bool access_option(rvli_cursor *cursor, const rvli_trace_file *file, rvl_trace_event *event)
{
    for (;;) {
        uint64_t device;
        const char *begin = cursor->at;
        if (!number(cursor, &device, "the number of a device should stand here"))
            return false;
        if (device >= RVL_MAX_DEVICES || !(file->device_mask >> device & 1))
            return fail_at(cursor, begin, "this device has not been declared");
        if (device == event->device)
            return fail_at(cursor, begin, "the device of the allocation itself is not listed");
        if (event->access_mask >> device != 0)
            return fail_at(cursor, begin, "the devices of access= rise");
        event->access_mask |= UINT64_C(1) << device;
        if (cursor->at == cursor->end || *cursor->at != ',')
            return true;
        cursor->at++;
    }
}

/* Returns 0 if there is no such flag. */
static uint32_t flag_of(const char *text, size_t length)
{
#define READ_FLAG(flag, expected)                                                                  \
    if (is_word(text, length, expected))                                                           \
        return (flag);
    RVLI_TRACE_FLAG_MAP(READ_FLAG)
#undef READ_FLAG
    return 0;
}

static bool flags_option(rvli_cursor *cursor, rvl_trace_event *event)
{
    for (;;) {
        const char *begin = cursor->at;
        while (cursor->at < cursor->end && *cursor->at != ' ' && *cursor->at != ',')
            cursor->at++;
        uint32_t flag = flag_of(begin, (size_t)(cursor->at - begin));
        if (flag == 0)
            return fail_at(cursor, begin, "a flag is exportable, rdma or paused");
        if (event->flags >= flag)
            return fail_at(cursor, begin, "flags are listed in the order exportable,rdma,paused");
        event->flags |= flag;
        if (cursor->at == cursor->end || *cursor->at != ',')
            return true;
        cursor->at++;
    }
}

static bool alloc_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    const char *begin = cursor->at + 1;
    rvli_trace_process *owner = &file->processes[event->process_index];
    if (!id_field(cursor, event))
        return false;
    if (event->id <= owner->last_id)
        return fail_at(cursor, begin, "ids rise within a process and are never used again");
    if (!device_field(cursor, file, event) || !bytes_field(cursor, event, false) ||
        !tag_field(cursor, file, event))
        return false;
    owner->last_id = event->id;
    if (cursor->at == cursor->end)
        return true;
    if (option(cursor, "backup=") && !backup_option(cursor, event))
        return false;
    if (option(cursor, "access=") && !access_option(cursor, file, event))
        return false;
    if (option(cursor, "flags=") && !flags_option(cursor, event))
        return false;
    return newer_options(cursor, file);
}

/* Reads the word for a transition without content, if there is one. */
static bool skip_option(rvli_cursor *cursor, const rvli_trace_file *file, rvl_trace_event *event,
                        const char *skip_word)
{
    const char *before = cursor->at;
    event->skip_content = option(cursor, skip_word);
    if (event->skip_content && cursor->at < cursor->end && *cursor->at != ' ') {
        event->skip_content = false; /* a longer word that begins with skip_word */
        cursor->at = before;
    }
    return newer_options(cursor, file);
}

static bool transition_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                              const char *skip_word)
{
    return tag_field(cursor, file, event) && skip_option(cursor, file, event, skip_word);
}

/* A part must have a tag. */
static bool part_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    if (!id_field(cursor, event) || !bytes_field(cursor, event, true))
        return false;
    const char *begin = cursor->at + 1;
    if (!tag_field(cursor, file, event))
        return false;
    return event->tag != NULL ? newer_options(cursor, file)
                              : fail_at(cursor, begin, "a part has a tag, not -");
}

/* Reads a device, or `host`. */
static bool place_field(rvli_cursor *cursor, const rvli_trace_file *file, rvl_trace_event *event)
{
    rvli_cursor ahead = *cursor;
    size_t length;
    if (!space(&ahead, "a space and the device, or host, should follow"))
        return device_field(cursor, file, event);
    const char *begin = word(&ahead, &length);
    if (!is_word(begin, length, RVLI_WORD_HOST))
        return device_field(cursor, file, event);
    *cursor = ahead;
    event->device = RVL_TRACE_HOST;
    return true;
}

static bool free_field(rvli_cursor *cursor, rvl_trace_event *event)
{
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the bytes that were free should follow") ||
        !number(cursor, &event->free_bytes, "the number of bytes should stand here"))
        return false;
    return event->free_bytes <= BYTES_MAX || fail_at(cursor, begin, "a size of 2^63 bytes or more");
}

static bool text_option(rvli_cursor *cursor, rvli_trace_file *file, const char *which,
                        rvl_trace_event *event)
{
    rvli_name *text;
    if (!option(cursor, which))
        return true;
    if (!name(cursor, file->names, &text))
        return false;
    event->name = text->text;
    return true;
}

static bool refuse_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    if (!place_field(cursor, file, event) || !bytes_field(cursor, event, false) ||
        !free_field(cursor, event) || !tag_field(cursor, file, event))
        return false;
    if (option(cursor, RVLI_WORD_BY_ALLOCATOR))
        event->flags = RVL_REFUSE_BY_ALLOCATOR;
    return text_option(cursor, file, RVLI_WORD_AT, event) && newer_options(cursor, file);
}

static bool missed_option(rvli_cursor *cursor, rvl_trace_event *event)
{
    const char *begin = cursor->at;
    if (!number(cursor, &event->bytes, "a number of processes should stand here"))
        return false;
    return (event->bytes > 0 && event->bytes <= BYTES_MAX) ||
           fail_at(cursor, begin, "a number of processes is 1 to 2^63 - 1");
}

/* Reads exit=N, or signal=N. */
static bool ended_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    uint64_t status;
    bool signal = option(cursor, RVLI_WORD_SIGNAL);
    if (!signal && !option(cursor, RVLI_WORD_EXIT))
        return fail_here(cursor, "` exit=NUMBER` or ` signal=NUMBER` should follow");
    const char *begin = cursor->at;
    if (!number(cursor, &status, "a number should stand here"))
        return false;
    if (signal && (status == 0 || status > RVLI_TRACE_SIGNAL_MAX))
        return fail_at(cursor, begin, "a signal is 1 to 64");
    if (status > RVLI_TRACE_EXIT_MAX)
        return fail_at(cursor, begin, "an exit status is 0 to 255");
    event->exit_status = (uint32_t)status;
    event->flags = signal ? RVL_ENDED_BY_SIGNAL : 0;
    if (option(cursor, RVLI_WORD_MISSED) && !missed_option(cursor, event))
        return false;
    return text_option(cursor, file, RVLI_WORD_WAITS, event) && newer_options(cursor, file);
}

static bool event_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    switch (event->kind) {
    case RVL_EVENT_ALLOC:
        return alloc_fields(cursor, file, event);
    case RVL_EVENT_FREE:
        return id_field(cursor, event) && newer_options(cursor, file);
    case RVL_EVENT_PAUSE:
        return transition_fields(cursor, file, event, RVLI_WORD_DISCARD);
    case RVL_EVENT_RESUME:
        return transition_fields(cursor, file, event, RVLI_WORD_NO_RESTORE);
    case RVL_EVENT_STAGE:
        return name_field(cursor, file, event) && newer_options(cursor, file);
    case RVL_EVENT_EXTERNAL:
        return device_field(cursor, file, event) && bytes_field(cursor, event, true) &&
               name_field(cursor, file, event) && newer_options(cursor, file);
    case RVL_EVENT_SAMPLE:
        return device_field(cursor, file, event) && bytes_field(cursor, event, true) &&
               newer_options(cursor, file);
    case RVL_EVENT_PART:
        return part_fields(cursor, file, event);
    case RVL_EVENT_ENTER:
        return id_field(cursor, event) && name_field(cursor, file, event) &&
               newer_options(cursor, file);
    case RVL_EVENT_LEAVE:
        return range_field(cursor, event) && newer_options(cursor, file);
    case RVL_EVENT_REFUSE:
        return refuse_fields(cursor, file, event);
    case RVL_EVENT_ENDED:
        return ended_fields(cursor, file, event);
    case RVL_EVENT_SLEEP:
        return skip_option(cursor, file, event, RVLI_WORD_DISCARD);
    case RVL_EVENT_WAKE:
        return skip_option(cursor, file, event, RVLI_WORD_PAUSED);
    case RVL_EVENT_FAIL:
        return text_option(cursor, file, RVLI_WORD_HOW, event) && newer_options(cursor, file);
    default: /* step */
        return newer_options(cursor, file);
    }
}

/* ---- Header ---- */

/* Reads " KEY=NUMBER". */
static bool keyed_number(rvli_cursor *cursor, const char *key, const char *why, uint64_t *value_out)
{
    return literal(cursor, key, strlen(key), why) &&
           number(cursor, value_out, "a number should stand here");
}
#define KEYED_NUMBER(cursor, key, value_out)                                                       \
    keyed_number(cursor, " " key "=", "` " key "=NUMBER` should follow", value_out)

static bool clock_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    rvli_name *boot = NULL;
    if (file->has_clock)
        return fail_at(cursor, cursor->line, "the clock is declared once");
    if (!literal(cursor, " boot=", 6, "` boot=NAME` (- for unknown) should follow") ||
        !name_or_none(cursor, file->names, &boot))
        return false;
    file->boot_id = boot != NULL ? boot->text : NULL;
    if (!KEYED_NUMBER(cursor, "mono_ns", &file->mono_ns) ||
        !KEYED_NUMBER(cursor, "wall_ns", &file->wall_ns))
        return false;
    file->has_clock = true;
    return newer_options(cursor, file);
}

static bool device_values(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_device *device)
{
    rvli_name *profile = NULL;
    if (!literal(cursor, " profile=", 9, "` profile=NAME` (- for none) should follow"))
        return false;
    if (!name_or_none(cursor, file->names, &profile))
        return false;
    device->profile = profile != NULL ? profile->text : NULL;
    const char *begin = cursor->at;
    if (!KEYED_NUMBER(cursor, "capacity_bytes", &device->capacity_bytes))
        return false;
    if (device->capacity_bytes == 0 || device->capacity_bytes > BYTES_MAX)
        return fail_at(cursor, begin + strlen(" capacity_bytes="),
                       "a capacity is 1 to 2^63 - 1 bytes");
    begin = cursor->at;
    if (!KEYED_NUMBER(cursor, "granularity_bytes", &device->granularity_bytes))
        return false;
    uint64_t granularity = device->granularity_bytes;
    if (granularity < RVLI_TRACE_GRANULARITY_MIN || granularity > BYTES_MAX ||
        (granularity & (granularity - 1)) != 0)
        return fail_at(cursor, begin + strlen(" granularity_bytes="),
                       "a granularity is a power of two, 4096 at least");
    return newer_options(cursor, file);
}

static bool device_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    uint64_t index;
    rvl_trace_device device = {0};
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the number of the device should follow") ||
        !number(cursor, &index, "the number of the device should stand here"))
        return false;
    if (index >= RVL_MAX_DEVICES)
        return fail_at(cursor, begin, "devices are numbered 0 to 63");
    if (file->device_mask >> index & 1)
        return fail_at(cursor, begin, "this device has been declared already");
    device.index = (uint32_t)index;
    if (!device_values(cursor, file, &device))
        return false;
    file->devices[index] = device;
    file->device_lines[index] = file->line_number;
    file->device_mask |= UINT64_C(1) << index;
    return true;
}

/* Adds the name last, so that a wrong line declares nothing. */
static bool process_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    uint64_t pid;
    size_t length;
    rvli_name *added;
    if (!space(cursor, "a space and the name of the process should follow"))
        return false;
    rvli_cursor named = *cursor;
    const char *begin = word(cursor, &length);
    if (rvli_names_find(&file->process_names, begin, length) != NULL)
        return fail_at(cursor, begin, "this process has been declared already");
    if (!KEYED_NUMBER(cursor, "pid", &pid))
        return false;
    file->declared_flags = pid != 0 ? RVL_PROCESS_RAN : 0;
    if (file->minor >= RVLI_TRACE_MINOR_REFUSALS && option(cursor, RVLI_WORD_REFUSALS))
        file->declared_flags |= RVL_PROCESS_RECORDS_REFUSALS;
    if (!newer_options(cursor, file))
        return false;
    if (name(&named, &file->process_names, &added))
        return true;
    *cursor = named;
    return false;
}

static bool end_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    uint64_t count;
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the number of events should follow") ||
        !number(cursor, &count, "the number of events should stand here"))
        return false;
    if (count != file->event_lines)
        return fail_at(cursor, begin, "not the number of events in this file: some are missing");
    file->has_end = true;
    return newer_options(cursor, file);
}

/* ---- Lines ---- */

static const struct {
    const char *text;
    size_t length;
} keywords[] = {
#define KEYWORD(name, keyword) {keyword, sizeof keyword - 1},
    RVL_EVENT_MAP(KEYWORD)
#undef KEYWORD
};

static bool event_kind(const char *text, size_t length, rvl_event_kind *kind_out)
{
    /* The most frequent kinds come first. */
    for (size_t kind = 0; kind < RVL_EVENT_KIND_COUNT; kind++)
        if (keywords[kind].length == length && memcmp(keywords[kind].text, text, length) == 0) {
            *kind_out = (rvl_event_kind)kind;
            return true;
        }
    return false;
}

/* Whether the file's version lacks this kind of event. */
static bool is_newer(const rvli_trace_file *file, rvl_event_kind kind)
{
    static const uint32_t minors[RVL_EVENT_KIND_COUNT] = {
        [RVL_EVENT_PART] = RVLI_TRACE_MINOR_PARTS,
        [RVL_EVENT_ENTER] = RVLI_TRACE_MINOR_RANGES,
        [RVL_EVENT_LEAVE] = RVLI_TRACE_MINOR_RANGES,
        [RVL_EVENT_REFUSE] = RVLI_TRACE_MINOR_REFUSALS,
        [RVL_EVENT_ENDED] = RVLI_TRACE_MINOR_REFUSALS,
        [RVL_EVENT_SLEEP] = RVLI_TRACE_MINOR_SLEEP,
        [RVL_EVENT_WAKE] = RVLI_TRACE_MINOR_SLEEP,
        [RVL_EVENT_FAIL] = RVLI_TRACE_MINOR_FAIL,
    };
    return file->minor < minors[kind];
}

/*
 * Clears the fields one by one: for a struct of this size, compilers use instructions that are slow
 * to start. The last memset() clears 0 bytes unless the struct has fields that are missing here.
 */
static void clear(rvl_trace_event *event, rvl_event_kind kind)
{
    event->kind = kind;
    event->process_index = 0;
    event->time_ns = 0;
    event->id = 0;
    event->bytes = 0;
    event->access_mask = 0;
    event->thread = 0;
    event->device = 0;
    event->tag_index = RVL_TRACE_NO_TAG;
    event->flags = 0;
    event->backup = RVL_BACKUP_NONE;
    event->skip_content = false;
    memset(event->reserved, 0, sizeof event->reserved);
    event->process = NULL;
    event->tag = NULL;
    event->name = NULL;
    event->file = 0;
    event->line = 0;
    event->free_bytes = 0;
    event->exit_status = 0;
    event->process_flags = 0;
    const size_t cleared = offsetof(rvl_trace_event, process_flags) + sizeof event->process_flags;
    memset((char *)event + cleared, 0, sizeof *event - cleared);
}

static bool event_line(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                       rvl_event_kind kind)
{
    if (!file->has_clock)
        return fail_at(cursor, cursor->line, "the clock must be declared before the first event");
    if (file->device_mask == 0)
        return fail_at(cursor, cursor->line, "a device must be declared before the first event");
    clear(event, kind);
    file->has_events = true;
    if (!time_and_process(cursor, file, event) || !event_fields(cursor, file, event))
        return false;
    file->last_ns = event->time_ns;
    file->event_lines++;
    return true;
}

/* Parses a line that is not an event: a header line, the end, or a kind of a newer version. */
static bool other_line(rvli_cursor *cursor, rvli_trace_file *file, const char *text, size_t length,
                       rvli_line_kind *kind_out)
{
    bool header = is_word(text, length, RVLI_WORD_CLOCK) || is_word(text, length, RVLI_WORD_DEVICE);
    if (header && file->has_events)
        return fail_at(cursor, text, "clock and devices are declared before the first event");
    if (is_word(text, length, RVLI_WORD_CLOCK))
        return clock_line(cursor, file);
    if (!file->has_clock)
        return fail_at(cursor, text, "the clock must be declared first: clock boot=...");
    if (is_word(text, length, RVLI_WORD_DEVICE))
        return device_line(cursor, file);
    if (is_word(text, length, RVLI_WORD_PROCESS)) {
        *kind_out = RVLI_LINE_PROCESS;
        return process_line(cursor, file);
    }
    if (is_word(text, length, RVLI_WORD_END))
        return end_line(cursor, file);
    if (file->minor <= RVL_TRACE_MINOR)
        return fail_at(cursor, text, "not a kind of line that this version of the format has");
    if (length == 0)
        return fail_at(cursor, text, "a line does not begin with a space");
    file->skipped_events++;
    file->event_lines++;
    return skip_rest(cursor);
}

bool rvli_parse_line(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                     rvli_line_kind *kind_out)
{
    size_t length;
    rvl_event_kind kind;
    *kind_out = RVLI_LINE_NOTHING;
    if (file->has_end)
        return fail_here(cursor, "nothing may follow the end record");
    if (cursor->at == cursor->end || *cursor->at == '#')
        return skip_rest(cursor);
    const char *text = word(cursor, &length);
    if (!event_kind(text, length, &kind) || is_newer(file, kind))
        return other_line(cursor, file, text, length, kind_out);
    *kind_out = RVLI_LINE_EVENT;
    return event_line(cursor, file, event, kind);
}

/* ---- The first line ---- */

#define SHOWN_BYTES 40

static bool is_text(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* Describes what the first line must be, and its start in ASCII, as far as there is room. */
static const char *not_a_trace(const rvli_cursor *cursor, rvli_trace_file *file)
{
    static const char must[] = "not a Reveille trace: its first line must be `reveille-trace 1.N`";
    size_t length = (size_t)(cursor->end - cursor->line);
    size_t shown = length < SHOWN_BYTES ? length : SHOWN_BYTES;
    char text[SHOWN_BYTES + 1];
    for (size_t i = 0; i < shown; i++)
        text[i] = (char)(cursor->line[i] >= ' ' && cursor->line[i] < 0x7f ? cursor->line[i] : '?');
    text[shown] = '\0';
    if (length == 0)
        snprintf(file->first_line, sizeof file->first_line, "%s, and is empty", must);
    else if (is_text(cursor->line, length))
        snprintf(file->first_line, sizeof file->first_line, "%s, and is `%s`%s", must, text,
                 shown < length ? " and more" : "");
    else
        snprintf(file->first_line, sizeof file->first_line, "%s, and is not text", must);
    return file->first_line;
}

static const char *other_major(rvli_trace_file *file, uint64_t major)
{
    snprintf(file->first_line, sizeof file->first_line,
             "major version %" PRIu64 ", and this program reads %d: use the version of "
             "Reveille that wrote it, or one as new",
             major, RVL_TRACE_MAJOR);
    return file->first_line;
}

bool rvli_parse_first_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    const char *why = not_a_trace(cursor, file);
    uint64_t major, minor;
    if (!literal(cursor, RVLI_TRACE_MAGIC, sizeof RVLI_TRACE_MAGIC - 1, why) ||
        !number(cursor, &major, why) || !literal(cursor, ".", 1, why) ||
        !number(cursor, &minor, why) || !line_end(cursor))
        return false;
    if (major != RVL_TRACE_MAJOR) {
        fail_at(cursor, cursor->line + sizeof RVLI_TRACE_MAGIC - 1, other_major(file, major));
        cursor->status = RVL_ERR_VERSION;
        return false;
    }
    if (minor > UINT32_MAX)
        return fail_at(cursor, cursor->line, why);
    file->minor = (uint32_t)minor;
    return true;
}

uint32_t rvli_parse_time_column(rvl_event_kind kind)
{
    return (uint32_t)keywords[kind].length + 2;
}
