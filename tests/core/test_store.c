/* SPDX-License-Identifier: MIT */
/*
 * One backup for all processes of a node, with real ones: an owner and users, which are children
 * that do what they are told over a socket. Host bytes are counted by the kernel's numbers of the
 * files that the users have mapped.
 *
 * Linked with --wrap for the calls that the store makes, so that each of them can fail, or be the
 * last that a user or the owner lives to see.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/secret_digest.h"
#include "base/packet.h"
#include "core/backup/store/client.h"
#include "core/backup/store/message.h"
#include "core/tables.h"
#include "tests/support/folder.h"
#include "tests/support/short_memory.h"
#include "tests/support/support.h"

#define SEGMENT (16 * MIB)
#define LARGE (20 * MIB) /* a whole segment and a part */
#define SMALL GRANULE
#define CONTENT (LARGE + SMALL)
#define USERS_MAX 8

static char path[160]; /* of the store */

/* ---- Calls that fail, or kill ---- */

typedef enum action { PASS = 0, FAIL, KILL_SELF, STOP_SELF, KILL_OWNER } action;

static struct {
    action what;
    _Atomic uint64_t nth; /* counts down; what happens when it is 0 */
    pid_t owner;
    _Atomic bool happened;
} turn;

/* Whether this call is to fail. Threads make calls of the store side by side. */
static bool its_turn(void)
{
    if (turn.what == PASS || atomic_fetch_sub(&turn.nth, 1) != 1)
        return false;
    turn.happened = true;
    if (turn.what == KILL_SELF)
        raise(SIGKILL);
    if (turn.what == STOP_SELF)
        raise(SIGSTOP);
    if (turn.what == KILL_OWNER)
        kill(turn.owner, SIGKILL);
    return turn.what == FAIL;
}

SHORT_CALLOC

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

static _Atomic uint64_t read_bytes; /* of segments, to check them */

ssize_t __real_pread(int fd, void *into, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *into, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *into, size_t size, off_t offset)
{
    if (offset % (off_t)(8 * MIB) == 0 && its_turn()) { /* one call of many */
        errno = EIO;
        return -1;
    }
    ssize_t came = __real_pread(fd, into, size > MIB / 32 ? size / 2 : size, offset);
    read_bytes += came > 0 ? (uint64_t)came : 0;
    return came;
}

static bool no_random_bytes;

ssize_t __real_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
    if (!no_random_bytes)
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

/* A stopped owner is waited for: not for so long, here. */
static uint64_t patience_ms;

int __real_setsockopt(int to, int level, int option, const void *value, socklen_t size);
int __wrap_setsockopt(int to, int level, int option, const void *value, socklen_t size);
int __wrap_setsockopt(int to, int level, int option, const void *value, socklen_t size)
{
    const struct timeval short_time = {.tv_usec = (suseconds_t)(patience_ms * 1000)};
    if (patience_ms == 0 || (option != SO_RCVTIMEO && option != SO_SNDTIMEO))
        return __real_setsockopt(to, level, option, value, size);
    assert_int_equal(size, sizeof short_time);
    assert_int_equal(((const struct timeval *)value)->tv_sec, RVLI_STORE_PATIENCE_S);
    return __real_setsockopt(to, level, option, &short_time, sizeof short_time);
}

/* ---- Time ---- */

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- The owner ---- */

typedef struct owner {
    pid_t process;
    int stop;
} owner;

static void await_byte(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

static uint64_t owner_descriptors; /* how many it may have; 0: as many as the test */

/* The lowest number that is free. */
static int lowest_descriptor(void)
{
    int lowest = dup(STDERR_FILENO);
    assert_true(lowest >= 0);
    close(lowest);
    return lowest;
}

static void limit_descriptors(uint64_t count)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void run_owner(uint64_t budget_bytes, int ready, int stop)
{
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = path, .budget_bytes = budget_bytes};
    rvl_store *store = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (owner_descriptors > 0)
        limit_descriptors(owner_descriptors);
    if (rvl_store_open(&options, &store) != RVL_OK || write(ready, "r", 1) != 1)
        _exit(1);
    rvl_status status = rvl_store_serve(store, stop);
    rvl_store_close(store);
    _exit(status == RVL_OK ? 0 : 1);
}

static owner owner_start(uint64_t budget_bytes)
{
    int ready[2], stop[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
    pid_t process = fork();
    if (process == 0) {
        close(stop[1]);
        run_owner(budget_bytes, ready[1], stop[0]);
    }
    assert_true(process > 0);
    close(ready[1]);
    close(stop[0]);
    await_byte(ready[0]);
    close(ready[0]);
    return (owner){process, stop[1]};
}

static int end_of(pid_t process)
{
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    return status;
}

/* In order: nothing is left at the path. */
static void owner_stop(owner of)
{
    assert_int_equal(write(of.stop, "s", 1), 1);
    close(of.stop);
    assert_int_equal(end_of(of.process), 0);
    assert_int_equal(access(path, F_OK), -1);
}

static void owner_kill(owner of)
{
    kill(of.process, SIGKILL);
    close(of.stop);
    assert_int_equal(end_of(of.process), SIGKILL);
}

static rvl_store_stats stats_now(void)
{
    rvl_store_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_store_get_stats(path, &stats), RVL_OK);
    return stats;
}

/* A dead user's end comes to the owner as an event: soon, and not at once. */
#define ANY_USERS UINT64_MAX

static void await_stats(uint64_t users, uint64_t kept, uint64_t referenced)
{
    rvl_store_stats stats = stats_now();
    for (int i = 0; i < 1000 && ((users != ANY_USERS && stats.user_count != users) ||
                                 stats.kept_bytes != kept || stats.referenced_bytes != referenced ||
                                 stats.promised_bytes != 0);
         i++) {
        usleep(10000);
        stats = stats_now();
    }
    if (users != ANY_USERS)
        assert_int_equal(stats.user_count, users);
    assert_int_equal(stats.kept_bytes, kept);
    assert_int_equal(stats.referenced_bytes, referenced);
    assert_int_equal(stats.promised_bytes, 0);
}

/* ---- Users ---- */

typedef enum order { FILL, CHANGE, PAUSE, RESUME, ABORT, FORESEE, CHECK, FORK, FREE, END } order;

typedef struct request {
    order what;
    uint64_t seed;
    action act;
    uint64_t nth;
    pid_t owner;
    bool no_memory;       /* the nth calloc fails instead */
    uint64_t op_mask;     /* the nth call of these ops fails instead */
    rvli_secret secret;   /* CHECK: for `name` */
    uint64_t descriptors; /* PAUSE: all but so many, less 1, are in use; 0: there are plenty */
} request;

typedef struct answer {
    rvl_status status;
    bool holds;       /* CHECK, and the two below */
    uint64_t word;    /* the one that CHANGE writes */
    rvli_digest name; /* of the small one, by the secret */
    bool happened;    /* what was to, in the course of a PAUSE or RESUME */
    uint64_t copied;  /* bytes from the device by this PAUSE */
    uint64_t read;    /* and of segments that it has found */
    rvl_state states[2];
    rvl_host_memory memory;
    rvl_forecast forecast;
    uint64_t disk_bytes;
    pid_t child;
    rvl_error error;
} answer;

typedef struct user {
    pid_t process;
    int line;
} user;

typedef struct user_options {
    bool retain;
    bool overflow;
    bool no_verify;
    bool no_digests; /* the device computes none */
} user_options;

typedef struct content {
    rvl_context *context;
    fault_injector *fault;
    rvl_addr large, small;
} content;

static void answer_pause(const content *of, const request *asked, answer *said)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (asked->descriptors > 0)
        limit_descriptors((uint64_t)lowest_descriptor() + asked->descriptors - 1);
    turn.what = asked->act;
    turn.nth = asked->no_memory || asked->op_mask != 0 ? 0 : asked->nth;
    turn.owner = asked->owner;
    turn.happened = false;
    short_memory_refuse_nth(asked->no_memory ? asked->nth : 0);
    const fault_plan plan = {.op_mask = asked->op_mask, .countdown = asked->nth};
    fault_set(of->fault, asked->op_mask != 0 ? &plan : &(fault_plan){0});
    uint64_t copied = support_stats(of->context, 0).backup_out_bytes;
    read_bytes = 0;
    said->status = asked->what == PAUSE ? rvl_pause(of->context, NULL, 0, NULL)
                                        : rvl_resume(of->context, NULL, 0, NULL);
    said->happened = asked->no_memory      ? short_memory_has_refused()
                     : asked->op_mask != 0 ? fault_failures(of->fault) > 0
                                           : turn.happened;
    said->copied = support_stats(of->context, 0).backup_out_bytes - copied;
    said->read = read_bytes;
    fault_set(of->fault, &(fault_plan){0});
    limit_descriptors(limit.rlim_cur);
    turn.what = PASS;
    short_memory_refuse_nth(0);
    said->error.struct_size = sizeof said->error;
    rvl_last_error(&said->error);
}

static pid_t linger(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    return child;
}

/* A pause that is prepared and taken back. */
static rvl_status prepare_and_abort(const content *of)
{
    rvl_transition *prepared = NULL;
    rvl_status status = rvl_pause_prepare(of->context, NULL, 0, NULL, &prepared);
    return status == RVL_OK ? rvl_transition_abort(prepared) : status;
}

/* The forecast of what comes next, a resume or a pause. */
static rvl_status foresee(const content *of, answer *said)
{
    said->forecast.struct_size = sizeof said->forecast;
    return support_state(of->context, of->large) == RVL_STATE_PAUSED
               ? rvl_resume_forecast(of->context, NULL, 0, NULL, &said->forecast)
               : rvl_pause_forecast(of->context, NULL, 0, NULL, &said->forecast);
}

static void answer_request(const content *of, const request *asked, answer *said)
{
    switch (asked->what) {
    case FILL:
        support_fill(of->large, LARGE, asked->seed);
        support_fill(of->small, SMALL, asked->seed + 100);
        break;
    case CHANGE: /* one word of the second segment */
        *(volatile uint64_t *)(uintptr_t)(of->large + SEGMENT) = asked->seed;
        break;
    case PAUSE:
    case RESUME:
        answer_pause(of, asked, said);
        break;
    case CHECK:
        said->holds = support_holds(of->large, SEGMENT, asked->seed) &&
                      support_holds(of->small, SMALL, asked->seed + 100);
        said->word = *(volatile uint64_t *)(uintptr_t)(of->large + SEGMENT);
        said->name =
            rvli_secret_digest_of(&asked->secret, (const void *)(uintptr_t)of->small, SMALL);
        break;
    case ABORT:
        said->status = prepare_and_abort(of);
        break;
    case FORESEE:
        said->status = foresee(of, said);
        break;
    case FORK:
        said->child = linger();
        break;
    case FREE:
        said->status = rvl_free(of->context, of->small);
        break;
    default:
        break;
    }
    if (asked->what == CHECK || asked->what == FREE)
        return;
    said->states[0] = support_state(of->context, of->large);
    said->states[1] = support_state(of->context, of->small);
    said->memory.struct_size = sizeof said->memory;
    said->status =
        said->status != RVL_OK ? said->status : rvl_host_get_memory(of->context, &said->memory);
    said->disk_bytes = support_stats(of->context, 0).disk_backup_bytes;
}

static void run_user(int line, user_options options)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    content of = {0};
    of.context = support_open((support_options){.memory = RVL_SIM_BACKED,
                                                .store_path = path,
                                                .no_verify = options.no_verify,
                                                .store_overflow = options.overflow,
                                                .disk_directory = options.overflow ? folder : NULL},
                              &of.fault);
    if (options.no_digests)
        of.context->devices[0].facts.digests = false;
    rvl_tag tag = 0;
    const rvl_tag_options retained = {.struct_size = sizeof retained,
                                      .flags = options.retain ? RVL_TAG_RETAIN_BACKUPS : 0};
    assert_int_equal(rvl_tag_define(of.context, "weights", &retained, &tag), RVL_OK);
    of.large = support_alloc(of.context, "weights", 0, LARGE, RVL_BACKUP_HOST);
    of.small = support_alloc(of.context, "weights", 0, SMALL, RVL_BACKUP_HOST);
    request asked;
    while (read(line, &asked, sizeof asked) == sizeof asked && asked.what != END) {
        answer said = {.status = RVL_OK};
        answer_request(&of, &asked, &said);
        if (write(line, &said, sizeof said) != sizeof said)
            _exit(1);
    }
    _exit(rvl_context_close(of.context, NULL) == RVL_OK ? 0 : 1);
}

static user user_start(user_options options)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t process = fork();
    if (process == 0) {
        close(ends[0]);
        run_user(ends[1], options);
    }
    assert_true(process > 0);
    close(ends[1]);
    return (user){process, ends[0]};
}

static answer tell(user of, request what)
{
    answer said = {.status = RVL_ERR_IO};
    assert_int_equal(write(of.line, &what, sizeof what), sizeof what);
    assert_int_equal(read(of.line, &said, sizeof said), sizeof said);
    return said;
}

static void expect(user of, request what, rvl_status status, rvl_state state)
{
    answer said = tell(of, what);
    assert_int_equal(said.status, status);
    assert_int_equal(said.states[0], state);
    assert_int_equal(said.states[1], state);
}

static void fill(user of, uint64_t seed)
{
    expect(of, (request){.what = FILL, .seed = seed}, RVL_OK, RVL_STATE_ACTIVE);
}

static void pause_user(user of)
{
    expect(of, (request){.what = PAUSE}, RVL_OK, RVL_STATE_PAUSED);
}

static void resume_user(user of)
{
    expect(of, (request){.what = RESUME}, RVL_OK, RVL_STATE_ACTIVE);
}

static void check(user of, uint64_t seed)
{
    assert_true(tell(of, (request){.what = CHECK, .seed = seed}).holds);
}

static void user_end(user of)
{
    const request end = {.what = END};
    assert_int_equal(write(of.line, &end, sizeof end), sizeof end);
    close(of.line);
    assert_int_equal(end_of(of.process), 0);
}

static void user_kill(user of)
{
    kill(of.process, SIGKILL);
    close(of.line);
    assert_int_equal(end_of(of.process), SIGKILL);
}

/* ---- Host bytes as the kernel has them ---- */

#define FILES_MAX 256

typedef struct files {
    uint64_t inodes[FILES_MAX];
    size_t count;
    uint64_t bytes; /* of all, each counted once */
} files;

static void note_file(files *all, uint64_t inode, uint64_t bytes)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->inodes[i] == inode)
            return;
    assert_true(all->count < FILES_MAX);
    all->inodes[all->count++] = inode;
    all->bytes += bytes;
}

/* The files of the store that a process has mapped, also those that no store knows any more. */
static void note_mapped(files *all, pid_t process)
{
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/%d/maps", (int)process);
    FILE *maps = fopen(name, "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        uint64_t begin, end, inode;
        if (strstr(line, "memfd:reveille-store") == NULL)
            continue;
        assert_int_equal(
            sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &begin, &end, &inode), 3);
        note_file(all, inode, end - begin);
    }
    fclose(maps);
}

static uint64_t host_bytes(const user *users, size_t count)
{
    files all = {0};
    for (size_t i = 0; i < count; i++)
        note_mapped(&all, users[i].process);
    return all.bytes;
}

/* ---- Sharing ---- */

static void share(size_t count)
{
    user users[USERS_MAX];
    owner of = owner_start(CONTENT);
    for (size_t i = 0; i < count; i++) {
        users[i] = user_start((user_options){.no_verify = i % 2 == 1});
        fill(users[i], 7);
    }
    for (size_t i = 0; i < count; i++) {
        answer said = tell(users[i], (request){.what = PAUSE});
        assert_int_equal(said.status, RVL_OK);
        assert_int_equal(said.memory.store_bytes, CONTENT);
        assert_int_equal(said.memory.store_found_bytes, i == 0 ? 0 : CONTENT);
        assert_int_equal(said.memory.used_bytes, 0);
        assert_int_equal(said.copied, i == 0 ? CONTENT : 0);
        assert_int_equal(said.read, i == 1 ? CONTENT : 0); /* the first to find it checks it */
    }
    assert_int_equal(host_bytes(users, count), CONTENT);
    await_stats(count, CONTENT, count * CONTENT);
    assert_int_equal(stats_now().segment_count, 3);
    assert_int_equal(stats_now().budget_bytes, CONTENT);
    for (size_t i = 0; i < count; i++) {
        resume_user(users[i]);
        check(users[i], 7);
    }
    await_stats(count, 0, 0);
    assert_int_equal(host_bytes(users, count), 0);
    for (size_t i = 0; i < count; i++)
        user_end(users[i]);
    await_stats(0, 0, 0);
    owner_stop(of);
}

static void two_processes_share(void **state)
{
    (void)state;
    share(2);
}

static void eight_processes_share(void **state)
{
    (void)state;
    share(USERS_MAX);
}

static void different_content_is_kept_apart(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){0}), user_start((user_options){0})};
    fill(users[0], 1);
    fill(users[1], 2);
    pause_user(users[0]);
    pause_user(users[1]);
    assert_int_equal(host_bytes(users, 2), 2 * CONTENT);
    await_stats(2, 2 * CONTENT, 2 * CONTENT);
    for (size_t i = 0; i < 2; i++) {
        resume_user(users[i]);
        check(users[i], i + 1);
        user_end(users[i]);
    }
    owner_stop(of);
}

static void a_change_copies_its_segment(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){.retain = true}),
                     user_start((user_options){.retain = true})};
    for (size_t i = 0; i < 2; i++) {
        fill(users[i], 3);
        pause_user(users[i]);
    }
    resume_user(users[1]); /* its backup stays, and so does the reference */
    await_stats(2, CONTENT, 2 * CONTENT);
    expect(users[1], (request){.what = CHANGE, .seed = 99}, RVL_OK, RVL_STATE_ACTIVE);
    answer said = tell(users[1], (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.memory.store_bytes, CONTENT);
    assert_int_equal(said.memory.store_found_bytes, SEGMENT + SMALL);
    assert_int_equal(said.copied, LARGE - SEGMENT);
    assert_int_equal(said.read, 0);
    await_stats(2, CONTENT + LARGE - SEGMENT, 2 * CONTENT);
    assert_int_equal(host_bytes(users, 2), CONTENT + LARGE - SEGMENT);
    resume_user(users[0]);
    resume_user(users[1]);
    check(users[0], 3);
    check(users[1], 3);
    uint64_t words[2];
    for (size_t i = 0; i < 2; i++)
        words[i] = tell(users[i], (request){.what = CHECK, .seed = 3}).word;
    assert_int_equal(words[1], 99);
    assert_int_not_equal(words[0], 99);
    user_end(users[0]);
    user_end(users[1]);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/*
 * Both ask before either has added, or not: the store keeps one all the same, and has room for no
 * more. Each segment is copied by the one that has claimed it. One that is waited for in vain for a
 * second, on a machine that has no time, may be copied by others too.
 */
static void pauses_at_the_same_time_share(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user users[4];
    for (size_t i = 0; i < 4; i++) {
        users[i] = user_start((user_options){0});
        fill(users[i], 4);
    }
    for (int round = 0; round < 4; round++) {
        const request pausing = {.what = PAUSE};
        uint64_t copied = 0;
        answer said;
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(write(users[i].line, &pausing, sizeof pausing), sizeof pausing);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(read(users[i].line, &said, sizeof said), sizeof said);
            assert_int_equal(said.status, RVL_OK);
            copied += said.copied;
        }
        assert_in_range(copied, CONTENT, 2 * CONTENT);
        await_stats(4, CONTENT, 4 * CONTENT);
        assert_int_equal(host_bytes(users, 4), CONTENT);
        for (size_t i = 0; i < 4; i++) {
            resume_user(users[i]);
            check(users[i], 4);
        }
    }
    for (size_t i = 0; i < 4; i++)
        user_end(users[i]);
    owner_stop(of);
}

typedef struct mover {
    rvl_context *context;
    rvl_tag tag;
    rvl_addr addr;
    bool good;
} mover;

static void *move_often(void *argument)
{
    mover *m = argument;
    m->good = true;
    for (int i = 0; i < 10; i++)
        m->good = m->good && rvl_pause(m->context, &m->tag, 1, NULL) == RVL_OK &&
                  rvl_resume(m->context, &m->tag, 1, NULL) == RVL_OK &&
                  support_holds(m->addr, SMALL, 21);
    m->good = m->good && rvl_pause(m->context, &m->tag, 1, NULL) == RVL_OK;
    return NULL;
}

/* Of one context, over one connection. */
static void threads_share_a_connection(void **state)
{
    (void)state;
    owner of = owner_start(0);
    mover movers[3];
    pthread_t threads[3];
    rvl_context *context =
        support_open((support_options){.memory = RVL_SIM_BACKED, .store_path = path}, NULL);
    for (size_t i = 0; i < 3; i++) {
        const char *const names[] = {"a", "b", "c"};
        movers[i].context = context;
        movers[i].addr = support_alloc(context, names[i], 0, SMALL, RVL_BACKUP_HOST);
        movers[i].tag = support_tag(context, names[i]);
        support_fill(movers[i].addr, SMALL, 21);
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, move_often, &movers[i]), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(movers[i].good);
    }
    await_stats(1, SMALL, 3 * SMALL);
    assert_int_equal(stats_now().shared_bytes, 0); /* by one user */
    rvl_host_memory memory = {.struct_size = sizeof memory};
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_int_equal(memory.store_bytes, 3 * SMALL);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    owner_stop(of);
}

static void an_aborted_pause_leaves_nothing(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user only = user_start((user_options){0});
    fill(only, 19);
    expect(only, (request){.what = ABORT}, RVL_OK, RVL_STATE_ACTIVE);
    check(only, 19);
    await_stats(1, 0, 0);
    pause_user(only);
    await_stats(1, CONTENT, CONTENT);
    resume_user(only);
    check(only, 19);
    user_end(only);
    owner_stop(of);
}

/* Forecasts know host bytes of a backup in a store, retained ones too, and ask no store. */
static void forecasts_ask_no_store(void **state)
{
    (void)state;
    for (int retain = 0; retain < 2; retain++) {
        owner of = owner_start(0);
        user only = user_start((user_options){.retain = retain});
        fill(only, 20);
        uint64_t wanted[] = {CONTENT, retain ? 0 : CONTENT, retain ? 0 : CONTENT};
        for (int i = 0; i < 3; i++) {
            answer said = tell(only, (request){.what = FORESEE});
            assert_int_equal(said.status, RVL_OK);
            assert_true(said.forecast.fits);
            assert_int_equal(said.forecast.host_bytes, wanted[i]);
            assert_true(said.forecast.time_ns > 0 && said.forecast.time_ns < 1000000000);
            if (i % 2 == 0)
                pause_user(only);
            else
                resume_user(only);
        }
        user_end(only);
        owner_stop(of);
    }
}

static void freeing_drops_the_reference(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    fill(only, 5);
    pause_user(only);
    assert_int_equal(tell(only, (request){.what = FREE}).status, RVL_OK);
    await_stats(1, LARGE, LARGE);
    user_end(only);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* ---- The budget ---- */

static void a_budget_too_small_refuses_the_whole(void **state)
{
    (void)state;
    const uint64_t budgets[] = {SMALL - 1, SEGMENT, LARGE, CONTENT - 1};
    const uint64_t refused[] = {SEGMENT, LARGE - SEGMENT, SMALL, SMALL};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        owner of = owner_start(budgets[i]);
        user only = user_start((user_options){0});
        fill(only, 6);
        answer said = tell(only, (request){.what = PAUSE});
        assert_int_equal(said.status, RVL_ERR_HOST_OOM);
        assert_int_equal(said.error.status, RVL_ERR_HOST_OOM);
        assert_string_equal(said.error.tag, "weights");
        assert_string_equal(said.error.file, path);
        assert_non_null(strstr(said.error.message, "the store has no room"));
        assert_int_equal(said.states[0], RVL_STATE_ACTIVE);
        assert_int_equal(said.states[1], RVL_STATE_ACTIVE);
        assert_int_equal(said.memory.store_bytes, 0);
        check(only, 6);
        await_stats(1, 0, 0);
        assert_int_equal(stats_now().refused_count, 1);
        assert_int_equal(stats_now().refused_bytes, refused[i]);
        assert_int_equal(host_bytes(&only, 1), 0);
        user_end(only);
        owner_stop(of);
    }
    owner of = owner_start(CONTENT); /* what is enough is taken */
    user only = user_start((user_options){0});
    pause_user(only);
    await_stats(1, CONTENT, CONTENT);
    assert_int_equal(stats_now().refused_count, 0);
    user_end(only);
    owner_stop(of);
}

static void what_has_no_room_goes_to_disk(void **state)
{
    (void)state;
    owner of = owner_start(SEGMENT + SMALL);
    user only = user_start((user_options){.overflow = true});
    fill(only, 8);
    answer said = tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.states[0], RVL_STATE_PAUSED);
    assert_int_equal(said.disk_bytes, LARGE);
    assert_int_equal(said.memory.store_bytes, SMALL);
    await_stats(1, SMALL, SMALL);
    resume_user(only);
    check(only, 8);
    user_end(only);
    owner_stop(of);
}

/* One that was retained in the store and has changed: the old one is dropped with the pause. */
static void a_retained_backup_may_go_to_disk(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user only = user_start((user_options){.overflow = true, .retain = true});
    fill(only, 9);
    pause_user(only);
    resume_user(only);
    fill(only, 10); /* all of it has changed, and there is no room beside what is kept */
    answer said = tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.disk_bytes + said.memory.store_bytes, CONTENT);
    assert_true(said.disk_bytes >= LARGE);
    resume_user(only);
    check(only, 10);
    pause_user(only);
    resume_user(only);
    check(only, 10);
    user_end(only);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* ---- Ends ---- */

static void a_user_may_die_at_every_step(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user other = user_start((user_options){0});
    fill(other, 11);
    pause_user(other);
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) { /* odd: content that is there; even: not */
        user dies = user_start((user_options){0});
        fill(dies, 11 + nth % 2);
        const request pausing = {.what = PAUSE, .act = KILL_SELF, .nth = nth / 2 + 1};
        answer said;
        assert_int_equal(write(dies.line, &pausing, sizeof pausing), sizeof pausing);
        whole = read(dies.line, &said, sizeof said) == sizeof said;
        user_kill(dies);
        await_stats(1, CONTENT, CONTENT);
        assert_true(whole ? nth > 10 : nth < 100);
    }
    resume_user(other);
    check(other, 11);
    user_end(other);
    await_stats(0, 0, 0);
    owner_stop(of);
}

static void the_one_that_put_content_there_may_die(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){0}), user_start((user_options){0})};
    for (size_t i = 0; i < 2; i++) {
        fill(users[i], 12);
        pause_user(users[i]);
    }
    user_kill(users[0]);
    await_stats(1, CONTENT, CONTENT);
    resume_user(users[1]);
    check(users[1], 12);
    user_end(users[1]);
    owner_stop(of);
}

static void a_child_does_not_hold_what_its_parent_had(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    fill(only, 13);
    pause_user(only);
    pid_t child = tell(only, (request){.what = FORK}).child;
    assert_true(child > 0);
    files mapped = {0};
    note_mapped(&mapped, child);
    assert_int_equal(mapped.bytes, 0);
    user_kill(only);
    await_stats(0, 0, 0);
    kill(child, SIGKILL);
    owner_stop(of);
}

/* What the dead owner kept is mapped still; a new one serves the next pause. */
static void users_survive_the_owner(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){.retain = true}), user_start((user_options){0})};
    for (size_t i = 0; i < 2; i++) {
        fill(users[i], 14);
        pause_user(users[i]);
    }
    owner_kill(of);
    assert_int_equal(host_bytes(users, 2), CONTENT);
    for (size_t i = 0; i < 2; i++) {
        resume_user(users[i]);
        check(users[i], 14);
    }
    answer said = tell(users[1], (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_ERR_IO);
    assert_string_equal(said.error.file, path);
    assert_non_null(strstr(said.error.message, "reveille store"));
    assert_int_equal(said.states[0], RVL_STATE_ACTIVE);
    check(users[1], 14);
    of = owner_start(0);
    pause_user(users[1]);
    pause_user(users[0]); /* unchanged: with the segments of the dead owner */
    await_stats(1, CONTENT, CONTENT);
    for (size_t i = 0; i < 2; i++) {
        resume_user(users[i]);
        check(users[i], 14);
        user_end(users[i]);
    }
    owner_stop(of);
}

static void the_owner_may_die_at_every_step(void **state)
{
    (void)state;
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) {
        owner of = owner_start(0);
        user only = user_start((user_options){0});
        fill(only, 16);
        answer said = tell(
            only, (request){.what = PAUSE, .act = KILL_OWNER, .nth = nth, .owner = of.process});
        whole = !said.happened;
        bool paused = said.status == RVL_OK;
        assert_true(paused || said.status == RVL_ERR_IO);
        assert_int_equal(said.states[0], paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE);
        if (!paused)
            check(only, 16);
        owner_kill(of);
        of = owner_start(0); /* replaces the socket that is left */
        if (paused)
            resume_user(only);
        check(only, 16);
        pause_user(only);
        resume_user(only);
        check(only, 16);
        user_end(only);
        owner_stop(of);
        assert_true(nth < 100 && (!whole || nth > 5));
    }
}

/* What fails in a pause. */
typedef enum failing { CALLS, MEMORY, DEVICE, FAILINGS } failing;

#define DEVICE_OPS                                                                                 \
    (UINT64_C(1) << RVLI_OP_digest | UINT64_C(1) << RVLI_OP_copy_to_host |                         \
     UINT64_C(1) << RVLI_OP_record_event | UINT64_C(1) << RVLI_OP_wait_event)

static request pause_that_fails(failing what, uint64_t nth)
{
    return (request){.what = PAUSE,
                     .act = what == CALLS ? FAIL : PASS,
                     .nth = nth,
                     .no_memory = what == MEMORY,
                     .op_mask = what == DEVICE ? DEVICE_OPS : 0};
}

/* Whether the content is `kept` in the store, by other users, or is to be copied. */
static void fail_at_every_step(failing what, bool kept)
{
    owner of = owner_start(CONTENT);
    user other = user_start((user_options){0});
    user only = user_start((user_options){.no_verify = true});
    fill(only, 17);
    fill(other, 17);
    bool whole = false;
    int without_threads = 0;
    uint64_t steps = 0;
    for (uint64_t nth = 1; !whole; nth++, steps++) {
        if (kept) /* again each time: nobody has checked its segments */
            pause_user(other);
        answer said = tell(only, pause_that_fails(what, nth));
        whole = !said.happened;
        /* Without memory for threads it pauses all the same. */
        bool paused = said.status == RVL_OK;
        assert_true(what == MEMORY ? paused || !whole : paused == whole);
        assert_int_equal(said.states[0], paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE);
        assert_int_equal(said.states[1], said.states[0]);
        assert_int_equal(said.copied, !paused || kept ? 0 : CONTENT);
        without_threads += paused && !whole;
        if (paused)
            resume_user(only);
        check(only, 17);
        /* What came and was not sealed has ended its connection. */
        await_stats(ANY_USERS, kept ? CONTENT : 0, kept ? CONTENT : 0);
        assert_int_equal(host_bytes(&only, 1), 0);
        if (kept)
            resume_user(other);
        assert_true(nth < 2000);
    }
    assert_int_equal(without_threads, what == MEMORY);
    assert_true(steps > 3);
    pause_user(other); /* nobody has claimed any of it */
    user_end(other);
    user_end(only);
    owner_stop(of);
}

static void every_call_may_fail(void **state)
{
    (void)state;
    for (failing what = CALLS; what < FAILINGS; what++)
        fail_at_every_step(what, false);
}

static void every_call_may_fail_of_what_is_found(void **state)
{
    (void)state;
    for (failing what = CALLS; what < FAILINGS; what++)
        fail_at_every_step(what, true);
}

/* ---- Users that are not trusted ---- */

static int connect_raw(void)
{
    struct sockaddr_un address;
    assert_int_equal(rvli_store_address(path, &address), RVL_OK);
    int to = rvli_store_connect(&address);
    assert_true(to >= 0);
    return to;
}

/* A sealed file, or one without its seals, of one byte again and again. */
static int make_file(uint64_t bytes, unsigned seals, int byte)
{
    int fd = memfd_create("reveille-store-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    memset(mapped, byte, bytes);
    munmap(mapped, bytes);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

#define ALL_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static rvli_store_message ask_raw(int to, rvli_store_message message, int fd, int *fd_out)
{
    unsigned count = 0;
    int came = -1;
    message.magic = RVLI_STORE_MAGIC;
    assert_true(rvli_packet_send(to, &message, sizeof message, &fd, fd >= 0 ? 1 : 0, 0));
    assert_int_equal(rvli_packet_take(to, &message, sizeof message, &came, 1, &count, 0),
                     RVLI_PACKET_TAKEN);
    if (fd_out != NULL)
        *fd_out = came;
    return message;
}

static rvli_store_message add_raw(int to, uint64_t bytes, rvli_digest digest, int fd)
{
    const rvli_store_message message = {.kind = RVLI_STORE_ADD, .bytes = bytes, .digest = digest};
    return ask_raw(to, message, fd, NULL);
}

static void reserve_raw(int to, uint64_t bytes)
{
    const rvli_store_message message = {.kind = RVLI_STORE_RESERVE, .bytes = bytes};
    assert_int_equal(ask_raw(to, message, -1, NULL).kind, RVLI_STORE_DONE);
}

static void only_sealed_segments_are_kept(void **state)
{
    (void)state;
    static const unsigned lacking[] = {0, F_SEAL_WRITE, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW,
                                       F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL};
    const rvli_digest digest = {1, 2};
    owner of = owner_start(4 * SMALL);
    int to = connect_raw();
    reserve_raw(to, SMALL);
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
        int fd = make_file(SMALL, lacking[i], 1);
        assert_int_equal(add_raw(to, SMALL, digest, fd).kind, RVLI_STORE_REFUSED);
        close(fd);
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(add_raw(to, SMALL, digest, ends[0]).kind, RVLI_STORE_REFUSED);
    assert_int_equal(add_raw(to, SMALL, digest, -1).kind, RVLI_STORE_REFUSED);
    int fd = make_file(2 * SMALL, ALL_SEALS, 1);
    assert_int_equal(add_raw(to, SMALL, digest, fd).kind, RVLI_STORE_REFUSED); /* another size */
    assert_int_equal(add_raw(to, 2 * SMALL, digest, fd).kind,
                     RVLI_STORE_REFUSED); /* not reserved */
    assert_int_equal(add_raw(to, 0, digest, fd).kind, RVLI_STORE_REFUSED);
    close(fd);
    const rvli_store_message huge = {.kind = RVLI_STORE_RESERVE, .bytes = UINT64_MAX - SMALL};
    rvli_store_message full = ask_raw(to, huge, -1, NULL);
    assert_int_equal(full.kind, RVLI_STORE_FULL);
    assert_int_equal(full.promised_bytes, SMALL);
    fd = make_file(SMALL, ALL_SEALS, 1);
    assert_int_equal(add_raw(to, SMALL, digest, fd).kind, RVLI_STORE_DONE);
    assert_int_equal(stats_now().kept_bytes, SMALL);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    close(to);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* The second to add is answered with the first one's, and what comes cannot be changed. */
static void the_first_segment_is_everybodys(void **state)
{
    (void)state;
    const rvli_digest digest = {3, 4};
    owner of = owner_start(0);
    int first = connect_raw(), second = connect_raw(), came = -1;
    int files_made[2] = {make_file(SMALL, ALL_SEALS, 1), make_file(SMALL, ALL_SEALS, 1)};
    reserve_raw(first, SMALL);
    reserve_raw(second, SMALL);
    rvli_store_message added = add_raw(first, SMALL, digest, files_made[0]);
    assert_int_equal(added.kind, RVLI_STORE_DONE);
    const rvli_store_message again = {.kind = RVLI_STORE_ADD, .bytes = SMALL, .digest = digest};
    rvli_store_message found = ask_raw(second, again, files_made[1], &came);
    assert_int_equal(found.kind, RVLI_STORE_FOUND);
    assert_int_equal(found.id, added.id);
    assert_true(came >= 0);
    assert_int_equal(write(came, "x", 1), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(came, 0), -1);
    assert_int_equal(fcntl(came, F_ADD_SEALS, 0), -1);
    assert_ptr_equal(mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED, came, 0), MAP_FAILED);
    char *seen = mmap(NULL, SMALL, PROT_READ, MAP_SHARED, came, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_int_equal(seen[SMALL - 1], 1);
    assert_int_equal(mprotect(seen, SMALL, PROT_READ | PROT_WRITE), -1);
    munmap(seen, SMALL);
    rvl_store_stats stats = stats_now();
    assert_int_equal(stats.kept_bytes, SMALL);
    assert_int_equal(stats.referenced_bytes, 2 * SMALL);
    assert_int_equal(stats.promised_bytes, SMALL); /* the second one's is not used */
    assert_int_equal(stats.shared_bytes, SMALL);
    close(came);
    close(files_made[0]);
    close(files_made[1]);
    const rvli_store_message unused = {
        .magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_RETURN, .bytes = SMALL};
    assert_true(rvli_packet_send(second, &unused, sizeof unused, NULL, 0, 0));
    close(first); /* who has put it there is gone */
    await_stats(1, SMALL, SMALL);
    assert_int_equal(stats_now().shared_bytes, 0);
    close(second);
    await_stats(0, 0, 0);
    owner_stop(of);
}

static rvli_secret secret_raw(int to)
{
    rvli_store_message told =
        ask_raw(to, (rvli_store_message){.kind = RVLI_STORE_SECRET}, -1, NULL);
    assert_int_equal(told.kind, RVLI_STORE_DONE);
    return (rvli_secret){told.digest.low, told.digest.high};
}

/* The name of a user's small content. */
static rvli_digest name_of(user who, int to)
{
    return tell(who, (request){.what = CHECK, .secret = secret_raw(to)}).name;
}

/*
 * Other content under the digest of what a user is about to save: it looks, whether it has copied
 * its own or not, and keeps that.
 */
static void a_wrong_digest_harms_nobody(void **state)
{
    (void)state;
    for (int no_digests = 0; no_digests < 2; no_digests++) {
        owner of = owner_start(0);
        user only = user_start((user_options){.no_digests = no_digests});
        fill(only, 18);
        int to = connect_raw(), fd = make_file(SMALL, ALL_SEALS, 1);
        rvli_digest name = name_of(only, to);
        reserve_raw(to, SMALL);
        assert_int_equal(add_raw(to, SMALL, name, fd).kind, RVLI_STORE_DONE);
        answer said = tell(only, (request){.what = PAUSE});
        assert_int_equal(said.status, RVL_OK);
        assert_int_equal(said.memory.store_bytes, CONTENT);
        assert_int_equal(said.memory.store_found_bytes, 0);
        assert_int_equal(said.copied, CONTENT);
        assert_int_equal(said.read, no_digests ? 0 : SMALL);
        await_stats(2, CONTENT + SMALL, CONTENT + SMALL);
        resume_user(only);
        check(only, 18);
        close(fd);
        close(to);
        user_end(only);
        owner_stop(of);
    }
}

/* It finds what it has copied, and others find what it has added. */
static void a_device_without_digests_shares(void **state)
{
    (void)state;
    for (size_t first = 0; first < 2; first++) {
        owner of = owner_start(0);
        user users[2] = {user_start((user_options){.no_digests = first == 0}),
                         user_start((user_options){.no_digests = first == 1})};
        for (size_t i = 0; i < 2; i++) {
            fill(users[i], 24);
            answer said = tell(users[i], (request){.what = PAUSE});
            assert_int_equal(said.status, RVL_OK);
            assert_int_equal(said.memory.store_found_bytes, i == 0 ? 0 : CONTENT);
            assert_int_equal(said.copied, i == 1 && first == 0 ? 0 : CONTENT);
        }
        await_stats(2, CONTENT, 2 * CONTENT);
        for (size_t i = 0; i < 2; i++) {
            resume_user(users[i]);
            check(users[i], 24);
            user_end(users[i]);
        }
        owner_stop(of);
    }
}

/* ---- Claims ---- */

static uint32_t find_raw(int to, rvli_digest digest, bool claim)
{
    int fd = -1;
    const rvli_store_message message = {
        .kind = RVLI_STORE_FIND, .bytes = SMALL, .digest = digest, .claim = claim};
    rvli_store_message told = ask_raw(to, message, -1, &fd);
    if (fd >= 0)
        close(fd);
    return told.kind;
}

static void tell_raw(int to, rvli_store_message message)
{
    message.magic = RVLI_STORE_MAGIC;
    assert_true(rvli_packet_send(to, &message, sizeof message, NULL, 0, 0));
}

static void one_user_at_a_time_has_a_claim(void **state)
{
    (void)state;
    const rvli_digest digest = {5, 6}, other = {5, 7};
    const rvli_store_message give_up = {
        .kind = RVLI_STORE_UNCLAIM, .bytes = SMALL, .digest = digest};
    owner of = owner_start(0);
    int first = connect_raw(), second = connect_raw();
    assert_int_equal(find_raw(first, digest, false), RVLI_STORE_NONE);
    assert_int_equal(find_raw(first, digest, true), RVLI_STORE_NONE);
    assert_int_equal(find_raw(first, digest, true), RVLI_STORE_BUSY); /* its own, too */
    assert_int_equal(find_raw(second, digest, true), RVLI_STORE_BUSY);
    assert_int_equal(find_raw(second, digest, false), RVLI_STORE_NONE);
    assert_int_equal(find_raw(second, other, true), RVLI_STORE_NONE);
    tell_raw(second, give_up); /* it is not its own */
    assert_int_equal(find_raw(second, digest, true), RVLI_STORE_BUSY);
    tell_raw(first, give_up);
    assert_int_equal(find_raw(first, other, true), RVLI_STORE_BUSY); /* waits for the owner */
    assert_int_equal(find_raw(second, digest, true), RVLI_STORE_NONE);
    assert_int_equal(find_raw(first, digest, true), RVLI_STORE_BUSY);
    close(second); /* both of its claims end */
    await_stats(1, 0, 0);
    assert_int_equal(find_raw(first, other, true), RVLI_STORE_NONE);
    assert_int_equal(find_raw(first, digest, true), RVLI_STORE_NONE);
    second = connect_raw();
    int fd = make_file(SMALL, ALL_SEALS, 1);
    reserve_raw(first, SMALL);
    assert_int_equal(add_raw(first, SMALL, digest, fd).kind, RVLI_STORE_DONE);
    assert_int_equal(find_raw(second, digest, true), RVLI_STORE_FOUND);
    close(fd);
    close(first);
    close(second);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* Only a user that has a segment says that it is checked, and all are told. */
static void what_is_checked_once_is_not_checked_again(void **state)
{
    (void)state;
    const rvli_digest digest = {8, 9};
    owner of = owner_start(0);
    int first = connect_raw(), second = connect_raw(), fd = make_file(SMALL, ALL_SEALS, 1);
    reserve_raw(first, SMALL);
    rvli_store_message added = add_raw(first, SMALL, digest, fd);
    const rvli_store_message find = {.kind = RVLI_STORE_FIND, .bytes = SMALL, .digest = digest};
    int came = -1;
    tell_raw(second, (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = added.id});
    rvli_store_message found = ask_raw(second, find, -1, &came);
    close(came);
    assert_int_equal(found.checked, 0);
    tell_raw(second, (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = added.id + 1});
    tell_raw(second, (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = added.id});
    found = ask_raw(second, find, -1, &came);
    close(came);
    assert_int_equal(found.checked, 1);
    close(fd);
    close(first);
    close(second);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* Its digests mean nothing to other owners. */
static void every_owner_has_its_own_secret(void **state)
{
    (void)state;
    rvl_store *store = NULL;
    const rvl_store_options options = {.struct_size = sizeof options, .path = path};
    rvli_secret secrets[2];
    for (size_t i = 0; i < 2; i++) {
        owner of = owner_start(0);
        int first = connect_raw(), second = connect_raw();
        secrets[i] = secret_raw(first);
        rvli_secret same = secret_raw(second);
        assert_int_equal(secrets[i].low, same.low);
        assert_int_equal(secrets[i].high, same.high);
        assert_int_equal(secrets[i].low & 1, 1);
        assert_int_equal(secrets[i].high >> 63, 0);
        close(first);
        close(second);
        owner_stop(of);
    }
    assert_int_not_equal(secrets[0].low, secrets[1].low);
    assert_int_not_equal(secrets[0].high, secrets[1].high);
    no_random_bytes = true;
    assert_int_equal(rvl_store_open(&options, &store), RVL_ERR_IO);
    no_random_bytes = false;
    assert_int_equal(access(path, F_OK), -1);
}

static void begin_pause(user who, action act, uint64_t nth)
{
    const request pausing = {.what = PAUSE, .act = act, .nth = nth};
    assert_int_equal(write(who.line, &pausing, sizeof pausing), sizeof pausing);
}

static answer end_pause(user who)
{
    answer said = {.status = RVL_ERR_IO};
    assert_int_equal(read(who.line, &said, sizeof said), sizeof said);
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.states[0], RVL_STATE_PAUSED);
    return said;
}

/* Nobody waits for long for a user that has claimed a content and does nothing. */
static void a_claim_is_not_waited_for_forever(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user only = user_start((user_options){0});
    fill(only, 25);
    int to = connect_raw();
    rvli_digest name = name_of(only, to);
    assert_int_equal(find_raw(to, name, true), RVLI_STORE_NONE);
    uint64_t begin_ms = now_ms();
    answer said = tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.copied, CONTENT);
    assert_in_range(now_ms() - begin_ms, 1000, 9000);
    assert_int_equal(find_raw(to, name, true), RVLI_STORE_FOUND);
    resume_user(only);
    check(only, 25);
    close(to);
    user_end(only);
    owner_stop(of);
}

/* A claim that is given up while it is waited for goes to the one that waits. */
static void a_claim_may_change_hands(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        owner of = owner_start(CONTENT);
        user only = user_start((user_options){0});
        fill(only, 26);
        int to = connect_raw();
        rvli_digest name = name_of(only, to);
        assert_int_equal(find_raw(to, name, true), RVLI_STORE_NONE);
        begin_pause(only, PASS, 0);
        usleep(300000);
        if (!dies)
            tell_raw(to, (rvli_store_message){
                             .kind = RVLI_STORE_UNCLAIM, .bytes = SMALL, .digest = name});
        else
            close(to);
        assert_int_equal(end_pause(only).copied, CONTENT);
        resume_user(only);
        check(only, 26);
        if (!dies)
            close(to);
        user_end(only);
        owner_stop(of);
    }
}

static void await_stop(pid_t process)
{
    int status = 0;
    assert_int_equal(waitpid(process, &status, WUNTRACED), process);
    assert_true(WIFSTOPPED(status));
}

/*
 * One that copies is stopped or killed at each of its calls, while another wants the same content.
 * That one goes on by itself. One that goes on later finds what has been added meanwhile.
 */
static void the_one_that_copies_may_stop(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++)
        for (uint64_t nth = 1; nth < 14; nth += 3) {
            owner of = owner_start(0);
            user users[2] = {user_start((user_options){0}), user_start((user_options){0})};
            fill(users[0], 27);
            fill(users[1], 27);
            begin_pause(users[0], STOP_SELF, nth);
            await_stop(users[0].process);
            begin_pause(users[1], PASS, 0);
            if (dies) {
                usleep(100000);
                user_kill(users[0]);
            }
            answer said = end_pause(users[1]);
            assert_int_equal(said.memory.store_bytes, CONTENT);
            if (!dies) {
                assert_int_equal(kill(users[0].process, SIGCONT), 0);
                answer later = end_pause(users[0]);
                assert_int_equal(later.memory.store_bytes, CONTENT);
                assert_in_range(said.copied + later.copied, CONTENT, 2 * CONTENT);
                await_stats(2, CONTENT, 2 * CONTENT);
                resume_user(users[0]);
                check(users[0], 27);
                user_end(users[0]);
            }
            await_stats(1, CONTENT, CONTENT);
            resume_user(users[1]);
            check(users[1], 27);
            user_end(users[1]);
            owner_stop(of);
        }
}

/* Segments of one user that are equal are copied once. */
static void equal_segments_of_one_user_are_one(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    owner of = owner_start(SMALL);
    rvl_addr addrs[COUNT];
    rvl_context *context =
        support_open((support_options){.memory = RVL_SIM_BACKED, .store_path = path}, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        addrs[i] = support_alloc(context, "weights", 0, SMALL, RVL_BACKUP_HOST);
        support_fill(addrs[i], SMALL, 28);
    }
    assert_int_equal(rvl_pause(context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).backup_out_bytes, SMALL);
    await_stats(1, SMALL, COUNT * SMALL);
    assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(support_holds(addrs[i], SMALL, 28));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    owner_stop(of);
}

static void what_is_no_message_ends_the_connection(void **state)
{
    (void)state;
    owner of = owner_start(0);
    int to = connect_raw();
    char byte = 0;
    assert_int_equal(send(to, "nonsense", 8, 0), 8);
    assert_int_equal(recv(to, &byte, 1, 0), 0);
    close(to);
    to = connect_raw();
    rvli_store_message message = {.magic = RVLI_STORE_MAGIC + 1, .kind = RVLI_STORE_ASK};
    int fd = make_file(SMALL, ALL_SEALS, 1);
    assert_true(rvli_packet_send(to, &message, sizeof message, &fd, 1, 0));
    assert_int_equal(recv(to, &byte, 1, 0), 0);
    close(to);
    to = connect_raw();
    message = (rvli_store_message){.kind = 77};
    assert_int_equal(ask_raw(to, message, fd, NULL).kind, RVLI_STORE_REFUSED);
    message = (rvli_store_message){.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_DROP, .id = 5};
    assert_true(rvli_packet_send(to, &message, sizeof message, NULL, 0, 0));
    message = (rvli_store_message){
        .magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_RETURN, .bytes = UINT64_MAX};
    assert_true(rvli_packet_send(to, &message, sizeof message, NULL, 0, 0));
    await_stats(1, 0, 0);
    close(fd);
    close(to);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* What plays the owner answers with a file that can still be written to. */
static void an_owner_is_not_trusted_either(void **state)
{
    (void)state;
    struct sockaddr_un address;
    rvli_store_message message;
    rvli_store_client *client = NULL;
    rvli_store_found found = {.fd = -1};
    unsigned count = 0;
    assert_int_equal(rvli_store_address(path, &address), RVL_OK);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    pid_t plays = fork();
    if (plays == 0) {
        int fd = make_file(SMALL, F_SEAL_SHRINK, 1);
        int to = accept(listener, NULL, NULL);
        (void)rvli_packet_take(to, &message, sizeof message, NULL, 0, &count, 0);
        message.kind = RVLI_STORE_FOUND;
        message.id = 1;
        (void)rvli_packet_send(to, &message, sizeof message, &fd, 1, 0);
        (void)rvli_packet_take(to, &message, sizeof message, NULL, 0, &count, 0);
        _exit(0);
    }
    assert_int_equal(rvli_store_client_new(path, &client), RVL_OK);
    assert_int_equal(rvli_store_find(client, (rvli_digest){1, 1}, SMALL, false, &found),
                     RVL_ERR_IO);
    assert_int_equal(found.fd, -1);
    assert_int_equal(rvli_store_find(client, (rvli_digest){1, 1}, SMALL, false, &found),
                     RVL_ERR_IO); /* the connection is given up */
    rvli_store_client_delete(client);
    assert_int_equal(end_of(plays), 0);
    close(listener);
    assert_int_equal(unlink(path), 0);
}

static void another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    owner of = owner_start(0);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    pid_t other = fork();
    if (other == 0) {
        struct sockaddr_un address;
        char byte;
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        (void)rvli_store_address(path, &address);
        if (rvli_store_connect(&address) >= 0 || errno != EPERM) /* the owner is another user */
            _exit(2);
        int to = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        rvli_store_message message = {.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_ASK};
        if (connect(to, (struct sockaddr *)&address, sizeof address) != 0)
            _exit(3);
        (void)rvli_packet_send(to, &message, sizeof message, NULL, 0, 0);
        _exit(recv(to, &byte, 1, 0) > 0 ? 4 : 0);
    }
    assert_int_equal(end_of(other), 0);
    await_stats(0, 0, 0);
    owner_stop(of);
}

/* ---- Limits ---- */

static void expect_refusal(answer said, const char *why)
{
    assert_int_equal(said.status, RVL_ERR_IO);
    assert_non_null(strstr(said.error.message, why));
    assert_int_equal(said.states[0], RVL_STATE_ACTIVE);
    assert_int_equal(said.states[1], RVL_STATE_ACTIVE);
    assert_int_equal(said.memory.store_bytes, 0);
}

/* It does not hang its users, and serves them again when it goes on. */
static void a_stopped_owner_is_given_up(void **state)
{
    (void)state;
    rvl_store_stats stats = {.struct_size = sizeof stats};
    patience_ms = 300;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    fill(only, 21);
    pause_user(only);
    assert_int_equal(kill(of.process, SIGSTOP), 0);
    resume_user(only); /* it asks nothing of the owner */
    check(only, 21);
    uint64_t begin_ms = now_ms();
    answer said = tell(only, (request){.what = PAUSE});
    assert_in_range(now_ms() - begin_ms, 250, 5000);
    expect_refusal(said, "has not answered for 10 s");
    assert_string_equal(said.error.file, path);
    assert_int_equal(said.error.native_code, ETIMEDOUT);
    check(only, 21);
    assert_int_equal(rvl_store_get_stats(path, &stats), RVL_ERR_IO);
    assert_int_equal(kill(of.process, SIGCONT), 0);
    patience_ms = 0;
    pause_user(only);
    await_stats(1, CONTENT, CONTENT);
    resume_user(only);
    check(only, 21);
    user_end(only);
    owner_stop(of);
}

/* Each of the descriptors that a pause opens is the first that there is none for. */
static void a_user_without_descriptors_loses_nothing(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user first = user_start((user_options){0}), only = user_start((user_options){0});
    fill(first, 22);
    fill(only, 22);
    pause_user(first); /* so that the other one finds segments */
    uint64_t refused = 0;
    for (bool paused = false; !paused; refused += !paused) {
        answer said = tell(only, (request){.what = PAUSE, .descriptors = 1 + refused});
        paused = said.status == RVL_OK;
        if (paused)
            break;
        expect_refusal(said, "raise ulimit -n");
        assert_int_equal(said.error.native_code, EMFILE);
        check(only, 22);
        await_stats(2, CONTENT, CONTENT);
        assert_true(refused < 20);
    }
    assert_true(refused >= 2); /* one for what it fills, one for what it finds */
    await_stats(2, CONTENT, 2 * CONTENT);
    resume_user(only);
    resume_user(first);
    check(only, 22);
    check(first, 22);
    user_end(only);
    user_end(first);
    owner_stop(of);
}

/* Processor time of a process so far. */
static uint64_t ticks_of(pid_t process)
{
    char name[64], line[1024] = "";
    unsigned long user_ticks = 0, system_ticks = 0;
    snprintf(name, sizeof name, "/proc/%d/stat", (int)process);
    FILE *file = fopen(name, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_int_equal(sscanf(strrchr(line, ')') + 2,
                            "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user_ticks,
                            &system_ticks),
                     2);
    return user_ticks + system_ticks;
}

/* Connections that it cannot keep are refused, one by one, and it does not turn in circles. */
static void an_owner_without_descriptors_says_so(void **state)
{
    (void)state;
    enum { CONNECTIONS = 40 };
    int held[CONNECTIONS];
    owner_descriptors = 60;
    owner of = owner_start(0);
    owner_descriptors = 0;
    user only = user_start((user_options){0});
    fill(only, 23);
    pause_user(only);
    int to = connect_raw(), fd = make_file(SMALL, ALL_SEALS, 1);
    reserve_raw(to, SMALL);
    for (int i = 0; i < CONNECTIONS; i++)
        held[i] = connect_raw();
    usleep(300000);
    assert_int_equal(add_raw(to, SMALL, (rvli_digest){5, 5}, fd).kind, RVLI_STORE_REFUSED);
    uint64_t ticks = ticks_of(of.process);
    usleep(500000);
    assert_in_range(ticks_of(of.process) - ticks, 0, (uint64_t)sysconf(_SC_CLK_TCK) / 10);
    rvl_store_stats stats = {.struct_size = sizeof stats};
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_store_get_stats(path, &stats), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_non_null(strstr(error.message, "ulimit -n"));
    resume_user(only);
    check(only, 23);
    answer said = tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_ERR_HOST_OOM); /* it keeps some for its users */
    assert_non_null(strstr(said.error.message, "no file descriptor left: raise its ulimit -n"));
    check(only, 23);
    for (int i = 0; i < CONNECTIONS; i++)
        close(held[i]);
    for (int i = 0; i < 100 && rvl_store_get_stats(path, &stats) != RVL_OK; i++)
        usleep(10000);
    assert_int_equal(add_raw(to, SMALL, (rvli_digest){5, 5}, fd).kind, RVLI_STORE_DONE);
    close(to);
    close(fd);
    await_stats(1, 0, 0);
    pause_user(only);
    resume_user(only);
    check(only, 23);
    user_end(only);
    owner_stop(of);
}

/* ---- Opening ---- */

static rvl_status open_at(const char *at)
{
    rvl_context *context = NULL;
    const rvl_context_options options = {.struct_size = sizeof options, .store_path = at};
    rvl_status status = rvl_context_open("sim", &options, &context);
    rvl_context_close(context, NULL);
    return status;
}

static void what_cannot_be_opened(void **state)
{
    (void)state;
    char long_path[200];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(open_at(path), RVL_ERR_IO);
    assert_int_equal(open_at(""), RVL_ERR_INVALID);
    assert_int_equal(open_at(long_path), RVL_ERR_INVALID);
    rvl_store *store = NULL, *second = NULL;
    rvl_store_options options = {.struct_size = sizeof options, .path = path};
    assert_int_equal(rvl_store_open(NULL, &store), RVL_ERR_INVALID);
    assert_int_equal(rvl_store_open(&options, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_store_serve(NULL, -1), RVL_ERR_INVALID);
    rvl_store_close(NULL);
    assert_int_equal(rvl_store_open(&options, &store), RVL_OK);
    assert_int_equal(rvl_store_open(&options, &second), RVL_ERR_BUSY);
    rvl_store_close(store);
    folder_write("store", "a file");
    assert_int_equal(rvl_store_open(&options, &store), RVL_ERR_IO);
    assert_true(folder_has("store"));
    assert_int_equal(unlink(path), 0);
    options.path = "/nowhere/at/all/store";
    assert_int_equal(rvl_store_open(&options, &store), RVL_ERR_IO);
    rvl_context *context = NULL;
    const rvl_context_options lone = {.struct_size = sizeof lone,
                                      .flags = RVL_CONTEXT_STORE_OVERFLOW};
    assert_int_equal(rvl_context_open("sim", &lone, &context), RVL_ERR_INVALID);
    rvl_store_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_store_get_stats(path, &stats), RVL_ERR_IO);
    assert_int_equal(rvl_store_get_stats(NULL, &stats), RVL_ERR_INVALID);
}

static int make_folder(void **state)
{
    int result = folder_make(state);
    snprintf(path, sizeof path, "%s/store", folder);
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_share),
        cmocka_unit_test(eight_processes_share),
        cmocka_unit_test(different_content_is_kept_apart),
        cmocka_unit_test(a_change_copies_its_segment),
        cmocka_unit_test(pauses_at_the_same_time_share),
        cmocka_unit_test(threads_share_a_connection),
        cmocka_unit_test(an_aborted_pause_leaves_nothing),
        cmocka_unit_test(forecasts_ask_no_store),
        cmocka_unit_test(freeing_drops_the_reference),
        cmocka_unit_test(a_budget_too_small_refuses_the_whole),
        cmocka_unit_test(what_has_no_room_goes_to_disk),
        cmocka_unit_test(a_retained_backup_may_go_to_disk),
        cmocka_unit_test(a_user_may_die_at_every_step),
        cmocka_unit_test(the_one_that_put_content_there_may_die),
        cmocka_unit_test(a_child_does_not_hold_what_its_parent_had),
        cmocka_unit_test(users_survive_the_owner),
        cmocka_unit_test(the_owner_may_die_at_every_step),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(every_call_may_fail_of_what_is_found),
        cmocka_unit_test(a_stopped_owner_is_given_up),
        cmocka_unit_test(a_user_without_descriptors_loses_nothing),
        cmocka_unit_test(an_owner_without_descriptors_says_so),
        cmocka_unit_test(only_sealed_segments_are_kept),
        cmocka_unit_test(the_first_segment_is_everybodys),
        cmocka_unit_test(a_wrong_digest_harms_nobody),
        cmocka_unit_test(a_device_without_digests_shares),
        cmocka_unit_test(one_user_at_a_time_has_a_claim),
        cmocka_unit_test(what_is_checked_once_is_not_checked_again),
        cmocka_unit_test(every_owner_has_its_own_secret),
        cmocka_unit_test(a_claim_is_not_waited_for_forever),
        cmocka_unit_test(a_claim_may_change_hands),
        cmocka_unit_test(the_one_that_copies_may_stop),
        cmocka_unit_test(equal_segments_of_one_user_are_one),
        cmocka_unit_test(what_is_no_message_ends_the_connection),
        cmocka_unit_test(an_owner_is_not_trusted_either),
        cmocka_unit_test(another_user_is_refused),
        cmocka_unit_test(what_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, make_folder, folder_remove_empty);
}
