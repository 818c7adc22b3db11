/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/refused.h"

#include <stdio.h>

#include "simcuda/driver/client.h"
#include "simcuda/driver/driver.h"

void rvli_refused_note(int device, uint64_t requested_bytes, uint64_t free_bytes, const char *where)
{
    rvli_wire_request request = {.kind = RVLI_WIRE_REFUSED,
                                 .device =
                                     rvli_device_exists(device) ? rvli_device_number(device) : -1,
                                 .bytes = requested_bytes,
                                 .id = free_bytes};
    snprintf(request.text, sizeof request.text, "%s", where);
    rvli_client_post(&request);
}
