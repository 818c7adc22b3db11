/* SPDX-License-Identifier: MIT */
/* The store of one rank that runs without its peers, tested with the messages of TCPStore's
 * client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "simcuda/machine/store.h"

#define MAGIC 0x3c85f7ceu

enum { VALIDATE, SET, COMPARE, GET, ADD, CHECK, WAIT, COUNT, DELETE, APPEND, GET_ALL, SET_ALL };
enum { CANCEL = 12, PING, PUSH };

static rvli_store *store;
static int client;
static char message[4096];
static size_t length;

/* ---- The client ---- */

static void put(const void *bytes, size_t count)
{
    memcpy(message + length, bytes, count);
    length += count;
}

static void put_kind(unsigned char kind)
{
    put(&kind, 1);
}

static void put_number(int64_t number)
{
    put(&number, sizeof number);
}

static void put_text(const char *text)
{
    put_number((int64_t)strlen(text));
    put(text, strlen(text));
}

static void serve(void)
{
    struct pollfd ready = {.fd = rvli_store_file(store), .events = POLLIN};
    while (poll(&ready, 1, 50) > 0)
        rvli_store_serve(store);
}

static void send_part(size_t from, size_t to)
{
    assert_int_equal(send(client, message + from, to - from, MSG_NOSIGNAL), to - from);
    serve();
}

static void send_message(void)
{
    send_part(0, length);
    length = 0;
}

static void take(void *bytes, size_t count)
{
    assert_int_equal(recv(client, bytes, count, MSG_WAITALL), count);
}

static int64_t take_number(void)
{
    int64_t number;
    take(&number, sizeof number);
    return number;
}

static void check_text(const char *expected)
{
    char text[256] = "";
    int64_t count = take_number();
    assert_int_equal(count, strlen(expected));
    take(text, (size_t)count);
    assert_string_equal(text, expected);
}

static unsigned char take_byte(void)
{
    unsigned char byte;
    take(&byte, 1);
    return byte;
}

/* check_quiet(): no further message arrives. check_ended(): the connection has ended. */
static void check_quiet(void)
{
    char byte;
    assert_int_equal(recv(client, &byte, 1, MSG_DONTWAIT), -1);
}

static void check_ended(void)
{
    char byte;
    assert_true(recv(client, &byte, 1, 0) <= 0);
}

static int begin(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 5};
    uint32_t magic = MAGIC;
    (void)state;
    store = rvli_store_open();
    if (store == NULL)
        return -1;
    address.sin_port = htons(rvli_store_port(store));
    client = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(client, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    length = 0;
    put_kind(VALIDATE);
    put(&magic, sizeof magic);
    send_message();
    return 0;
}

static int end(void **state)
{
    (void)state;
    close(client);
    rvli_store_close(store);
    return 0;
}

static void set(const char *key, const char *value)
{
    put_kind(SET);
    put_text(key);
    put_text(value);
    send_message();
}

static void ask(unsigned char kind, const char *key)
{
    put_kind(kind);
    put_text(key);
    send_message();
}

static void ask_keys(unsigned char kind, const char *first, const char *second)
{
    put_kind(kind);
    put_number(2);
    put_text(first);
    put_text(second);
    send_message();
}

/* ---- Tests ---- */

static void what_is_set_is_there(void **state)
{
    (void)state;
    set("key", "value");
    check_quiet();
    ask(GET, "key");
    check_text("value");
    set("key", "other");
    put_kind(APPEND);
    put_text("key");
    put_text(" more");
    send_message();
    ask(GET, "key");
    check_text("other more");
    ask(DELETE, "key");
    assert_int_equal(take_number(), 1);
    ask(DELETE, "key");
    assert_int_equal(take_number(), 0);
}

static void nobody_waits(void **state)
{
    (void)state;
    ask_keys(WAIT, "of rank 5", "of rank 6");
    assert_int_equal(take_byte(), 0);
    put_kind(CANCEL);
    send_message();
    assert_int_equal(take_byte(), 1);
}

static void what_others_set_is_made_up(void **state)
{
    char first[RVLI_STORE_MADE_UP_BYTES], again[RVLI_STORE_MADE_UP_BYTES];
    (void)state;
    ask(GET, "default_pg/0//cuda//0");
    assert_int_equal(take_number(), RVLI_STORE_MADE_UP_BYTES);
    take(first, sizeof first);
    ask(GET, "default_pg/0//cuda//0");
    assert_int_equal(take_number(), RVLI_STORE_MADE_UP_BYTES);
    take(again, sizeof again);
    assert_memory_equal(first, again, sizeof first);
    ask(GET, "default_pg/0//cuda//1");
    assert_int_equal(take_number(), RVLI_STORE_MADE_UP_BYTES);
    take(again, sizeof again);
    assert_memory_not_equal(first, again, sizeof first);
    ask(GET, "default_pg/0//cpu//0/5"); /* an address */
    assert_int_equal(take_number(), 0);
}

static void what_was_not_set_is_not_there(void **state)
{
    (void)state;
    set("here", "1");
    ask_keys(CHECK, "here", "exception_dump");
    assert_int_equal(take_byte(), 1);
    ask_keys(CHECK, "here", "here");
    assert_int_equal(take_byte(), 0);
    put_kind(COUNT);
    send_message();
    assert_int_equal(take_number(), 1);
}

static void sums(void **state)
{
    static const int64_t added[] = {1, 41, -50}, sum[] = {1, 42, -8};
    (void)state;
    for (int i = 0; i < 3; i++) {
        put_kind(ADD);
        put_text("count");
        put_number(added[i]);
        send_message();
        assert_int_equal(take_number(), sum[i]);
    }
    ask(GET, "count");
    check_text("-8");
}

static void compared(void **state)
{
    static const char *const turns[][3] = {/* expected, wanted, value afterwards */
                                           {"none", "a", "none"},
                                           {"", "a", "a"},
                                           {"b", "c", "a"},
                                           {"a", "c", "c"}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        put_kind(COMPARE);
        put_text("key");
        put_text(turns[i][0]);
        put_text(turns[i][1]);
        send_message();
        check_text(turns[i][2]);
    }
}

static void many_at_once(void **state)
{
    (void)state;
    put_kind(SET_ALL);
    put_number(2);
    put_text("a");
    put_text("1");
    put_text("b");
    put_text("2");
    send_message();
    ask_keys(GET_ALL, "b", "a");
    check_text("2");
    check_text("1");
}

/* Messages arrive in pieces, and several at a time. */
static void cut_anywhere(void **state)
{
    uint32_t number = 77, got;
    (void)state;
    put_kind(PING);
    put(&number, sizeof number);
    put_kind(SET);
    put_text("key");
    put_text("value");
    put_kind(GET);
    put_text("key");
    for (size_t i = 0; i < length; i++)
        send_part(i, i + 1);
    length = 0;
    take(&got, sizeof got);
    assert_int_equal(got, number);
    check_text("value");
    check_quiet();
}

static void what_it_cannot_answer(void **state)
{
    (void)state;
    ask(PUSH, "queue");
    check_ended();
}

static void another_program(void **state)
{
    (void)state;
    put_kind(VALIDATE);
    put("HTTP", 4);
    send_message();
    check_ended();
}

/* An excessive length is not waited for forever: the message grows until it exceeds the limit. */
static void a_length_beyond_reason(void **state)
{
    static char block[1 << 20];
    ssize_t sent = 1;
    (void)state;
    put_kind(GET);
    put_number(INT64_MAX);
    send_message();
    for (int i = 0; i < 80 && sent > 0; i++) {
        sent = send(client, block, sizeof block, MSG_NOSIGNAL | MSG_DONTWAIT);
        serve();
    }
    check_ended();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_set_is_there, begin, end),
        cmocka_unit_test_setup_teardown(nobody_waits, begin, end),
        cmocka_unit_test_setup_teardown(what_others_set_is_made_up, begin, end),
        cmocka_unit_test_setup_teardown(what_was_not_set_is_not_there, begin, end),
        cmocka_unit_test_setup_teardown(sums, begin, end),
        cmocka_unit_test_setup_teardown(compared, begin, end),
        cmocka_unit_test_setup_teardown(many_at_once, begin, end),
        cmocka_unit_test_setup_teardown(cut_anywhere, begin, end),
        cmocka_unit_test_setup_teardown(what_it_cannot_answer, begin, end),
        cmocka_unit_test_setup_teardown(another_program, begin, end),
        cmocka_unit_test_setup_teardown(a_length_beyond_reason, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
