/* SPDX-License-Identifier: MIT */
/* Preloaded: the wall clock jumps by days, back and forth, each time it is read. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static atomic_int looks;
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += (atomic_fetch_add(&looks, 1) % 5 - 2) * DAY_S;
    return result;
}
