/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "random.h"

stress_counts *counts;

static const char *const names[] = {
#define STRESS_API_NAME(name) #name,
    STRESS_API_MAP(STRESS_API_NAME)
#undef STRESS_API_NAME
};

void calls_begin(void)
{
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        calls_give_up("no memory for the counts");
}

int calls_report_missing(void)
{
    int missing = 0;
    for (int api = 0; api < API_COUNT; api++) {
        if (counts->calls[api] > 0)
            continue;
        fprintf(stderr, "stress: %s was never called: add a call of it to tests/stress\n",
                names[api]);
        missing++;
    }
    return missing;
}

uint64_t calls_total(void)
{
    uint64_t total = 0;
    for (int api = 0; api < API_COUNT; api++)
        total += counts->calls[api];
    return total;
}

/* ---- Failures ---- */

/* Where it was: enough to do it again. */
static void say_where(const caller *by)
{
    fprintf(stderr, "stress: FAILED: --seed %llu, thread %d, step %llu, process %d\n  %s(%s)\n",
            (unsigned long long)by->seed, by->thread, (unsigned long long)by->step, (int)getpid(),
            by->function != NULL ? by->function : "", by->arguments != NULL ? by->arguments : "");
}

/* Aborts, so that a debugger or a core file shows where. */
static _Noreturn void end(void)
{
    fflush(NULL);
    abort();
}

void calls_give_up(const char *what)
{
    fprintf(stderr, "stress: %s: %s\n", what, strerror(errno));
    end();
}

void calls_expect(caller *by, const char *what, uint64_t got, uint64_t wanted, const char *file,
                  int line)
{
    if (got == wanted)
        return;
    say_where(by);
    fprintf(stderr, "  %s:%d: %s is %llu, the model has %llu\n", file, line, what,
            (unsigned long long)got, (unsigned long long)wanted);
    end();
}

void calls_expect_within(caller *by, const char *what, uint64_t got, uint64_t low, uint64_t high,
                         const char *file, int line)
{
    if (got >= low && got <= high)
        return;
    say_where(by);
    fprintf(stderr, "  %s:%d: %s is %llu, the model has %llu to %llu\n", file, line, what,
            (unsigned long long)got, (unsigned long long)low, (unsigned long long)high);
    end();
}

/* ---- Calls ---- */

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_last_error(&error);
    return error;
}

void calls_note(caller *by, stress_api api, const char *function, const char *arguments)
{
    counts->calls[api]++;
    by->function = function;
    by->arguments = arguments;
    by->digest = stress_mix(by->digest ^ by->random ^ (uint64_t)api);
    by->before = last_error();
}

static void say_set(uint32_t may)
{
    for (int number = 0; number < 32; number++)
        if (may >> number & 1)
            fprintf(stderr, " %s", rvl_status_name((rvl_status)-number));
}

static _Noreturn void fail_answer(const caller *by, uint32_t may, rvl_status status,
                                  const char *why)
{
    rvl_error now = last_error();
    say_where(by);
    fprintf(stderr, "  it answered %s, the model has", rvl_status_name(status));
    say_set(may);
    fprintf(stderr, "; %s\n  error record: %s \"%s\" (op %s, native %d)\n  before: %s \"%s\"\n",
            why, rvl_status_name(now.status), now.message, now.op, now.native_code,
            rvl_status_name(by->before.status), by->before.message);
    end();
}

rvl_status calls_check(caller *by, uint32_t may, rvl_status status)
{
    by->digest = stress_mix(by->digest ^ (uint64_t) - (int)status);
    if ((int)status > 0 || (int)status < -31 || !(may >> -(int)status & 1))
        fail_answer(by, may, status, "that may not come");
    rvl_error now = last_error();
    bool failed = status != RVL_OK;
    if (failed && (now.status != status || now.message[0] == '\0'))
        fail_answer(by, may, status, "the error record is of something else");
    if (!failed && memcmp(&now, &by->before, sizeof now) != 0)
        fail_answer(by, may, status, "a call that succeeded has changed the error record");
    counts->failed_answers += status != RVL_OK;
    return status;
}

bool calls_next_event(caller *by, rvl_trace_reader *reader, rvl_trace_event *event_out)
{
    calls_note(by, API_rvl_trace_reader_next, "rvl_trace_reader_next", "reader, event_out, size");
    rvl_status status = rvl_trace_reader_next(reader, event_out, sizeof *event_out);
    bool is_over = status == RVL_ERR_NOT_FOUND;
    calls_check(by, MAY_OK, is_over ? RVL_OK : status);
    return !is_over;
}
