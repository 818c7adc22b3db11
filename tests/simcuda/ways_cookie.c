/* SPDX-License-Identifier: MIT */
/* Preloaded: sockets have no number, as under qemu's user mode. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int getsockopt(int file, int level, int name, void *restrict value, socklen_t *restrict size)
{
    if (level == SOL_SOCKET && name == SO_COOKIE) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_getsockopt, file, level, name, value, size);
}
