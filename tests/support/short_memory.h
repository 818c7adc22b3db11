/* SPDX-License-Identifier: MIT */
/*
 * Host memory that runs out when a test wants it to. A test is linked with --wrap for functions
 * that allocate, and names those here, outside of any function: SHORT_MALLOC SHORT_CALLOC ...
 *
 * The linker wants them visible, since shared libraries name the same functions.
 */
#ifndef RVL_TESTS_SUPPORT_SHORT_MEMORY_H
#define RVL_TESTS_SUPPORT_SHORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Requests that still succeed; all later ones fail. Negative: there is memory. */
extern long short_memory_left;

/* Counts requests; the one of this number fails, and no other. 0: none does. */
extern _Atomic uint64_t short_memory_requests;
extern uint64_t short_memory_refused_request;

/* The nth request from now on fails, and no other; 0: none does. */
void short_memory_refuse_nth(uint64_t nth);

/* Whether it has been refused. */
bool short_memory_has_refused(void);

/* Counts down the requests of this thread; the one that brings it to 0 fails. 0: none does. */
extern _Thread_local long short_memory_thread_countdown;

/* For a test that allocates in another way: whether this request is to fail. */
bool short_memory_refuses(void);

#define SHORT_MEMORY(type, name, parameters, arguments, refusal)                                   \
    type __real_##name parameters;                                                                 \
    __attribute__((visibility("default"))) type __wrap_##name parameters;                          \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return short_memory_refuses() ? (refusal) : __real_##name arguments;                       \
    }
#define SHORT_MALLOC SHORT_MEMORY(void *, malloc, (size_t size), (size), NULL)
#define SHORT_CALLOC SHORT_MEMORY(void *, calloc, (size_t count, size_t size), (count, size), NULL)
#define SHORT_REALLOC SHORT_MEMORY(void *, realloc, (void *old, size_t size), (old, size), NULL)
#define SHORT_STRDUP SHORT_MEMORY(char *, strdup, (const char *text), (text), NULL)
#define SHORT_STRNDUP                                                                              \
    SHORT_MEMORY(char *, strndup, (const char *text, size_t length), (text, length), NULL)

#endif
