/* SPDX-License-Identifier: MIT */
/*
 * Stages of this process, sent to the machine: NVTX ranges (programs find this library by
 * NVTX_INJECTION64_PATH), and ranges of PyTorch's record_function and of the package reveille,
 * which come through Python.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nvtx/nvtx.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/stages.h"

#define PREFIX_VARIABLE "REVEILLE_STAGES"

/* The clock of the entries in PyTorch's history. The machine would read it later, by the delay
 * of the message. */
static uint64_t wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static _Atomic(rvli_simulated_mark_fn) told;

void rvli_simulated_on_mark(rvli_simulated_mark_fn fn)
{
    atomic_store(&told, fn);
}

static void tell(uint64_t us)
{
    rvli_simulated_mark_fn fn = atomic_load(&told);
    if (fn != NULL)
        fn(us);
}

/* A controller of workers marks stages, too, and may never use CUDA itself. */
static void enter(uint64_t id, const char *name)
{
    rvli_wire_request request = {.kind = RVLI_WIRE_ENTER, .bytes = wall_us(), .id = id};
    snprintf(request.text, sizeof request.text, "%s", name);
    rvli_client_mark(&request);
    tell(request.bytes);
}

static void leave(uint64_t id)
{
    const rvli_wire_request request = {.kind = RVLI_WIRE_LEAVE, .bytes = wall_us(), .id = id};
    rvli_client_mark(&request);
    tell(request.bytes);
}

/* ---- Programs in Python: simcuda/python/_reveille_stages.py and the package reveille ---- */

const char *rvli_simulated_name(void)
{
    return rvli_client_name();
}

int rvli_simulated_stage(const char *name)
{
    rvli_wire_answer answer;
    uint64_t us = wall_us();
    int status = rvli_client_ask(RVLI_WIRE_STAGE, 0, us, name, &answer);
    tell(us);
    return status;
}

void rvli_simulated_end(int status, const char *error)
{
    rvli_client_end(status, error);
}

uint64_t rvli_simulated_enter(const char *name)
{
    static atomic_uint_fast64_t last_id;
    uint64_t id = atomic_fetch_add(&last_id, 1) + 1;
    enter(id, name);
    return id;
}

void rvli_simulated_leave(uint64_t id)
{
    leave(id);
}

__attribute__((constructor)) static void read_prefix(void)
{
    static const rvli_nvtx_sink machine = {.enter = enter, .leave = leave};
    const char *prefix = getenv(PREFIX_VARIABLE);
    if (prefix != NULL)
        rvli_nvtx_listen(prefix, &machine);
}
