/* SPDX-License-Identifier: MIT */
/*
 * The known content of device memory. Memory on a simulated device has no content. Only small
 * pieces have, so that a program that reads a flag or a size back gets what it wrote.
 *
 * Content is kept in this process, by address and byte. A later write replaces the bytes that it
 * covers, and a write of unknown content makes them unknown. The largest copy that is kept is a
 * setting (REVEILLE_KEEP_CONTENTS, in bytes). The total is bounded: the oldest content is
 * dropped first. Unknown bytes read as zero, and the machine is told who read them.
 *
 * The functions rvli_contents_* are exported: operators that compute small tensors on the host
 * (simcuda/python) read and write kept content.
 */
#ifndef RVL_SIMCUDA_CONTENTS_H
#define RVL_SIMCUDA_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest copy that is kept, and the limit of all kept content, in bytes. */
size_t rvli_contents_limit(void);
size_t rvli_contents_most(void);

/* Write host bytes, a repeated value, or bytes of other device memory to device memory. */
void rvli_contents_write(uint64_t to, const void *from, size_t bytes);
void rvli_contents_fill(uint64_t to, unsigned value, size_t count, size_t unit_bytes);
void rvli_contents_move(uint64_t to, uint64_t from, size_t bytes);

/* Make content unknown: the memory was freed, or written with unknown bytes. */
void rvli_contents_forget(uint64_t addr, size_t bytes);
void rvli_contents_forget_all(void);

/* As rvli_contents_forget(). Called when a Python object that stands for the memory is
 * destroyed, with that object. */
void rvli_contents_end(uint64_t addr, size_t bytes, const void *object);

/*
 * Moves the content of this memory to a place that other processes see: at `place` in the
 * machine's file (shared_contents.h). Does nothing if it is there already.
 */
void rvli_contents_share(uint64_t addr, size_t bytes, uint64_t place);

/* The memory that begins at addr loses these addresses. Other processes may still have it. */
void rvli_contents_unshare(uint64_t addr);

/* Fills host memory; unknown bytes are 0. Returns whether all bytes are known. Reports nothing. */
bool rvli_contents_read(uint64_t from, void *to, size_t bytes);

/* As above, with a flag for each byte: whether it is known. */
void rvli_contents_read_known(uint64_t from, void *to, bool *known, size_t bytes);
void rvli_contents_write_known(uint64_t to, const void *from, const bool *known, size_t bytes);

/* Whether the byte at an address is known. Never waits. */
bool rvli_contents_knows(uint64_t addr);

/* A copy to the host at the program's request. As rvli_contents_read(), but follows this
 * thread's rvli_contents_reading(), and reports unknown bytes. */
void rvli_contents_copy_out(void *to, uint64_t from, size_t bytes);

/* ---- Twins ---- */

/*
 * A twin is a copy of kept content, which its owner has at hand and does not change. It has a
 * number. While the content at these addresses is neither written nor dropped, the table
 * contains the number, at an index of the number modulo the table's length. So one look at the
 * table shows whether the copy is still right. New twins replace old ones.
 */
#define RVLI_CONTENTS_TWINS ((size_t)4096)
#define RVLI_CONTENTS_TWIN_BYTES ((size_t)4096)

/* The table of 64-bit numbers. */
const volatile void *rvli_contents_twins(void);

/* As rvli_contents_write(). `from` becomes a twin, and its number is returned. 0: no twin, since
 * it is too large, or other processes may write there. */
uint64_t rvli_contents_write_twin(uint64_t to, const void *from, size_t bytes);

/* Fills `to`, a new twin, and returns its number. 0: nothing was read, for these reasons, or
 * because some bytes are unknown. */
uint64_t rvli_contents_read_twin(uint64_t from, void *to, size_t bytes);

/* ---- Content that others bring (promised.h) ---- */

typedef struct rvli_bringer {
    /*
     * Fills `bytes` and marks the known ones; all are zero and unknown before. It is called
     * until it succeeds, by one thread at a time, without a lock. It may wait only with `wait`;
     * otherwise it returns false if it would have to.
     */
    bool (*bring)(void *user, char *bytes, bool *known, bool wait);

    /* The content is not needed any more, whether it was brought or not. */
    void (*end)(void *user);
} rvli_bringer;

/*
 * Promises content for device memory. It is brought when somebody reads the memory. false: out
 * of memory; the content is unknown, and the caller still owns `user`.
 */
bool rvli_contents_promise(uint64_t addr, size_t bytes, const rvli_bringer *bringer, void *user);

/* The number of promises. */
int rvli_contents_promises(void);

/* Settles promises with content that has arrived, the oldest first, so that no other process has
 * to keep it. */
void rvli_contents_tidy(void);

/* Waits for content promised to these addresses, as every read does. */
void rvli_contents_settle(uint64_t addr, size_t bytes);

/* ---- What copies to the host see on this thread ---- */

typedef enum rvli_reading {
    RVLI_READING_KEPT,  /* kept content */
    RVLI_READING_GIVEN, /* a number of up to 8 bytes that the caller knows; nothing is reported */
    RVLI_READING_ONCE,  /* as GIVEN for the first copy, then zero */
} rvli_reading;

/* Reports that a rule made up `bytes` of kept content. place: the line that read them. */
void rvli_contents_assumed(size_t bytes, const char *place);

/* Sets the mode. place: the reported line, valid until the next call on this thread; NULL: found
 * automatically. */
void rvli_contents_reading(rvli_reading how, uint64_t given, const char *place);

/* ---- Tensors: elements that lie apart ---- */

/*
 * As rvli_contents_read() and rvli_contents_write(). Strides count elements. In host memory, the
 * elements are contiguous, with the last dimension varying fastest.
 */
bool rvli_contents_read_strided(uint64_t addr, size_t unit_bytes, int dimensions,
                                const int64_t *sizes, const int64_t *strides, void *to);
void rvli_contents_write_strided(uint64_t addr, size_t unit_bytes, int dimensions,
                                 const int64_t *sizes, const int64_t *strides, const void *from);

#endif
