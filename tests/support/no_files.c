/* SPDX-License-Identifier: MIT */
#include "no_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ONLY_TMPFILE (O_TMPFILE & ~O_DIRECTORY)
#define NUMBER offsetof(struct seccomp_data, nr)
#define THIRD_ARGUMENT offsetof(struct seccomp_data, args[2])

static bool filter(struct sock_filter *steps, size_t count)
{
    const struct sock_fprog program = {(unsigned short)count, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

bool no_nameless_files(void)
{
    /* openat(folder, path, flags): the third argument, of which the low half has the flags. */
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, THIRD_ARGUMENT),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, ONLY_TMPFILE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return filter(steps, sizeof steps / sizeof steps[0]);
}

bool no_memory_files(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return filter(steps, sizeof steps / sizeof steps[0]);
}
