/* SPDX-License-Identifier: MIT */
/*
 * One backup for all processes of a node, with real ones: an owner and users, which are children
 * that do what they are told over a socket. Host bytes are counted by the kernel's numbers of the
 * files that the users have mapped.
 */
#ifndef RVL_TESTS_CORE_STORE_SCENE_H
#define RVL_TESTS_CORE_STORE_SCENE_H

#include <sys/types.h>

#include "base/secret_digest.h"
#include "store_faults.h"
#include "tests/support/folder.h"
#include "tests/support/support.h"

#define SEGMENT (16 * MIB)
#define LARGE (20 * MIB) /* a whole segment and a part */
#define SMALL GRANULE
#define CONTENT (LARGE + SMALL)

/* Where the store is, in the test's folder. */
extern char store_path[160];

/* For cmocka_run_group_tests(). */
int store_make_folder(void **state);

uint64_t store_now_ms(void);

/* Waits for a child. Returns its status. */
int store_end_of(pid_t process);

/* ---- The owner ---- */

typedef struct owner {
    pid_t process;
    int stop;
} owner;

owner owner_start(uint64_t budget_bytes);

/* One that has no more than so many descriptors; 0: as many as the test. */
owner owner_start_limited(uint64_t budget_bytes, uint64_t descriptors);

/* In order: nothing is left at the path. */
void owner_stop(owner of);
void owner_kill(owner of);

rvl_store_stats store_stats(void);

/* Waits for these figures, since the owner hears of a dead user soon, and not at once. */
#define ANY_USERS UINT64_MAX
void store_await_stats(uint64_t users, uint64_t kept, uint64_t referenced);

/* ---- Users ---- */

#define USERS_MAX 8

typedef enum order { FILL, CHANGE, PAUSE, RESUME, ABORT, FORESEE, CHECK, FORK, FREE, END } order;

typedef struct request {
    order what;
    uint64_t seed;
    action act;
    uint64_t nth;
    pid_t owner;
    bool no_memory;       /* the nth calloc fails instead */
    uint64_t op_mask;     /* the nth call of these ops fails instead */
    rvli_secret secret;   /* CHECK: for `name` */
    uint64_t descriptors; /* PAUSE: all but so many, less 1, are in use; 0: there are plenty */
} request;

typedef struct answer {
    rvl_status status;
    bool holds;       /* CHECK, and the two below */
    uint64_t word;    /* the one that CHANGE writes, the first of the second segment */
    rvli_digest name; /* of the small one, by the secret */
    bool happened;    /* what was to, in the course of a PAUSE or RESUME */
    uint64_t copied;  /* bytes from the device by this PAUSE */
    uint64_t read;    /* and of segments that it has found */
    rvl_state states[2];
    rvl_host_memory memory;
    rvl_forecast forecast;
    uint64_t disk_bytes;
    pid_t child;
    rvl_error error;
} answer;

typedef struct user {
    pid_t process;
    int line;
} user;

typedef struct user_options {
    bool retain;
    bool overflow;
    bool no_verify;
    bool no_digests; /* the device computes none */
} user_options;

user user_start(user_options options);
answer user_tell(user of, request what);
void user_expect(user of, request what, rvl_status status, rvl_state state);
void user_fill(user of, uint64_t seed);
void user_pause(user of);
void user_resume(user of);
void user_check(user of, uint64_t seed);

/* A pause that the test does not wait for, and its end, which has to be good. */
void user_begin_pause(user of, action act, uint64_t nth);
answer user_end_pause(user of);

void user_end(user of);
void user_kill(user of);

/* Bytes of the store's files that these have mapped, as the kernel has them. */
uint64_t store_host_bytes(const user *users, size_t count);

#endif
