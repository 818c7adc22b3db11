/* SPDX-License-Identifier: MIT */
/*
 * The door of every entry point: lock, count, fail on demand, check the driver's state.
 *
 * A fault is a countdown for one entry point, or for any of them.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/cost.h"
#include "internal.h"

typedef struct fake_fault {
    uint64_t countdown; /* calls until it strikes, 0: not armed */
    CUresult result;
    bool for_good;
} fake_fault;

static const char *const names[] = {
#define ENTRY_NAME(name, version) #name,
    FAKE_ENTRY_MAP(ENTRY_NAME)
#undef ENTRY_NAME
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t calls[FAKE_CALL_COUNT];
static uint64_t failures;
static rvl_cost costs[FAKE_CALL_COUNT];
static fake_fault faults[FAKE_CALL_COUNT];
static fake_fault any_fault;
static void (*own_sleep)(uint64_t ns);

bool fake_lock(void)
{
    pthread_mutex_lock(&mutex);
    return true;
}

void fake_unlock(const bool *locked)
{
    (void)locked;
    pthread_mutex_unlock(&mutex);
}

/* Whether "any entry point" means this one too. */
static bool is_any(fake_call call)
{
    return call != FAKE_CALL_cuInit && call != FAKE_CALL_cuGetProcAddress &&
           call != FAKE_CALL_cuGetErrorName;
}

/* Whether it goes on while the process is off its devices. */
static bool goes_on_asleep(fake_call call)
{
    return !is_any(call) || (call >= FAKE_CALL_cuCheckpointProcessGetState &&
                             call <= FAKE_CALL_cuCheckpointProcessUnlock);
}

/* Whether a fault strikes at this call. */
static bool strikes(fake_fault *fault)
{
    if (fault->countdown == 0 || --fault->countdown > 0)
        return false;
    fault->countdown = fault->for_good ? 1 : 0;
    return true;
}

static CUresult check_state(fake_need need)
{
    if (need == FAKE_NEEDS_NOTHING)
        return CUDA_SUCCESS;
    if (!fake_initialized())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (need == FAKE_NEEDS_CONTEXT ||
        (need == FAKE_NEEDS_MEMORY && fake_settings_get()->memory_needs_context))
        return fake_context_check();
    return CUDA_SUCCESS;
}

CUresult fake_admit(fake_call call, fake_need need)
{
    calls[call]++;
    bool struck = strikes(&faults[call]);
    bool struck_any = is_any(call) && strikes(&any_fault);
    if (struck || struck_any) {
        failures++;
        return struck ? faults[call].result : any_fault.result;
    }
    if (!goes_on_asleep(call) && !fake_process_runs())
        return CUDA_ERROR_NOT_READY;
    return check_state(need);
}

void fake_charge(fake_call call, uint64_t bytes)
{
    uint64_t ns = rvli_cost_ns(costs[call], bytes);
    if (own_sleep != NULL) {
        own_sleep(ns);
        return;
    }
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    while (ns > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void fake_entry_reset(void)
{
    memset(costs, 0, sizeof costs);
    memset(calls, 0, sizeof calls);
    memset(faults, 0, sizeof faults);
    any_fault = (fake_fault){0};
    own_sleep = NULL;
    failures = 0;
}

/* ---- Controls ---- */

static int call_of(const char *symbol)
{
    for (int call = 0; call < FAKE_CALL_COUNT; call++)
        if (strcmp(names[call], symbol) == 0)
            return call;
    return -1;
}

bool fake_fail(const char *symbol, uint64_t nth, CUresult result, bool for_good)
{
    FAKE_LOCKED;
    int call = symbol != NULL ? call_of(symbol) : 0;
    if (call < 0)
        return false;
    fake_fault *fault = symbol != NULL ? &faults[call] : &any_fault;
    fault->countdown = nth;
    fault->result = result;
    fault->for_good = for_good;
    return true;
}

bool fake_cost(const char *symbol, rvl_cost cost)
{
    FAKE_LOCKED;
    int call = call_of(symbol);
    if (call < 0)
        return false;
    costs[call] = cost;
    return true;
}

void fake_set_sleep(void (*sleep)(uint64_t ns))
{
    FAKE_LOCKED;
    own_sleep = sleep;
}

uint64_t fake_calls(const char *symbol)
{
    FAKE_LOCKED;
    int call = symbol != NULL ? call_of(symbol) : -1;
    uint64_t sum = 0;
    for (int each = 0; each < FAKE_CALL_COUNT; each++)
        if (symbol != NULL ? each == call : is_any((fake_call)each))
            sum += calls[each];
    return sum;
}

uint64_t fake_failures(void)
{
    FAKE_LOCKED;
    return failures;
}
