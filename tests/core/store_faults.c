/* SPDX-License-Identifier: MIT */
#include "store_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/backup/store/message.h"
#include "tests/support/short_memory.h"
#include "tests/support/support.h"

SHORT_CALLOC

store_turn_plan store_turn;

/* Whether this call is to fail. Threads make calls of the store side by side. */
static bool its_turn(void)
{
    if (store_turn.what == PASS || atomic_fetch_sub(&store_turn.nth, 1) != 1)
        return false;
    store_turn.happened = true;
    if (store_turn.what == KILL_SELF)
        raise(SIGKILL);
    if (store_turn.what == STOP_SELF)
        raise(SIGSTOP);
    if (store_turn.what == KILL_OWNER)
        kill(store_turn.owner, SIGKILL);
    return store_turn.what == FAIL;
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    if (!its_turn())
        return __real_memfd_create(name, flags);
    errno = EMFILE;
    return -1;
}

int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
    if (!its_turn())
        return __real_ftruncate(fd, size);
    errno = ENOMEM;
    return -1;
}

ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t offset)
{
    if (!its_turn()) /* a part, as a signal would leave it */
        return __real_pwrite(fd, from, size > MIB ? size / 2 : size, offset);
    errno = ENOSPC;
    return -1;
}

_Atomic uint64_t store_read_bytes;

ssize_t __real_pread(int fd, void *into, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *into, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *into, size_t size, off_t offset)
{
    if (offset % (off_t)(8 * MIB) == 0 && its_turn()) { /* one call of many */
        errno = EIO;
        return -1;
    }
    ssize_t came = __real_pread(fd, into, size > MIB / 32 ? size / 2 : size, offset);
    store_read_bytes += came > 0 ? (uint64_t)came : 0;
    return came;
}

bool store_no_random_bytes;

ssize_t __real_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
    if (!store_no_random_bytes)
        return __real_getrandom(bytes, size, flags);
    errno = ENOSYS;
    return -1;
}

/* The store maps what it reads or fills, and reserves addresses. The rest is the simulation's. */
void *__real_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
    bool of_store = fd >= 0 ? (rights & PROT_READ) != 0 : (flags & MAP_FIXED) == 0;
    if (!of_store || !its_turn())
        return __real_mmap(at, size, rights, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if ((command == F_ADD_SEALS || command == F_GET_SEALS) && its_turn()) {
        errno = EBUSY;
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}

uint64_t store_patience_ms;

int __real_setsockopt(int to, int level, int option, const void *value, socklen_t size);
int __wrap_setsockopt(int to, int level, int option, const void *value, socklen_t size);
int __wrap_setsockopt(int to, int level, int option, const void *value, socklen_t size)
{
    const struct timeval short_time = {.tv_usec = (suseconds_t)(store_patience_ms * 1000)};
    if (store_patience_ms == 0 || (option != SO_RCVTIMEO && option != SO_SNDTIMEO))
        return __real_setsockopt(to, level, option, value, size);
    assert_int_equal(size, sizeof short_time);
    assert_int_equal(((const struct timeval *)value)->tv_sec, RVLI_STORE_PATIENCE_S);
    return __real_setsockopt(to, level, option, &short_time, sizeof short_time);
}
