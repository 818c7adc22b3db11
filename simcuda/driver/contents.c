/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/contents.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/addrmap.h"
#include "base/pool.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/driver.h"
#include "simcuda/driver/promised.h"
#include "simcuda/driver/shared_contents.h"
#include "simcuda/driver/unknown.h"
#include "simcuda/wire/wire.h"

#define FRAME_BYTES ((uint64_t)512) /* the unit in which PyTorch allocates */
#define WORD_BITS ((size_t)64)

/*
 * Bounds all kept content: 64 of the largest copies by default, and always at least four. A
 * frame costs a fifth more than its content.
 */
#define TOTAL_BYTES ((size_t)64 << 20)
#define TOTAL_COPIES 4

#define MOVED_BYTES ((size_t)1 << 16) /* copied at once when memory becomes shared */

/* The most promises that nobody has read yet. At the limit, each new one settles a few old ones. */
#define PROMISES_MOST 16
#define PROMISES_AT_ONCE 4

/* Bytes of device memory. Unknown bytes are 0. */
typedef struct frame {
    TAILQ_ENTRY(frame) by_age;
    uint64_t base;
    uint64_t twin; /* the number of the last twin that covers part of it */
    uint64_t known[FRAME_BYTES / WORD_BITS]; /* one bit for each byte */
    unsigned char bytes[FRAME_BYTES];
} frame;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_addrmap frames;
static rvli_addrmap shared; /* address ranges with content in the machine's file */
static rvli_pool pool;
static TAILQ_HEAD(, frame) ages;
static bool begun;
static size_t limit_bytes;

static _Atomic uint64_t twins[RVLI_CONTENTS_TWINS]; /* read without the lock */
static uint64_t twins_made;

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

size_t rvli_contents_most(void)
{
    size_t copies = rvli_contents_limit() <= SIZE_MAX / TOTAL_COPIES
                        ? rvli_contents_limit() * TOTAL_COPIES
                        : SIZE_MAX;
    return copies > TOTAL_BYTES ? copies : TOTAL_BYTES;
}

/* Releases the lock, and then ends the promises that are no longer needed. */
static void leave(void)
{
    rvli_promise *ended = rvli_promise_take_ended();
    pthread_mutex_unlock(&mutex);
    rvli_promise_end_all(ended);
}

/* ---- Which bytes of a frame are known ---- */

/* The bits of word `word` for [from, to) of the frame. */
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

/* Ends the frame's twin, before the frame changes or gets another twin. */
static void end_twin(frame *of)
{
    if (twins[of->twin % RVLI_CONTENTS_TWINS] == of->twin)
        twins[of->twin % RVLI_CONTENTS_TWINS] = 0;
    of->twin = 0;
}

static void drop(frame *of)
{
    end_twin(of);
    rvli_addrmap_remove(&frames, of->base);
    TAILQ_REMOVE(&ages, of, by_age);
    rvli_pool_put(&pool, of);
}

static void begin(void)
{
    if (begun)
        return;
    rvli_addrmap_init(&frames);
    rvli_addrmap_init(&shared);
    rvli_pool_init(&pool, sizeof(frame));
    TAILQ_INIT(&ages);
    begun = true;
}

static frame *get(uint64_t base)
{
    return begun ? rvli_addrmap_get(&frames, base) : NULL;
}

/* NULL: out of memory. */
static frame *get_or_make(uint64_t base)
{
    begin();
    frame *of = get(base);
    if (of != NULL)
        return of;
    if (frames.count >= rvli_contents_most() / FRAME_BYTES)
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

/* ---- Bytes in frames, with the lock held ---- */

/* How many of the bytes from addr on lie in addr's frame. */
static size_t part_of(uint64_t addr, size_t bytes)
{
    size_t left = FRAME_BYTES - addr % FRAME_BYTES;
    return bytes < left ? bytes : left;
}

static void write_frames(uint64_t to, const void *from, size_t bytes)
{
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (to + done) % FRAME_BYTES;
        part = part_of(to + done, bytes - done);
        frame *of = get_or_make(to + done - at);
        if (of == NULL)
            continue; /* not kept; there was no frame, so no old content is left */
        end_twin(of);
        memcpy(of->bytes + at, (const char *)from + done, part);
        set_known(of, at, at + part, true);
    }
}

/* How many of the `bytes` from addr on lie before the next frame. */
static size_t gap_before(uint64_t addr, size_t bytes)
{
    const frame *of = begun ? rvli_addrmap_ceil(&frames, addr - addr % FRAME_BYTES, NULL) : NULL;
    if (of == NULL || of->base >= addr + bytes)
        return bytes;
    return of->base > addr ? of->base - addr : 0;
}

/* Steps from frame to frame, over gaps, since the range may be a whole device's memory. */
static bool read_frames(uint64_t from, void *to, size_t bytes)
{
    bool known = true;
    for (size_t done = 0, part; done < bytes; done += part) {
        part = gap_before(from + done, bytes - done);
        if (part > 0) {
            rvli_host_clear((char *)to + done, part);
            known = false;
            continue;
        }
        size_t at = (from + done) % FRAME_BYTES;
        part = part_of(from + done, bytes - done);
        const frame *of = get(from + done - at);
        memcpy((char *)to + done, of->bytes + at, part);
        known = known && all_known(of, at, at + part);
    }
    return known;
}

/* Iterates over the kept frames, not over the range, which may be a whole device's memory. */
static void forget_frames(uint64_t addr, size_t bytes)
{
    uint64_t end = addr + bytes, next = addr - addr % FRAME_BYTES;
    while (begun && bytes > 0) {
        frame *of = rvli_addrmap_ceil(&frames, next, NULL);
        if (of == NULL || of->base >= end)
            return;
        size_t from = addr > of->base ? addr - of->base : 0;
        size_t to = end - of->base < FRAME_BYTES ? end - of->base : FRAME_BYTES;
        next = of->base + FRAME_BYTES;
        end_twin(of);
        set_known(of, from, to, false);
        memset(of->bytes + from, 0, to - from);
        if (is_empty(of))
            drop(of);
    }
}

static void list_frames(uint64_t from, bool *known, size_t bytes)
{
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (from + done) % FRAME_BYTES;
        part = part_of(from + done, bytes - done);
        const frame *of = get(from + done - at);
        for (size_t i = 0; i < part; i++)
            known[done + i] = of != NULL && is_known(of, at + i);
    }
}

/* ---- Bytes in frames or in shared memory, with the lock held ---- */

/*
 * How many of the bytes from addr on are kept in the same place. *where_out: the place, if they
 * are shared; else its size is 0.
 */
static size_t alike(uint64_t addr, size_t bytes, rvli_shared_place *where_out)
{
    uint64_t base = 0;
    where_out->size_bytes = 0;
    const rvli_shared_place *of =
        begun && shared.count > 0 ? rvli_addrmap_floor(&shared, addr, &base) : NULL;
    if (of != NULL && addr - base < of->size_bytes) {
        *where_out = *of;
        where_out->at = addr - base;
        return bytes < of->size_bytes - where_out->at ? bytes : of->size_bytes - where_out->at;
    }
    of = begun && shared.count > 0 ? rvli_addrmap_ceil(&shared, addr, &base) : NULL;
    return of != NULL && base - addr < bytes ? base - addr : bytes;
}

static void write_locked(uint64_t to, const void *from, size_t bytes)
{
    rvli_shared_place where;
    rvli_promised_cut(to, bytes);
    for (size_t done = 0, part; done < bytes; done += part) {
        part = alike(to + done, bytes - done, &where);
        if (where.size_bytes > 0)
            rvli_shared_contents_write(&where, (const char *)from + done, part);
        else
            write_frames(to + done, (const char *)from + done, part);
    }
}

static bool read_locked(uint64_t from, void *to, size_t bytes)
{
    rvli_shared_place where;
    bool known = true;
    for (size_t done = 0, part; done < bytes; done += part) {
        part = alike(from + done, bytes - done, &where);
        bool here = where.size_bytes > 0
                        ? rvli_shared_contents_read(&where, (char *)to + done, part)
                        : read_frames(from + done, (char *)to + done, part);
        known = known && here;
    }
    return known;
}

static void forget_locked(uint64_t addr, size_t bytes)
{
    rvli_shared_place where;
    rvli_promised_cut(addr, bytes);
    for (size_t done = 0, part; done < bytes; done += part) {
        part = alike(addr + done, bytes - done, &where);
        if (where.size_bytes > 0)
            rvli_shared_contents_forget(&where, part);
        else
            forget_frames(addr + done, part);
    }
}

/* Makes a twin of these bytes, and returns its number. 0: some bytes are unknown or shared, or
 * there are too many. */
static uint64_t make_twin(uint64_t addr, size_t bytes)
{
    rvli_shared_place where;
    frame *found[RVLI_CONTENTS_TWIN_BYTES / FRAME_BYTES + 1];
    size_t count = 0;
    if (bytes > RVLI_CONTENTS_TWIN_BYTES || alike(addr, bytes, &where) < bytes ||
        where.size_bytes > 0)
        return 0;
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (addr + done) % FRAME_BYTES;
        part = part_of(addr + done, bytes - done);
        found[count] = get(addr + done - at);
        if (found[count] == NULL || !all_known(found[count], at, at + part))
            return 0;
        count++;
    }
    uint64_t number = ++twins_made;
    twins[number % RVLI_CONTENTS_TWINS] = number;
    for (size_t i = 0; i < count; i++) {
        end_twin(found[i]);
        found[i]->twin = number;
    }
    return number;
}

/* Lists which bytes are known. Used before a copy, which may overlap its source. */
static void list_known(uint64_t from, bool *known, size_t bytes)
{
    rvli_shared_place where;
    for (size_t done = 0, part; done < bytes; done += part) {
        part = alike(from + done, bytes - done, &where);
        if (where.size_bytes > 0)
            rvli_shared_contents_list(&where, known + done, part);
        else
            list_frames(from + done, known + done, part);
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

/* room: two bytes for each byte copied. */
static void move_locked(uint64_t to, uint64_t from, char *room, size_t bytes)
{
    bool *known = (bool *)(room + bytes);
    rvli_promised_part *promised = NULL;
    if (read_locked(from, room, bytes)) {
        write_locked(to, room, bytes);
        return;
    }
    list_known(from, known, bytes);
    size_t count = rvli_promised_list(from, bytes, &promised);
    forget_locked(to, bytes);
    write_known_locked(to, room, known, bytes);
    rvli_promised_copy(to, promised, count);
}

/*
 * Copies the known bytes of frames, and nothing else.
 *
 * from_host: restores a backup, a copy to the host that is too large for its content to be kept.
 * Frames at the host addresses show which of its bytes were known. The values are read from the
 * host when they are copied back, so a change by the program in between is taken over.
 */
static void copy_frames(uint64_t to, uint64_t from, size_t bytes, bool from_host)
{
    uint64_t next = from - from % FRAME_BYTES;
    const frame *of;
    while (begun && (of = rvli_addrmap_ceil(&frames, next, NULL)) != NULL &&
           of->base < from + bytes) {
        const frame copy = *of; /* the original may be evicted by new frames */
        size_t first = from > copy.base ? from - copy.base : 0;
        size_t end =
            from + bytes - copy.base < FRAME_BYTES ? from + bytes - copy.base : FRAME_BYTES;
        const char *source = from_host ? (const char *)copy.base : (const char *)copy.bytes;
        next = copy.base + FRAME_BYTES;
        for (size_t i = first, run; i < end; i += run) {
            for (run = 1; i + run < end && is_known(&copy, i + run) == is_known(&copy, i); run++)
                ;
            if (is_known(&copy, i))
                write_locked(to + (copy.base + i - from), source + i, run);
        }
    }
}

/* ---- Promised content ---- */

/* Waits for the content promised to these addresses. Call it without the lock. */
static void settle(uint64_t addr, size_t bytes)
{
    while (rvli_promised_count() > 0) {
        pthread_mutex_lock(&mutex);
        rvli_promise *of = rvli_promised_find(addr, bytes);
        leave();
        if (of == NULL)
            return;
        (void)rvli_promise_keep(of, true);
        pthread_mutex_lock(&mutex);
        rvli_promise_give(of, write_known_locked);
        rvli_promise_let_go(of);
        leave();
    }
}

/* Settles the oldest promise, if its content has arrived. false: it has yet
 * to arrive, or there are few promises. */
static bool settle_oldest(int most)
{
    pthread_mutex_lock(&mutex);
    rvli_promise *of = rvli_promised_oldest(most);
    leave();
    if (of == NULL)
        return false;
    bool brought = rvli_promise_keep(of, false);
    pthread_mutex_lock(&mutex);
    if (brought)
        rvli_promise_give(of, write_known_locked);
    rvli_promise_let_go(of);
    leave();
    return brought;
}

bool rvli_contents_promise(uint64_t addr, size_t bytes, const rvli_bringer *bringer, void *user)
{
    pthread_mutex_lock(&mutex);
    forget_locked(addr, bytes);
    bool promised = rvli_promised_add(addr, bytes, bringer, user);
    leave();
    for (int i = 0; i < PROMISES_AT_ONCE && settle_oldest(PROMISES_MOST); i++)
        ;
    return promised;
}

void rvli_contents_tidy(void)
{
    while (settle_oldest(0))
        ;
}

int rvli_contents_promises(void)
{
    return rvli_promised_count();
}

void rvli_contents_settle(uint64_t addr, size_t bytes)
{
    settle(addr, bytes);
}

/* ---- Calls from other files ---- */

void rvli_contents_write(uint64_t to, const void *from, size_t bytes)
{
    bool kept = bytes <= rvli_contents_limit();
    pthread_mutex_lock(&mutex);
    if (kept)
        write_locked(to, from, bytes);
    else
        forget_locked(to, bytes);
    if (!kept)
        copy_frames(to, (uintptr_t)from, bytes, true);
    leave();
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
    leave();
}

void rvli_contents_move(uint64_t to, uint64_t from, size_t bytes)
{
    char *room = bytes <= rvli_contents_limit() ? malloc(2 * bytes) : NULL;
    pthread_mutex_lock(&mutex);
    if (room != NULL)
        move_locked(to, from, room, bytes);
    else
        forget_locked(to, bytes);
    leave();
    free(room);
}

void rvli_contents_forget(uint64_t addr, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    forget_locked(addr, bytes);
    leave();
}

void rvli_contents_end(uint64_t addr, size_t bytes, const void *object)
{
    (void)object;
    rvli_contents_forget(addr, bytes);
}

/* Also called in a forked child, where another thread of the parent may have held the lock. */
void rvli_contents_forget_all(void)
{
    pthread_mutex_init(&mutex, NULL);
    begun = false; /* the parent's content is not touched */
    for (size_t i = 0; i < RVLI_CONTENTS_TWINS; i++)
        twins[i] = 0;
    rvli_shared_contents_forget_file();
    rvli_promised_forget();
    reading.how = RVLI_READING_KEPT;
}

bool rvli_contents_read(uint64_t from, void *to, size_t bytes)
{
    settle(from, bytes);
    pthread_mutex_lock(&mutex);
    bool known = read_locked(from, to, bytes);
    leave();
    return known;
}

void rvli_contents_read_known(uint64_t from, void *to, bool *known, size_t bytes)
{
    settle(from, bytes);
    pthread_mutex_lock(&mutex);
    if (read_locked(from, to, bytes))
        memset(known, true, bytes);
    else
        list_known(from, known, bytes);
    leave();
}

void rvli_contents_write_known(uint64_t to, const void *from, const bool *known, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    forget_locked(to, bytes);
    write_known_locked(to, from, known, bytes);
    leave();
}

bool rvli_contents_knows(uint64_t addr)
{
    bool known;
    pthread_mutex_lock(&mutex);
    list_known(addr, &known, 1);
    leave();
    return known;
}

/* ---- Twins ---- */

const volatile void *rvli_contents_twins(void)
{
    return twins;
}

uint64_t rvli_contents_write_twin(uint64_t to, const void *from, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    write_locked(to, from, bytes);
    uint64_t number = make_twin(to, bytes);
    leave();
    return number;
}

uint64_t rvli_contents_read_twin(uint64_t from, void *to, size_t bytes)
{
    settle(from, bytes);
    pthread_mutex_lock(&mutex);
    uint64_t number = make_twin(from, bytes);
    if (number != 0)
        (void)read_locked(from, to, bytes);
    leave();
    return number;
}

/* ---- Memory that processes share ---- */

/* Moves the content of frames to the shared place, in pieces of limited length. */
static void move_frames(uint64_t addr, size_t bytes)
{
    char *room = malloc(2 * MOVED_BYTES);
    bool *known = (bool *)room + MOVED_BYTES;
    uint64_t at = addr;
    const frame *of;
    while (room != NULL && (of = rvli_addrmap_ceil(&frames, at - at % FRAME_BYTES, NULL)) != NULL &&
           of->base < addr + bytes) {
        at = of->base > addr ? of->base : addr;
        size_t part = addr + bytes - at < MOVED_BYTES ? addr + bytes - at : MOVED_BYTES;
        (void)read_frames(at, room, part);
        list_frames(at, known, part);
        write_known_locked(at, room, known, part);
        at += part;
    }
    forget_frames(addr, bytes);
    free(room);
}

void rvli_contents_share(uint64_t addr, size_t bytes, uint64_t place)
{
    pthread_mutex_lock(&mutex);
    begin();
    rvli_shared_place *made = NULL;
    if (rvli_addrmap_get(&shared, addr) == NULL && rvli_shared_contents_begin(rvli_contents_most()))
        made = malloc(sizeof *made);
    if (made != NULL && rvli_addrmap_insert(&shared, addr, made) == RVL_OK) {
        *made = (rvli_shared_place){.place = place, .size_bytes = bytes};
        move_frames(addr, bytes);
    } else {
        free(made); /* the process keeps its own content, as before */
    }
    leave();
}

void rvli_contents_unshare(uint64_t addr)
{
    pthread_mutex_lock(&mutex);
    if (begun)
        free(rvli_addrmap_remove(&shared, addr));
    leave();
}

/* ---- Copies to the host ---- */

/* Notes which bytes are known, replacing older notes for this host memory. */
static void note_backup(const void *to, uint64_t from, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    forget_frames((uintptr_t)to, bytes);
    if (bytes > rvli_contents_limit())
        copy_frames((uintptr_t)to, from, bytes, false);
    leave();
}

void rvli_contents_reading(rvli_reading how, uint64_t given, const char *place)
{
    reading.how = how;
    reading.given = given;
    reading.place = place;
}

void rvli_contents_assumed(size_t bytes, const char *place)
{
    rvli_client_note(RVLI_WIRE_ASSUMED, bytes, place);
}

void rvli_contents_copy_out(void *to, uint64_t from, size_t bytes)
{
    if (reading.how == RVLI_READING_KEPT) {
        if (!rvli_contents_read(from, to, bytes))
            rvli_unknown_read(bytes, reading.place);
        note_backup(to, from, bytes);
        return;
    }
    memset(to, 0, bytes);
    if (bytes <= sizeof reading.given)
        memcpy(to, &reading.given, bytes); /* little-endian */
    if (reading.how == RVLI_READING_ONCE)
        reading.given = 0;
}

/* ---- Tensors ---- */

/* Joins the innermost dimensions that have no gaps. Returns the number of dimensions left. */
static int join(size_t *unit_bytes, int dimensions, const int64_t *sizes, const int64_t *strides)
{
    int64_t whole = 1;
    while (dimensions > 0 && (strides[dimensions - 1] == whole || sizes[dimensions - 1] == 1))
        whole *= sizes[--dimensions];
    *unit_bytes *= (size_t)whole;
    return dimensions;
}

/* The bytes from the first element to the end of the last. */
static size_t reach_of(size_t unit_bytes, int dimensions, const int64_t *sizes,
                       const int64_t *strides)
{
    int64_t last = 0;
    for (int i = 0; i < dimensions; i++)
        last += (sizes[i] - 1) * strides[i];
    return (size_t)(last + 1) * unit_bytes;
}

typedef struct piece {
    uint64_t addr;
    char *host;
} piece;

/* Calls each() for every piece, with the last dimension varying fastest. */
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
    settle(addr, reach_of(unit_bytes, dimensions, sizes, strides));
    pthread_mutex_lock(&mutex);
    bool known = walk(&at, piece_bytes, unit_bytes, left, sizes, strides, read_piece);
    leave();
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
    leave();
}
