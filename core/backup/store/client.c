/* SPDX-License-Identifier: MIT */
#include "core/backup/store/client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/packet.h"
#include "base/shown.h"
#include "base/text.h"
#include "core/backup/store/message.h"

#define AS_TEXT(number) AS_TEXT_OF(number)
#define AS_TEXT_OF(number) #number

struct rvli_store_client {
    pthread_mutex_t lock;
    struct sockaddr_un address;
    int socket; /* -1: broken */
    uint64_t connection;
    uint64_t secret_connection; /* the connection of `secret`; 0: no secret is known */
    rvli_secret secret;
    rvli_store_bytes bytes;
};

/* ---- The connection ---- */

static rvl_status no_owner(const struct sockaddr_un *address, int number)
{
    rvli_error(RVL_ERR_IO, "no store of this user answers at its path: start one there "
                           "(reveille store PATH)");
    rvli_error_errno(number);
    rvli_error_place(address->sun_path, 0, 0);
    return RVL_ERR_IO;
}

/* With the lock held. */
static rvl_status renew(rvli_store_client *client)
{
    char byte;
    if (client->socket >= 0 && recv(client->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
        (errno == EAGAIN || errno == EWOULDBLOCK))
        return RVL_OK;
    if (client->socket >= 0)
        close(client->socket);
    client->socket = rvli_store_connect(&client->address);
    if (client->socket < 0)
        return no_owner(&client->address, errno);
    client->connection++;
    return RVL_OK;
}

/* Fills the record for a failure other than a missing owner. */
static rvl_status fail(const rvli_store_client *client, int number, const char *why)
{
    rvli_error(RVL_ERR_IO, why);
    rvli_error_errno(number);
    rvli_error_place(client->address.sun_path, 0, 0);
    return RVL_ERR_IO;
}

/* Closes the connection, because a late reply would be taken for the next one. */
static rvl_status give_up(rvli_store_client *client, rvli_packet_result result)
{
    if (client->socket >= 0)
        close(client->socket);
    client->socket = -1;
    switch (result) {
    case RVLI_PACKET_NONE:
        return fail(client, ETIMEDOUT,
                    "the store has not answered for " AS_TEXT(
                        RVLI_STORE_PATIENCE_S) " s: its "
                                               "process has been stopped, or has no time. Let it "
                                               "go on (kill -CONT), or end "
                                               "it and start another");
    case RVLI_PACKET_TAKEN:
    case RVLI_PACKET_WRONG:
        return fail(client, EPROTO,
                    "what answers at the path of the store is not a store of this version: end "
                    "it, and start one (reveille store PATH)");
    default:
        return no_owner(&client->address, EPIPE);
    }
}

/* Returns whether a reply is of a kind that the question allows. */
static bool answers(uint32_t question, const rvli_store_message *answer, bool has_file)
{
    if (has_file != (answer->kind == RVLI_STORE_FOUND) || answer->kind == RVLI_STORE_REFUSED)
        return answer->kind == RVLI_STORE_REFUSED && !has_file;
    switch (question) {
    case RVLI_STORE_RESERVE:
        return answer->kind == RVLI_STORE_DONE || answer->kind == RVLI_STORE_FULL;
    case RVLI_STORE_FIND:
        return answer->kind == RVLI_STORE_NONE || answer->kind == RVLI_STORE_BUSY ||
               (has_file && answer->id != 0);
    case RVLI_STORE_ADD:
        return (answer->kind == RVLI_STORE_DONE || has_file) && answer->id != 0;
    case RVLI_STORE_SECRET:
        return answer->kind == RVLI_STORE_DONE && (answer->digest.low & 1) != 0 &&
               answer->digest.high <= UINT64_MAX >> 1;
    default:
        return answer->kind == RVLI_STORE_DONE;
    }
}

/* The owner has counted a reference to a segment, but its descriptor was lost here. Drops it. */
static rvl_status starve(rvli_store_client *client, uint64_t id)
{
    const rvli_store_message drop = {.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_DROP, .id = id};
    if (!rvli_packet_send(client->socket, &drop, sizeof drop, NULL, 0, MSG_DONTWAIT))
        return give_up(client, RVLI_PACKET_CLOSED);
    return fail(client, EMFILE,
                "no file descriptor left for a segment of the store: raise ulimit -n");
}

/*
 * An owner without descriptors refuses a connection before it reads from it. So its refusal may be
 * readable although sending has failed.
 */
static rvli_packet_result talk(rvli_store_client *client, rvli_store_message *message, int fd,
                               int *fd_out, unsigned *count)
{
    if (client->socket < 0)
        return RVLI_PACKET_CLOSED;
    bool sent = rvli_packet_send(client->socket, message, sizeof *message, &fd, fd >= 0 ? 1 : 0, 0);
    bool late = !sent && (errno == EAGAIN || errno == EWOULDBLOCK);
    rvli_packet_result result = rvli_packet_take(client->socket, message, sizeof *message, fd_out,
                                                 1, count, sent ? 0 : MSG_DONTWAIT);
    return sent || late || result == RVLI_PACKET_TAKEN ? result : RVLI_PACKET_CLOSED;
}

/* With the lock held. A descriptor in the reply belongs to the caller. */
static rvl_status ask(rvli_store_client *client, rvli_store_message *message, int fd, int *fd_out)
{
    const uint32_t question = message->kind;
    unsigned count = 0;
    *fd_out = -1;
    message->magic = RVLI_STORE_MAGIC;
    rvli_packet_result result = talk(client, message, fd, fd_out, &count);
    if (result == RVLI_PACKET_STARVED && message->magic == RVLI_STORE_MAGIC &&
        message->kind == RVLI_STORE_FOUND)
        return starve(client, message->id);
    if (result != RVLI_PACKET_TAKEN)
        return give_up(client, result);
    bool known = message->magic == RVLI_STORE_MAGIC && answers(question, message, count > 0);
    if (known && message->kind != RVLI_STORE_REFUSED)
        return RVL_OK;
    if (count > 0)
        close(*fd_out);
    *fd_out = -1;
    return known ? fail(client, 0,
                        "the store has refused: it has no memory left, or no file descriptor (see "
                        "its ulimit -n)")
                 : give_up(client, result);
}

/*
 * Sends a message without a reply. It must not take long if the owner has been stopped. An owner
 * that is only slow gets a moment, because closing the connection drops everything that this user
 * has.
 */
static bool send_soon(const rvli_store_client *client, const rvli_store_message *message)
{
    struct pollfd room = {.fd = client->socket, .events = POLLOUT};
    if (rvli_packet_send(client->socket, message, sizeof *message, NULL, 0, MSG_DONTWAIT))
        return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return false;
    (void)poll(&room, 1, RVLI_STORE_TELL_MS);
    return rvli_packet_send(client->socket, message, sizeof *message, NULL, 0, MSG_DONTWAIT);
}

/* Does nothing if that connection's owner is gone. */
static void tell(rvli_store_client *client, uint64_t connection, rvli_store_message message)
{
    message.magic = RVLI_STORE_MAGIC;
    pthread_mutex_lock(&client->lock);
    if (client->socket >= 0 && client->connection == connection && !send_soon(client, &message)) {
        close(client->socket);
        client->socket = -1;
    }
    pthread_mutex_unlock(&client->lock);
}

rvl_status rvli_store_client_new(const char *path, rvli_store_client **client_out)
{
    struct sockaddr_un address;
    rvl_status status = rvli_store_address(path, &address);
    if (status != RVL_OK)
        return status;
    rvli_store_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a store's connection");
    pthread_mutex_init(&client->lock, NULL);
    client->address = address;
    client->socket = -1;
    status = renew(client); /* no other thread has it yet */
    if (status == RVL_OK)
        *client_out = client;
    else
        rvli_store_client_delete(client);
    return status;
}

void rvli_store_client_delete(rvli_store_client *client)
{
    if (client == NULL)
        return;
    if (client->socket >= 0)
        close(client->socket);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

rvl_status rvli_store_client_renew(rvli_store_client *client)
{
    pthread_mutex_lock(&client->lock);
    rvl_status status = renew(client);
    pthread_mutex_unlock(&client->lock);
    return status;
}

/* ---- Room ---- */

static rvl_status no_room(const rvli_store_client *client, const rvli_store_message *answer,
                          uint64_t bytes)
{
    uint64_t used = answer->kept_bytes + answer->promised_bytes;
    bool over = used > answer->budget_bytes || bytes > answer->budget_bytes - used;
    char message[sizeof((rvl_error *)0)->message];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "the store has no room: ");
    rvli_text_add_u64(&text, used);
    rvli_text_add(&text, " bytes in use");
    if (over) {
        rvli_text_add(&text, " of a budget of ");
        rvli_text_add_u64(&text, answer->budget_bytes);
        rvli_text_add(&text, ": resume what is paused, or start it with a larger one");
    } else {
        rvli_text_add(&text, ", and no file descriptor left: raise its ulimit -n");
    }
    rvli_error(RVL_ERR_HOST_OOM, message);
    rvli_error_place(client->address.sun_path, 0, 0);
    return RVL_ERR_HOST_OOM;
}

rvl_status rvli_store_reserve(rvli_store_client *client, uint64_t bytes, uint64_t *connection_out)
{
    int fd = -1;
    rvli_store_message message = {.kind = RVLI_STORE_RESERVE, .bytes = bytes};
    pthread_mutex_lock(&client->lock);
    rvl_status status = ask(client, &message, -1, &fd);
    if (status == RVL_OK && message.kind == RVLI_STORE_FULL)
        status = no_room(client, &message, bytes);
    else if (status == RVL_OK)
        *connection_out = client->connection;
    pthread_mutex_unlock(&client->lock);
    return status;
}

void rvli_store_return(rvli_store_client *client, uint64_t bytes, uint64_t connection)
{
    tell(client, connection, (rvli_store_message){.kind = RVLI_STORE_RETURN, .bytes = bytes});
}

/* ---- Segments ---- */

/* Checks that a received segment cannot change, without trusting the owner. With the lock held. */
static rvl_status check_found(rvli_store_client *client, uint64_t bytes, int *fd)
{
    if (*fd < 0 || rvli_store_is_sealed(*fd, bytes))
        return RVL_OK;
    close(*fd);
    *fd = -1;
    (void)give_up(client, RVLI_PACKET_WRONG);
    return rvli_error(RVL_ERR_IO, "the store has answered with a segment that is not sealed");
}

/* With the lock held. */
static rvl_status learn_secret(rvli_store_client *client)
{
    int fd = -1;
    rvli_store_message message = {.kind = RVLI_STORE_SECRET};
    rvl_status status = ask(client, &message, -1, &fd);
    if (status != RVL_OK)
        return status;
    client->secret = (rvli_secret){message.digest.low, message.digest.high};
    client->secret_connection = client->connection;
    return RVL_OK;
}

rvl_status rvli_store_secret(rvli_store_client *client, rvli_secret *secret_out)
{
    pthread_mutex_lock(&client->lock);
    rvl_status status =
        client->secret_connection == client->connection ? RVL_OK : learn_secret(client);
    if (status == RVL_OK)
        *secret_out = client->secret;
    pthread_mutex_unlock(&client->lock);
    return status;
}

rvl_status rvli_store_find(rvli_store_client *client, rvli_digest digest, uint64_t bytes,
                           bool claim, rvli_store_found *found_out)
{
    int fd = -1;
    rvli_store_message message = {
        .kind = RVLI_STORE_FIND, .digest = digest, .bytes = bytes, .claim = claim};
    pthread_mutex_lock(&client->lock);
    rvl_status status = ask(client, &message, -1, &fd);
    if (status == RVL_OK)
        status = check_found(client, bytes, &fd);
    if (status == RVL_OK)
        *found_out = (rvli_store_found){
            .place = {fd >= 0 ? message.id : 0, client->connection},
            .fd = fd,
            .checked = message.checked != 0,
            .busy = message.kind == RVLI_STORE_BUSY,
        };
    pthread_mutex_unlock(&client->lock);
    return status;
}

void rvli_store_unclaim(rvli_store_client *client, rvli_digest digest, uint64_t bytes,
                        uint64_t connection)
{
    tell(client, connection,
         (rvli_store_message){.kind = RVLI_STORE_UNCLAIM, .digest = digest, .bytes = bytes});
}

void rvli_store_checked(rvli_store_client *client, rvli_store_place place)
{
    tell(client, place.connection,
         (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = place.id});
}

rvl_status rvli_store_add(rvli_store_client *client, rvli_digest digest, uint64_t bytes, int fd,
                          bool apart, rvli_store_place *place_out, int *fd_out)
{
    int first = -1;
    rvli_store_message message = {
        .kind = RVLI_STORE_ADD, .digest = digest, .bytes = bytes, .apart = apart};
    pthread_mutex_lock(&client->lock);
    rvl_status status = ask(client, &message, fd, &first);
    if (status == RVL_OK)
        status = check_found(client, bytes, &first);
    if (status == RVL_OK) {
        *place_out = (rvli_store_place){message.id, client->connection};
        *fd_out = first;
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

void rvli_store_drop(rvli_store_client *client, rvli_store_place place)
{
    if (place.id != 0)
        tell(client, place.connection,
             (rvli_store_message){.kind = RVLI_STORE_DROP, .id = place.id});
}

/* ---- Counting ---- */

void rvli_store_count(rvli_store_client *client, int64_t kept_bytes, int64_t found_bytes)
{
    pthread_mutex_lock(&client->lock);
    client->bytes.kept += (uint64_t)kept_bytes;
    client->bytes.found += (uint64_t)found_bytes;
    pthread_mutex_unlock(&client->lock);
}

rvli_store_bytes rvli_store_counted(rvli_store_client *client)
{
    pthread_mutex_lock(&client->lock);
    rvli_store_bytes bytes = client->bytes;
    pthread_mutex_unlock(&client->lock);
    return bytes;
}

/* ---- Totals ---- */

rvl_status rvl_store_get_stats(const char *path, rvl_store_stats *stats_out)
{
    rvli_store_client *client = NULL;
    int fd = -1;
    rvli_store_message message = {.kind = RVLI_STORE_ASK};
    rvl_status status = rvli_store_client_new(path, &client);
    if (status != RVL_OK)
        return status;
    status = ask(client, &message, -1, &fd);
    rvli_store_client_delete(client);
    if (status != RVL_OK)
        return status;
    const rvl_store_stats stats = {
        .budget_bytes = message.budget_bytes == UINT64_MAX ? 0 : message.budget_bytes,
        .kept_bytes = message.kept_bytes,
        .promised_bytes = message.promised_bytes,
        .referenced_bytes = message.referenced_bytes,
        .segment_count = message.segment_count,
        .user_count = message.user_count - 1, /* without this connection */
        .shared_bytes = message.shared_bytes,
        .refused_bytes = message.refused_bytes,
        .refused_count = message.refused_count,
    };
    return rvli_result_write(stats_out, &stats, sizeof stats);
}
