/* SPDX-License-Identifier: MIT */
/*
 * Stages of this process, which are told to the machine. hooks/preload/nvtx.c knows NVTX's
 * interface; the functions it calls are here, and tell the machine instead of a recorder. Programs
 * find this library by NVTX_INJECTION64_PATH. PyTorch's record_function and the package reveille
 * come by Python.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/preload/nvtx.h"
#include "hooks/record/recorder.h"
#include "hooks/settings.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/stages.h"

#define PREFIX_VARIABLE "REVEILLE_STAGES"

rvl_status rvli_recorder_stage(const char *name)
{
    rvli_wire_answer answer;
    return rvli_client_ask(RVLI_WIRE_STAGE, 0, 0, name, &answer);
}

rvl_status rvli_recorder_enter(uint64_t id, const char *name)
{
    rvli_wire_request request = {.kind = RVLI_WIRE_ENTER, .id = id};
    snprintf(request.text, sizeof request.text, "%s", name);
    rvli_client_post(&request);
    return RVL_OK;
}

rvl_status rvli_recorder_leave(uint64_t id)
{
    rvli_client_tell(RVLI_WIRE_LEAVE, 0, id);
    return RVL_OK;
}

/* ---- Programs in Python: simcuda/python/_reveille_stages.py and the package reveille ---- */

const char *rvli_simulated_name(void)
{
    return rvli_client_name();
}

int rvli_simulated_stage(const char *name)
{
    return rvli_recorder_stage(name);
}

uint64_t rvli_simulated_enter(const char *name)
{
    static atomic_uint_fast64_t last_id;
    uint64_t id = atomic_fetch_add(&last_id, 1) + 1;
    (void)rvli_recorder_enter(id, name);
    return id;
}

void rvli_simulated_leave(uint64_t id)
{
    (void)rvli_recorder_leave(id);
}

/* Registered strings live as long as the process; a program has few, and each once. */
const char *rvli_intern(const char *name)
{
    return strdup(name);
}

__attribute__((constructor)) static void read_prefix(void)
{
    const char *prefix = getenv(PREFIX_VARIABLE);
    if (prefix != NULL)
        rvli_nvtx_set_prefix(prefix);
}
