/* SPDX-License-Identifier: MIT */
/*
 * Snapshots are changed as pickles.
 *
 * A changed byte of a pickle mostly ends it: a length is wrong, or a memo number. Here a pickle is
 * taken apart into opcodes, without its memo, and changed as data: a number becomes another, a word
 * another word, an entry of a list is copied, moved or taken out, a value gets another type. Then
 * it is written again, with a memo as picklers write it or without.
 */
#include "fuzz.h"

#include <string.h>

#define OPS_MAX 8192u
#define BYTES_MAX 65536u /* of changed opcodes */
#define MEMO_MAX 1024u

#define PROTO 0x80
#define MEMOIZE 0x94
#define FRAME 0x95
#define SHORT_TEXT 0x8c
#define LONG1 0x8a

/* An opcode and its argument. */
typedef struct op {
    const uint8_t *at;
    uint32_t length;
} op;

typedef struct program {
    op ops[OPS_MAX];
    uint32_t count;
    uint8_t made[BYTES_MAX]; /* opcodes that the input does not have */
    uint32_t made_bytes;
    uint32_t random;
} program;

static uint32_t pick(program *p, uint32_t below)
{
    return fuzz_pick(&p->random, below);
}

/* ---- Apart ---- */

static uint64_t little_endian(const uint8_t *bytes, unsigned count)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < count; i++)
        number |= (uint64_t)bytes[i] << (8 * i);
    return number;
}

/* Bytes of an opcode with its argument; 0: not known, or it ends too early. */
static size_t length_of(const uint8_t *at, size_t left)
{
    unsigned fixed = 0, counted = 0;
    switch (*at) {
    case 'K':
    case 'h':
    case 'q':
    case PROTO:
        fixed = 1;
        break;
    case 'M':
        fixed = 2;
        break;
    case 'J':
    case 'j':
    case 'r':
        fixed = 4;
        break;
    case 'G':
    case FRAME:
        fixed = 8;
        break;
    case SHORT_TEXT:
    case LONG1:
    case 'U':
    case 'C':
        counted = 1;
        break;
    case 'X':
    case 0x8b:
    case 'T':
    case 'B':
        counted = 4;
        break;
    case 0x8d:
    case 0x8e:
    case 0x96:
        counted = 8;
        break;
    default:
        break;
    }
    if (left < 1u + fixed + counted)
        return 0;
    uint64_t more = counted > 0 ? little_endian(at + 1, counted) : 0;
    return more > left - 1 - fixed - counted ? 0 : 1 + fixed + counted + (size_t)more;
}

static bool is_text(const op *o)
{
    return *o->at == SHORT_TEXT || *o->at == 'X' || *o->at == 0x8d;
}

static bool is_number(const op *o)
{
    return strchr("KMJ", *o->at) != NULL || *o->at == LONG1;
}

static void add(program *p, op o)
{
    if (p->count < OPS_MAX)
        p->ops[p->count++] = o;
}

/* Without frames and memo: what was got from it is there itself, a container as None. */
static bool take_apart(program *p, const uint8_t *data, size_t size)
{
    static const uint8_t none[] = {'N'};
    static op memo[MEMO_MAX];
    uint32_t memo_count = 0;
    size_t length;
    for (size_t at = 0; at < size; at += length) {
        length = length_of(data + at, size - at);
        if (length == 0 || p->count == OPS_MAX)
            return false;
        op o = {data + at, (uint32_t)length};
        bool get = *o.at == 'h' || *o.at == 'j', put = *o.at == 'q' || *o.at == 'r';
        uint64_t number = get || put ? little_endian(o.at + 1, o.length - 1) : memo_count;
        if (get) {
            add(p, number < memo_count ? memo[number] : (op){none, 1});
        } else if (put || *o.at == MEMOIZE) {
            if (number >= MEMO_MAX || p->count == 0)
                return false;
            while (memo_count <= number)
                memo[memo_count++] = (op){none, 1};
            if (is_text(&p->ops[p->count - 1]))
                memo[number] = p->ops[p->count - 1];
        } else if (*o.at != FRAME) {
            add(p, o);
        }
        if (*o.at == '.')
            return p->count > 2;
    }
    return false;
}

/* ---- Changes ---- */

static op make(program *p, const uint8_t *bytes, size_t length)
{
    uint8_t *to = p->made + p->made_bytes;
    if (p->made_bytes + length > BYTES_MAX)
        return (op){(const uint8_t *)"N", 1};
    memcpy(to, bytes, length);
    p->made_bytes += (uint32_t)length;
    return (op){to, (uint32_t)length};
}

static op make_number(program *p, uint64_t number)
{
    uint8_t bytes[10] = {LONG1, 8};
    for (unsigned i = 0; i < 8; i++)
        bytes[2 + i] = (uint8_t)(number >> (8 * i));
    return make(p, bytes, sizeof bytes);
}

static op make_text(program *p, const char *text)
{
    uint8_t bytes[128] = {SHORT_TEXT, (uint8_t)strlen(text)};
    memcpy(bytes + 2, text, strlen(text));
    return make(p, bytes, 2 + strlen(text));
}

static uint64_t value_of(const op *o)
{
    return *o->at == LONG1 ? little_endian(o->at + 2, o->length - 2 < 8 ? o->length - 2 : 8)
                           : little_endian(o->at + 1, o->length - 1);
}

/* One of a kind, from a random place on; count: there is none. */
static uint32_t find(program *p, bool (*matches)(const op *))
{
    uint32_t begin = pick(p, p->count);
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t at = (begin + i) % p->count;
        if (matches(&p->ops[at]))
            return at;
    }
    return p->count;
}

/* Another number of the file, near one, or a size that the allocator knows. */
static void change_number(program *p)
{
    static const uint64_t sizes[] = {
        0,       1,        511,      512,      513,       1 << 20,           (1 << 20) + 1,
        2 << 20, 10 << 20, 20 << 20, 32 << 20, 200 << 20, UINT64_C(1) << 40, INT64_MAX};
    uint32_t at = find(p, is_number), other = find(p, is_number);
    if (at == p->count)
        return;
    uint64_t number = value_of(&p->ops[at]);
    switch (pick(p, 4)) {
    case 0:
        number = value_of(&p->ops[other]);
        break;
    case 1:
        number += (uint64_t)512 << pick(p, 16);
        break;
    case 2:
        number -= (uint64_t)512 << pick(p, 16);
        break;
    default:
        number = sizes[pick(p, sizeof sizes / sizeof sizes[0])];
    }
    p->ops[at] = make_number(p, number & INT64_MAX);
}

static void change_word(program *p)
{
    static const char *const words[] = {
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "snapshot",
        "oom",
        "annotate",
        "action",
        "addr",
        "device_free",
        "size",
        "stream",
        "time_us",
        "pool_id",
        "state",
        "address",
        "requested_size",
        "stage",
        "name",
        "device",
        "START",
        "END",
        "total_size",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
        "blocks",
        "small",
        "large",
        "active_allocated",
        "active_pending_free",
        "inactive",
        "stage:a",
        "stage:b",
        "rvl:1",
        "rvl:2",
        "reveille:phase 1 between 0 - -",
        "reveille:phase 2 backward 7 step train.py",
        "reveille:seen 2 weights 10000000000",
        "reveille:module 1 9 Block model.py",
        "reveille:mark 2 3e8",
        "reveille:graphs 0 1",
        "reveille:graphs",
        "max_split_size",
        "garbage_collection_threshold",
        "expandable_segments",
        "roundup_power2_divisions",
        "PYTORCH_CUDA_ALLOC_CONF",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
        "roundup_power2_divisions:[256:1,512:2,>:4]"};
    uint32_t at = find(p, is_text);
    if (at < p->count)
        p->ops[at] = make_text(p, words[pick(p, sizeof words / sizeof words[0])]);
}

/* Opcodes of one value: a dict or a list with what is put into it, else one. */
static uint32_t span_of(const program *p, uint32_t at)
{
    uint32_t depth = 0, end = at + 1;
    if (strchr("}]", *p->ops[at].at) == NULL || end == p->count || *p->ops[end].at != '(')
        return 1;
    for (; end < p->count; end++) {
        uint8_t code = *p->ops[end].at;
        depth += code == '(' ? 1 : 0;
        if ((code == 'u' || code == 'e' || code == 't') && --depth == 0)
            return end + 1 - at;
    }
    return 1;
}

static bool is_dict(const op *o)
{
    return *o->at == '}';
}

static void take_out(program *p, uint32_t at, uint32_t length)
{
    memmove(&p->ops[at], &p->ops[at + length], (p->count - at - length) * sizeof p->ops[0]);
    p->count -= length;
}

static void put_in(program *p, uint32_t at, const op *ops, uint32_t length)
{
    if (p->count + length > OPS_MAX)
        return;
    memmove(&p->ops[at + length], &p->ops[at], (p->count - at) * sizeof p->ops[0]);
    memcpy(&p->ops[at], ops, length * sizeof *ops);
    p->count += length;
}

/* An entry, a block, a segment or an annotation is copied, moved, or taken out. */
static void change_list(program *p)
{
    static op item[OPS_MAX];
    uint32_t from = find(p, is_dict);
    uint32_t length = from < p->count ? span_of(p, from) : 1;
    if (length == 1 || from < 2)
        return;
    memcpy(item, &p->ops[from], length * sizeof *item);
    uint32_t way = pick(p, 4);
    if (way < 2)
        take_out(p, from, length);
    if (way == 0)
        return;
    for (uint32_t times = 1 + (way == 3 ? pick(p, 4) : 0); times > 0; times--) {
        uint32_t to = find(p, is_dict);
        if (to < p->count)
            put_in(p, to + (pick(p, 2) == 0 ? 0 : span_of(p, to)), item, length);
    }
}

static bool is_value(const op *o)
{
    return is_text(o) || is_number(o) || strchr("}]N\x88\x89", *o->at) != NULL;
}

static void change_type(program *p)
{
    static const char values[] = "N]})\x88\x89";
    uint32_t at = find(p, is_value);
    if (at == p->count)
        return;
    take_out(p, at, span_of(p, at));
    op value = {(const uint8_t *)&values[pick(p, sizeof values - 1)], 1};
    put_in(p, at, &value, 1);
}

/* ---- Together ---- */

typedef struct output {
    uint8_t *data;
    size_t size;
    size_t size_max;
    op texts[256]; /* their memo numbers are below */
    uint32_t numbers[256];
    uint32_t text_count;
    uint32_t memo_count;
} output;

static void write_bytes(output *to, const uint8_t *bytes, size_t length)
{
    if (to->size_max - to->size >= length)
        memcpy(to->data + to->size, bytes, length);
    to->size += to->size_max - to->size >= length ? length : 0;
}

static void memoize(output *to)
{
    write_bytes(to, (const uint8_t[]){MEMOIZE}, 1);
    to->memo_count++;
}

static void write_text(output *to, const op *text)
{
    for (uint32_t i = 0; i < to->text_count; i++) {
        if (to->texts[i].length != text->length ||
            memcmp(to->texts[i].at, text->at, text->length) != 0)
            continue;
        uint32_t n = to->numbers[i];
        const uint8_t get[] = {n < 256 ? 'h' : 'j', (uint8_t)n, (uint8_t)(n >> 8), 0, 0};
        write_bytes(to, get, n < 256 ? 2 : 5);
        return;
    }
    if (to->text_count < 256) {
        to->texts[to->text_count] = *text;
        to->numbers[to->text_count++] = to->memo_count;
    }
    write_bytes(to, text->at, text->length);
    memoize(to);
}

static size_t write_program(const program *p, bool memo, uint8_t *data, size_t size_max)
{
    static output to;
    to = (output){.data = data, .size_max = size_max};
    for (uint32_t i = 0; i < p->count; i++) {
        const op *o = &p->ops[i];
        if (memo && is_text(o)) {
            write_text(&to, o);
        } else {
            write_bytes(&to, o->at, o->length);
            if (memo && (*o->at == '}' || *o->at == ']'))
                memoize(&to);
        }
    }
    return to.size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    static void (*const changes[])(program *) = {change_number, change_number, change_word,
                                                 change_list,   change_list,   change_list,
                                                 change_type};
    static program p;
    static uint8_t input[BYTES_MAX];
    p.count = p.made_bytes = 0;
    p.random = seed;
    if (size > sizeof input || pick(&p, 16) == 0)
        return LLVMFuzzerMutate(data, size, size_max);
    memcpy(input, data, size);
    if (!take_apart(&p, input, size))
        return LLVMFuzzerMutate(data, size, size_max);
    for (uint32_t times = 1 + pick(&p, 4); times > 0; times--)
        changes[pick(&p, sizeof changes / sizeof changes[0])](&p);
    return write_program(&p, pick(&p, 4) != 0, data, size_max);
}
