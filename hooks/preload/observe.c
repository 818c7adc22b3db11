/* SPDX-License-Identifier: MIT */
#include "hooks/preload/observe.h"

#include "reveille/hooks.h"

_Atomic(rvli_observer) rvli_observer_now;
_Thread_local unsigned rvli_calls_open;

void rvli_observe(rvli_observer observer)
{
    atomic_store(&rvli_observer_now, observer);
}

static _Atomic uintptr_t friend_begin, friend_end;

void rvli_befriend(const void *begin, const void *end)
{
    atomic_store(&friend_end, (uintptr_t)end);
    atomic_store(&friend_begin, (uintptr_t)begin);
}

bool rvli_is_friend(const void *address)
{
    uintptr_t begin = atomic_load_explicit(&friend_begin, memory_order_relaxed);
    return begin != 0 && (uintptr_t)address >= begin &&
           (uintptr_t)address < atomic_load(&friend_end);
}

/* What the observer calls itself is nobody's event. */
void rvli_seen_tell(const rvli_seen *seen)
{
    rvli_observer observer = atomic_load_explicit(&rvli_observer_now, memory_order_acquire);
    if (observer == NULL)
        return;
    rvli_calls_open++;
    observer(seen);
    rvli_calls_open--;
}

const char *rvl_hooks_mode(void)
{
    return "preload";
}
