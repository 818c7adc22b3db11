/* SPDX-License-Identifier: MIT */
#include "short_memory.h"

long short_memory_left = -1;
_Atomic uint64_t short_memory_requests;
uint64_t short_memory_refused_request;
_Thread_local long short_memory_thread_countdown;

static bool is_thread_due(void)
{
    return short_memory_thread_countdown > 0 && --short_memory_thread_countdown == 0;
}

void short_memory_refuse_nth(uint64_t nth)
{
    short_memory_requests = 0;
    short_memory_refused_request = nth;
}

bool short_memory_has_refused(void)
{
    return short_memory_refused_request > 0 &&
           short_memory_requests >= short_memory_refused_request;
}

bool short_memory_refuses(void)
{
    if (is_thread_due())
        return true;
    if (++short_memory_requests == short_memory_refused_request || short_memory_left == 0)
        return true;
    if (short_memory_left > 0)
        short_memory_left--;
    return false;
}
