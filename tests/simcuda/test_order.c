/* SPDX-License-Identifier: MIT */
/*
 * The machine serves messages in the order in which they were sent. Here, this program acts as
 * two processes, and the machine serves nothing while they send.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "simcuda/machine/machine.h"
#include "tests/support/folder.h"

#define PIECES 20
#define PIECE_BYTES (UINT64_C(64) << 20)

static rvli_machine *machine;

static int connect_here(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = rvli_machine_name(machine);
    memcpy(address.sun_path + 1, name, strlen(name));
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_int_equal(connect(file, (struct sockaddr *)&address, length), 0);
    return file;
}

static void say(int file, rvli_wire_request request)
{
    assert_int_equal(send(file, &request, sizeof request, MSG_NOSIGNAL), sizeof request);
}

/* Serves all messages sent so far. */
static void serve(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "", 1), 1);
    assert_int_equal(rvli_machine_serve(machine, ends[0], NULL), RVL_OK);
    close(ends[0]);
    close(ends[1]);
}

static uint64_t ask(int file, rvli_wire_request request)
{
    rvli_wire_answer answer;
    say(file, request);
    serve();
    assert_int_equal(recv(file, &answer, sizeof answer, MSG_DONTWAIT), sizeof answer);
    assert_int_equal(answer.status, RVL_OK);
    return answer.id;
}

static int begin_process(const char *program)
{
    rvli_wire_request hello = {.kind = RVLI_WIRE_HELLO, .bytes = RVLI_WIRE_VERSION};
    rvli_wire_request named = {.kind = RVLI_WIRE_NAME};
    int file = connect_here();
    snprintf(named.text, sizeof named.text, "%s", program);
    (void)ask(file, hello);
    (void)ask(file, named);
    return file;
}

/* Counts the lines with this beginning before the first line that begins with `end`. */
static int count_before(const char *trace, const char *begin, const char *end)
{
    char line[512];
    int count = 0;
    FILE *file = fopen(trace, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL && strncmp(line, end, strlen(end)) != 0)
        count += strncmp(line, begin, strlen(begin)) == 0;
    assert_false(feof(file));
    fclose(file);
    return count;
}

/* A worker frees memory and tells its controller, which also has memory, and ends the stage.
 * Neither waits for an answer. */
static void a_stage_ends_behind_what_was_freed(void **state)
{
    uint64_t pieces[PIECES];
    char trace[128];
    const rvli_machine_options options = {
        .device = "h100-80g", .gpus = 1, .record = trace, .stage = "start"};
    rvl_error error;
    (void)state;
    snprintf(trace, sizeof trace, "%s/order.rvt", folder);
    assert_int_equal(rvli_machine_open(&options, &error, &machine), RVL_OK);
    int controller = begin_process("controller"), worker = begin_process("worker");
    for (int i = 0; i < PIECES; i++)
        pieces[i] = ask(
            worker,
            (rvli_wire_request){.kind = RVLI_WIRE_ALLOC, .bytes = PIECE_BYTES, .text = "weights"});
    (void)ask(controller,
              (rvli_wire_request){.kind = RVLI_WIRE_ALLOC, .bytes = PIECE_BYTES, .text = "own"});
    say(controller, (rvli_wire_request){.kind = RVLI_WIRE_ENTER, .id = 1, .text = "asleep"});
    serve();
    for (int i = 0; i < PIECES; i++)
        say(worker, (rvli_wire_request){.kind = RVLI_WIRE_FREE, .id = pieces[i]});
    say(controller, (rvli_wire_request){.kind = RVLI_WIRE_LEAVE, .id = 1});
    serve();
    rvli_machine_close(machine);
    close(controller);
    close(worker);
    assert_int_equal(count_before(trace, "free ", "leave "), PIECES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stage_ends_behind_what_was_freed)};
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
