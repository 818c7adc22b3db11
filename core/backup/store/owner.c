/* SPDX-License-Identifier: MIT */
/*
 * The owner of a store: keeps descriptors of sealed segments, and counts.
 *
 * One thread serves one message at a time. It neither maps nor reads segments. A user is watched
 * both by its connection and by its process: a forked child may have inherited the connection, and
 * would otherwise hold what the dead process had. A user claims content that it is about to add, so
 * that others may wait for it instead of copying the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/options.h"
#include "base/packet.h"
#include "base/secret_digest.h"
#include "core/backup/store/message.h"

#define BACKLOG 128
#define LOCK_NS                                                                                    \
    UINT64_C(2000000000) /* how long another process may take to open or replace a                 \
                            socket */
#define LOCK_RETRY_NS 10000000
#define SPARE_DESCRIPTORS 32u /* for connections, and for the segment being received */

/* The key of a segment. It has no padding, because it is hashed as bytes. */
typedef struct content_key {
    rvli_digest digest;
    uint64_t bytes;
} content_key;

typedef struct segment {
    uint64_t id;
    content_key key;
    int fd;
    bool checked;        /* a user that did not add it has computed the digest from its bytes */
    uint64_t adder;      /* the number of the user that added it */
    pid_t adder_process; /* 0: not visible from here */
    uint64_t references;
    uint64_t user_count; /* users with a reference */
    UT_hash_handle by_id;
    UT_hash_handle by_content; /* several segments may have one key; any of them may be found */
} segment;

/* A user's references to a segment. */
typedef struct use {
    uint64_t id;
    uint64_t count;
    segment *of;
    UT_hash_handle hh;
} use;

typedef struct user {
    uint64_t number; /* unique among all users of this owner */
    pid_t pid;       /* 0: not visible from here */
    int socket;
    int process; /* pidfd; -1: its process is not visible from here */
    uint64_t promised_bytes;
    use *uses;
    struct user *next, *previous;
} user;

/* Content that a user is about to add. */
typedef struct claim {
    content_key key;
    const user *by;
    UT_hash_handle hh;
} claim;

struct rvl_store {
    struct sockaddr_un address;
    dev_t device; /* of the socket's file, so that only this socket is removed */
    ino_t inode;
    int listener;
    int events;
    int spare;             /* a spare descriptor, for refusing users when there is no other; -1:
                              none */
    uint64_t budget_bytes; /* UINT64_MAX: no limit */
    uint64_t kept_bytes;
    uint64_t promised_bytes;
    uint64_t referenced_bytes;
    uint64_t segment_count;
    uint64_t user_count;
    uint64_t shared_bytes;
    uint64_t refused_bytes; /* requested since it was opened, and refused for lack of room */
    uint64_t refused_count;
    uint64_t last_id;
    uint64_t last_user;
    segment *by_id;
    segment *by_content;
    claim *claims;
    user *users;
    rvli_secret secret; /* of the digests */
};

static rvl_status os_error(rvl_status status, const char *what, const char *path)
{
    int number = errno;
    rvli_error(status, what);
    rvli_error_errno(number);
    rvli_error_place(path, 0, 0);
    return status;
}

/* ---- Segments ---- */

static void forget_segment(rvl_store *store, segment *s)
{
    HASH_DELETE(by_id, store->by_id, s);
    HASH_DELETE(by_content, store->by_content, s);
    close(s->fd);
    store->kept_bytes -= s->key.bytes;
    store->segment_count--;
    free(s);
}

static segment *find_segment(rvl_store *store, const rvli_store_message *asked)
{
    segment *found = NULL;
    const content_key key = {asked->digest, asked->bytes};
    HASH_FIND(by_content, store->by_content, &key, sizeof key, found);
    return found;
}

/* Returns NULL if there is no memory. Then the caller keeps the descriptor. */
static segment *add_segment(rvl_store *store, const user *who, const rvli_store_message *asked,
                            int fd)
{
    segment *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->id = store->last_id + 1;
    s->key = (content_key){asked->digest, asked->bytes};
    s->fd = fd;
    s->adder = who->number;
    s->adder_process = who->pid;
    HASH_ADD(by_id, store->by_id, id, sizeof s->id, s);
    if (s->by_id.tbl == NULL) {
        free(s);
        return NULL;
    }
    HASH_ADD(by_content, store->by_content, key, sizeof s->key, s);
    if (s->by_content.tbl == NULL) {
        HASH_DELETE(by_id, store->by_id, s);
        free(s);
        return NULL;
    }
    store->last_id = s->id;
    store->kept_bytes += s->key.bytes;
    store->segment_count++;
    return s;
}

/* ---- References ---- */

static use *use_of(const user *who, uint64_t id)
{
    use *found = NULL;
    HASH_FIND(hh, who->uses, &id, sizeof id, found);
    return found;
}

/* Counts a user's first reference, or the loss of its last one. */
static void count_user(rvl_store *store, segment *s, bool comes)
{
    s->user_count += comes ? 1 : -UINT64_C(1);
    if (comes && s->user_count == 2)
        store->shared_bytes += s->key.bytes;
    if (!comes && s->user_count == 1)
        store->shared_bytes -= s->key.bytes;
}

/* Adds a reference. Returns false if there is no memory. */
static bool refer(rvl_store *store, user *who, segment *s)
{
    use *of = use_of(who, s->id);
    if (of == NULL) {
        of = calloc(1, sizeof *of);
        if (of == NULL)
            return false;
        of->id = s->id;
        of->of = s;
        HASH_ADD(hh, who->uses, id, sizeof of->id, of);
        if (of->hh.tbl == NULL) {
            free(of);
            return false;
        }
        count_user(store, s, true);
    }
    of->count++;
    s->references++;
    store->referenced_bytes += s->key.bytes;
    return true;
}

static void drop(rvl_store *store, user *who, use *of, uint64_t count)
{
    segment *s = of->of;
    of->count -= count;
    s->references -= count;
    store->referenced_bytes -= count * s->key.bytes;
    if (of->count == 0) {
        HASH_DEL(who->uses, of);
        free(of);
        count_user(store, s, false);
    }
    if (s->references == 0)
        forget_segment(store, s);
}

/* ---- Claims ---- */

static claim *claim_of(const rvl_store *store, const rvli_store_message *asked)
{
    claim *found = NULL;
    const content_key key = {asked->digest, asked->bytes};
    HASH_FIND(hh, store->claims, &key, sizeof key, found);
    return found;
}

/* Without memory the content is not claimed, and other users copy it too. */
static void add_claim(rvl_store *store, const user *who, const rvli_store_message *asked)
{
    claim *c = calloc(1, sizeof *c);
    if (c == NULL)
        return;
    c->key = (content_key){asked->digest, asked->bytes};
    c->by = who;
    HASH_ADD(hh, store->claims, key, sizeof c->key, c);
    if (c->hh.tbl == NULL)
        free(c);
}

static void end_claim(rvl_store *store, const user *who, const rvli_store_message *asked)
{
    claim *c = claim_of(store, asked);
    if (c == NULL || c->by != who)
        return;
    HASH_DEL(store->claims, c);
    free(c);
}

static void end_claims(rvl_store *store, const user *who)
{
    claim *c, *next;
    HASH_ITER (hh, store->claims, c, next)
        if (c->by == who) {
            HASH_DEL(store->claims, c);
            free(c);
        }
}

/* ---- Users ---- */

static void forget_user(rvl_store *store, user *who)
{
    use *of, *next;
    HASH_ITER (hh, who->uses, of, next)
        drop(store, who, of, of->count);
    end_claims(store, who);
    store->promised_bytes -= who->promised_bytes;
    if (who->next != NULL)
        who->next->previous = who->previous;
    if (who->previous != NULL)
        who->previous->next = who->next;
    else
        store->users = who->next;
    store->user_count--;
    /* A child may hold the connection open: then closing would not remove it from the watched set.
     */
    (void)epoll_ctl(store->events, EPOLL_CTL_DEL, who->socket, NULL);
    close(who->socket);
    if (who->process >= 0)
        close(who->process);
    free(who);
}

static bool watch(const rvl_store *store, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(store->events, EPOLL_CTL_ADD, fd, &event) == 0;
}

/*
 * Refuses a user, and closes the connection. First reads what the user has sent, because otherwise
 * its end of the connection would report an error instead of the reply.
 */
static void refuse_user(int socket)
{
    const rvli_store_message refused = {.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_REFUSED};
    char byte;
    (void)rvli_packet_send(socket, &refused, sizeof refused, NULL, 0, MSG_DONTWAIT);
    (void)shutdown(socket, SHUT_RD);
    while (recv(socket, &byte, 1, MSG_DONTWAIT) > 0)
        ;
    close(socket);
}

static int accept_socket(const rvl_store *store)
{
    return accept4(store->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Accepts and closes a connection, because one left pending would raise events again and again. */
static void refuse_with_spare(rvl_store *store)
{
    if (store->spare < 0)
        return;
    close(store->spare);
    int socket = accept_socket(store);
    if (socket >= 0)
        refuse_user(socket);
    store->spare = fcntl(store->events, F_DUPFD_CLOEXEC, 0);
}

/* Closes connections of other users' processes. Refuses users for which there is no memory. */
static void accept_user(rvl_store *store)
{
    pid_t process = 0;
    int socket = accept_socket(store);
    if (socket < 0 && (errno == EMFILE || errno == ENFILE))
        refuse_with_spare(store);
    if (socket < 0)
        return;
    if (!rvli_packet_peer(socket, &process)) {
        close(socket);
        return;
    }
    user *who = calloc(1, sizeof *who);
    if (who == NULL || !watch(store, socket, who)) {
        free(who);
        refuse_user(socket);
        return;
    }
    who->number = ++store->last_user;
    who->pid = process;
    who->socket = socket;
    who->process = process > 0 ? (int)syscall(SYS_pidfd_open, process, 0) : -1;
    if (who->process >= 0)
        (void)watch(store, who->process, who);
    who->next = store->users;
    if (who->next != NULL)
        who->next->previous = who;
    store->users = who;
    store->user_count++;
}

/* ---- Messages ---- */

/* Returns whether the process has room for one more descriptor of a segment. */
static bool has_descriptor(const rvl_store *store)
{
    struct rlimit limit;
    uint64_t used = store->segment_count + 2 * store->user_count + SPARE_DESCRIPTORS;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && used < limit.rlim_cur;
}

static bool reserve(rvl_store *store, user *who, uint64_t bytes)
{
    uint64_t used = store->kept_bytes + store->promised_bytes;
    if (!has_descriptor(store) || used > store->budget_bytes ||
        bytes > store->budget_bytes - used) {
        store->refused_bytes += bytes;
        store->refused_count++;
        return false;
    }
    who->promised_bytes += bytes;
    store->promised_bytes += bytes;
    return true;
}

static void give_back(rvl_store *store, user *who, uint64_t bytes)
{
    uint64_t taken = bytes < who->promised_bytes ? bytes : who->promised_bytes;
    who->promised_bytes -= taken;
    store->promised_bytes -= taken;
}

static void fill_totals(const rvl_store *store, rvli_store_message *answer)
{
    answer->budget_bytes = store->budget_bytes;
    answer->kept_bytes = store->kept_bytes;
    answer->promised_bytes = store->promised_bytes;
    answer->referenced_bytes = store->referenced_bytes;
    answer->segment_count = store->segment_count;
    answer->user_count = store->user_count;
    answer->shared_bytes = store->shared_bytes;
    answer->refused_bytes = store->refused_bytes;
    answer->refused_count = store->refused_count;
}

/* Replies with an existing segment. */
static rvli_store_kind hand_out(rvl_store *store, user *who, segment *s, rvli_store_message *answer,
                                int *fd_out)
{
    if (!refer(store, who, s))
        return RVLI_STORE_REFUSED;
    answer->id = s->id;
    answer->checked = s->checked;
    *fd_out = s->fd;
    return RVLI_STORE_FOUND;
}

static rvli_store_kind find(rvl_store *store, user *who, const rvli_store_message *asked,
                            rvli_store_message *answer, int *fd_out)
{
    segment *found = find_segment(store, asked);
    if (found != NULL)
        return hand_out(store, who, found, answer, fd_out);
    if (!asked->claim)
        return RVLI_STORE_NONE;
    if (claim_of(store, asked) != NULL)
        return RVLI_STORE_BUSY;
    add_claim(store, who, asked);
    return RVLI_STORE_NONE;
}

/*
 * Returns whether this user, or another connection of its process, has added the segment. Its claim
 * that the digest is right must not count, because others use the content without checking it.
 */
static bool has_added(const user *who, const segment *s)
{
    return who->number == s->adder || (who->pid > 0 && who->pid == s->adder_process);
}

/* *fd is the new segment's descriptor. It is set to -1 once the segment owns it. */
static rvli_store_kind add(rvl_store *store, user *who, const rvli_store_message *asked, int *fd,
                           rvli_store_message *answer, int *fd_out)
{
    if (*fd < 0 || asked->bytes == 0 || asked->bytes > who->promised_bytes ||
        !rvli_store_is_sealed(*fd, asked->bytes))
        return RVLI_STORE_REFUSED;
    end_claim(store, who, asked);
    segment *first = asked->apart ? NULL : find_segment(store, asked);
    if (first != NULL)
        return hand_out(store, who, first, answer, fd_out);
    segment *added = add_segment(store, who, asked, *fd);
    if (added == NULL)
        return RVLI_STORE_REFUSED;
    *fd = -1;
    if (!refer(store, who, added)) {
        forget_segment(store, added);
        return RVLI_STORE_REFUSED;
    }
    give_back(store, who, asked->bytes);
    answer->id = added->id;
    return RVLI_STORE_DONE;
}

/* Returns the kind of the reply, or 0 for no reply. */
static rvli_store_kind answer_of(rvl_store *store, user *who, const rvli_store_message *asked,
                                 int *fd, rvli_store_message *answer, int *fd_out)
{
    use *of = NULL;
    switch (asked->kind) {
    case RVLI_STORE_RESERVE:
        fill_totals(store, answer);
        return reserve(store, who, asked->bytes) ? RVLI_STORE_DONE : RVLI_STORE_FULL;
    case RVLI_STORE_RETURN:
        give_back(store, who, asked->bytes);
        return 0;
    case RVLI_STORE_SECRET:
        answer->digest = (rvli_digest){store->secret.low, store->secret.high};
        return RVLI_STORE_DONE;
    case RVLI_STORE_FIND:
        return find(store, who, asked, answer, fd_out);
    case RVLI_STORE_UNCLAIM:
        end_claim(store, who, asked);
        return 0;
    case RVLI_STORE_CHECKED:
        of = use_of(who, asked->id);
        if (of != NULL && !has_added(who, of->of))
            of->of->checked = true;
        return 0;
    case RVLI_STORE_ADD:
        return add(store, who, asked, fd, answer, fd_out);
    case RVLI_STORE_DROP:
        of = use_of(who, asked->id);
        if (of != NULL)
            drop(store, who, of, 1);
        return 0;
    case RVLI_STORE_ASK:
        fill_totals(store, answer);
        return RVLI_STORE_DONE;
    default:
        return RVLI_STORE_REFUSED;
    }
}

/* Serves a message. Returns false if the user has to be removed. */
static bool serve_message(rvl_store *store, user *who, const rvli_store_message *asked, int fd)
{
    int fd_out = -1;
    rvli_store_message answer = {.magic = RVLI_STORE_MAGIC};
    answer.kind = (uint32_t)answer_of(store, who, asked, &fd, &answer, &fd_out);
    if (fd >= 0)
        close(fd);
    return answer.kind == 0 || rvli_packet_send(who->socket, &answer, sizeof answer, &fd_out,
                                                fd_out >= 0 ? 1 : 0, MSG_DONTWAIT);
}

/* Refuses a segment that came without its descriptor because this process had none left. */
static bool refuse_message(const user *who)
{
    const rvli_store_message refused = {.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_REFUSED};
    return rvli_packet_send(who->socket, &refused, sizeof refused, NULL, 0, MSG_DONTWAIT);
}

static bool has_ended(const user *who)
{
    struct pollfd poller = {.fd = who->process, .events = POLLIN};
    return who->process >= 0 && poll(&poller, 1, 0) > 0;
}

static void serve_user(rvl_store *store, user *who)
{
    rvli_store_message asked;
    int fd = -1;
    unsigned count = 0;
    rvli_packet_result result =
        rvli_packet_take(who->socket, &asked, sizeof asked, &fd, 1, &count, MSG_DONTWAIT);
    bool stays = false;
    if (result == RVLI_PACKET_NONE)
        stays = !has_ended(who);
    else if (result == RVLI_PACKET_STARVED && asked.magic == RVLI_STORE_MAGIC)
        stays = refuse_message(who);
    else if (result == RVLI_PACKET_TAKEN && asked.magic == RVLI_STORE_MAGIC)
        stays = serve_message(store, who, &asked, count > 0 ? fd : -1);
    else if (count > 0)
        close(fd);
    if (!stays)
        forget_user(store, who);
}

rvl_status rvl_store_serve(rvl_store *store, int stop_fd)
{
    if (store == NULL)
        return rvli_error(RVL_ERR_INVALID, "the store is NULL");
    if (stop_fd >= 0 && !watch(store, stop_fd, &store->events))
        return os_error(RVL_ERR_IO, "a store cannot wait for stop_fd", store->address.sun_path);
    rvl_status status = RVL_OK;
    for (bool stop = false; !stop && status == RVL_OK;) {
        struct epoll_event event;
        int ready = epoll_wait(store->events, &event, 1, -1);
        if (ready < 0 && errno != EINTR)
            status = os_error(RVL_ERR_IO, "a store cannot wait", store->address.sun_path);
        if (ready <= 0)
            continue;
        stop = event.data.ptr == &store->events;
        if (event.data.ptr == store)
            accept_user(store);
        else if (!stop)
            serve_user(store, event.data.ptr);
    }
    if (stop_fd >= 0)
        (void)epoll_ctl(store->events, EPOLL_CTL_DEL, stop_fd, NULL);
    return status;
}

/* ---- Opening and closing ---- */

/*
 * Locks the folder of the socket: no other process may act between looking for an owner and
 * replacing it.
 */
static rvl_status lock_folder(const char *path, int *lock_out)
{
    char folder[sizeof((struct sockaddr_un *)0)->sun_path] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        size_t length = slash == path ? 1 : (size_t)(slash - path);
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0)
        return os_error(RVL_ERR_IO,
                        "the folder of a store cannot be opened: name a path in a folder that "
                        "exists and that you may read and write",
                        folder);
    uint64_t end_ns = rvli_monotonic_ns() + LOCK_NS;
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if (rvli_monotonic_ns() > end_ns) {
            close(lock);
            return rvli_error(RVL_ERR_BUSY, "another process has locked the folder of the store");
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_RETRY_NS}, NULL);
    }
    *lock_out = lock;
    return RVL_OK;
}

/* With the folder locked. Removes a socket only if nobody listens on it. */
static rvl_status make_way(const struct sockaddr_un *address)
{
    struct stat facts;
    if (lstat(address->sun_path, &facts) != 0)
        return RVL_OK;
    if (!S_ISSOCK(facts.st_mode)) {
        errno = EEXIST;
        return os_error(RVL_ERR_IO,
                        S_ISDIR(facts.st_mode)
                            ? "the path of a store is a folder: name a file in it, to be made"
                            : "the path of a store is a file: name another, or remove it",
                        address->sun_path);
    }
    int answers = rvli_store_connect(address);
    if (answers >= 0)
        close(answers);
    if (answers >= 0 || errno != ECONNREFUSED) {
        rvli_error(RVL_ERR_BUSY,
                   "a store answers at this path already: use it, or name another path");
        rvli_error_place(address->sun_path, 0, 0);
        return RVL_ERR_BUSY;
    }
    if (unlink(address->sun_path) != 0)
        return os_error(RVL_ERR_IO, "the socket of an ended store cannot be removed",
                        address->sun_path);
    return RVL_OK;
}

/* Nobody can connect until it listens. From then on only its user can. */
static rvl_status bind_socket(rvl_store *store)
{
    const char *path = store->address.sun_path;
    struct stat facts;
    store->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (store->listener < 0 ||
        bind(store->listener, (const struct sockaddr *)&store->address, sizeof store->address) != 0)
        return os_error(RVL_ERR_IO,
                        "the socket of a store cannot be made: name a path in a folder that you "
                        "may write to",
                        path);
    if (chmod(path, S_IRUSR | S_IWUSR) != 0 || lstat(path, &facts) != 0 ||
        listen(store->listener, BACKLOG) != 0) {
        rvl_status status = os_error(RVL_ERR_IO, "the socket of a store cannot be opened", path);
        unlink(path);
        return status;
    }
    store->device = facts.st_dev;
    store->inode = facts.st_ino;
    return RVL_OK;
}

static rvl_status open_socket(rvl_store *store)
{
    int lock = -1;
    rvl_status status = lock_folder(store->address.sun_path, &lock);
    if (status != RVL_OK)
        return status;
    status = make_way(&store->address);
    if (status == RVL_OK)
        status = bind_socket(store);
    close(lock);
    return status;
}

static rvl_status open_events(rvl_store *store)
{
    store->events = epoll_create1(EPOLL_CLOEXEC);
    store->spare = store->events >= 0 ? fcntl(store->events, F_DUPFD_CLOEXEC, 0) : -1;
    if (store->spare < 0 || !watch(store, store->listener, store))
        return os_error(RVL_ERR_IO, "a store cannot wait for users", store->address.sun_path);
    return RVL_OK;
}

static rvl_status draw_secret(rvl_store *store)
{
    unsigned char random_bytes[16];
    if (getrandom(random_bytes, sizeof random_bytes, 0) != (ssize_t)sizeof random_bytes)
        return os_error(RVL_ERR_IO, "the system has no random bytes for a store",
                        store->address.sun_path);
    store->secret = rvli_secret_of(random_bytes);
    return RVL_OK;
}

rvl_status rvl_store_open(const rvl_store_options *user_options, rvl_store **store_out)
{
    rvl_store_options options;
    struct sockaddr_un address;
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK && store_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "store_out is NULL");
    if (status == RVL_OK)
        status = rvli_store_address(options.path, &address);
    if (status != RVL_OK)
        return status;
    rvl_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a store");
    store->address = address;
    store->listener = store->events = store->spare = -1;
    store->budget_bytes = options.budget_bytes > 0 ? options.budget_bytes : UINT64_MAX;
    status = draw_secret(store);
    if (status == RVL_OK)
        status = open_socket(store);
    if (status == RVL_OK)
        status = open_events(store);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvl_store_close(store);
        rvli_error_set(&cause);
        return status;
    }
    *store_out = store;
    return RVL_OK;
}

void rvl_store_close(rvl_store *store)
{
    struct stat facts;
    if (store == NULL)
        return;
    while (store->users != NULL)
        forget_user(store, store->users);
    if (store->inode != 0 && lstat(store->address.sun_path, &facts) == 0 &&
        facts.st_dev == store->device && facts.st_ino == store->inode)
        unlink(store->address.sun_path);
    if (store->listener >= 0)
        close(store->listener);
    if (store->spare >= 0)
        close(store->spare);
    if (store->events >= 0)
        close(store->events);
    free(store);
}
