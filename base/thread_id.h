/* SPDX-License-Identifier: MIT */
/*
 * The kernel's number of the calling thread. By the system call: glibc has gettid() only
 * since 2.30, and wheels run on older ones.
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
