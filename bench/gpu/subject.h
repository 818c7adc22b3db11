/* SPDX-License-Identifier: MIT */
/*
 * Who is timed: any library that pauses and resumes, behind one small table.
 */
#ifndef RVL_BENCH_GPU_SUBJECT_H
#define RVL_BENCH_GPU_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

typedef enum backup_kind {
    BACKUP_NONE,
    BACKUP_KEPT,      /* host memory stays pinned between cycles */
    BACKUP_GIVEN_BACK /* host memory goes back after every resume */
} backup_kind;

/* The same work for everybody: count allocations of size bytes under one tag. */
typedef struct work {
    const char *name;
    size_t count;
    uint64_t size;
    backup_kind backup;
    bool hand_over; /* two such tags: the pause of one and the resume of the other are timed as one
                     */
} work;

typedef struct subject {
    const char *name;
    /* Each ends the program with a message if it fails. addrs_out: count addresses. */
    void (*open)(const work *w, const char *library);
    void (*allocate)(const work *w, const char *tag, uint64_t *addrs_out);
    void (*pause)(const char *tag);
    void (*resume)(const char *tag);
    void (*settle)(void); /* waits for what goes on behind the caller's back; may be NULL */
} subject;

extern const subject subject_reveille;
extern const subject subject_peer;
extern const subject subject_bare;

/* Ends the program unless good. */
void need(bool good, const char *what);
double now_s(void);

#endif
