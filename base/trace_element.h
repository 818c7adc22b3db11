/* SPDX-License-Identifier: MIT */
/* The elements of traces, events and devices, for all code that writes, reads or replays them. */
#ifndef RVL_BASE_TRACE_ELEMENT_H
#define RVL_BASE_TRACE_ELEMENT_H

#include "base/element.h"
#include "base/options.h"
#include "reveille/trace.h"

#define RVLI_TRACE_EVENT RVLI_ELEMENT(rvl_trace_event, line)
#define RVLI_TRACE_DEVICE RVLI_ELEMENT(rvl_trace_device, granularity_bytes)

/* Reads the device at an index of a caller's array. */
static inline rvl_status rvli_trace_device_read(rvl_trace_device *device_out, const void *devices,
                                                size_t device_size, size_t index)
{
    rvl_status status = rvli_element_check(RVLI_TRACE_DEVICE, device_size);
    if (status == RVL_OK)
        status = rvli_element_read_at(RVLI_TRACE_DEVICE, device_out, devices, device_size, index);
    return status == RVL_OK ? rvli_flags_check(0, 0, device_out->reserved) : status;
}

/* Checks that the reserved fields of an event are 0. */
static inline rvl_status rvli_trace_event_check(const rvl_trace_event *event)
{
    return rvli_flags_check(0, 0, event->reserved[0] | event->reserved[1] | event->reserved[2]);
}

#endif
