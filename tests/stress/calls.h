/* SPDX-License-Identifier: MIT */
/*
 * Every call of the public API goes through here: it is counted, and its answer is compared with
 * what may come.
 *
 * The names come from the headers when the tests are configured (stress_api.h). A run in which one
 * of them was never called fails, so a new function needs a call here.
 */
#ifndef RVL_STRESS_CALLS_H
#define RVL_STRESS_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "reveille/reveille.h"
#include "reveille/trace.h"
#include "reveille/verdict.h"
#include "stress_api.h"

#define STRESS_NAME_MAX 200

typedef enum stress_api {
#define STRESS_API_ENUM(name) API_##name,
    STRESS_API_MAP(STRESS_API_ENUM)
#undef STRESS_API_ENUM
        API_COUNT
} stress_api;

/* What one run counts. It lies in memory that forked children share. */
typedef struct stress_counts {
    _Atomic uint64_t calls[API_COUNT];
    _Atomic uint64_t rounds;
    _Atomic uint64_t failed_answers;   /* calls that answered an error, as they had to */
    _Atomic uint64_t faults;           /* operations of the backend that were made to fail */
    _Atomic uint64_t refused_requests; /* requests of host memory that were made to fail */
    _Atomic uint64_t lost;             /* allocations that became LOST by a fault */
    _Atomic uint64_t signals;
    _Atomic uint64_t forks;
    _Atomic uint64_t killed_children;
    _Atomic uint64_t kills; /* of processes that were started as programs */
} stress_counts;

extern stress_counts *counts;

/* Makes the counts. Before anything else. */
void calls_begin(void);

/* Number of functions that were never called; prints their names. */
int calls_report_missing(void);

uint64_t calls_total(void);

/* Who calls: the random numbers and what is said of a failure. Each thread has one. */
typedef struct caller {
    uint64_t seed; /* of the run */
    int thread;
    uint64_t step;
    uint64_t random;
    uint64_t digest; /* of all calls and answers so far */
    const char *function;
    const char *arguments;
    rvl_error before; /* the error record before the call */
} caller;

/* Sets of statuses. */
#define MAY(status) (UINT32_C(1) << -(int)(status))
#define MAY_OK MAY(RVL_OK)

/* Notes a call that is about to be made. */
void calls_note(caller *by, stress_api api, const char *function, const char *arguments);

/*
 * Ends the run unless the status may come, and the thread's error record is that of this failure,
 * or is untouched after a success. Returns the status.
 */
rvl_status calls_check(caller *by, uint32_t may, rvl_status status);

/* The next event of a trace; false after the last, which is no failure: it leaves the record. */
bool calls_next_event(caller *by, rvl_trace_reader *reader, rvl_trace_event *event_out);

/* A call that returns a status, and one that returns anything else. */
#define ANSWER(by, may, function, ...)                                                             \
    calls_check(                                                                                   \
        (by), (may),                                                                               \
        (calls_note((by), API_##function, #function, #__VA_ARGS__), function(__VA_ARGS__)))
#define CALL(by, function, ...)                                                                    \
    (calls_note((by), API_##function, #function, #__VA_ARGS__), function(__VA_ARGS__))

/* The same for functions without arguments. */
#define ANSWER_NONE(by, may, function)                                                             \
    calls_check((by), (may), (calls_note((by), API_##function, #function, ""), function()))
#define CALL_NONE(by, function) (calls_note((by), API_##function, #function, ""), function())

/* Ends the run, and says seed, step, call and both values, unless they are equal. */
#define EXPECT(by, got, wanted)                                                                    \
    calls_expect((by), #got, (uint64_t)(got), (uint64_t)(wanted), __FILE__, __LINE__)
/* The same for values that must lie within bounds. */
#define EXPECT_WITHIN(by, got, low, high)                                                          \
    calls_expect_within((by), #got, (uint64_t)(got), (uint64_t)(low), (uint64_t)(high), __FILE__,  \
                        __LINE__)

void calls_expect(caller *by, const char *what, uint64_t got, uint64_t wanted, const char *file,
                  int line);
void calls_expect_within(caller *by, const char *what, uint64_t got, uint64_t low, uint64_t high,
                         const char *file, int line);

/* Ends the run: something outside of the library does not work. */
void calls_give_up(const char *what);

#endif
