/* SPDX-License-Identifier: MIT */
/*
 * Calls that the store makes, each of which can fail, or be the last that a user or the owner lives
 * to see. A test is linked with --wrap for them (tests/CMakeLists.txt).
 */
#ifndef RVL_TESTS_CORE_STORE_FAULTS_H
#define RVL_TESTS_CORE_STORE_FAULTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum action { PASS = 0, FAIL, KILL_SELF, STOP_SELF, KILL_OWNER } action;

typedef struct store_turn_plan {
    action what;
    _Atomic uint64_t nth; /* counts down; what happens when it is 0 */
    pid_t owner;
    _Atomic bool happened;
} store_turn_plan;

/* Of this process. A user sets its own as it is told (store_scene.h). */
extern store_turn_plan store_turn;

/* What this process has read of segments, to check them. */
extern _Atomic uint64_t store_read_bytes;

extern bool store_no_random_bytes;

/* How long a stopped owner is waited for instead of RVLI_STORE_PATIENCE_S; 0: as long as that. */
extern uint64_t store_patience_ms;

#endif
