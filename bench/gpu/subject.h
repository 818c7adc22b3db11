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
    BACKUP_KEPT,       /* host memory stays pinned between cycles */
    BACKUP_GIVEN_BACK, /* host memory goes back after every resume */
    BACKUP_ON_DISK
} backup_kind;

/* What a work is a measurement of, where it is more than some pauses and resumes. */
typedef enum work_kind {
    WORK_CYCLES,
    WORK_HAND_OVER, /* two tags: the pause of one and the resume of the other are timed as one */
    WORK_CHANGES,   /* backups are retained, and nothing, a little or everything has changed */
    WORK_VERIFIED,  /* with and without digests, in turns */
} work_kind;

/* The same work for everybody: count allocations of size bytes under one tag. */
typedef struct work {
    const char *name;
    size_t count;
    uint64_t size;
    backup_kind backup;
    work_kind kind;
    uint64_t coalesce_bytes; /* what follows is Reveille's alone */
    bool retain_backups;
    bool no_verify;
    const char *disk_directory;
} work;

typedef struct subject {
    const char *name;
    /* Each ends the program with a message if it fails. addrs_out: count addresses. */
    void (*open)(const work *w, const char *library);
    void (*allocate)(const work *w, const char *tag, uint64_t *addrs_out);
    void (*pause)(const char *tag);
    void (*resume)(const char *tag);
} subject;

extern const subject subject_reveille;
extern const subject subject_peer;
extern const subject subject_bare;

/* Reveille's with a context named: several take turns. */
struct rvl_context *reveille_open(const work *w);
void reveille_close(struct rvl_context *context);
void reveille_allocate(struct rvl_context *context, const work *w, const char *tag,
                       uint64_t *addrs_out);
void reveille_free(struct rvl_context *context, const work *w, const uint64_t *addrs);
void reveille_pause(struct rvl_context *context, const char *tag);
void reveille_resume(struct rvl_context *context, const char *tag);

#endif
