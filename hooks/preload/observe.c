/* SPDX-License-Identifier: MIT */
#include "hooks/preload/observe.h"

#include "hooks/shim/library.h"

_Atomic(rvli_observer) rvli_observer_now;
_Thread_local unsigned rvli_calls_open;

void rvli_observe(rvli_observer observer)
{
    atomic_store(&rvli_observer_now, observer);
}

/* Does not report the observer's own calls. */
void rvli_seen_tell(const rvli_seen *seen)
{
    rvli_observer observer = atomic_load_explicit(&rvli_observer_now, memory_order_acquire);
    if (observer == NULL)
        return;
    rvli_calls_open++;
    observer(seen);
    rvli_calls_open--;
}

const char *const rvli_shim_mode = "preload";
