/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/promised.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/addrmap.h"

/* Memory that gets part of a promise's content. Pieces never overlap. */
typedef struct piece {
    LIST_ENTRY(piece) of_promise;
    rvli_promise *of;
    uint64_t base;
    size_t bytes;
    size_t offset;
} piece;

struct rvli_promise {
    TAILQ_ENTRY(rvli_promise) by_age;
    rvli_promise *next_ended;
    LIST_HEAD(, piece) pieces;
    const rvli_bringer *bringer;
    void *user;
    size_t bytes;
    unsigned holds; /* number of its pieces and of its users */
    pthread_mutex_t bringing;
    bool brought;
    char *content; /* followed by flags for known bytes; NULL: all unknown */
};

static rvli_addrmap pieces;
static TAILQ_HEAD(, rvli_promise) ages;
static rvli_promise *ended;
static bool begun;
static atomic_int count;

static void begin(void)
{
    if (begun)
        return;
    rvli_addrmap_init(&pieces);
    TAILQ_INIT(&ages);
    begun = true;
}

int rvli_promised_count(void)
{
    return atomic_load(&count);
}

void rvli_promised_forget(void)
{
    begun = false; /* the parent's promises are not touched */
    ended = NULL;
    atomic_store(&count, 0);
}

/* ---- Promises ---- */

void rvli_promise_let_go(rvli_promise *of)
{
    if (--of->holds > 0)
        return;
    TAILQ_REMOVE(&ages, of, by_age);
    atomic_fetch_sub(&count, 1);
    of->next_ended = ended;
    ended = of;
}

rvli_promise *rvli_promise_take_ended(void)
{
    rvli_promise *taken = ended;
    ended = NULL;
    return taken;
}

void rvli_promise_end_all(rvli_promise *each)
{
    while (each != NULL) {
        rvli_promise *next = each->next_ended;
        each->bringer->end(each->user);
        pthread_mutex_destroy(&each->bringing);
        free(each->content);
        free(each);
        each = next;
    }
}

/* ---- Pieces ---- */

/* false: out of memory, and nothing has changed. */
static bool add_piece(rvli_promise *of, uint64_t base, size_t bytes, size_t offset)
{
    piece *made = malloc(sizeof *made);
    if (made == NULL || rvli_addrmap_insert(&pieces, base, made) != RVL_OK) {
        free(made);
        return false;
    }
    *made = (piece){.of = of, .base = base, .bytes = bytes, .offset = offset};
    LIST_INSERT_HEAD(&of->pieces, made, of_promise);
    of->holds++;
    return true;
}

static void drop_piece(piece *gone)
{
    rvli_addrmap_remove(&pieces, gone->base);
    LIST_REMOVE(gone, of_promise);
    rvli_promise_let_go(gone->of);
    free(gone);
}

/* The first piece that overlaps these addresses. */
static piece *first_in(uint64_t addr, size_t bytes)
{
    if (!begun || bytes == 0 || atomic_load(&count) == 0)
        return NULL;
    piece *at = rvli_addrmap_floor(&pieces, addr, NULL);
    if (at == NULL || at->base + at->bytes <= addr)
        at = rvli_addrmap_ceil(&pieces, addr, NULL);
    return at != NULL && at->base < addr + bytes ? at : NULL;
}

/* The parts before and behind the cut stay promised, if there is memory for them. */
void rvli_promised_cut(uint64_t addr, size_t bytes)
{
    uint64_t end = addr + bytes;
    piece *each;
    while ((each = first_in(addr, bytes)) != NULL) {
        const piece was = *each;
        was.of->holds++;
        drop_piece(each);
        if (was.base < addr)
            (void)add_piece(was.of, was.base, addr - was.base, was.offset);
        if (was.base + was.bytes > end)
            (void)add_piece(was.of, end, was.base + was.bytes - end, was.offset + (end - was.base));
        rvli_promise_let_go(was.of);
    }
}

bool rvli_promised_add(uint64_t addr, size_t bytes, const rvli_bringer *bringer, void *user)
{
    begin();
    rvli_promise *made = calloc(1, sizeof *made);
    if (made == NULL || !add_piece(made, addr, bytes, 0)) {
        free(made);
        return false;
    }
    made->bringer = bringer;
    made->user = user;
    made->bytes = bytes;
    pthread_mutex_init(&made->bringing, NULL);
    TAILQ_INSERT_TAIL(&ages, made, by_age);
    atomic_fetch_add(&count, 1);
    return true;
}

/* ---- Copies ---- */

size_t rvli_promised_list(uint64_t from, size_t bytes, rvli_promised_part **parts_out)
{
    size_t found = 0, room = 0;
    uint64_t at = from, end = from + bytes;
    const piece *each;
    *parts_out = NULL;
    while ((each = first_in(at, end - at)) != NULL) {
        uint64_t first = each->base > from ? each->base : from;
        uint64_t last = each->base + each->bytes < end ? each->base + each->bytes : end;
        if (found == room) {
            room = room > 0 ? 2 * room : 8;
            rvli_promised_part *more = realloc(*parts_out, room * sizeof *more);
            if (more == NULL)
                break; /* the rest of the copy is unknown */
            *parts_out = more;
        }
        (*parts_out)[found++] = (rvli_promised_part){.of = each->of,
                                                     .at = first - from,
                                                     .bytes = last - first,
                                                     .offset = each->offset + (first - each->base)};
        each->of->holds++; /* the copy may overwrite its source */
        at = last;
    }
    return found;
}

void rvli_promised_copy(uint64_t to, rvli_promised_part *parts, size_t number)
{
    for (size_t i = 0; i < number; i++) {
        (void)add_piece(parts[i].of, to + parts[i].at, parts[i].bytes, parts[i].offset);
        rvli_promise_let_go(parts[i].of);
    }
    free(parts);
}

/* ---- Fulfilling promises ---- */

rvli_promise *rvli_promised_find(uint64_t addr, size_t bytes)
{
    const piece *found = first_in(addr, bytes);
    if (found == NULL)
        return NULL;
    found->of->holds++;
    return found->of;
}

rvli_promise *rvli_promised_oldest(int most)
{
    rvli_promise *oldest = atomic_load(&count) > most ? TAILQ_FIRST(&ages) : NULL;
    if (oldest != NULL)
        oldest->holds++;
    return oldest;
}

/* Without memory, the content counts as unknown. */
bool rvli_promise_keep(rvli_promise *of, bool wait)
{
    if (wait)
        pthread_mutex_lock(&of->bringing);
    else if (pthread_mutex_trylock(&of->bringing) != 0)
        return false;
    if (!of->brought) {
        char *content = calloc(2, of->bytes);
        of->brought = content == NULL ||
                      of->bringer->bring(of->user, content, (bool *)content + of->bytes, wait);
        if (of->brought)
            of->content = content;
        else
            free(content);
    }
    bool brought = of->brought;
    pthread_mutex_unlock(&of->bringing);
    return brought;
}

void rvli_promise_give(rvli_promise *of, void (*write)(uint64_t to, const char *bytes,
                                                       const bool *known, size_t count))
{
    piece *each;
    while ((each = LIST_FIRST(&of->pieces)) != NULL) {
        const piece was = *each;
        drop_piece(each);
        if (of->content != NULL)
            write(was.base, of->content + was.offset,
                  (const bool *)of->content + of->bytes + was.offset, was.bytes);
    }
}
