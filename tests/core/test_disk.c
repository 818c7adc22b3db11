/* SPDX-License-Identifier: MIT */
/*
 * Backup files and the queue, on the file system of the working directory: what is written comes
 * back by either engine, nothing is left behind, and every call that can fail does.
 *
 * Linked with --wrap for the calls that are made to fail. A ring's answers are changed in the ring,
 * after the kernel has written them and before the queue sees them.
 */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#ifdef RVL_HAVE_URING
#include <liburing.h>
#endif

#include "base/error.h"
#include "core/backup/disk/file.h"
#include "core/backup/disk/queue.h"
#include "tests/support/short_memory.h"
#include "tests/support/skip.h"

#define MIB (UINT64_C(1) << 20)
#define REQUEST_BYTES (UINT64_C(256) << 10)
#define REQUESTS 24u
#define DEPTH 8u

/* What the next calls answer; 0: as they really do. */
static struct faults {
    int open_number; /* only of nameless files */
    int mkostemp_number;
    int unlink_number;
    int fcntl_number;
    int fallocate_number;
    int fallocate_interrupts;
    int ftruncate_number;
    int access_number;
    int statfs_number;
    bool no_space;
    bool no_threads;
    int ring_number;       /* of making one */
    bool no_probe;         /* a ring that does not say what it can do */
    bool patch_ring;       /* what the next request of a ring is answered with: */
    int patch;             /* bytes or a negative errno */
    atomic_uint enters;    /* calls so far */
    unsigned refuse_enter; /* from this one on; 0: none */
} faults;

/* Of pread and pwrite, which threads call. */
static atomic_int transfers_to_change; /* so many */
static ssize_t changed_answer;         /* bytes, or a negative errno */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    if ((flags & O_TMPFILE) == O_TMPFILE && faults.open_number != 0) {
        errno = faults.open_number;
        return -1;
    }
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (command == F_SETFL && faults.fcntl_number != 0) {
        errno = faults.fcntl_number;
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}

#define FAIL_BY_NUMBER(name, parameters, arguments, number)                                        \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        if ((number) == 0)                                                                         \
            return __real_##name arguments;                                                        \
        errno = (number);                                                                          \
        return -1;                                                                                 \
    }
FAIL_BY_NUMBER(mkostemp, (char *path, int flags), (path, flags), faults.mkostemp_number)
FAIL_BY_NUMBER(unlink, (const char *path), (path), faults.unlink_number)
FAIL_BY_NUMBER(ftruncate, (int fd, off_t size), (fd, size), faults.ftruncate_number)
FAIL_BY_NUMBER(faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags),
               faults.access_number)
FAIL_BY_NUMBER(fstatfs, (int fd, struct statfs *facts), (fd, facts), faults.statfs_number)

int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (faults.fallocate_interrupts > 0) {
        faults.fallocate_interrupts--;
        errno = EINTR;
        return -1;
    }
    if (faults.fallocate_number == 0)
        return __real_fallocate(fd, mode, offset, size);
    errno = faults.fallocate_number;
    return -1;
}

int __real_fstatvfs(int fd, struct statvfs *facts);
int __wrap_fstatvfs(int fd, struct statvfs *facts);
int __wrap_fstatvfs(int fd, struct statvfs *facts)
{
    int answer = __real_fstatvfs(fd, facts);
    if (faults.no_space) {
        facts->f_bavail = 3;
        facts->f_frsize = 4096;
    }
    return answer;
}

SHORT_CALLOC

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    return faults.no_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

/* The data is moved in any case: what is said of it is changed. */
static ssize_t change_transfer(ssize_t answer)
{
    if (atomic_load(&transfers_to_change) <= 0 || atomic_fetch_sub(&transfers_to_change, 1) <= 0)
        return answer;
    if (changed_answer >= 0)
        return changed_answer < answer ? changed_answer : answer;
    errno = (int)-changed_answer;
    return -1;
}

ssize_t __real_pread(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    return change_transfer(__real_pread(fd, buffer, bytes, offset));
}

ssize_t __real_pwrite(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    return change_transfer(__real_pwrite(fd, buffer, bytes, offset));
}

#ifdef RVL_HAVE_URING
int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    return faults.ring_number != 0 ? -faults.ring_number
                                   : __real_io_uring_queue_init(entries, ring, flags);
}

struct io_uring_probe *__real_io_uring_get_probe_ring(struct io_uring *ring);
struct io_uring_probe *__wrap_io_uring_get_probe_ring(struct io_uring *ring);
struct io_uring_probe *__wrap_io_uring_get_probe_ring(struct io_uring *ring)
{
    return faults.no_probe ? NULL : __real_io_uring_get_probe_ring(ring);
}

int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned wait_for);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned wait_for);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned wait_for)
{
    faults.enters++;
    bool refused = faults.refuse_enter != 0 && faults.enters >= faults.refuse_enter;
    int answer = -ENOMEM;
    if (!refused || faults.patch_ring)
        answer = __real_io_uring_submit_and_wait(ring, faults.patch_ring ? 1 : wait_for);
    if (faults.patch_ring && io_uring_cq_ready(ring) > 0) {
        faults.patch_ring = false;
        ring->cq.cqes[*ring->cq.khead & *ring->cq.kring_mask].res = faults.patch;
    }
    return refused ? -ENOMEM : answer;
}
#endif

static char directory[] = "test_disk-XXXXXX";
static unsigned char *buffers;

static int set_up(void **state)
{
    (void)state;
    faults = (struct faults){0};
    atomic_store(&transfers_to_change, 0);
    return 0;
}

static int make_directory(void **state)
{
    (void)state;
    buffers = aligned_alloc(RVLI_DISK_ALIGNMENT, REQUESTS * REQUEST_BYTES);
    return buffers == NULL || mkdtemp(directory) == NULL;
}

static int remove_directory(void **state)
{
    (void)state;
    free(buffers);
    return rmdir(directory);
}

static size_t entries_of(const char *path)
{
    size_t count = 0;
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(listing);
    return count;
}

static rvli_disk_file open_file(uint64_t size_bytes)
{
    rvli_disk_file file = {0};
    assert_int_equal(rvli_disk_file_open(directory, size_bytes, &file), RVL_OK);
    return file;
}

/* Fails the test unless opening a file fails so, with this word in its message. */
static void refuses_file(rvl_status status, int number, const char *word)
{
    rvli_disk_file file = {.fd = 12345};
    int next_before = dup(0);
    close(next_before);
    assert_int_equal(rvli_disk_file_open(directory, MIB, &file), status);
    int next_after = dup(0);
    close(next_after);
    assert_int_equal(next_after, next_before); /* nothing is left open */
    assert_int_equal(file.fd, 12345);
    assert_int_equal(rvli_error_get()->native_code, number);
    assert_string_equal(rvli_error_get()->native_name, strerrorname_np(number));
    assert_non_null(strstr(rvli_error_get()->message, word));
    set_up(NULL);
    assert_int_equal(entries_of(directory), 0);
}

/* ---- directories and files ---- */

static void directories_are_checked(void **state)
{
    (void)state;
    char path[64];
    assert_int_equal(rvli_disk_directory_check(directory, true), RVL_OK);
    assert_int_equal(rvli_disk_directory_check("no/such", true), RVL_ERR_INVALID);
    assert_int_equal(rvli_error_get()->native_code, ENOENT);
    assert_string_equal(rvli_error_get()->message, "the backup directory no/such does not exist: "
                                                   "create it or name another");
    snprintf(path, sizeof path, "%s/file", directory);
    fclose(fopen(path, "w"));
    assert_int_equal(rvli_disk_directory_check(path, true), RVL_ERR_INVALID);
    assert_int_equal(rvli_error_get()->native_code, ENOTDIR);
    unlink(path);
    faults.access_number = EROFS;
    assert_int_equal(rvli_disk_directory_check(directory, true), RVL_ERR_INVALID);
    assert_string_equal(rvli_error_get()->native_name, "EROFS");
    faults.access_number = 0;
    faults.statfs_number = EIO;
    assert_int_equal(rvli_disk_directory_check(directory, false), RVL_ERR_IO);
    assert_int_equal(rvli_error_get()->native_code, EIO);
}

static void directories_of_others_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        SKIP_TEST("only root is another user");
    assert_int_equal(chmod(directory, 0555), 0);
    assert_int_equal(seteuid(65534), 0);
    rvl_status status = rvli_disk_directory_check(directory, true);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(directory, 0700), 0);
    assert_int_equal(status, RVL_ERR_INVALID);
    assert_int_equal(rvli_error_get()->native_code, EACCES);
}

static void memory_is_refused_unless_allowed(void **state)
{
    (void)state;
    struct statfs facts;
    if (statfs("/dev/shm", &facts) != 0 || facts.f_type != 0x01021994 ||
        access("/dev/shm", W_OK) != 0)
        SKIP_TEST("/dev/shm is no tmpfs that can be written to");
    assert_int_equal(rvli_disk_directory_check("/dev/shm", false), RVL_ERR_INVALID);
    assert_int_equal(rvli_error_get()->native_code, 0);
    assert_non_null(strstr(rvli_error_get()->message, "host memory (tmpfs)"));
    assert_int_equal(rvli_disk_directory_check("/dev/shm", true), RVL_OK);
    rvli_disk_file file;
    assert_int_equal(rvli_disk_file_open("/dev/shm", MIB, &file), RVL_OK);
    assert_int_equal(file.size_bytes, MIB);
    rvli_disk_file_close(&file);
}

static void space_is_reserved_and_given_back(void **state)
{
    (void)state;
    faults.fallocate_interrupts = 2;
    rvli_disk_file file = open_file(4 * MIB + 1);
    struct stat facts;
    assert_int_equal(file.size_bytes, 4 * MIB + RVLI_DISK_ALIGNMENT);
    assert_true(file.reserved);
    assert_int_equal(fstat(file.fd, &facts), 0);
    assert_int_equal(facts.st_size, 4 * MIB + RVLI_DISK_ALIGNMENT);
    assert_true((uint64_t)facts.st_blocks * 512 >= file.size_bytes);
    assert_int_equal(facts.st_nlink, 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(fcntl(file.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal((fcntl(file.fd, F_GETFL) & O_DIRECT) != 0, file.direct);
    assert_int_equal(entries_of(directory), 0);
    int fd = file.fd;
    rvli_disk_file_close(&file);
    assert_int_equal(file.fd, -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void without_nameless_files(void **state)
{
    (void)state;
    faults.open_number = EOPNOTSUPP;
    rvli_disk_file file = open_file(MIB);
    struct stat facts;
    assert_int_equal(fstat(file.fd, &facts), 0);
    assert_int_equal(facts.st_nlink, 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(fcntl(file.fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(entries_of(directory), 0);
    rvli_disk_file_close(&file);

    faults.mkostemp_number = EACCES;
    refuses_file(RVL_ERR_INVALID, EACCES, "cannot be written to");
    char name[PATH_MAX + 64];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    faults.open_number = EOPNOTSUPP;
    assert_int_equal(rvli_disk_file_open(name, MIB, &file), RVL_ERR_INVALID);
    assert_int_equal(rvli_error_get()->native_code, ENAMETOOLONG);
}

/* The one way in which a name can be left behind. */
static void a_name_that_stays(void **state)
{
    (void)state;
    char command[64];
    rvli_disk_file file;
    faults.open_number = EISDIR;
    faults.unlink_number = EIO;
    assert_int_equal(rvli_disk_file_open(directory, MIB, &file), RVL_ERR_IO);
    assert_int_equal(rvli_error_get()->native_code, EIO);
    snprintf(command, sizeof command, "rm %s/.reveille-*", directory);
    assert_int_equal(system(command), 0);
}

static void files_are_refused(void **state)
{
    (void)state;
    rvli_disk_file file;
    assert_int_equal(rvli_disk_file_open(directory, 0, &file), RVL_ERR_INVALID);
    assert_int_equal(rvli_disk_file_open(directory, UINT64_MAX, &file), RVL_ERR_INVALID);
    assert_int_equal(rvli_disk_file_open("no/such", MIB, &file), RVL_ERR_INVALID);
    assert_int_equal(rvli_error_get()->native_code, ENOENT);
    faults.open_number = EMFILE;
    refuses_file(RVL_ERR_IO, EMFILE, "ulimit -n");
    faults.open_number = ENOSPC;
    refuses_file(RVL_ERR_DISK_FULL, ENOSPC, "cannot take a file");
    faults.fallocate_number = ENOSPC;
    refuses_file(RVL_ERR_DISK_FULL, ENOSPC, "no space");
    assert_int_equal(rvli_error_get()->requested_bytes, MIB);
    assert_true(rvli_error_get()->free_bytes > 0);
    assert_string_equal(rvli_error_get()->op, "disk_reserve");
    faults.fallocate_number = EDQUOT;
    refuses_file(RVL_ERR_DISK_FULL, EDQUOT, "quota");
    faults.fallocate_number = EFBIG;
    refuses_file(RVL_ERR_DISK_FULL, EFBIG, "ulimit -f");
    faults.fallocate_number = EIO;
    refuses_file(RVL_ERR_IO, EIO, "check the disk");
}

static void without_reservation(void **state)
{
    (void)state;
    struct stat facts;
    faults.fallocate_number = EOPNOTSUPP;
    rvli_disk_file file = open_file(MIB);
    assert_false(file.reserved);
    assert_int_equal(fstat(file.fd, &facts), 0);
    assert_int_equal(facts.st_size, MIB);
    rvli_disk_file_close(&file);
    faults.no_space = true;
    refuses_file(RVL_ERR_DISK_FULL, ENOSPC, "no space");
    assert_int_equal(rvli_error_get()->free_bytes, 3 * 4096);
    faults.fallocate_number = EOPNOTSUPP;
    faults.ftruncate_number = EFBIG;
    refuses_file(RVL_ERR_DISK_FULL, EFBIG, "larger than a file may be");
}

/* The kernel's answer to that is a signal that ends the process. */
static void the_limit_of_size_is_no_signal(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = MIB - 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    rvli_disk_file file;
    rvl_status status = rvli_disk_file_open(directory, MIB, &file);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, RVL_ERR_DISK_FULL);
    assert_string_equal(rvli_error_get()->native_name, "EFBIG");
}

static void killed_with_a_file(void)
{
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rvli_disk_file file;
        byte = (char)(rvli_disk_file_open(directory, MIB, &file) == RVL_OK);
        if (write(ends[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    int ended;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(entries_of(directory), 0);
    close(ends[0]);
    close(ends[1]);
}

static void a_killed_process_leaves_nothing(void **state)
{
    (void)state;
    killed_with_a_file();
    faults.open_number = EOPNOTSUPP;
    killed_with_a_file();
}

/* ---- the queue; state is the engine ---- */

static rvli_disk_queue *open_queue(void **state, unsigned depth)
{
    rvli_disk_engine engine = *(rvli_disk_engine *)*state;
    rvli_disk_queue *queue = NULL;
    rvl_status status = rvli_disk_queue_open(engine, depth, &queue);
    if (status == RVL_ERR_NOT_SUPPORTED && engine == RVLI_DISK_URING)
        SKIP_TEST("the kernel refuses io_uring here");
    assert_int_equal(status, RVL_OK);
    assert_string_equal(rvli_disk_queue_name(queue),
                        engine == RVLI_DISK_THREADS ? "threads" : "io_uring");
    return queue;
}

static void fill(unsigned char *buffer, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += sizeof seed) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(buffer + i, &seed, sizeof seed);
    }
}

static bool holds(const unsigned char *buffer, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += sizeof seed) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (memcmp(buffer + i, &seed, sizeof seed) != 0)
            return false;
    }
    return true;
}

static rvli_disk_request request_of(const rvli_disk_file *file, bool write, uint64_t number)
{
    return (rvli_disk_request){.fd = file->fd,
                               .write = write,
                               .buffer = buffers + number * REQUEST_BYTES,
                               .offset = number * REQUEST_BYTES,
                               .bytes = REQUEST_BYTES};
}

/* Submits all, out of order, and waits for each. */
static void move_all(rvli_disk_queue *queue, const rvli_disk_file *file, bool write)
{
    rvli_disk_request requests[REQUESTS];
    for (uint64_t i = 0; i < REQUESTS; i++) {
        uint64_t number = i * 7 % REQUESTS;
        requests[i] = request_of(file, write, number);
        assert_int_equal(rvli_disk_queue_submit(queue, &requests[i]), RVL_OK);
    }
    for (unsigned i = REQUESTS; i-- > 0;) {
        assert_int_equal(rvli_disk_queue_wait(queue, &requests[i]), RVL_OK);
        assert_true(requests[i].done);
        assert_int_equal(requests[i].status, RVL_OK);
        assert_int_equal(requests[i].error, 0);
    }
}

static void round_trip_of(rvli_disk_queue *queue, const rvli_disk_file *file)
{
    for (uint64_t i = 0; i < REQUESTS; i++)
        fill(buffers + i * REQUEST_BYTES, REQUEST_BYTES, i + 1);
    move_all(queue, file, true);
    memset(buffers, 0, REQUESTS * REQUEST_BYTES);
    move_all(queue, file, false);
    for (uint64_t i = 0; i < REQUESTS; i++)
        assert_true(holds(buffers + i * REQUEST_BYTES, REQUEST_BYTES, i + 1));
}

static void round_trip(void **state)
{
    const unsigned depths[] = {1, 3, DEPTH, RVLI_DISK_MAX_DEPTH};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        rvli_disk_queue *queue = open_queue(state, depths[i]);
        rvli_disk_file file = open_file(REQUESTS * REQUEST_BYTES);
        round_trip_of(queue, &file);
        rvli_disk_file_close(&file);
        rvli_disk_queue_close(queue);
    }
}

static void round_trip_by_page_cache(void **state)
{
    rvli_disk_queue *queue = open_queue(state, DEPTH);
    faults.fcntl_number = EINVAL;
    rvli_disk_file file = open_file(REQUESTS * REQUEST_BYTES);
    assert_false(file.direct);
    round_trip_of(queue, &file);
    rvli_disk_file_close(&file);
    rvli_disk_queue_close(queue);
}

#define COMERS 4
#define COMINGS 50

/* A ring's memory comes and goes by system calls that a thread sanitizer does not see. */
static void *come_and_go(void *argument)
{
    void **state = ((void **)argument)[0];
    const rvli_disk_file *file = ((void **)argument)[1];
    uint64_t number = (uintptr_t)((void **)argument)[2];
    for (int i = 0; i < COMINGS; i++) {
        rvli_disk_queue *queue = NULL;
        rvli_disk_request request = request_of(file, true, number);
        if (rvli_disk_queue_open(*(rvli_disk_engine *)*state, 2, &queue) != RVL_OK)
            return NULL;
        bool done = rvli_disk_queue_submit(queue, &request) == RVL_OK &&
                    rvli_disk_queue_wait(queue, &request) == RVL_OK;
        rvli_disk_queue_close(queue);
        if (!done)
            return NULL;
    }
    return argument;
}

static void queues_come_and_go_in_threads(void **state)
{
    pthread_t comers[COMERS];
    void *arguments[COMERS][3];
    rvli_disk_queue_close(open_queue(state, 2));
    rvli_disk_file file = open_file(COMERS * REQUEST_BYTES);
    for (uintptr_t i = 0; i < COMERS; i++) {
        memcpy(arguments[i], (void *[3]){state, &file, (void *)i}, sizeof arguments[i]);
        assert_int_equal(pthread_create(&comers[i], NULL, come_and_go, arguments[i]), 0);
    }
    for (int i = 0; i < COMERS; i++) {
        void *result = NULL;
        pthread_join(comers[i], &result);
        assert_ptr_equal(result, arguments[i]);
    }
    rvli_disk_file_close(&file);
}

static void closing_and_draining_wait(void **state)
{
    rvli_disk_queue *queue = open_queue(state, REQUESTS);
    rvli_disk_file file = open_file(REQUESTS * REQUEST_BYTES);
    rvli_disk_request requests[REQUESTS];
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < REQUESTS; i++) {
            requests[i] = request_of(&file, true, i);
            assert_int_equal(rvli_disk_queue_submit(queue, &requests[i]), RVL_OK);
        }
        if (round == 0)
            rvli_disk_queue_drain(queue);
        else
            rvli_disk_queue_close(queue);
        for (unsigned i = 0; i < REQUESTS; i++)
            assert_true(requests[i].done && requests[i].status == RVL_OK);
    }
    rvli_disk_file_close(&file);
}

static void what_is_not_aligned_is_refused(void **state)
{
    rvli_disk_queue *queue = open_queue(state, 1);
    rvli_disk_file file = open_file(REQUEST_BYTES);
    rvli_disk_request wrong[4];
    for (int i = 0; i < 4; i++)
        wrong[i] = request_of(&file, true, 0);
    wrong[0].bytes = 0;
    wrong[1].bytes--;
    wrong[2].offset = 512;
    wrong[3].buffer = buffers + 8;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rvli_disk_queue_submit(queue, &wrong[i]), RVL_ERR_INVALID);
        assert_false(wrong[i].done);
    }
    rvli_disk_file_close(&file);
    rvli_disk_queue_close(queue);
}

static void end_of_file_and_bad_files(void **state)
{
    rvli_disk_queue *queue = open_queue(state, DEPTH);
    rvli_disk_file file = open_file(REQUEST_BYTES / 2);
    rvli_disk_request request = request_of(&file, false, 0);
    assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
    assert_int_equal(rvli_disk_queue_wait(queue, &request), RVL_ERR_IO);
    assert_int_equal(request.error, 0);
    assert_string_equal(rvli_error_get()->op, "disk_read");
    assert_non_null(strstr(rvli_error_get()->message, "ended too early"));
    assert_int_equal(rvli_error_get()->requested_bytes, REQUEST_BYTES);
    rvli_disk_file_close(&file);
    request.fd = -1;
    request.write = true;
    assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
    assert_int_equal(rvli_disk_queue_wait(queue, &request), RVL_ERR_IO);
    assert_int_equal(request.error, EBADF);
    assert_string_equal(rvli_error_get()->native_name, "EBADF");
    rvli_disk_queue_close(queue);
}

/* Changes the answer of the next call that moves data, by any thread. */
static void change_next(void **state, int answer)
{
    if (*(rvli_disk_engine *)*state == RVLI_DISK_URING) {
        faults.patch_ring = true;
        faults.patch = answer;
    } else {
        changed_answer = answer;
        atomic_store(&transfers_to_change, 1);
    }
}

typedef struct fault_case {
    int answer;
    bool write;
    rvl_status status;
    int error;
} fault_case;

static void faults_of_one_request(void **state)
{
    const fault_case cases[] = {
        {-EIO, true, RVL_ERR_IO, EIO},
        {-EIO, false, RVL_ERR_IO, EIO},
        {-ENOSPC, true, RVL_ERR_DISK_FULL, ENOSPC},
        {-EDQUOT, true, RVL_ERR_DISK_FULL, EDQUOT},
        {-EFBIG, true, RVL_ERR_DISK_FULL, EFBIG},
        {0, true, RVL_ERR_DISK_FULL, ENOSPC},
        {0, false, RVL_ERR_IO, 0},
        {-EINTR, true, RVL_OK, 0},
        {-EINTR, false, RVL_OK, 0},
        {8192, true, RVL_OK, 0},
        {8192, false, RVL_OK, 0},
        {12345, false, RVL_OK, 0}, /* goes on from 8192 */
    };
    rvli_disk_queue *queue = open_queue(state, DEPTH);
    rvli_disk_file file = open_file(REQUEST_BYTES);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvli_disk_request request = request_of(&file, cases[i].write, 0);
        change_next(state, cases[i].answer);
        assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
        assert_int_equal(rvli_disk_queue_wait(queue, &request), cases[i].status);
        assert_int_equal(request.status, cases[i].status);
        assert_int_equal(request.error, cases[i].error);
        if (cases[i].status == RVL_OK)
            assert_int_equal(request.moved_bytes, REQUEST_BYTES);
        else
            assert_int_equal(rvli_error_get()->native_code, cases[i].error);
        assert_false(faults.patch_ring);
        assert_int_equal(atomic_load(&transfers_to_change), 0);
    }
    rvli_disk_file_close(&file);
    rvli_disk_queue_close(queue);
}

/* Less than the alignment was moved: goes on by the page cache, and fails where it cannot. */
static void a_shorter_answer_than_aligned(void **state)
{
    rvli_disk_queue *queue = open_queue(state, DEPTH);
    faults.fcntl_number = EINVAL;
    rvli_disk_file file = open_file(REQUEST_BYTES);
    rvli_disk_request request = request_of(&file, true, 0);
    fill(buffers, REQUEST_BYTES, 5);
    change_next(state, 100);
    assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
    assert_int_equal(rvli_disk_queue_wait(queue, &request), RVL_OK);
    memset(buffers, 0, REQUEST_BYTES);
    request = request_of(&file, false, 0);
    change_next(state, 100);
    assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
    assert_int_equal(rvli_disk_queue_wait(queue, &request), RVL_OK);
    assert_true(holds(buffers, REQUEST_BYTES, 5));
    rvli_disk_file_close(&file);
    rvli_disk_queue_close(queue);
}

/* One of many fails: the others are what they would have been. */
static void one_failure_among_many(void **state)
{
    rvli_disk_queue *queue = open_queue(state, DEPTH);
    rvli_disk_file file = open_file(REQUESTS * REQUEST_BYTES);
    rvli_disk_request requests[REQUESTS];
    unsigned failed = 0;
    change_next(state, -EIO);
    for (unsigned i = 0; i < REQUESTS; i++) {
        requests[i] = request_of(&file, true, i);
        assert_int_equal(rvli_disk_queue_submit(queue, &requests[i]), RVL_OK);
    }
    rvli_disk_queue_drain(queue);
    for (unsigned i = 0; i < REQUESTS; i++)
        failed += requests[i].status == RVL_ERR_IO && requests[i].error == EIO;
    assert_int_equal(failed, 1);
    round_trip_of(queue, &file);
    rvli_disk_file_close(&file);
    rvli_disk_queue_close(queue);
}

static void queues_are_refused(void **state)
{
    rvli_disk_engine engine = *(rvli_disk_engine *)*state;
    rvli_disk_queue *queue = NULL;
    assert_int_equal(rvli_disk_queue_open(engine, 0, &queue), RVL_ERR_INVALID);
    assert_int_equal(rvli_disk_queue_open(engine, 65, &queue), RVL_ERR_INVALID);
    rvli_disk_queue_close(open_queue(state, 1)); /* skips where there is no ring */
    short_memory_left = 0;
    rvl_status status = rvli_disk_queue_open(engine, 1, &queue);
    short_memory_left = -1;
    assert_int_equal(status, RVL_ERR_HOST_OOM);
    faults.no_threads = true;
    status = rvli_disk_queue_open(engine, 1, &queue);
    if (engine == RVLI_DISK_URING) {
        assert_int_equal(status, RVL_OK);
        rvli_disk_queue_close(queue);
        return;
    }
    assert_int_equal(status, RVL_ERR_HOST_OOM);
    assert_null(queue);
}

#ifdef RVL_HAVE_URING
/* ---- the ring alone ---- */

static void without_a_ring_threads_work(void **state)
{
    (void)state;
    const struct faults all[] = {
        {.ring_number = EPERM}, {.ring_number = ENOSYS}, {.no_probe = true}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        rvli_disk_queue *queue = NULL;
        faults = all[i];
        assert_int_equal(rvli_disk_queue_open(RVLI_DISK_URING, DEPTH, &queue),
                         RVL_ERR_NOT_SUPPORTED);
        if (all[i].ring_number != 0)
            assert_int_equal(rvli_error_get()->native_code, all[i].ring_number);
        assert_null(queue);
        rvli_error(RVL_ERR_TIMEOUT, "an earlier failure");
        assert_int_equal(rvli_disk_queue_open(RVLI_DISK_AUTO, DEPTH, &queue), RVL_OK);
        assert_string_equal(rvli_error_get()->message, "an earlier failure");
        assert_string_equal(rvli_disk_queue_name(queue), "threads");
        faults = (struct faults){0};
        rvli_disk_file file = open_file(REQUESTS * REQUEST_BYTES);
        round_trip_of(queue, &file);
        rvli_disk_file_close(&file);
        rvli_disk_queue_close(queue);
    }
}

/* From any call on, the kernel refuses: everything is done all the same. */
static void a_ring_refused_later(void **state)
{
    for (unsigned call = 1; call <= REQUESTS; call++) {
        rvli_disk_queue *queue = open_queue(state, DEPTH);
        rvli_disk_file file = open_file(REQUESTS * REQUEST_BYTES);
        faults.enters = 0;
        faults.refuse_enter = call;
        round_trip_of(queue, &file);
        faults.refuse_enter = 0;
        rvli_disk_file_close(&file);
        rvli_disk_queue_close(queue);
    }
}

static void answers_in_a_refused_ring(void **state)
{
    const int answers[] = {8192, -EAGAIN, -ECANCELED, -EINTR};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        rvli_disk_queue *queue = open_queue(state, DEPTH);
        rvli_disk_file file = open_file(REQUEST_BYTES);
        rvli_disk_request request = request_of(&file, true, 0);
        faults.enters = 0;
        faults.refuse_enter = 1;
        change_next(state, answers[i]);
        assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
        assert_int_equal(rvli_disk_queue_wait(queue, &request), RVL_OK);
        assert_int_equal(request.moved_bytes, REQUEST_BYTES);
        faults.refuse_enter = 0;
        rvli_disk_file_close(&file);
        rvli_disk_queue_close(queue);
    }
}

static void what_the_kernel_hands_back_is_done_here(void **state)
{
    const int answers[] = {-EAGAIN, -ECANCELED};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        rvli_disk_queue *queue = open_queue(state, DEPTH);
        rvli_disk_file file = open_file(REQUEST_BYTES);
        rvli_disk_request request = request_of(&file, true, 0);
        change_next(state, answers[i]);
        changed_answer = -ENOSPC; /* of the pwrite that does it instead */
        atomic_store(&transfers_to_change, 1);
        assert_int_equal(rvli_disk_queue_submit(queue, &request), RVL_OK);
        assert_int_equal(rvli_disk_queue_wait(queue, &request), RVL_ERR_DISK_FULL);
        assert_int_equal(request.error, ENOSPC);
        rvli_disk_file_close(&file);
        rvli_disk_queue_close(queue);
    }
}
#else
static void no_ring_is_built_in(void **state)
{
    (void)state;
    rvli_disk_queue *queue = NULL;
    assert_int_equal(rvli_disk_queue_open(RVLI_DISK_URING, 1, &queue), RVL_ERR_NOT_SUPPORTED);
    assert_null(queue);
    assert_int_equal(rvli_disk_queue_open(RVLI_DISK_AUTO, 1, &queue), RVL_OK);
    assert_string_equal(rvli_disk_queue_name(queue), "threads");
    rvli_disk_queue_close(queue);
}
#endif

static rvli_disk_engine uring = RVLI_DISK_URING;
static rvli_disk_engine threads = RVLI_DISK_THREADS;

#define FILE_TEST(test) cmocka_unit_test_setup(test, set_up)
#define ENGINE_TEST(test, engine)                                                                  \
    {                                                                                              \
#test "(" #engine ")", test, set_up, NULL, &(engine)                                       \
    }
#define BOTH_ENGINES(test) ENGINE_TEST(test, uring), ENGINE_TEST(test, threads)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(directories_are_checked),
        FILE_TEST(directories_of_others_are_refused),
        FILE_TEST(memory_is_refused_unless_allowed),
        FILE_TEST(space_is_reserved_and_given_back),
        FILE_TEST(without_nameless_files),
        FILE_TEST(a_name_that_stays),
        FILE_TEST(files_are_refused),
        FILE_TEST(without_reservation),
        FILE_TEST(the_limit_of_size_is_no_signal),
        FILE_TEST(a_killed_process_leaves_nothing),
        BOTH_ENGINES(round_trip),
        BOTH_ENGINES(round_trip_by_page_cache),
        BOTH_ENGINES(queues_come_and_go_in_threads),
        BOTH_ENGINES(closing_and_draining_wait),
        BOTH_ENGINES(what_is_not_aligned_is_refused),
        BOTH_ENGINES(end_of_file_and_bad_files),
        BOTH_ENGINES(faults_of_one_request),
        BOTH_ENGINES(a_shorter_answer_than_aligned),
        BOTH_ENGINES(one_failure_among_many),
        BOTH_ENGINES(queues_are_refused),
#ifdef RVL_HAVE_URING
        FILE_TEST(without_a_ring_threads_work),
        ENGINE_TEST(a_ring_refused_later, uring),
        ENGINE_TEST(answers_in_a_refused_ring, uring),
        ENGINE_TEST(what_the_kernel_hands_back_is_done_here, uring),
#else
        FILE_TEST(no_ring_is_built_in),
#endif
    };
    return cmocka_run_group_tests_name("disk", tests, make_directory, remove_directory);
}
