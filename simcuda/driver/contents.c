/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/contents.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/addrmap.h"
#include "base/pool.h"
#include "simcuda/driver/unknown.h"
#include "simcuda/wire/wire.h"

#define FRAME_BYTES ((uint64_t)512) /* in which PyTorch hands out memory: a small tensor is one */
#define WORD_BITS ((size_t)64)

/*
 * All that is kept: room for 64 of the largest copies by default, and always for four. A frame
 * costs a fifth more than what it holds.
 */
#define TOTAL_BYTES ((size_t)64 << 20)
#define TOTAL_COPIES 4

/* Bytes of device memory. Those that are not known are 0. */
typedef struct frame {
    TAILQ_ENTRY(frame) by_age;
    uint64_t base;
    uint64_t known[FRAME_BYTES / WORD_BITS]; /* a bit a byte */
    unsigned char bytes[FRAME_BYTES];
} frame;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_addrmap frames;
static rvli_pool pool;
static TAILQ_HEAD(, frame) ages;
static bool begun;
static size_t limit_bytes;

static __thread struct {
    rvli_reading how;
    uint64_t given;
    const char *place;
} reading;

static pthread_once_t limit_once = PTHREAD_ONCE_INIT;

static void read_limit(void)
{
    const char *text = getenv(RVLI_WIRE_KEEP_VARIABLE);
    limit_bytes = text != NULL ? strtoull(text, NULL, 10) : RVLI_WIRE_KEEP_USUAL;
}

size_t rvli_contents_limit(void)
{
    pthread_once(&limit_once, read_limit);
    return limit_bytes;
}

static size_t most_frames(void)
{
    size_t copies = rvli_contents_limit() <= SIZE_MAX / TOTAL_COPIES
                        ? rvli_contents_limit() * TOTAL_COPIES
                        : SIZE_MAX;
    return (copies > TOTAL_BYTES ? copies : TOTAL_BYTES) / FRAME_BYTES;
}

/* ---- Which bytes of a frame are known ---- */

/* The bits of word `word` that lie in [from, to) of the frame. */
static uint64_t bits(size_t word, size_t from, size_t to)
{
    size_t first = word * WORD_BITS;
    size_t low = from > first ? from - first : 0;
    size_t high = to < first + WORD_BITS ? to - first : WORD_BITS;
    uint64_t below_high = high == WORD_BITS ? UINT64_MAX : (UINT64_C(1) << high) - 1;
    return below_high & ~((UINT64_C(1) << low) - 1);
}

static bool all_known(const frame *of, size_t from, size_t to)
{
    for (size_t i = from / WORD_BITS; i * WORD_BITS < to; i++)
        if (~of->known[i] & bits(i, from, to))
            return false;
    return true;
}

static void set_known(frame *of, size_t from, size_t to, bool known)
{
    for (size_t i = from / WORD_BITS; i * WORD_BITS < to; i++)
        of->known[i] = known ? of->known[i] | bits(i, from, to) : of->known[i] & ~bits(i, from, to);
}

static bool is_known(const frame *of, size_t at)
{
    return of->known[at / WORD_BITS] >> at % WORD_BITS & 1;
}

static bool is_empty(const frame *of)
{
    for (size_t i = 0; i < FRAME_BYTES / WORD_BITS; i++)
        if (of->known[i] != 0)
            return false;
    return true;
}

/* ---- Frames, with the lock held ---- */

static void drop(frame *of)
{
    rvli_addrmap_remove(&frames, of->base);
    TAILQ_REMOVE(&ages, of, by_age);
    rvli_pool_put(&pool, of);
}

static void begin(void)
{
    if (begun)
        return;
    rvli_addrmap_init(&frames);
    rvli_pool_init(&pool, sizeof(frame));
    TAILQ_INIT(&ages);
    begun = true;
}

static frame *get(uint64_t base)
{
    return begun ? rvli_addrmap_get(&frames, base) : NULL;
}

/* NULL: there is no memory for it. */
static frame *get_or_make(uint64_t base)
{
    begin();
    frame *of = get(base);
    if (of != NULL)
        return of;
    if (frames.count >= most_frames())
        drop(TAILQ_FIRST(&ages));
    of = rvli_pool_get(&pool);
    if (of == NULL)
        return NULL;
    memset(of, 0, sizeof *of);
    of->base = base;
    if (rvli_addrmap_insert(&frames, base, of) != RVL_OK) {
        rvli_pool_put(&pool, of);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&ages, of, by_age);
    return of;
}

/* ---- Bytes, with the lock held ---- */

/* How many of the bytes from addr on lie in the frame that addr lies in. */
static size_t part_of(uint64_t addr, size_t bytes)
{
    size_t left = FRAME_BYTES - addr % FRAME_BYTES;
    return bytes < left ? bytes : left;
}

static void write_locked(uint64_t to, const void *from, size_t bytes)
{
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (to + done) % FRAME_BYTES;
        part = part_of(to + done, bytes - done);
        frame *of = get_or_make(to + done - at);
        if (of == NULL)
            continue; /* not kept: there was no frame, so nothing old is left */
        memcpy(of->bytes + at, (const char *)from + done, part);
        set_known(of, at, at + part, true);
    }
}

static bool read_locked(uint64_t from, void *to, size_t bytes)
{
    bool known = true;
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (from + done) % FRAME_BYTES;
        part = part_of(from + done, bytes - done);
        const frame *of = get(from + done - at);
        if (of != NULL)
            memcpy((char *)to + done, of->bytes + at, part);
        else
            memset((char *)to + done, 0, part);
        known = known && of != NULL && all_known(of, at, at + part);
    }
    return known;
}

/* Goes by what is kept, and not by what is forgotten, which may be the memory of a whole device. */
static void forget_locked(uint64_t addr, size_t bytes)
{
    uint64_t end = addr + bytes, next = addr - addr % FRAME_BYTES;
    while (begun && bytes > 0) {
        frame *of = rvli_addrmap_ceil(&frames, next, NULL);
        if (of == NULL || of->base >= end)
            return;
        size_t from = addr > of->base ? addr - of->base : 0;
        size_t to = end - of->base < FRAME_BYTES ? end - of->base : FRAME_BYTES;
        next = of->base + FRAME_BYTES;
        set_known(of, from, to, false);
        memset(of->bytes + from, 0, to - from);
        if (is_empty(of))
            drop(of);
    }
}

/* For each byte whether it is known: before a copy, which may overlap what it reads. */
static void list_known(uint64_t from, bool *known, size_t bytes)
{
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (from + done) % FRAME_BYTES;
        part = part_of(from + done, bytes - done);
        const frame *of = get(from + done - at);
        for (size_t i = 0; i < part; i++)
            known[done + i] = of != NULL && is_known(of, at + i);
    }
}

static void write_known_locked(uint64_t to, const char *bytes_read, const bool *known, size_t bytes)
{
    for (size_t done = 0, run; done < bytes; done += run) {
        for (run = 1; done + run < bytes && known[done + run] == known[done]; run++)
            ;
        if (known[done])
            write_locked(to + done, bytes_read + done, run);
    }
}

/* room: two bytes for each that is copied. */
static void move_locked(uint64_t to, uint64_t from, char *room, size_t bytes)
{
    bool *known = (bool *)(room + bytes);
    if (read_locked(from, room, bytes)) {
        write_locked(to, room, bytes);
        return;
    }
    list_known(from, known, bytes);
    forget_locked(to, bytes);
    write_known_locked(to, room, known, bytes);
}

/* ---- What others call ---- */

void rvli_contents_write(uint64_t to, const void *from, size_t bytes)
{
    bool kept = bytes <= rvli_contents_limit();
    pthread_mutex_lock(&mutex);
    if (kept)
        write_locked(to, from, bytes);
    else
        forget_locked(to, bytes);
    pthread_mutex_unlock(&mutex);
}

void rvli_contents_fill(uint64_t to, unsigned value, size_t count, size_t unit_bytes)
{
    unsigned char pattern[FRAME_BYTES];
    size_t bytes = count * unit_bytes, part = 0;
    bool kept = bytes <= rvli_contents_limit();
    for (size_t i = 0; i < sizeof pattern; i += unit_bytes)
        memcpy(pattern + i, &value, unit_bytes); /* little-endian */
    pthread_mutex_lock(&mutex);
    if (!kept)
        forget_locked(to, bytes);
    for (size_t done = 0; kept && done < bytes; done += part) {
        part = bytes - done < sizeof pattern ? bytes - done : sizeof pattern;
        write_locked(to + done, pattern, part);
    }
    pthread_mutex_unlock(&mutex);
}

void rvli_contents_move(uint64_t to, uint64_t from, size_t bytes)
{
    char *room = bytes <= rvli_contents_limit() ? malloc(2 * bytes) : NULL;
    pthread_mutex_lock(&mutex);
    if (room != NULL)
        move_locked(to, from, room, bytes);
    else
        forget_locked(to, bytes);
    pthread_mutex_unlock(&mutex);
    free(room);
}

void rvli_contents_forget(uint64_t addr, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    forget_locked(addr, bytes);
    pthread_mutex_unlock(&mutex);
}

/* Also of a forked child, whose lock somebody else may have held. */
void rvli_contents_forget_all(void)
{
    pthread_mutex_init(&mutex, NULL);
    begun = false; /* what was kept is the parent's, and left as it is */
    reading.how = RVLI_READING_KEPT;
}

bool rvli_contents_read(uint64_t from, void *to, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    bool known = read_locked(from, to, bytes);
    pthread_mutex_unlock(&mutex);
    return known;
}

bool rvli_contents_knows(uint64_t addr)
{
    pthread_mutex_lock(&mutex);
    const frame *of = get(addr - addr % FRAME_BYTES);
    bool known = of != NULL && is_known(of, addr % FRAME_BYTES);
    pthread_mutex_unlock(&mutex);
    return known;
}

/* ---- Copies to the host ---- */

void rvli_contents_reading(rvli_reading how, uint64_t given, const char *place)
{
    reading.how = how;
    reading.given = given;
    reading.place = place;
}

void rvli_contents_copy_out(void *to, uint64_t from, size_t bytes)
{
    if (reading.how == RVLI_READING_KEPT) {
        if (!rvli_contents_read(from, to, bytes))
            rvli_unknown_read(bytes, reading.place);
        return;
    }
    memset(to, 0, bytes);
    if (bytes <= sizeof reading.given)
        memcpy(to, &reading.given, bytes); /* little-endian */
}

/* ---- Tensors ---- */

/* The innermost dimensions without gaps are one piece. Answers how many dimensions are left. */
static int join(size_t *unit_bytes, int dimensions, const int64_t *sizes, const int64_t *strides)
{
    int64_t whole = 1;
    while (dimensions > 0 && (strides[dimensions - 1] == whole || sizes[dimensions - 1] == 1))
        whole *= sizes[--dimensions];
    *unit_bytes *= (size_t)whole;
    return dimensions;
}

typedef struct piece {
    uint64_t addr;
    char *host;
} piece;

/* Calls each() for every piece, in the order of the last dimension first. */
static bool walk(piece *at, size_t piece_bytes, size_t element_bytes, int dimensions,
                 const int64_t *sizes, const int64_t *strides, bool (*each)(const piece *, size_t))
{
    bool good = true;
    if (dimensions == 0) {
        good = each(at, piece_bytes);
        at->host += piece_bytes;
        return good;
    }
    uint64_t begin = at->addr;
    for (int64_t i = 0; i < sizes[0]; i++) {
        at->addr = begin + (uint64_t)(i * strides[0]) * element_bytes;
        good = walk(at, piece_bytes, element_bytes, dimensions - 1, sizes + 1, strides + 1, each) &&
               good;
    }
    return good;
}

static bool read_piece(const piece *at, size_t bytes)
{
    return read_locked(at->addr, at->host, bytes);
}

static bool write_piece(const piece *at, size_t bytes)
{
    write_locked(at->addr, at->host, bytes);
    return true;
}

bool rvli_contents_read_strided(uint64_t addr, size_t unit_bytes, int dimensions,
                                const int64_t *sizes, const int64_t *strides, void *to)
{
    piece at = {addr, to};
    size_t piece_bytes = unit_bytes;
    int left = join(&piece_bytes, dimensions, sizes, strides);
    pthread_mutex_lock(&mutex);
    bool known = walk(&at, piece_bytes, unit_bytes, left, sizes, strides, read_piece);
    pthread_mutex_unlock(&mutex);
    return known;
}

void rvli_contents_write_strided(uint64_t addr, size_t unit_bytes, int dimensions,
                                 const int64_t *sizes, const int64_t *strides, const void *from)
{
    piece at = {addr, (char *)(uintptr_t)from};
    size_t piece_bytes = unit_bytes;
    int left = join(&piece_bytes, dimensions, sizes, strides);
    pthread_mutex_lock(&mutex);
    (void)walk(&at, piece_bytes, unit_bytes, left, sizes, strides, write_piece);
    pthread_mutex_unlock(&mutex);
}
