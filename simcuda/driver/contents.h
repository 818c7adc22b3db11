/* SPDX-License-Identifier: MIT */
/*
 * What is in device memory, as far as it is known. Memory on a simulated device has no content;
 * small pieces of it do, so that a program which reads a flag or a size back sees what it put
 * there.
 *
 * What is kept lies in this process, byte for byte at its address: a later write replaces what it
 * covers, a write of unknown content makes it unknown. The largest copy that is kept is a setting
 * (REVEILLE_KEEP_CONTENTS, in bytes), and all of it is bounded: the oldest goes first. What is
 * unknown reads as zero, and the machine is told who read it.
 *
 * The names with rvli_contents_ are exported: operators that compute small tensors on the host
 * (simcuda/python) read and write what is kept.
 */
#ifndef RVL_SIMCUDA_CONTENTS_H
#define RVL_SIMCUDA_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest copy that is kept, in bytes, and how much all that is kept may be. */
size_t rvli_contents_limit(void);
size_t rvli_contents_most(void);

/* Device memory gets these bytes, all the same byte, or those of other device memory. */
void rvli_contents_write(uint64_t to, const void *from, size_t bytes);
void rvli_contents_fill(uint64_t to, unsigned value, size_t count, size_t unit_bytes);
void rvli_contents_move(uint64_t to, uint64_t from, size_t bytes);

/* What is there is unknown from now on: it was freed, or written by something that is not known. */
void rvli_contents_forget(uint64_t addr, size_t bytes);
void rvli_contents_forget_all(void);

/* As rvli_contents_forget(), as what is called when an object of Python that stood for the memory
 * has gone: with that object. */
void rvli_contents_end(uint64_t addr, size_t bytes, const void *object);

/*
 * From now on the content of this memory is where other processes that have it see it, too: at that
 * place of the machine's (shared_contents.h). What was kept of it goes there. Nothing happens if it
 * is there already.
 */
void rvli_contents_share(uint64_t addr, size_t bytes, uint64_t place);

/* The memory that begins there has these addresses no more. Others may have it. */
void rvli_contents_unshare(uint64_t addr);

/* Fills host memory; what is unknown is 0. Answers whether all of it is known. Tells nobody. */
bool rvli_contents_read(uint64_t from, void *to, size_t bytes);

/* The same with a byte for each that says whether it is known. */
void rvli_contents_read_known(uint64_t from, void *to, bool *known, size_t bytes);
void rvli_contents_write_known(uint64_t to, const void *from, const bool *known, size_t bytes);

/* Whether the byte at an address is known. Waits for nobody. */
bool rvli_contents_knows(uint64_t addr);

/* A copy to the host as the program asked for it: rvli_contents_read() as this thread's reading()
 * has it, and an unknown byte is told. */
void rvli_contents_copy_out(void *to, uint64_t from, size_t bytes);

/* ---- Twins ---- */

/*
 * A twin is a copy of what is kept at some addresses, which its owner has at hand and does not
 * change. It has a number. As long as nobody has written or lost what is at the addresses, the
 * number stands in the table, at itself modulo the table's length: to look there is all that it
 * takes to know that the copy is still right. New twins push old ones out.
 */
#define RVLI_CONTENTS_TWINS ((size_t)4096)
#define RVLI_CONTENTS_TWIN_BYTES ((size_t)4096)

/* The table: numbers of 64 bits. */
const volatile void *rvli_contents_twins(void);

/* As rvli_contents_write(): `from` becomes a twin, and its number is returned. 0: there is none,
 * since it is too large, or other processes may write there. */
uint64_t rvli_contents_write_twin(uint64_t to, const void *from, size_t bytes);

/* Fills `to`, a new twin, and answers its number. 0: nothing was read; as above, or not all of it
 * is known. */
uint64_t rvli_contents_read_twin(uint64_t from, void *to, size_t bytes);

/* ---- What others bring (promised.h) ---- */

typedef struct rvli_bringer {
    /*
     * Fills `bytes` and says which of them are known; they begin as zero and unknown. Called once
     * with success, by one thread at a time, without a lock. Waits only if it may; false: it would
     * have to.
     */
    bool (*bring)(void *user, char *bytes, bool *known, bool wait);

    /* Nobody needs it any more, whether it was brought or not. */
    void (*end)(void *user);
} rvli_bringer;

/*
 * Device memory gets what is brought; it is asked for when somebody reads it. false: there is no
 * memory for that, the content is unknown, and `user` is still the caller's.
 */
bool rvli_contents_promise(uint64_t addr, size_t bytes, const rvli_bringer *bringer, void *user);

/* How many promises there are. */
int rvli_contents_promises(void);

/* Takes what has come already, the oldest first, so that nobody keeps it for this process. */
void rvli_contents_tidy(void);

/* Waits for what is promised to these addresses, as every read does. */
void rvli_contents_settle(uint64_t addr, size_t bytes);

/* ---- What copies to the host see on this thread ---- */

typedef enum rvli_reading {
    RVLI_READING_KEPT,  /* what is kept */
    RVLI_READING_GIVEN, /* a number of up to 8 bytes: the caller knows it. Nothing is told */
    RVLI_READING_ONCE,  /* the same for the first copy, and then zero */
} rvli_reading;

/* `bytes` of what is kept were made up by a rule; place: the line that asked for them. */
void rvli_contents_assumed(size_t bytes, const char *place);

/* place: who is told of, NULL: found out. It must stay until the next call on this thread. */
void rvli_contents_reading(rvli_reading how, uint64_t given, const char *place);

/* ---- Tensors: elements that lie apart ---- */

/*
 * As rvli_contents_read() and rvli_contents_write(). Strides count elements. In host memory the
 * elements lie without gaps, the last dimension first.
 */
bool rvli_contents_read_strided(uint64_t addr, size_t unit_bytes, int dimensions,
                                const int64_t *sizes, const int64_t *strides, void *to);
void rvli_contents_write_strided(uint64_t addr, size_t unit_bytes, int dimensions,
                                 const int64_t *sizes, const int64_t *strides, const void *from);

#endif
