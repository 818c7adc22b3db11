/* SPDX-License-Identifier: MIT */
/*
 * Stages by NVTX ranges. hooks/preload/nvtx.c knows NVTX's interface; the two functions it calls
 * are here, and tell the machine instead of a recorder. Programs find this library by
 * NVTX_INJECTION64_PATH.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks/preload/nvtx.h"
#include "hooks/record/recorder.h"
#include "hooks/settings.h"
#include "simcuda/driver/client.h"

#define PREFIX_VARIABLE "REVEILLE_STAGES_NVTX"

rvl_status rvli_recorder_stage(const char *name)
{
    rvli_wire_answer answer;
    return rvli_client_ask(RVLI_WIRE_STAGE, 0, 0, name, &answer);
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
