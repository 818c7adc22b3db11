/* SPDX-License-Identifier: MIT */
/* The elements of traces, for all that write, read or replay them: events and devices. */
#ifndef RVL_BASE_TRACE_ELEMENT_H
#define RVL_BASE_TRACE_ELEMENT_H

#include "base/element.h"
#include "base/options.h"
#include "reveille/trace.h"

#define RVLI_TRACE_EVENT RVLI_ELEMENT(rvl_trace_event, line)
#define RVLI_TRACE_DEVICE RVLI_ELEMENT(rvl_trace_device, granularity_bytes)

/* The device of an index in a caller's array. */
static inline rvl_status rvli_trace_device_read(rvl_trace_device *device_out, const void *devices,
                                                size_t device_size, size_t index)
{
    rvl_status status = rvli_element_check(RVLI_TRACE_DEVICE, device_size);
    if (status == RVL_OK)
        status = rvli_element_read_at(RVLI_TRACE_DEVICE, device_out, devices, device_size, index);
    return status == RVL_OK ? rvli_flags_check(0, 0, device_out->reserved) : status;
}

/* Whether the bytes of an event that are for later versions are 0. */
static inline rvl_status rvli_trace_event_check(const rvl_trace_event *event)
{
    return rvli_flags_check(0, 0, event->reserved[0] | event->reserved[1] | event->reserved[2]);
}

#endif
