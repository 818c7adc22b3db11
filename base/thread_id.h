/* SPDX-License-Identifier: MIT */
/*
 * The kernel's id of the calling thread. Uses the system call, because glibc has gettid() only
 * since 2.30 and wheels run on older versions.
 */
#ifndef RVL_BASE_THREAD_ID_H
#define RVL_BASE_THREAD_ID_H

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static inline pid_t rvli_thread_id(void)
{
    return (pid_t)syscall(SYS_gettid);
}

#endif
