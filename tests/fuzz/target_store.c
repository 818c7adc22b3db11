/* SPDX-License-Identifier: MIT */
/*
 * The protocol of a store (core/backup/store/message.h), from both sides, without a thread.
 *
 * The owner is a real one. Users that are played by hand connect to it and say anything: messages
 * of any size and kind, with any files. After each step the owner's totals are those of a model
 * that knows who was promised what, and who refers to which segment. The client is a real one, too,
 * and what plays its owner answers anything: it takes nothing that is not sealed or does not belong
 * to its question. In the end no descriptor is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/packet.h"
#include "core/backup/store/client.h"
#include "core/backup/store/message.h"
#include "fuzz.h"

#define USERS 4
#define SEGMENTS 64
#define STEPS_MAX 128
#define UNIT UINT64_C(4096)
#define BUDGET (40 * UNIT)
#define FDS_MAX 20

/* X(NAME, what it does). Their order is the format of the corpus: new ones come last. */
#define VERB_MAP(X)                                                                                \
    X(CONNECT, "user `who` connects")                                                              \
    X(LEAVE, "it hangs up")                                                                        \
    X(RESERVE, "it asks for `value` units")                                                        \
    X(RETURN, "it returns them")                                                                   \
    X(FIND, "it asks for content `content` of `value` units")                                      \
    X(ADD, "it gives a file of `file` for that")                                                   \
    X(DROP, "it drops segment `value`")                                                            \
    X(SAY, "it says anything: `value` is the kind, `file` what comes with it")                     \
    X(CLIENT, "the client asks question `value`, and is answered with kind `who` and `file`")      \
    X(CLAIM, "it asks for content `content` of `value` units, and is to add it if nobody has it")  \
    X(UNCLAIM, "it does not add that")                                                             \
    X(CHECKED, "it has computed the digest of segment `value`")                                    \
    X(SECRET, "it asks for the secret")

typedef enum verb {
#define VERB_ENUM(name, meaning) VERB_##name,
    VERB_MAP(VERB_ENUM)
#undef VERB_ENUM
        VERBS
} verb;

/* Numbers are taken modulo what there is, so that any bytes are steps. */
typedef struct step {
    uint8_t verb, who, value, content, file, change;
} step;

/* Kinds of files. */
enum { SEALED, UNSEALED, LARGER, NO_MEMFD, NOTHING, MANY, FILES };

/* ---- The model ---- */

typedef struct segment {
    uint64_t id; /* 0: none */
    uint64_t bytes;
    rvli_digest digest;
    unsigned references[USERS];
} segment;

#define CONTENTS 8
#define UNITS 8

static struct {
    rvl_store *store;
    int stop;
    int asks;         /* the socket of one who only asks for the totals */
    int users[USERS]; /* sockets; -1: not connected */
    uint64_t promised[USERS];
    segment segments[SEGMENTS];
    uint64_t last_id;
    unsigned claims[CONTENTS][UNITS]; /* the user's number and 1; 0: nobody's */
    rvli_digest secret;               /* {0}: nobody has asked yet */
} now;

static char path[320];

static unsigned references_of(const segment *s)
{
    unsigned all = 0;
    for (int i = 0; i < USERS; i++)
        all += s->references[i];
    return all;
}

static void forget_unused(void)
{
    for (int i = 0; i < SEGMENTS; i++)
        if (now.segments[i].id != 0 && references_of(&now.segments[i]) == 0)
            now.segments[i] = (segment){0};
}

static segment *find_id(uint64_t id)
{
    for (int i = 0; i < SEGMENTS; i++)
        if (id != 0 && now.segments[i].id == id)
            return &now.segments[i];
    return NULL;
}

static bool has_content(const segment *s, rvli_digest digest, uint64_t bytes)
{
    return s != NULL && s->bytes == bytes && memcmp(&s->digest, &digest, sizeof digest) == 0;
}

static bool knows_content(rvli_digest digest, uint64_t bytes)
{
    for (int i = 0; i < SEGMENTS; i++)
        if (now.segments[i].id != 0 && has_content(&now.segments[i], digest, bytes))
            return true;
    return false;
}

static rvl_store_stats totals(void)
{
    rvl_store_stats all = {.budget_bytes = BUDGET};
    for (int i = 0; i < USERS; i++) {
        all.user_count += now.users[i] >= 0;
        all.promised_bytes += now.promised[i];
    }
    for (int i = 0; i < SEGMENTS; i++) {
        const segment *s = &now.segments[i];
        all.segment_count += s->id != 0;
        all.kept_bytes += s->bytes;
        all.referenced_bytes += references_of(s) * s->bytes;
    }
    return all;
}

static uint64_t in_use(void)
{
    const rvl_store_stats all = totals();
    return all.kept_bytes + all.promised_bytes;
}

/* What the end of a connection drops and returns. */
static void user_has_left(unsigned who)
{
    close(now.users[who]);
    now.users[who] = -1;
    now.promised[who] = 0;
    for (int i = 0; i < SEGMENTS; i++)
        now.segments[i].references[who] = 0;
    for (int i = 0; i < CONTENTS * UNITS; i++)
        if (now.claims[i / UNITS][i % UNITS] == who + 1)
            now.claims[i / UNITS][i % UNITS] = 0;
    forget_unused();
}

/* ---- The owner's turn ---- */

/* Until it is told to stop, which it is from the beginning: all that has come is served first. */
static void serve(void)
{
    require(rvl_store_serve(now.store, now.stop) == RVL_OK);
}

static bool can_be_read(int socket)
{
    struct pollfd poller = {.fd = socket, .events = POLLIN};
    return poll(&poller, 1, 0) > 0;
}

/* The answer, or that the connection has ended. */
static bool hear(int from, rvli_store_message *answer, int *fd_out)
{
    unsigned count = 0;
    *fd_out = -1;
    for (int i = 0; i < 8 && !can_be_read(from); i++)
        serve();
    require(can_be_read(from));
    rvli_packet_result result =
        rvli_packet_take(from, answer, sizeof *answer, fd_out, 1, &count, MSG_DONTWAIT);
    require(result == RVLI_PACKET_TAKEN || result == RVLI_PACKET_CLOSED);
    require(result != RVLI_PACKET_TAKEN || answer->magic == RVLI_STORE_MAGIC);
    return result == RVLI_PACKET_TAKEN;
}

/* A wait for the listener, for a message that has no answer, or for an end. */
static void settle(void)
{
    for (int i = 0; i < 3; i++)
        serve();
}

/* ---- Files ---- */

static int make_file(unsigned kind, uint64_t bytes)
{
    if (kind == NO_MEMFD)
        return dup(now.stop);
    int fd = memfd_create("reveille-store-fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    require(fd >= 0 && ftruncate(fd, (off_t)(bytes + (kind == LARGER ? UNIT : 0))) == 0);
    require(kind == UNSEALED || rvli_store_seal(fd));
    return fd;
}

/* What comes with a message: false: nothing. */
static bool is_segment(unsigned kind)
{
    return kind == SEALED;
}

/* Sends a packet with files of a kind: of any size, where `change` says so. False: it was too much.
 */
static bool send_packet(int to, const rvli_store_message *message, size_t size, unsigned kind)
{
    uint8_t bytes[sizeof *message + 64] = {0};
    int fds[RVLI_PACKET_FDS] = {0};
    unsigned count = kind == NOTHING ? 0 : kind == MANY ? 3 : 1;
    memcpy(bytes, message, sizeof *message);
    for (unsigned i = 0; i < count; i++)
        fds[i] = make_file(kind == MANY ? SEALED : kind, message->bytes % (64 * UNIT));
    bool sent = rvli_packet_send(to, bytes, size, fds, count, MSG_DONTWAIT);
    while (count > 0)
        close(fds[--count]);
    return sent;
}

static rvli_digest digest_of(const step *s)
{
    return (rvli_digest){s->content % CONTENTS, 1};
}

static uint64_t bytes_of(const step *s)
{
    return s->value % UNITS * UNIT;
}

static unsigned *claim_of(const step *s)
{
    return &now.claims[s->content % CONTENTS][s->value % UNITS];
}

/* ---- Users ---- */

static int connect_one(void)
{
    struct sockaddr_un address;
    require(rvli_store_address(path, &address) == RVL_OK);
    int to = rvli_store_connect(&address);
    require(to >= 0);
    settle();
    return to;
}

static void leave(unsigned who)
{
    user_has_left(who);
    settle();
}

static bool ask(unsigned who, rvli_store_message *message, unsigned kind, int *fd_out)
{
    message->magic = RVLI_STORE_MAGIC;
    require(send_packet(now.users[who], message, sizeof *message, kind));
    return hear(now.users[who], message, fd_out);
}

static void reserve(unsigned who, const step *s)
{
    uint64_t bytes = s->change & 1 ? UINT64_MAX - s->value : s->value % 32 * UNIT, used = in_use();
    rvli_store_message message = {.kind = RVLI_STORE_RESERVE, .bytes = bytes};
    int fd;
    require(ask(who, &message, NOTHING, &fd) && fd < 0);
    bool fits = used <= BUDGET && bytes <= BUDGET - used;
    require(message.kind == (fits ? RVLI_STORE_DONE : RVLI_STORE_FULL));
    now.promised[who] += fits ? bytes : 0;
}

static void give_back(unsigned who, const step *s)
{
    uint64_t bytes = s->change & 1 ? UINT64_MAX : s->value % 32 * UNIT;
    const rvli_store_message message = {
        .magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_RETURN, .bytes = bytes};
    require(send_packet(now.users[who], &message, sizeof message, NOTHING));
    now.promised[who] -= bytes < now.promised[who] ? bytes : now.promised[who];
    settle();
}

/* What was found is the content that was asked for, and nobody can change it. */
static void take_found(unsigned who, const rvli_store_message *answer, int fd, rvli_digest digest,
                       uint64_t bytes)
{
    segment *found = find_id(answer->id);
    require(has_content(found, digest, bytes) && rvli_store_is_sealed(fd, bytes));
    require(!answer->checked); /* nobody but this process has looked at it */
    close(fd);
    found->references[who]++;
}

static rvli_store_kind find_as(unsigned who, const step *s, bool claims)
{
    uint64_t bytes = bytes_of(s);
    rvli_digest digest = digest_of(s);
    rvli_store_message message = {
        .kind = RVLI_STORE_FIND, .digest = digest, .bytes = bytes, .claim = claims};
    bool busy = claims && *claim_of(s) != 0;
    int fd;
    require(ask(who, &message, NOTHING, &fd));
    require(message.kind == (knows_content(digest, bytes) ? RVLI_STORE_FOUND
                             : busy                       ? RVLI_STORE_BUSY
                                                          : RVLI_STORE_NONE));
    require((fd >= 0) == (message.kind == RVLI_STORE_FOUND));
    if (fd >= 0)
        take_found(who, &message, fd, digest, bytes);
    return (rvli_store_kind)message.kind;
}

static void find(unsigned who, const step *s)
{
    (void)find_as(who, s, false);
}

static void claim(unsigned who, const step *s)
{
    if (find_as(who, s, true) == RVLI_STORE_NONE)
        *claim_of(s) = who + 1;
}

static void end_claim(unsigned who, const step *s)
{
    if (*claim_of(s) == who + 1)
        *claim_of(s) = 0;
}

static void unclaim(unsigned who, const step *s)
{
    const rvli_store_message message = {.magic = RVLI_STORE_MAGIC,
                                        .kind = RVLI_STORE_UNCLAIM,
                                        .digest = digest_of(s),
                                        .bytes = bytes_of(s)};
    require(send_packet(now.users[who], &message, sizeof message, NOTHING));
    end_claim(who, s);
    settle();
}

static void say_checked(unsigned who, const step *s)
{
    const rvli_store_message message = {.magic = RVLI_STORE_MAGIC,
                                        .kind = RVLI_STORE_CHECKED,
                                        .id = now.segments[s->value % SEGMENTS].id};
    require(send_packet(now.users[who], &message, sizeof message, NOTHING));
    settle(); /* all users here are one process: the word of the one that added it does not count */
}

static void ask_secret(unsigned who, const step *s)
{
    rvli_store_message message = {.kind = RVLI_STORE_SECRET, .bytes = s->value};
    int fd;
    require(ask(who, &message, NOTHING, &fd) && fd < 0);
    require(message.kind == RVLI_STORE_DONE);
    require((message.digest.low & 1) == 1 && message.digest.high >> 63 == 0);
    require(now.secret.low == 0 ||
            memcmp(&now.secret, &message.digest, sizeof message.digest) == 0);
    now.secret = message.digest;
}

static void note_added(unsigned who, uint64_t id, rvli_digest digest, uint64_t bytes)
{
    segment *free_one = NULL;
    require(id > now.last_id);
    now.last_id = id;
    for (int i = 0; i < SEGMENTS && free_one == NULL; i++)
        free_one = now.segments[i].id == 0 ? &now.segments[i] : NULL;
    require(free_one != NULL); /* the budget has room for no more */
    *free_one = (segment){.id = id, .bytes = bytes, .digest = digest};
    free_one->references[who] = 1;
    now.promised[who] -= bytes;
}

static void add(unsigned who, const step *s)
{
    uint64_t bytes = bytes_of(s);
    rvli_digest digest = digest_of(s);
    unsigned kind = s->file % FILES;
    bool apart = s->change & 1, known = knows_content(digest, bytes);
    rvli_store_message message = {
        .kind = RVLI_STORE_ADD, .digest = digest, .bytes = bytes, .apart = apart};
    int fd;
    bool allowed = is_segment(kind) && bytes > 0 && bytes <= now.promised[who];
    bool heard = ask(who, &message, kind, &fd);
    require(heard == (kind != MANY)); /* more than a message has */
    if (!heard) {
        user_has_left(who);
        return;
    }
    rvli_store_kind expected = !allowed          ? RVLI_STORE_REFUSED
                               : known && !apart ? RVLI_STORE_FOUND
                                                 : RVLI_STORE_DONE;
    require(message.kind == expected && (fd >= 0) == (expected == RVLI_STORE_FOUND));
    if (allowed)
        end_claim(who, s);
    if (fd >= 0)
        take_found(who, &message, fd, digest, bytes);
    else if (expected == RVLI_STORE_DONE)
        note_added(who, message.id, digest, bytes);
}

static void drop(unsigned who, const step *s)
{
    uint64_t id = s->change & 1 ? s->value : now.segments[s->value % SEGMENTS].id;
    const rvli_store_message message = {
        .magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_DROP, .id = id};
    segment *of = find_id(id);
    require(send_packet(now.users[who], &message, sizeof message, NOTHING));
    if (of != NULL && of->references[who] > 0)
        of->references[who]--;
    forget_unused();
    settle();
}

/*
 * What is no question ends the connection or is refused; what is none of its size or magic ends it.
 * Questions by their kinds are asked by the steps above.
 */
static void say(unsigned who, const step *s)
{
    uint32_t said = RVLI_STORE_ASK + s->value % 240;
    bool has_step = said >= RVLI_STORE_SECRET && said <= RVLI_STORE_CHECKED;
    rvli_store_message message = {.magic = RVLI_STORE_MAGIC,
                                  .kind = has_step ? RVLI_STORE_BUSY : said,
                                  .id = s->content,
                                  .bytes = s->content * UNIT};
    size_t size = sizeof message;
    unsigned kind = s->file % FILES;
    bool whole = kind != MANY;
    int fd;
    if (s->change % 4 == 1)
        size = s->value % sizeof message;
    else if (s->change % 4 == 2)
        size += 1 + s->value % 64;
    else if (s->change % 4 == 3)
        message.magic ^= UINT64_C(1) << s->value % 64;
    whole = whole && s->change % 4 == 0;
    if (!send_packet(now.users[who], &message, size, kind))
        return;
    bool heard = hear(now.users[who], &message, &fd);
    require(heard == whole && fd < 0);
    if (heard)
        require(message.kind == (s->value % 240 == 0 ? RVLI_STORE_DONE : RVLI_STORE_REFUSED));
    else
        user_has_left(who);
}

/* ---- The client ---- */

/* What plays its owner: the client's connection is the first of its queue. */
typedef struct played {
    int listener, socket;
    rvli_store_client *client;
} played;

static void open_played(played *p)
{
    struct sockaddr_un address;
    char at[sizeof path + 8];
    snprintf(at, sizeof at, "%s.played", path);
    require(rvli_store_address(at, &address) == RVL_OK);
    p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    require(p->listener >= 0 &&
            bind(p->listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
            listen(p->listener, 1) == 0);
    require(rvli_store_client_new(at, &p->client) == RVL_OK);
    p->socket = accept(p->listener, NULL, NULL);
    require(p->socket >= 0 && unlink(at) == 0);
}

static void close_played(played *p)
{
    rvli_store_client_delete(p->client);
    close(p->socket);
    close(p->listener);
}

#define QUESTIONS 4

/* Whether the answer is one that a client may take. */
static bool is_answer(const step *s, uint32_t kind, bool whole)
{
    static const uint32_t good[][2] = {{RVLI_STORE_DONE, RVLI_STORE_DONE},
                                       {RVLI_STORE_FOUND, RVLI_STORE_NONE},
                                       {RVLI_STORE_FOUND, RVLI_STORE_DONE},
                                       {RVLI_STORE_DONE, RVLI_STORE_DONE}};
    const unsigned question = s->value % QUESTIONS;
    const uint32_t *of = good[question];
    bool file = s->file % FILES != NOTHING;
    bool busy = question == 1 && kind == RVLI_STORE_BUSY;
    bool known = kind == of[0] || kind == of[1] || busy;
    bool numbered = s->content > 0 || kind == RVLI_STORE_NONE || busy || question == 0;
    bool odd = question != 3 || (s->content & 1) != 0;
    return whole && known && file == (kind == RVLI_STORE_FOUND) &&
           (!file || s->file % FILES == SEALED) && numbered && odd;
}

static rvl_status find_as_client(played *p, rvli_digest digest, uint64_t bytes, bool claim,
                                 rvli_store_place *place, int *fd_out)
{
    rvli_store_found found = {.fd = -1};
    rvl_status status = rvli_store_find(p->client, digest, bytes, claim, &found);
    require((found.fd >= 0) == (found.place.id != 0));
    require(!found.busy || found.fd < 0);
    *place = found.place;
    *fd_out = found.fd;
    return status;
}

static rvl_status ask_as_client(played *p, const step *s, int fd, rvli_store_place *place,
                                int *fd_out)
{
    uint64_t bytes = (1 + s->change % 8) * UNIT, connection = 0;
    rvli_secret secret = {0};
    rvl_status status;
    switch (s->value % QUESTIONS) {
    case 0:
        status = rvli_store_reserve(p->client, bytes, &connection);
        require((status == RVL_OK) == (connection != 0));
        return status;
    case 1:
        return find_as_client(p, digest_of(s), bytes, s->change & 64, place, fd_out);
    case 3:
        status = rvli_store_secret(p->client, &secret);
        require((status == RVL_OK) == (secret.low != 0));
        return status;
    default:
        return rvli_store_add(p->client, digest_of(s), bytes, fd, false, place, fd_out);
    }
}

/* The answer is there before the question. */
static void answer_client(const step *s)
{
    played p;
    rvli_store_place place = {0};
    uint64_t bytes = (1 + s->change % 8) * UNIT;
    uint32_t kind = s->who % (RVLI_STORE_BUSY + 2);
    rvli_store_message message = {.magic = RVLI_STORE_MAGIC,
                                  .kind = kind,
                                  .id = s->content,
                                  .bytes = bytes,
                                  .digest = {s->content, s->change},
                                  .budget_bytes = s->content & 1 ? UINT64_MAX : BUDGET,
                                  .kept_bytes = s->content * UNIT};
    size_t size = sizeof message;
    int fd = make_file(SEALED, bytes), came = -1;
    open_played(&p);
    bool whole = s->change / 8 % 8 != 1 && s->change / 8 % 8 != 2 && s->file % FILES != MANY;
    size += s->change / 8 % 8 == 1 ? 1 : 0;
    message.magic += s->change / 8 % 8 == 2 ? 1 : 0;
    if (s->change / 8 % 8 == 3)
        require(shutdown(p.socket, SHUT_RDWR) == 0), whole = false;
    else
        require(send_packet(p.socket, &message, size, s->file % FILES));
    rvl_status status = ask_as_client(&p, s, fd, &place, &came);
    require((status == RVL_OK) == is_answer(s, kind, whole));
    require(status == RVL_OK || rvli_error_get()->message[0] != '\0');
    require(status == RVL_OK || (came < 0 && place.id == 0));
    require(came < 0 || rvli_store_is_sealed(came, bytes));
    if (came >= 0)
        close(came);
    rvli_store_drop(p.client, place);
    rvli_store_return(p.client, bytes, 1);
    rvli_store_count(p.client, (int64_t)bytes, 0);
    require(rvli_store_counted(p.client).kept == bytes);
    close(fd);
    close_played(&p);
}

/* ---- Steps ---- */

static void check_totals(void)
{
    int fd = -1;
    rvli_store_message message = {.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_ASK};
    const rvl_store_stats expected = totals();
    require(rvli_packet_send(now.asks, &message, sizeof message, NULL, 0, 0));
    require(hear(now.asks, &message, &fd) && fd < 0);
    require(message.kind == RVLI_STORE_DONE);
    require(message.budget_bytes == expected.budget_bytes);
    require(message.kept_bytes == expected.kept_bytes);
    require(message.promised_bytes == expected.promised_bytes);
    require(message.referenced_bytes == expected.referenced_bytes);
    require(message.segment_count == expected.segment_count);
    require(message.user_count == expected.user_count + 1);
    require(message.kept_bytes + message.promised_bytes <= BUDGET);
}

static void make_step(const step *s)
{
    static void (*const of_users[])(unsigned, const step *) = {
        [VERB_RESERVE] = reserve,  [VERB_RETURN] = give_back, [VERB_FIND] = find,
        [VERB_ADD] = add,          [VERB_DROP] = drop,        [VERB_SAY] = say,
        [VERB_CLAIM] = claim,      [VERB_UNCLAIM] = unclaim,  [VERB_CHECKED] = say_checked,
        [VERB_SECRET] = ask_secret};
    verb what = (verb)(s->verb % VERBS);
    unsigned who = s->who % USERS;
    if (what == VERB_CLIENT)
        answer_client(s);
    else if (now.users[who] < 0)
        now.users[who] = connect_one();
    else if (what == VERB_LEAVE)
        leave(who);
    else if (what != VERB_CONNECT)
        of_users[what](who, s);
    check_totals();
}

/* The lowest number that is free: one more, and a descriptor is left open. */
static int lowest_descriptor(void)
{
    int lowest = dup(STDERR_FILENO);
    require(lowest >= 0);
    close(lowest);
    return lowest;
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    const size_t count = size / sizeof(step);
    if (path[0] == '\0') /* once, since a store is found by its path */
        require(snprintf(path, sizeof path, "%s/store", fuzz_folder()) < (int)sizeof path);
    int lowest = lowest_descriptor();
    memset(&now, 0, sizeof now);
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = path, .budget_bytes = BUDGET};
    require(rvl_store_open(&options, &now.store) == RVL_OK);
    now.stop = eventfd(1, EFD_CLOEXEC);
    require(now.stop >= 0);
    for (int i = 0; i < USERS; i++)
        now.users[i] = -1;
    now.asks = connect_one();
    for (size_t i = 0; i < count && i < STEPS_MAX; i++) {
        step s;
        memcpy(&s, data + i * sizeof s, sizeof s);
        make_step(&s);
    }
    for (unsigned i = 0; i < USERS; i++)
        if (now.users[i] >= 0)
            leave(i);
    check_totals();
    rvl_store_close(now.store);
    close(now.asks);
    close(now.stop);
    require(lowest_descriptor() == lowest && access(path, F_OK) != 0);
    return count > 0;
}
