/* SPDX-License-Identifier: MIT */
#include "traceio/parse.h"

#include <string.h>

#include "traceio/format.h"

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

/* A text that must come next. */
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

/* Decimal digits without leading zeros. The newline after the line ends the loop. */
static bool number(rvli_cursor *cursor, uint64_t *value_out, const char *why)
{
    const char *begin = cursor->at;
    uint64_t value = 0;
    for (; (unsigned)(*cursor->at - '0') < 10; cursor->at++) {
        unsigned digit = (unsigned)(*cursor->at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return fail_at(cursor, begin, "the number does not fit into 64 bits");
        value = value * 10 + digit;
    }
    if (cursor->at == begin)
        return fail_at(cursor, begin, why);
    if (*begin == '0' && cursor->at - begin > 1)
        return fail_at(cursor, begin, "a number has no leading zeros");
    *value_out = value;
    return true;
}

/* The field up to the next space or the end of the line. */
static const char *word(rvli_cursor *cursor, size_t *length_out)
{
    const char *begin = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != ' ')
        cursor->at++;
    *length_out = (size_t)(cursor->at - begin);
    return begin;
}

static bool is_word(const char *text, size_t length, const char *expected)
{
    return strlen(expected) == length && memcmp(text, expected, length) == 0;
}

static bool name(rvli_cursor *cursor, rvli_names *names, rvli_name **name_out)
{
    size_t length, fault = 0;
    const char *why = NULL;
    const char *begin = word(cursor, &length);
    rvl_status status = rvli_names_get(names, begin, length, name_out, &why, &fault);
    if (status == RVL_ERR_CORRUPT_TRACE)
        return fail_at(cursor, begin + fault, why);
    cursor->status = status;
    return status == RVL_OK;
}

static bool line_end(rvli_cursor *cursor)
{
    return cursor->at == cursor->end || fail_here(cursor, "the line should end here");
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
    begin = word(cursor, &length);
    const rvli_name *found = rvli_names_find(&file->process_names, begin, length);
    if (found == NULL)
        return fail_at(cursor, begin, "this process has not been declared: process NAME pid=N");
    event->process_index = found->index; /* of the file; the reader knows the one over all */
    begin = cursor->at + 1;
    if (!space(cursor, "a space and the thread should follow") ||
        !number(cursor, &thread, "the number of the thread should stand here"))
        return false;
    if (thread > UINT32_MAX)
        return fail_at(cursor, begin, "the number of the thread does not fit into 32 bits");
    event->thread = (uint32_t)thread;
    return true;
}

static bool id_field(rvli_cursor *cursor, rvl_trace_event *event)
{
    const char *begin = cursor->at + 1;
    if (!space(cursor, "a space and the id should follow") ||
        !number(cursor, &event->id, "the id of the allocation should stand here"))
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
    if (!space(cursor, "a space and the tag (- for none) should follow"))
        return false;
    if (cursor->at < cursor->end && *cursor->at == '-' &&
        (cursor->at + 1 == cursor->end || cursor->at[1] == ' ')) {
        cursor->at++;
        return true;
    }
    if (!name(cursor, file->tags, &found))
        return false;
    event->tag = found->text;
    event->tag_index = found->index;
    return true;
}

static bool name_field(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event)
{
    rvli_name *found;
    if (!space(cursor, "a space and a name should follow") ||
        !name(cursor, file->names, &found))
        return false;
    event->name = found->text;
    return true;
}

/* ---- Options: key=value in a fixed order, unknown ones only of newer versions ---- */

/* Whether " key" comes next; if so the cursor is behind it. */
static bool option(rvli_cursor *cursor, const char *key)
{
    size_t length = strlen(key);
    if (cursor->at == cursor->end || *cursor->at != ' ' ||
        (size_t)(cursor->end - cursor->at) < length + 1 ||
        memcmp(cursor->at + 1, key, length) != 0)
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
        event->access_mask |= UINT64_C(1) << device;
        if (cursor->at == cursor->end || *cursor->at != ',')
            return true;
        cursor->at++;
    }
}

static bool flag_word(const char *text, size_t length, uint32_t *flags)
{
#define READ_FLAG(flag, expected)                                                                  \
    if (is_word(text, length, expected)) {                                                         \
        *flags |= (flag);                                                                          \
        return true;                                                                               \
    }
    RVLI_TRACE_FLAG_MAP(READ_FLAG)
#undef READ_FLAG
    return false;
}

static bool flags_option(rvli_cursor *cursor, rvl_trace_event *event)
{
    for (;;) {
        const char *begin = cursor->at;
        while (cursor->at < cursor->end && *cursor->at != ' ' && *cursor->at != ',')
            cursor->at++;
        if (!flag_word(begin, (size_t)(cursor->at - begin), &event->flags))
            return fail_at(cursor, begin, "a flag is exportable, rdma or paused");
        if (cursor->at == cursor->end || *cursor->at != ',')
            return true;
        cursor->at++;
    }
}

/* Skips what a newer minor version added; in ours it is an error. */
static bool newer_options(rvli_cursor *cursor, const rvli_trace_file *file)
{
    if (file->minor > RVL_TRACE_MINOR)
        cursor->at = cursor->end;
    return line_end(cursor);
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

static bool transition_fields(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                              const char *skip_word)
{
    if (!tag_field(cursor, file, event))
        return false;
    event->skip_content = option(cursor, skip_word);
    return newer_options(cursor, file);
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
    default: /* step */
        return newer_options(cursor, file);
    }
}

/* ---- Header ---- */

static bool keyed_number(rvli_cursor *cursor, const char *key, uint64_t *value_out)
{
    return literal(cursor, key, strlen(key), key) &&
           number(cursor, value_out, "a number should stand here");
}

static bool clock_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    size_t length;
    if (file->has_clock)
        return fail_at(cursor, cursor->line, "the clock is declared once");
    if (!literal(cursor, " boot=", 6, " boot= should follow"))
        return false;
    const char *begin = word(cursor, &length);
    if (length == 0 || length >= sizeof file->boot_id)
        return fail_at(cursor, begin, "a boot id has 1 to 255 bytes");
    if (!is_word(begin, length, RVLI_TRACE_NONE))
        memcpy(file->boot_id, begin, length);
    if (!keyed_number(cursor, " mono_ns=", &file->mono_ns) ||
        !keyed_number(cursor, " wall_ns=", &file->wall_ns))
        return false;
    file->has_clock = true;
    return newer_options(cursor, file);
}

static bool device_values(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_device *device)
{
    rvli_name *profile = NULL;
    if (!literal(cursor, " profile=", 9, " profile= should follow"))
        return false;
    if (cursor->at + 1 < cursor->end && cursor->at[0] == '-' && cursor->at[1] == ' ')
        cursor->at++;
    else if (!name(cursor, file->names, &profile))
        return false;
    device->profile = profile != NULL ? profile->text : NULL;
    const char *begin = cursor->at;
    if (!keyed_number(cursor, " capacity_bytes=", &device->capacity_bytes))
        return false;
    if (device->capacity_bytes == 0 || device->capacity_bytes > BYTES_MAX)
        return fail_at(cursor, begin + strlen(" capacity_bytes="),
                       "a capacity is 1 to 2^63 - 1 bytes");
    begin = cursor->at;
    if (!keyed_number(cursor, " granularity_bytes=", &device->granularity_bytes))
        return false;
    uint64_t granularity = device->granularity_bytes;
    if (granularity < 4096 || granularity > BYTES_MAX || (granularity & (granularity - 1)) != 0)
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
    file->device_mask |= UINT64_C(1) << index;
    return true;
}

static bool process_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    uint64_t pid;
    rvli_name *added;
    const char *begin = cursor->at + 1;
    uint32_t before = file->process_names.count;
    if (!space(cursor, "a space and the name of the process should follow") ||
        !name(cursor, &file->process_names, &added))
        return false;
    if (added->index < before)
        return fail_at(cursor, begin, "this process has been declared already");
    return keyed_number(cursor, " pid=", &pid) && newer_options(cursor, file);
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

static bool event_kind(const char *text, size_t length, rvl_event_kind *kind_out)
{
    static const struct {
        const char *text;
        size_t length;
    } keywords[] = {
#define KEYWORD(name, keyword) {keyword, sizeof keyword - 1},
        RVL_EVENT_MAP(KEYWORD)
#undef KEYWORD
    };
    for (size_t kind = 0; kind < RVL_EVENT_KIND_COUNT; kind++)
        if (keywords[kind].length == length && memcmp(keywords[kind].text, text, length) == 0) {
            *kind_out = (rvl_event_kind)kind;
            return true;
        }
    return false;
}

static bool event_line(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                       rvl_event_kind kind)
{
    if (!file->has_clock)
        return fail_at(cursor, cursor->line, "the clock must be declared before the first event");
    if (file->device_mask == 0)
        return fail_at(cursor, cursor->line, "a device must be declared before the first event");
    memset(event, 0, sizeof *event);
    event->kind = kind;
    event->tag_index = RVL_TRACE_NO_TAG;
    file->has_events = true;
    if (!time_and_process(cursor, file, event) || !event_fields(cursor, file, event))
        return false;
    file->last_ns = event->time_ns;
    file->event_lines++;
    return true;
}

/* A line that is no event: header, end, or the kind of a newer version. */
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
    file->skipped_events++;
    file->event_lines++;
    return true;
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
        return true;
    const char *text = word(cursor, &length);
    if (!event_kind(text, length, &kind))
        return other_line(cursor, file, text, length, kind_out);
    *kind_out = RVLI_LINE_EVENT;
    return event_line(cursor, file, event, kind);
}

bool rvli_parse_first_line(rvli_cursor *cursor, rvli_trace_file *file)
{
    static const char why[] = "not a Reveille trace: the first line is `reveille-trace 1.0`";
    uint64_t major, minor;
    if (!literal(cursor, RVLI_TRACE_MAGIC, sizeof RVLI_TRACE_MAGIC - 1, why) ||
        !number(cursor, &major, why) || !literal(cursor, ".", 1, why) ||
        !number(cursor, &minor, why) || !line_end(cursor))
        return false;
    if (major != RVL_TRACE_MAJOR) {
        fail_at(cursor, cursor->line + sizeof RVLI_TRACE_MAGIC - 1,
                "a major version that this program does not know");
        cursor->status = RVL_ERR_VERSION;
        return false;
    }
    if (minor > UINT32_MAX)
        return fail_at(cursor, cursor->line, why);
    file->minor = (uint32_t)minor;
    return true;
}
