/* SPDX-License-Identifier: MIT */
/*
 * The trace writer: plain text through one buffer. It needs only libc.
 *
 * Lines are composed in the buffer, and only whole lines are written out, so a killed process
 * leaves a readable prefix. After the first failure, nothing more is written, and every call
 * returns that failure.
 *
 * A recording gets its file name with the header, since the process may be killed at any time.
 * Other traces get theirs when they are complete (base/output.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_limit.h"
#include "base/options.h"
#include "base/output.h"
#include "base/trace_element.h"
#include "trace/format.h"

#define BUFFER_BYTES 65536u
/* The longest line: three escaped names and a list of 64 devices. */
#define LINE_BYTES_MAX 4096u
#define COMMENT_BYTES_MAX 4000u

typedef struct process {
    char *name;
    uint64_t last_id;
} process;

struct rvl_trace_writer {
    rvli_output output;
    int failed; /* errno of the first failure; 0: none */
    uint64_t events;
    uint64_t last_ns;
    uint64_t devices; /* bit d: device d is declared */
    uint32_t minor;   /* minor version that is written */
    uint32_t flags;   /* RVL_TRACE_RECORDS_REFUSALS */
    process *processes;
    size_t process_count;
    size_t last_process; /* process of the last event, and usually of the next */
    size_t length;
    char buffer[BUFFER_BYTES];
};

/* ---- Text ---- */

static void add_text(rvl_trace_writer *writer, const char *text)
{
    size_t length = strlen(text);
    memcpy(writer->buffer + writer->length, text, length);
    writer->length += length;
}

/* Converts two digits with each division, since most of a trace is numbers. */
static void add_number(rvl_trace_writer *writer, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    for (; value >= 100; value /= 100) {
        unsigned two = (unsigned)(value % 100);
        digits[--at] = (char)('0' + two % 10);
        digits[--at] = (char)('0' + two / 10);
    }
    if (value >= 10) {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    }
    digits[--at] = (char)('0' + value);
    memcpy(writer->buffer + writer->length, digits + at, sizeof digits - at);
    writer->length += sizeof digits - at;
}

static void add_byte(rvl_trace_writer *writer, char byte)
{
    writer->buffer[writer->length++] = byte;
}

static void add_escaped(rvl_trace_writer *writer, unsigned char byte)
{
    static const char digits[] = "0123456789ABCDEF";
    add_byte(writer, '%');
    add_byte(writer, digits[byte >> 4]);
    add_byte(writer, digits[byte & 15]);
}

static void add_name(rvl_trace_writer *writer, const char *name)
{
    if (strcmp(name, RVLI_TRACE_NONE) == 0) {
        add_escaped(writer, '-');
        return;
    }
    for (; *name != '\0'; name++) {
        if (rvli_trace_must_escape((unsigned char)*name))
            add_escaped(writer, (unsigned char)*name);
        else
            add_byte(writer, *name);
    }
}

static void field_number(rvl_trace_writer *writer, uint64_t value)
{
    add_byte(writer, ' ');
    add_number(writer, value);
}

/* Writes a name; NULL as none. */
static void field_name(rvl_trace_writer *writer, const char *name)
{
    add_byte(writer, ' ');
    if (name == NULL)
        add_text(writer, RVLI_TRACE_NONE);
    else
        add_name(writer, name);
}

/* ---- Output ---- */

static const char *explanation(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
        return "no space for the trace: free some, or name a file on another disk";
    case EFBIG:
        return "the trace is larger than a file may be: raise ulimit -f";
    default:
        return "the trace could not be written";
    }
}

static rvl_status tell(const rvl_trace_writer *writer)
{
    rvli_error(RVL_ERR_IO, explanation(writer->failed));
    rvli_error_errno(writer->failed);
    return RVL_ERR_IO;
}

static rvl_status remember(rvl_trace_writer *writer)
{
    writer->failed = errno;
    return tell(writer);
}

static rvl_status write_out(rvl_trace_writer *writer)
{
    size_t done = 0;
    if (writer->failed != 0)
        return tell(writer);
    if (!rvli_file_may_take(writer->output.fd, writer->length)) {
        errno = EFBIG;
        return remember(writer);
    }
    while (done < writer->length) {
        ssize_t count = write(writer->output.fd, writer->buffer + done, writer->length - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return remember(writer);
        done += (size_t)count;
    }
    writer->length = 0;
    return RVL_OK;
}

/* Makes room for one more line. */
static rvl_status begin_line(rvl_trace_writer *writer)
{
    if (writer->failed != 0)
        return tell(writer);
    return BUFFER_BYTES - writer->length < LINE_BYTES_MAX ? write_out(writer) : RVL_OK;
}

/* ---- Comments ---- */

static bool good_comment(const char *text)
{
    size_t length = 0;
    for (; *text != '\0'; text++) {
        length = *text == '\n' ? 0 : length + 1;
        if (length > COMMENT_BYTES_MAX)
            return false;
    }
    return true;
}

/*
 * Writes line by line, so that no text is too long for the buffer. A final LF ends the last line.
 */
static rvl_status write_comment(rvl_trace_writer *writer, const char *text)
{
    do {
        size_t length = strcspn(text, "\n");
        rvl_status status = begin_line(writer);
        if (status != RVL_OK)
            return status;
        add_text(writer, length > 0 ? "# " : "#");
        memcpy(writer->buffer + writer->length, text, length);
        writer->length += length;
        add_byte(writer, '\n');
        text += length + (text[length] == '\n');
    } while (*text != '\0');
    return RVL_OK;
}

rvl_status rvl_trace_writer_add_comment(rvl_trace_writer *writer, const char *text)
{
    if (writer == NULL || text == NULL || !good_comment(text))
        return rvli_error(RVL_ERR_INVALID,
                          "a comment is missing, or has a line of over 4000 bytes");
    return write_comment(writer, text);
}

/* ---- Header ---- */

static bool good_name(const char *name)
{
    size_t length = name != NULL ? strnlen(name, RVLI_TRACE_NAME_BYTES_MAX + 1) : 0;
    return length > 0 && length <= RVLI_TRACE_NAME_BYTES_MAX;
}

static void write_device(rvl_trace_writer *writer, const rvl_trace_device *device)
{
    add_text(writer, RVLI_WORD_DEVICE);
    field_number(writer, device->index);
    add_text(writer, " profile=");
    if (device->profile != NULL)
        add_name(writer, device->profile);
    else
        add_text(writer, RVLI_TRACE_NONE);
    add_text(writer, " capacity_bytes=");
    add_number(writer, device->capacity_bytes);
    add_text(writer, " granularity_bytes=");
    add_number(writer, device->granularity_bytes);
    add_byte(writer, '\n');
    writer->devices |= UINT64_C(1) << device->index;
}

static rvl_status write_header(rvl_trace_writer *writer, const rvl_trace_header *header)
{
    add_text(writer, RVLI_TRACE_MAGIC);
    add_number(writer, RVL_TRACE_MAJOR);
    add_byte(writer, '.');
    add_number(writer, header->minor);
    add_byte(writer, '\n');
    if (header->comment != NULL) {
        rvl_status status = write_comment(writer, header->comment);
        if (status == RVL_OK)
            status = write_out(writer); /* 64 devices need the whole buffer */
        if (status != RVL_OK)
            return status;
    }
    add_text(writer, RVLI_WORD_CLOCK " boot=");
    if (header->boot_id != NULL)
        add_name(writer, header->boot_id);
    else
        add_text(writer, RVLI_TRACE_NONE);
    add_text(writer, " mono_ns=");
    add_number(writer, header->mono_ns);
    add_text(writer, " wall_ns=");
    add_number(writer, header->wall_ns);
    add_byte(writer, '\n');
    for (size_t i = 0; i < header->device_count; i++)
        write_device(writer, &header->devices[i]);
    return RVL_OK;
}

static bool good_device(const rvl_trace_device *device)
{
    uint64_t granularity = device->granularity_bytes;
    return device->index < RVL_MAX_DEVICES && device->capacity_bytes > 0 &&
           device->capacity_bytes <= (uint64_t)INT64_MAX &&
           granularity >= RVLI_TRACE_GRANULARITY_MIN && granularity <= (uint64_t)INT64_MAX &&
           (granularity & (granularity - 1)) == 0 &&
           (device->profile == NULL || good_name(device->profile));
}

static bool good_header(const rvl_trace_header *header)
{
    if (header->minor > RVL_TRACE_MINOR || (header->flags & ~RVL_TRACE_RECORDS_REFUSALS) != 0 ||
        (header->flags != 0 && header->minor < RVLI_TRACE_MINOR_REFUSALS) ||
        (header->boot_id != NULL && !good_name(header->boot_id)) ||
        (header->comment != NULL && !good_comment(header->comment)))
        return false;
    uint64_t seen = 0;
    for (size_t i = 0; i < header->device_count; i++) {
        const rvl_trace_device *device = &header->devices[i];
        if (!good_device(device) || seen >> device->index & 1)
            return false;
        seen |= UINT64_C(1) << device->index;
    }
    return true;
}

static rvl_status invalid_header(void)
{
    return rvli_error(RVL_ERR_INVALID, "the path or the header of the trace is not valid");
}

/* Converts the user's header to this version's struct. devices_out has room for RVL_MAX_DEVICES. */
static rvl_status read_header(rvl_trace_header *header_out, rvl_trace_device *devices_out,
                              const rvl_trace_header *user_header)
{
    rvl_status status = rvli_options_read(header_out, sizeof *header_out, user_header);
    if (status != RVL_OK)
        return status;
    if (header_out->devices == NULL || header_out->device_count == 0 ||
        header_out->device_count > RVL_MAX_DEVICES)
        return invalid_header();
    for (size_t i = 0; i < header_out->device_count && status == RVL_OK; i++)
        status = rvli_trace_device_read(&devices_out[i], header_out->devices,
                                        header_out->device_size, i);
    header_out->devices = devices_out;
    return status;
}

static rvl_status open_writer(const char *path, rvli_output_name name,
                              const rvl_trace_header *user_header, rvl_trace_writer **writer_out)
{
    rvl_trace_header known;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    const rvl_trace_header *header = &known;
    rvl_status status = read_header(&known, devices, user_header);
    if (status != RVL_OK)
        return status;
    if (path == NULL || writer_out == NULL || !good_header(header))
        return invalid_header();
    rvl_trace_writer *writer = malloc(sizeof *writer);
    if (writer == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a trace writer");
    memset(writer, 0, offsetof(rvl_trace_writer, buffer));
    writer->minor = header->minor;
    writer->flags = header->flags;
    status = rvli_output_open(path, name, &writer->output);
    if (status != RVL_OK) {
        free(writer);
        return status;
    }
    status = write_header(writer, header);
    if (status != RVL_OK) {
        rvli_output_close(&writer->output);
        free(writer);
        return status;
    }
    *writer_out = writer;
    return RVL_OK;
}

rvl_status rvl_trace_writer_open_draft(const char *path, const rvl_trace_header *header,
                                       rvl_trace_writer **writer_out)
{
    return open_writer(path, RVLI_OUTPUT_CHOSEN, header, writer_out);
}

rvl_status rvli_trace_writer_publish(rvl_trace_writer *writer)
{
    if (writer->output.folder < 0) /* written directly: it has its name */
        return RVL_OK;
    rvl_status status = write_out(writer);
    return status == RVL_OK ? rvli_output_publish(&writer->output, false) : status;
}

rvl_status rvli_trace_writer_open(const char *path, rvli_output_name name,
                                  const rvl_trace_header *header, rvl_trace_writer **writer_out)
{
    rvl_trace_writer *writer;
    rvl_status status = open_writer(path, name, header, writer_out != NULL ? &writer : NULL);
    if (status != RVL_OK)
        return status;
    status = rvli_trace_writer_publish(writer);
    if (status == RVL_OK)
        *writer_out = writer;
    else
        rvl_trace_writer_discard(writer);
    return status;
}

rvl_status rvl_trace_writer_open(const char *path, const rvl_trace_header *header,
                                 rvl_trace_writer **writer_out)
{
    return rvli_trace_writer_open(path, RVLI_OUTPUT_CHOSEN, header, writer_out);
}

/* ---- Processes ---- */

static process *find_process(rvl_trace_writer *writer, const char *name)
{
    size_t last = writer->last_process;
    if (last < writer->process_count && strcmp(writer->processes[last].name, name) == 0)
        return &writer->processes[last];
    for (size_t i = 0; i < writer->process_count; i++)
        if (strcmp(writer->processes[i].name, name) == 0) {
            writer->last_process = i;
            return &writer->processes[i];
        }
    return NULL;
}

rvl_status rvl_trace_writer_add_process(rvl_trace_writer *writer, const char *name, uint64_t pid)
{
    if (writer == NULL || !good_name(name) || find_process(writer, name) != NULL)
        return rvli_error(RVL_ERR_INVALID,
                          "a process is declared once, by a name of 1 to 255 bytes");
    if (writer->process_count == RVLI_TRACE_PROCESSES_MAX)
        return rvli_error(RVL_ERR_INVALID, "a trace has at most 4096 processes");
    rvl_status status = begin_line(writer);
    if (status != RVL_OK)
        return status;
    process *processes =
        realloc(writer->processes, (writer->process_count + 1) * sizeof *processes);
    if (processes != NULL)
        writer->processes = processes;
    char *copy = processes != NULL ? strdup(name) : NULL;
    if (copy == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a process");
    writer->processes[writer->process_count++] = (process){.name = copy};
    add_text(writer, RVLI_WORD_PROCESS);
    field_name(writer, name);
    add_text(writer, " pid=");
    add_number(writer, pid);
    if (writer->flags & RVL_TRACE_RECORDS_REFUSALS)
        add_text(writer, " " RVLI_WORD_REFUSALS);
    add_byte(writer, '\n');
    return RVL_OK;
}

/* ---- Events ---- */

static bool uses_device(rvl_event_kind kind)
{
    return kind == RVL_EVENT_ALLOC || kind == RVL_EVENT_EXTERNAL || kind == RVL_EVENT_SAMPLE;
}

static bool uses_name(rvl_event_kind kind)
{
    return kind == RVL_EVENT_STAGE || kind == RVL_EVENT_EXTERNAL || kind == RVL_EVENT_ENTER;
}

static bool good_alloc(const rvl_trace_writer *writer, const rvl_trace_event *event,
                       const process *owner)
{
    return event->id > owner->last_id && event->bytes > 0 &&
           (unsigned)event->backup <= RVL_BACKUP_DISK &&
           (event->access_mask & ~writer->devices) == 0 &&
           !(event->access_mask >> event->device & 1) && event->flags < 8;
}

static bool good_refusal(const rvl_trace_writer *writer, const rvl_trace_event *event)
{
    bool device = event->device < RVL_MAX_DEVICES && (writer->devices >> event->device & 1);
    return writer->minor >= RVLI_TRACE_MINOR_REFUSALS &&
           (device || event->device == RVL_TRACE_HOST) && event->bytes > 0 &&
           event->free_bytes <= (uint64_t)INT64_MAX &&
           (event->flags & ~RVL_REFUSE_BY_ALLOCATOR) == 0 &&
           (event->name == NULL || good_name(event->name));
}

static bool good_end(const rvl_trace_writer *writer, const rvl_trace_event *event)
{
    bool signal = event->flags == RVL_ENDED_BY_SIGNAL;
    return writer->minor >= RVLI_TRACE_MINOR_REFUSALS &&
           (event->flags & ~RVL_ENDED_BY_SIGNAL) == 0 &&
           event->exit_status <= (signal ? RVLI_TRACE_SIGNAL_MAX : RVLI_TRACE_EXIT_MAX) &&
           !(signal && event->exit_status == 0) && (event->name == NULL || good_name(event->name));
}

static bool good_event(const rvl_trace_writer *writer, const rvl_trace_event *event,
                       const process *owner)
{
    if ((unsigned)event->kind >= RVL_EVENT_KIND_COUNT || owner == NULL ||
        event->time_ns < writer->last_ns || event->bytes > (uint64_t)INT64_MAX ||
        (event->tag != NULL && !good_name(event->tag)))
        return false;
    if (uses_device(event->kind) &&
        (event->device >= RVL_MAX_DEVICES || !(writer->devices >> event->device & 1)))
        return false;
    if (uses_name(event->kind) && !good_name(event->name))
        return false;
    if (event->kind == RVL_EVENT_FREE && event->id == 0)
        return false;
    if (event->kind == RVL_EVENT_PART)
        return writer->minor >= RVLI_TRACE_MINOR_PARTS && event->id > 0 && event->tag != NULL;
    if (event->kind == RVL_EVENT_ENTER)
        return writer->minor >= RVLI_TRACE_MINOR_RANGES && event->id > 0;
    if (event->kind == RVL_EVENT_LEAVE)
        return writer->minor >= RVLI_TRACE_MINOR_RANGES;
    if (event->kind == RVL_EVENT_REFUSE)
        return good_refusal(writer, event);
    if (event->kind == RVL_EVENT_ENDED)
        return good_end(writer, event);
    if (event->kind == RVL_EVENT_SLEEP || event->kind == RVL_EVENT_WAKE)
        return writer->minor >= RVLI_TRACE_MINOR_SLEEP;
    if (event->kind == RVL_EVENT_FAIL)
        return writer->minor >= RVLI_TRACE_MINOR_FAIL &&
               (event->name == NULL || good_name(event->name));
    return event->kind != RVL_EVENT_ALLOC || good_alloc(writer, event, owner);
}

static void write_list_separator(rvl_trace_writer *writer, const char *key, bool *first)
{
    add_text(writer, *first ? key : ",");
    *first = false;
}

static void write_alloc_options(rvl_trace_writer *writer, const rvl_trace_event *event)
{
    bool first = true;
    if (event->backup == RVL_BACKUP_HOST)
        add_text(writer, " backup=host");
    if (event->backup == RVL_BACKUP_DISK)
        add_text(writer, " backup=disk");
    for (unsigned device = 0; device < RVL_MAX_DEVICES; device++)
        if (event->access_mask >> device & 1) {
            write_list_separator(writer, " access=", &first);
            add_number(writer, device);
        }
    first = true;
#define WRITE_FLAG(flag, word)                                                                     \
    if (event->flags & (flag)) {                                                                   \
        write_list_separator(writer, " flags=", &first);                                           \
        add_text(writer, word);                                                                    \
    }
    RVLI_TRACE_FLAG_MAP(WRITE_FLAG)
#undef WRITE_FLAG
}

static void write_option(rvl_trace_writer *writer, const char *which, const char *name)
{
    if (name == NULL)
        return;
    add_text(writer, which);
    add_name(writer, name);
}

static void write_refusal(rvl_trace_writer *writer, const rvl_trace_event *event)
{
    if (event->device == RVL_TRACE_HOST)
        add_text(writer, " " RVLI_WORD_HOST);
    else
        field_number(writer, event->device);
    field_number(writer, event->bytes);
    field_number(writer, event->free_bytes);
    field_name(writer, event->tag);
    if (event->flags & RVL_REFUSE_BY_ALLOCATOR)
        add_text(writer, " " RVLI_WORD_BY_ALLOCATOR);
    write_option(writer, " " RVLI_WORD_AT, event->name);
}

static void write_how_ended(rvl_trace_writer *writer, const rvl_trace_event *event)
{
    add_text(writer,
             event->flags & RVL_ENDED_BY_SIGNAL ? " " RVLI_WORD_SIGNAL : " " RVLI_WORD_EXIT);
    add_number(writer, event->exit_status);
    if (event->bytes > 0) {
        add_text(writer, " " RVLI_WORD_MISSED);
        add_number(writer, event->bytes);
    }
    write_option(writer, " " RVLI_WORD_WAITS, event->name);
}

static void write_fields(rvl_trace_writer *writer, const rvl_trace_event *event)
{
    switch (event->kind) {
    case RVL_EVENT_ALLOC:
        field_number(writer, event->id);
        field_number(writer, event->device);
        field_number(writer, event->bytes);
        field_name(writer, event->tag);
        write_alloc_options(writer, event);
        break;
    case RVL_EVENT_FREE:
        field_number(writer, event->id);
        break;
    case RVL_EVENT_PAUSE:
    case RVL_EVENT_RESUME:
        field_name(writer, event->tag);
        if (event->skip_content)
            add_text(writer, event->kind == RVL_EVENT_PAUSE ? " " RVLI_WORD_DISCARD
                                                            : " " RVLI_WORD_NO_RESTORE);
        break;
    case RVL_EVENT_STAGE:
        field_name(writer, event->name);
        break;
    case RVL_EVENT_EXTERNAL:
    case RVL_EVENT_SAMPLE:
        field_number(writer, event->device);
        field_number(writer, event->bytes);
        if (event->kind == RVL_EVENT_EXTERNAL)
            field_name(writer, event->name);
        break;
    case RVL_EVENT_PART:
        field_number(writer, event->id);
        field_number(writer, event->bytes);
        field_name(writer, event->tag);
        break;
    case RVL_EVENT_ENTER:
        field_number(writer, event->id);
        field_name(writer, event->name);
        break;
    case RVL_EVENT_LEAVE:
        field_number(writer, event->id);
        break;
    case RVL_EVENT_REFUSE:
        write_refusal(writer, event);
        break;
    case RVL_EVENT_ENDED:
        write_how_ended(writer, event);
        break;
    case RVL_EVENT_SLEEP:
        if (event->skip_content)
            add_text(writer, " " RVLI_WORD_DISCARD);
        break;
    case RVL_EVENT_WAKE:
        if (event->skip_content)
            add_text(writer, " " RVLI_WORD_PAUSED);
        break;
    case RVL_EVENT_FAIL:
        write_option(writer, " " RVLI_WORD_HOW, event->name);
        break;
    default: /* step: nothing more */
        break;
    }
}

static rvl_status add_event(rvl_trace_writer *writer, const rvl_trace_event *event)
{
    static const char *const keywords[] = {
#define KEYWORD(name, keyword) keyword,
        RVL_EVENT_MAP(KEYWORD)
#undef KEYWORD
    };
    process *owner = event->process != NULL ? find_process(writer, event->process) : NULL;
    rvl_status status = rvli_trace_event_check(event);
    if (status != RVL_OK)
        return status;
    if (!good_event(writer, event, owner))
        return rvli_error(RVL_ERR_INVALID, "the event has a field that the format does not allow");
    status = begin_line(writer);
    if (status != RVL_OK)
        return status;
    add_text(writer, keywords[event->kind]);
    field_number(writer, event->time_ns);
    field_name(writer, event->process);
    field_number(writer, event->thread);
    write_fields(writer, event);
    add_byte(writer, '\n');
    writer->last_ns = event->time_ns;
    writer->events++;
    if (event->kind == RVL_EVENT_ALLOC)
        owner->last_id = event->id;
    return RVL_OK;
}

/* Adds an event of a caller with an older or newer struct. */
static rvl_status add_resized(rvl_trace_writer *writer, const rvl_trace_event *event,
                              size_t event_size)
{
    rvl_trace_event known;
    rvl_status status = rvli_element_check(RVLI_TRACE_EVENT, event_size);
    if (status == RVL_OK)
        status = rvli_element_read(RVLI_TRACE_EVENT, &known, event, event_size);
    return status == RVL_OK ? add_event(writer, &known) : status;
}

rvl_status rvl_trace_writer_add_event(rvl_trace_writer *writer, const rvl_trace_event *event,
                                      size_t event_size)
{
    if (writer == NULL || event == NULL)
        return rvli_error(RVL_ERR_INVALID, "the writer or the event is NULL");
    if (event_size == sizeof *event)
        return add_event(writer, event);
    return add_resized(writer, event, event_size);
}

rvl_status rvl_trace_writer_flush(rvl_trace_writer *writer)
{
    if (writer == NULL)
        return rvli_error(RVL_ERR_INVALID, "the writer is NULL");
    return write_out(writer);
}

static void free_writer(rvl_trace_writer *writer)
{
    rvli_output_close(&writer->output);
    for (size_t i = 0; i < writer->process_count; i++)
        free(writer->processes[i].name);
    free(writer->processes);
    free(writer);
}

static rvl_status write_end(rvl_trace_writer *writer)
{
    rvl_status status = begin_line(writer);
    if (status != RVL_OK)
        return status;
    add_text(writer, RVLI_WORD_END);
    field_number(writer, writer->events);
    add_byte(writer, '\n');
    return write_out(writer);
}

/* Some file systems report a failed write only at close(). */
static rvl_status close_file(rvl_trace_writer *writer)
{
    int file = writer->output.fd;
    writer->output.fd = -1;
    return close(file) == 0 ? RVL_OK : remember(writer);
}

rvl_status rvl_trace_writer_close(rvl_trace_writer *writer)
{
    if (writer == NULL)
        return RVL_OK;
    rvl_status status = write_end(writer);
    if (status == RVL_OK)
        status = rvli_output_publish(&writer->output, true);
    if (status == RVL_OK)
        status = close_file(writer);
    free_writer(writer);
    return status;
}

void rvl_trace_writer_discard(rvl_trace_writer *writer)
{
    if (writer != NULL)
        free_writer(writer);
}
