/* SPDX-License-Identifier: MIT */
#include "snapshot_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROTO 0x80
#define MEMOIZE 0x94
#define KEYS_MAX 64

static void require(bool holds)
{
    if (holds)
        return;
    perror("writing a snapshot");
    abort();
}

void write_byte(written *to, unsigned char byte)
{
    if (to->size == to->capacity) {
        to->capacity = to->capacity > 0 ? to->capacity * 2 : 4096;
        to->data = realloc(to->data, to->capacity);
        require(to->data != NULL);
    }
    to->data[to->size++] = byte;
}

static void write_little(written *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        write_byte(to, (unsigned char)(number >> (8 * i)));
}

void write_text(written *to, const char *text)
{
    size_t length = strlen(text);
    write_byte(to, 0x8c);
    write_byte(to, (unsigned char)length);
    for (size_t i = 0; i < length; i++)
        write_byte(to, (unsigned char)text[i]);
}

void write_number(written *to, int64_t number)
{
    if (number >= 0 && number < 256) {
        write_byte(to, 'K');
        write_byte(to, (unsigned char)number);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        write_byte(to, 'J');
        write_little(to, (uint64_t)number, 4);
    } else {
        write_byte(to, 0x8a);
        write_byte(to, 8);
        write_little(to, (uint64_t)number, 8);
    }
}

static void write_float(written *to, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    write_byte(to, 'G');
    for (int i = 7; i >= 0; i--)
        write_byte(to, (unsigned char)(bits >> (8 * i)));
}

/* ---- A memo for strings ---- */

typedef struct memo {
    const char *keys[KEYS_MAX];
    uint32_t numbers[KEYS_MAX];
    size_t count;
    uint32_t next;
} memo;

static memo known;

static void memoize(written *to)
{
    if (!to->memo)
        return;
    write_byte(to, MEMOIZE);
    known.next++;
}

static void write_key(written *to, const char *key)
{
    for (size_t i = 0; to->memo && i < known.count; i++) {
        if (strcmp(known.keys[i], key) != 0)
            continue;
        write_byte(to, known.numbers[i] < 256 ? 'h' : 'j');
        write_little(to, known.numbers[i], known.numbers[i] < 256 ? 1 : 4);
        return;
    }
    write_text(to, key);
    if (to->memo && known.count < KEYS_MAX) {
        known.keys[known.count] = key;
        known.numbers[known.count++] = known.next;
    }
    memoize(to);
}

static void begin_dict(written *to)
{
    write_byte(to, '}');
    memoize(to);
    write_byte(to, '(');
}

static void begin_list(written *to)
{
    write_byte(to, ']');
    memoize(to);
    write_byte(to, '(');
}

static void key_number(written *to, const char *key, int64_t number)
{
    write_key(to, key);
    write_number(to, number);
}

static void key_text(written *to, const char *key, const char *text)
{
    write_key(to, key);
    write_key(to, text);
}

static void key_bool(written *to, const char *key, bool value)
{
    write_key(to, key);
    write_byte(to, value ? 0x88 : 0x89);
}

/* ---- Parts ---- */

static void write_frames(written *to)
{
    write_key(to, "frames");
    begin_list(to);
    begin_dict(to);
    key_text(to, "name", "forward");
    key_text(to, "filename", "model.py");
    key_number(to, "line", 300);
    write_byte(to, 'u');
    write_byte(to, 'e');
}

static void write_event(written *to, const test_event *event, size_t index, bool frames)
{
    begin_dict(to);
    key_text(to, "action", event->action);
    key_number(to, strcmp(event->action, "oom") == 0 ? "device_free" : "addr",
               (int64_t)event->addr);
    key_number(to, "size", (int64_t)event->size);
    key_number(to, "stream", (int64_t)event->stream);
    key_number(to, "time_us", 1000 + 10 * (int64_t)index);
    if (event->pool > 0) {
        write_key(to, "pool_id");
        write_number(to, 0);
        write_number(to, event->pool);
        write_byte(to, 0x86);
        memoize(to);
    }
    if (frames)
        write_frames(to);
    key_text(to, "compile_context", "N/A");
    write_key(to, "user_metadata");
    write_text(to, "");
    memoize(to);
    write_byte(to, 'u');
}

static void write_edge(written *to, const char *name, const char *stage, int64_t time_us)
{
    if (time_us < 0)
        return;
    begin_dict(to);
    key_text(to, "stage", stage);
    write_key(to, "name");
    write_text(to, name);
    memoize(to);
    key_number(to, "device", 0);
    key_number(to, "time_us", time_us);
    write_byte(to, 'u');
}

static void write_segment(written *to, const test_block *block)
{
    begin_dict(to);
    key_number(to, "device", 0);
    key_number(to, "address", (int64_t)block->segment);
    key_number(to, "total_size", (int64_t)block->segment_size);
    key_number(to, "stream", 0);
    key_text(to, "segment_type", block->segment_size == 2 << 20 ? "small" : "large");
    key_bool(to, "is_expandable", false);
    write_key(to, "blocks");
    begin_list(to);
    begin_dict(to);
    key_number(to, "address", (int64_t)block->segment);
    key_number(to, "size", (int64_t)block->size);
    key_number(to, "requested_size", (int64_t)block->requested);
    key_text(to, "state", block->live ? "active_allocated" : "inactive");
    write_byte(to, 'u');
    write_byte(to, 'e');
    write_byte(to, 'u');
}

static void write_settings(written *to, const test_snapshot *snapshot)
{
    static const char *const sizes[] = {"1",    "2",    "4",     "8",    "16",   "32",
                                        "64",   "128",  "256",   "512",  "1024", "2048",
                                        "4096", "8192", "16384", "32768"};
    begin_dict(to);
    key_text(to, "PYTORCH_CUDA_ALLOC_CONF", snapshot->conf != NULL ? snapshot->conf : "");
    key_number(to, "max_split_size",
               snapshot->max_split_bytes > 0 ? snapshot->max_split_bytes : -1);
    write_key(to, "garbage_collection_threshold");
    write_float(to, snapshot->gc_threshold);
    key_bool(to, "expandable_segments", snapshot->expandable);
    write_key(to, "roundup_power2_divisions");
    begin_dict(to);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        key_number(to, sizes[i], snapshot->divisions);
    write_byte(to, 'u');
    write_byte(to, 'u');
}

written write_snapshot(const test_snapshot *snapshot)
{
    written to = {.memo = !snapshot->plain};
    known = (memo){0};
    write_byte(&to, PROTO);
    write_byte(&to, 4);
    begin_dict(&to);
    write_key(&to, "segments");
    begin_list(&to);
    for (size_t i = 0; i < snapshot->block_count; i++)
        write_segment(&to, &snapshot->blocks[i]);
    write_byte(&to, 'e');
    write_key(&to, "device_traces");
    begin_list(&to);
    begin_list(&to);
    for (size_t i = 0; i < snapshot->event_count; i++)
        write_event(&to, &snapshot->events[i], i, snapshot->frames);
    write_byte(&to, 'e');
    write_byte(&to, 'e');
    write_key(&to, "allocator_settings");
    write_settings(&to, snapshot);
    write_key(&to, "external_annotations");
    begin_list(&to);
    for (size_t i = 0; i < snapshot->stage_count; i++) {
        write_edge(&to, snapshot->stages[i].name, "START", snapshot->stages[i].start_us);
        write_edge(&to, snapshot->stages[i].name, "END", snapshot->stages[i].end_us);
    }
    write_byte(&to, 'e');
    write_byte(&to, 'u');
    write_byte(&to, '.');
    return to;
}

void save_bytes(char *path, const void *data, size_t size)
{
    int file = mkstemp(path);
    require(file >= 0);
    require(write(file, data, size) == (ssize_t)size);
    close(file);
}
