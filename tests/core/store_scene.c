/* SPDX-License-Identifier: MIT */
#include "store_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/tables.h"
#include "tests/support/short_memory.h"

char store_path[160];

int store_make_folder(void **state)
{
    int result = folder_make(state);
    snprintf(store_path, sizeof store_path, "%s/store", folder);
    return result;
}

/* ---- Time ---- */

uint64_t store_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- The owner ---- */

static void await_byte(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

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

static void run_owner(uint64_t budget_bytes, uint64_t descriptors, int ready, int stop)
{
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = store_path, .budget_bytes = budget_bytes};
    rvl_store *store = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (descriptors > 0)
        limit_descriptors(descriptors);
    if (rvl_store_open(&options, &store) != RVL_OK || write(ready, "r", 1) != 1)
        _exit(1);
    rvl_status status = rvl_store_serve(store, stop);
    rvl_store_close(store);
    _exit(status == RVL_OK ? 0 : 1);
}

owner owner_start_limited(uint64_t budget_bytes, uint64_t descriptors)
{
    int ready[2], stop[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
    pid_t process = fork();
    if (process == 0) {
        close(stop[1]);
        run_owner(budget_bytes, descriptors, ready[1], stop[0]);
    }
    assert_true(process > 0);
    close(ready[1]);
    close(stop[0]);
    await_byte(ready[0]);
    close(ready[0]);
    return (owner){process, stop[1]};
}

owner owner_start(uint64_t budget_bytes)
{
    return owner_start_limited(budget_bytes, 0);
}

int store_end_of(pid_t process)
{
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    return status;
}

void owner_stop(owner of)
{
    assert_int_equal(write(of.stop, "s", 1), 1);
    close(of.stop);
    assert_int_equal(store_end_of(of.process), 0);
    assert_int_equal(access(store_path, F_OK), -1);
}

void owner_kill(owner of)
{
    kill(of.process, SIGKILL);
    close(of.stop);
    assert_int_equal(store_end_of(of.process), SIGKILL);
}

rvl_store_stats store_stats(void)
{
    rvl_store_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_store_get_stats(store_path, &stats), RVL_OK);
    return stats;
}

void store_await_stats(uint64_t users, uint64_t kept, uint64_t referenced)
{
    rvl_store_stats stats = store_stats();
    for (int i = 0; i < 1000 && ((users != ANY_USERS && stats.user_count != users) ||
                                 stats.kept_bytes != kept || stats.referenced_bytes != referenced ||
                                 stats.promised_bytes != 0);
         i++) {
        usleep(10000);
        stats = store_stats();
    }
    if (users != ANY_USERS)
        assert_int_equal(stats.user_count, users);
    assert_int_equal(stats.kept_bytes, kept);
    assert_int_equal(stats.referenced_bytes, referenced);
    assert_int_equal(stats.promised_bytes, 0);
}

/* ---- Users ---- */

typedef struct content {
    rvl_context *context;
    fault_injector *fault;
    rvl_addr large, small;
    uint64_t filled, written; /* where CHANGE writes: by FILL, and last */
} content;

static volatile uint64_t *word_of(const content *of)
{
    return (volatile uint64_t *)(uintptr_t)(of->large + SEGMENT);
}

/* All of it, as it was written last. */
static bool holds(const content *of, uint64_t seed)
{
    uint64_t word = *word_of(of);
    *word_of(of) = of->filled;
    bool same = word == of->written && support_holds(of->large, LARGE, seed) &&
                support_holds(of->small, SMALL, seed + 100);
    *word_of(of) = word;
    return same;
}

static void answer_pause(const content *of, const request *asked, answer *said)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (asked->descriptors > 0)
        limit_descriptors((uint64_t)lowest_descriptor() + asked->descriptors - 1);
    store_turn.what = asked->act;
    store_turn.nth = asked->no_memory || asked->op_mask != 0 ? 0 : asked->nth;
    store_turn.owner = asked->owner;
    store_turn.happened = false;
    short_memory_refuse_nth(asked->no_memory ? asked->nth : 0);
    const fault_plan plan = {.op_mask = asked->op_mask, .countdown = asked->nth};
    fault_set(of->fault, asked->op_mask != 0 ? &plan : &(fault_plan){0});
    uint64_t copied = support_stats(of->context, 0).backup_out_bytes;
    store_read_bytes = 0;
    said->status = asked->what == PAUSE ? rvl_pause(of->context, NULL, 0, NULL)
                                        : rvl_resume(of->context, NULL, 0, NULL);
    said->happened = asked->no_memory      ? short_memory_has_refused()
                     : asked->op_mask != 0 ? fault_failures(of->fault) > 0
                                           : store_turn.happened;
    said->copied = support_stats(of->context, 0).backup_out_bytes - copied;
    said->read = store_read_bytes;
    fault_set(of->fault, &(fault_plan){0});
    limit_descriptors(limit.rlim_cur);
    store_turn.what = PASS;
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

static void answer_request(content *of, const request *asked, answer *said)
{
    switch (asked->what) {
    case FILL:
        support_fill(of->large, LARGE, asked->seed);
        support_fill(of->small, SMALL, asked->seed + 100);
        of->filled = of->written = *word_of(of);
        break;
    case CHANGE: /* one word of the second segment */
        *word_of(of) = of->written = asked->seed;
        break;
    case PAUSE:
    case RESUME:
        answer_pause(of, asked, said);
        break;
    case CHECK:
        said->holds = holds(of, asked->seed);
        said->word = *word_of(of);
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
                                                .store_path = store_path,
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

user user_start(user_options options)
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

answer user_tell(user of, request what)
{
    answer said = {.status = RVL_ERR_IO};
    assert_int_equal(write(of.line, &what, sizeof what), sizeof what);
    assert_int_equal(read(of.line, &said, sizeof said), sizeof said);
    return said;
}

void user_expect(user of, request what, rvl_status status, rvl_state state)
{
    answer said = user_tell(of, what);
    assert_int_equal(said.status, status);
    assert_int_equal(said.states[0], state);
    assert_int_equal(said.states[1], state);
}

void user_begin_pause(user of, action act, uint64_t nth)
{
    const request pausing = {.what = PAUSE, .act = act, .nth = nth};
    assert_int_equal(write(of.line, &pausing, sizeof pausing), sizeof pausing);
}

answer user_end_pause(user of)
{
    answer said = {.status = RVL_ERR_IO};
    assert_int_equal(read(of.line, &said, sizeof said), sizeof said);
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.states[0], RVL_STATE_PAUSED);
    return said;
}

void user_fill(user of, uint64_t seed)
{
    user_expect(of, (request){.what = FILL, .seed = seed}, RVL_OK, RVL_STATE_ACTIVE);
}

void user_pause(user of)
{
    user_expect(of, (request){.what = PAUSE}, RVL_OK, RVL_STATE_PAUSED);
}

void user_resume(user of)
{
    user_expect(of, (request){.what = RESUME}, RVL_OK, RVL_STATE_ACTIVE);
}

void user_check(user of, uint64_t seed)
{
    assert_true(user_tell(of, (request){.what = CHECK, .seed = seed}).holds);
}

void user_end(user of)
{
    const request end = {.what = END};
    assert_int_equal(write(of.line, &end, sizeof end), sizeof end);
    close(of.line);
    assert_int_equal(store_end_of(of.process), 0);
}

void user_kill(user of)
{
    kill(of.process, SIGKILL);
    close(of.line);
    assert_int_equal(store_end_of(of.process), SIGKILL);
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

uint64_t store_host_bytes(const user *users, size_t count)
{
    files all = {0};
    for (size_t i = 0; i < count; i++)
        note_mapped(&all, users[i].process);
    return all.bytes;
}
