/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define READ_BYTES 65536
#define MESSAGE_BYTES_MAX ((size_t)64 << 20)
#define SEND_S_MAX 5
#define MAGIC UINT32_C(0x3c85f7ce)

/* Requests, by their first byte. Requests beyond these are not served. */
typedef enum query {
    QUERY_VALIDATE, /* magic */
    QUERY_SET,      /* key, value */
    QUERY_COMPARE,  /* key, expected, wanted -> value */
    QUERY_GET,      /* key -> value */
    QUERY_ADD,      /* key, number -> sum */
    QUERY_CHECK,    /* keys -> 0: all are set, 1: not all are */
    QUERY_WAIT,     /* keys -> 0: never waits */
    QUERY_COUNT,    /* -> the number of keys */
    QUERY_DELETE,   /* key -> the number deleted */
    QUERY_APPEND,   /* key, value */
    QUERY_GET_ALL,  /* keys -> values */
    QUERY_SET_ALL,  /* keys, values */
    QUERY_CANCEL,   /* -> 1 */
    QUERY_PING,     /* number -> the number */
} query;

typedef struct text {
    char *bytes;
    size_t length;
    size_t room;
} text;

typedef struct entry {
    struct entry *next;
    text key;
    text value;
} entry;

typedef struct peer {
    struct peer *next;
    int file;
    text in;
} peer;

struct rvli_store {
    int events;
    int listener;
    uint16_t port;
    bool told;
    peer *peers;
    entry *entries;
};

/* ---- Texts ---- */

static bool append(text *to, const void *bytes, size_t length)
{
    if (length > MESSAGE_BYTES_MAX || to->length + length > MESSAGE_BYTES_MAX)
        return false;
    if (to->length + length > to->room) {
        size_t room = 2 * (to->length + length);
        char *grown = realloc(to->bytes, room);
        if (grown == NULL)
            return false;
        to->bytes = grown;
        to->room = room;
    }
    if (length > 0)
        memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
    return true;
}

static bool set_text(text *to, const text *from)
{
    to->length = 0;
    return append(to, from->bytes, from->length);
}

static bool same(const text *a, const text *b)
{
    return a->length == b->length && (a->length == 0 || memcmp(a->bytes, b->bytes, a->length) == 0);
}

/* ---- Entries ---- */

static entry **find(rvli_store *store, const text *key)
{
    entry **link = &store->entries;
    while (*link != NULL && !same(&(*link)->key, key))
        link = &(*link)->next;
    return link;
}

static void drop(entry **link)
{
    entry *gone = *link;
    *link = gone->next;
    free(gone->key.bytes);
    free(gone->value.bytes);
    free(gone);
}

/* Returns a key's entry, and creates it if needed. NULL: out of memory. */
static entry *need(rvli_store *store, const text *key)
{
    entry **link = find(store, key);
    if (*link != NULL)
        return *link;
    *link = calloc(1, sizeof **link);
    if (*link != NULL && !set_text(&(*link)->key, key))
        drop(link);
    return *link;
}

/* Makes the value that another rank would have set for a key. It depends on the key only. */
static void make_up(const text *key, char value[RVLI_STORE_MADE_UP_BYTES])
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < key->length; i++)
        digest = (digest ^ (unsigned char)key->bytes[i]) * UINT64_C(0x100000001b3);
    memset(value, 0, RVLI_STORE_MADE_UP_BYTES);
    memcpy(value, &digest, sizeof digest);
}

/* CPU groups (Gloo) store their addresses under keys with the device's name. */
static bool is_address(const text *key)
{
    static const char device[] = "//cpu//";
    return memmem(key->bytes, key->length, device, sizeof device - 1) != NULL;
}

static void tell_of_address(rvli_store *store, const text *key)
{
    if (!store->told)
        fprintf(
            stderr,
            "reveille: a group of the CPU (gloo) asks for the address of another rank (%.*s), "
            "and with --world the others do not run: give the group the backend nccl, or fake\n",
            (int)key->length, key->bytes);
    store->told = true;
}

/* ---- Messages, read part by part; reading stops at a part that has not arrived ---- */

typedef struct reader {
    const char *at;
    size_t left;
} reader;

static bool take(reader *from, void *to, size_t length)
{
    if (from->left < length)
        return false;
    memcpy(to, from->at, length);
    from->at += length;
    from->left -= length;
    return true;
}

/* The text points into the message. */
static bool take_text(reader *from, text *to)
{
    uint64_t length;
    if (!take(from, &length, sizeof length) || from->left < length)
        return false;
    *to = (text){.bytes = (char *)(uintptr_t)from->at, .length = (size_t)length};
    from->at += length;
    from->left -= (size_t)length;
    return true;
}

static bool put_text(text *out, const char *bytes, size_t length)
{
    uint64_t count = length;
    return append(out, &count, sizeof count) && append(out, bytes, length);
}

static bool put_byte(text *out, char byte)
{
    return append(out, &byte, 1);
}

static bool put_value(rvli_store *store, const text *key, text *out)
{
    char made_up[RVLI_STORE_MADE_UP_BYTES];
    const entry *there = *find(store, key);
    if (there != NULL)
        return put_text(out, there->value.bytes, there->value.length);
    if (is_address(key)) {
        tell_of_address(store, key);
        return put_text(out, NULL, 0);
    }
    make_up(key, made_up);
    return put_text(out, made_up, sizeof made_up);
}

/* ---- Requests. PENDING: part of the message has not arrived; BROKEN: the message is malformed.
 * ---- */

typedef enum verdict { DONE, PENDING, BROKEN } verdict;

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return PENDING;                                                                        \
    } while (0)
#define WANT(condition) (condition) ? DONE : BROKEN

static verdict set(rvli_store *store, reader *in, bool appended)
{
    text key, value;
    NEED(take_text(in, &key) && take_text(in, &value));
    entry *there = need(store, &key);
    if (there == NULL)
        return BROKEN;
    return WANT(appended ? append(&there->value, value.bytes, value.length)
                         : set_text(&there->value, &value));
}

/* An absent key is set only if nothing is expected of it. */
static verdict compare(rvli_store *store, reader *in, text *out)
{
    text key, expected, wanted;
    NEED(take_text(in, &key) && take_text(in, &expected) && take_text(in, &wanted));
    entry *there = *find(store, &key);
    if (there == NULL && expected.length > 0)
        return WANT(put_text(out, expected.bytes, expected.length));
    if (there == NULL || same(&there->value, &expected)) {
        there = need(store, &key);
        if (there == NULL || !set_text(&there->value, &wanted))
            return BROKEN;
    }
    return WANT(put_text(out, there->value.bytes, there->value.length));
}

static verdict add(rvli_store *store, reader *in, text *out)
{
    text key;
    int64_t number;
    char digits[32] = "";
    NEED(take_text(in, &key) && take(in, &number, sizeof number));
    entry *there = need(store, &key);
    if (there == NULL)
        return BROKEN;
    size_t length = there->value.length < sizeof digits ? there->value.length : sizeof digits - 1;
    if (length > 0)
        memcpy(digits, there->value.bytes, length);
    number = (int64_t)((uint64_t)number + (uint64_t)strtoll(digits, NULL, 10));
    int count = snprintf(digits, sizeof digits, "%" PRId64, number);
    const text sum = {.bytes = digits, .length = (size_t)count};
    return WANT(set_text(&there->value, &sum) && append(out, &number, sizeof number));
}

static verdict check(rvli_store *store, reader *in, text *out)
{
    uint64_t count;
    bool all = true;
    text key;
    NEED(take(in, &count, sizeof count));
    for (uint64_t i = 0; i < count; i++) {
        NEED(take_text(in, &key));
        all = all && *find(store, &key) != NULL;
    }
    return WANT(put_byte(out, all ? 0 : 1));
}

static verdict wait_for(reader *in, text *out)
{
    uint64_t count;
    text key;
    NEED(take(in, &count, sizeof count));
    for (uint64_t i = 0; i < count; i++)
        NEED(take_text(in, &key));
    return WANT(put_byte(out, 0));
}

static verdict count_keys(const rvli_store *store, text *out)
{
    int64_t count = 0;
    for (const entry *each = store->entries; each != NULL; each = each->next)
        count++;
    return WANT(append(out, &count, sizeof count));
}

static verdict delete_key(rvli_store *store, reader *in, text *out)
{
    text key;
    NEED(take_text(in, &key));
    entry **link = find(store, &key);
    int64_t count = *link != NULL;
    if (*link != NULL)
        drop(link);
    return WANT(append(out, &count, sizeof count));
}

static verdict get(rvli_store *store, reader *in, text *out)
{
    text key;
    NEED(take_text(in, &key));
    return WANT(put_value(store, &key, out));
}

static verdict get_all(rvli_store *store, reader *in, text *out)
{
    uint64_t count;
    text key;
    NEED(take(in, &count, sizeof count));
    for (uint64_t i = 0; i < count; i++) {
        NEED(take_text(in, &key));
        if (!put_value(store, &key, out))
            return BROKEN;
    }
    return DONE;
}

/* Values that are set before the whole message has arrived are set again later. */
static verdict set_all(rvli_store *store, reader *in)
{
    uint64_t count;
    verdict result = DONE;
    NEED(take(in, &count, sizeof count));
    for (uint64_t i = 0; i < count && result == DONE; i++)
        result = set(store, in, false);
    return result;
}

static verdict validate(reader *in)
{
    uint32_t magic;
    NEED(take(in, &magic, sizeof magic));
    return WANT(magic == MAGIC);
}

static verdict ping(reader *in, text *out)
{
    uint32_t number;
    NEED(take(in, &number, sizeof number));
    return WANT(append(out, &number, sizeof number));
}

static verdict serve(rvli_store *store, reader *in, text *out)
{
    unsigned char kind;
    NEED(take(in, &kind, 1));
    switch ((query)kind) {
    case QUERY_VALIDATE:
        return validate(in);
    case QUERY_SET:
        return set(store, in, false);
    case QUERY_COMPARE:
        return compare(store, in, out);
    case QUERY_GET:
        return get(store, in, out);
    case QUERY_ADD:
        return add(store, in, out);
    case QUERY_CHECK:
        return check(store, in, out);
    case QUERY_WAIT:
        return wait_for(in, out);
    case QUERY_COUNT:
        return count_keys(store, out);
    case QUERY_DELETE:
        return delete_key(store, in, out);
    case QUERY_APPEND:
        return set(store, in, true);
    case QUERY_GET_ALL:
        return get_all(store, in, out);
    case QUERY_SET_ALL:
        return set_all(store, in);
    case QUERY_CANCEL:
        return WANT(put_byte(out, 1));
    case QUERY_PING:
        return ping(in, out);
    }
    fprintf(stderr,
            "reveille: the store of --world has no answer to a request of kind %u: queues and "
            "lists of keys are not simulated\n",
            kind);
    return BROKEN;
}

/* ---- Connections ---- */

static bool watch(const rvli_store *store, int file, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(store->events, EPOLL_CTL_ADD, file, &event) == 0;
}

static void dismiss(rvli_store *store, peer *gone)
{
    peer **link = &store->peers;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    close(gone->file);
    free(gone->in.bytes);
    free(gone);
}

/* A peer that does not read its answers is dropped after a while. */
static void admit(rvli_store *store)
{
    const struct timeval patience = {.tv_sec = SEND_S_MAX};
    int file = accept4(store->listener, NULL, NULL, SOCK_CLOEXEC);
    peer *made = file >= 0 ? calloc(1, sizeof *made) : NULL;
    if (made == NULL || !watch(store, file, made)) {
        free(made);
        if (file >= 0)
            close(file);
        return;
    }
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    made->file = file;
    made->next = store->peers;
    store->peers = made;
}

static bool send_all(int file, const text *out)
{
    for (size_t sent = 0; sent < out->length;) {
        ssize_t length = send(file, out->bytes + sent, out->length - sent, MSG_NOSIGNAL);
        if (length < 0 && errno != EINTR)
            return false;
        sent += length > 0 ? (size_t)length : 0;
    }
    return true;
}

/* Serves all requests that have arrived completely. */
static bool answer(rvli_store *store, peer *asking)
{
    text out = {0};
    verdict result = DONE;
    size_t done = 0;
    while (result == DONE && done < asking->in.length) {
        reader in = {asking->in.bytes + done, asking->in.length - done};
        size_t before = out.length;
        result = serve(store, &in, &out);
        if (result == DONE)
            done = asking->in.length - in.left;
        else
            out.length = before;
    }
    asking->in.length -= done;
    memmove(asking->in.bytes, asking->in.bytes + done, asking->in.length);
    bool good = result != BROKEN && send_all(asking->file, &out);
    free(out.bytes);
    return good;
}

static void hear(rvli_store *store, peer *asking)
{
    static char bytes[READ_BYTES];
    ssize_t length = recv(asking->file, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length <= 0 || !append(&asking->in, bytes, (size_t)length) || !answer(store, asking))
        dismiss(store, asking);
}

void rvli_store_serve(rvli_store *store)
{
    struct epoll_event ready[EVENTS_MAX];
    int count = epoll_wait(store->events, ready, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        if (ready[i].data.ptr == store)
            admit(store);
        else
            hear(store, ready[i].data.ptr);
    }
}

/* ---- The store ---- */

static bool listen_on(rvli_store *store)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    store->events = epoll_create1(EPOLL_CLOEXEC);
    store->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (store->events < 0 || store->listener < 0 ||
        bind(store->listener, (struct sockaddr *)&address, size) != 0 ||
        listen(store->listener, SOMAXCONN) != 0 ||
        getsockname(store->listener, (struct sockaddr *)&address, &size) != 0 ||
        !watch(store, store->listener, store))
        return false;
    store->port = ntohs(address.sin_port);
    return true;
}

rvli_store *rvli_store_open(void)
{
    rvli_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->events = store->listener = -1;
    if (listen_on(store))
        return store;
    int number = errno;
    rvli_store_close(store);
    errno = number;
    return NULL;
}

uint16_t rvli_store_port(const rvli_store *store)
{
    return store->port;
}

int rvli_store_file(const rvli_store *store)
{
    return store->events;
}

void rvli_store_close(rvli_store *store)
{
    while (store->peers != NULL)
        dismiss(store, store->peers);
    while (store->entries != NULL)
        drop(&store->entries);
    if (store->listener >= 0)
        close(store->listener);
    if (store->events >= 0)
        close(store->events);
    free(store);
}
