/* SPDX-License-Identifier: MIT */
/*
 * Requests to the machine of simulated GPUs, in any order, of processes that come and go in between
 * (simcuda/machine). Each input is a row of steps. Nothing is left of processes that have gone: no
 * memory, no host memory, no meeting. Requests of a kind that needs no answer get none.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "simcuda/machine/internal.h"
#include "simcuda/machine/shared.h"

#define PROCESSES 4
#define FILES 4
#define KNOWN 16 /* numbers that the machine has answered, which requests come back to */
#define STEPS_MAX 400
#define MIB (UINT64_C(1) << 20)

typedef struct input {
    const uint8_t *at, *end;
} input;

static rvli_machine *machine;
static rvli_client *processes[PROCESSES];
static int files[FILES]; /* that processes were given */
static uint64_t known[KNOWN];
static uint32_t known_count;
static uint64_t whole; /* the last meeting to which all processes have come; 0: none */
static unsigned meetings;

static uint8_t next(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* ---- Processes ---- */

static void end_process(rvli_client **process)
{
    rvli_client **link = &machine->clients;
    while (*link != *process)
        link = &(*link)->next;
    *link = (*process)->next;
    rvli_client_take_back(machine, *process);
    rvli_name_drop(machine, *process);
    free(*process);
    *process = NULL;
}

/* Two connections are of one process. */
static int pid_of(int index)
{
    return 100 + index / 2;
}

static void begin_process(rvli_client **process, int pid)
{
    rvli_client *made = calloc(1, sizeof *made);
    require(made != NULL);
    made->file = -1;
    made->pid = pid;
    made->next = machine->clients;
    machine->clients = *process = made;
}

static void close_files(void)
{
    for (int i = 0; i < FILES; i++) {
        if (files[i] >= 0)
            close(files[i]);
        files[i] = -1;
    }
    rvli_shared_serve(machine);
}

/* ---- Requests ---- */

static uint64_t pick_bytes(input *in)
{
    static const uint64_t sizes[] = {0,         1,          2,          3,
                                     4096,      2 * MIB,    64 * MIB,   1024 * MIB,
                                     INT64_MAX, UINT64_MAX, UINT32_MAX, RVLI_WIRE_VERSION};
    uint8_t which = next(in);
    return which < 128 ? sizes[which % (sizeof sizes / sizeof *sizes)] : (uint64_t)which * 65536;
}

/* Usually one that stands for something, or that is near it. */
static uint64_t pick_id(input *in)
{
    uint8_t which = next(in);
    uint32_t count = known_count < KNOWN ? known_count : KNOWN;
    if (which < 100)
        return whole;
    return which < 220 && count > 0 ? known[which % count] : which % 8;
}

/* Usually the one that the process has in a whole meeting. */
static uint32_t pick_rank(input *in, uint32_t own)
{
    uint8_t which = next(in);
    if (which < 160)
        return own;
    return which < 250 ? which % 4 : which == 250 ? RVLI_WIRE_ALL : (1u << 20) + which;
}

static uint32_t pick_end(input *in)
{
    uint8_t which = next(in);
    return which < 128 ? RVLI_WIRE_ALL : which % 4;
}

static rvli_wire_request pick_request(input *in, uint32_t own)
{
    static const char *const texts[] = {
        "",       "weights", "step",         "forward", "job", "job/2",      "-",
        "a b\nc", "%s",      "CUDA context", "python",  "run", "allreduce 8"};
    rvli_wire_request request = {.kind = 1u + next(in) % (RVLI_WIRE_LAST + 1u)};
    request.device = (int32_t)(next(in) % 4) - (next(in) > 240);
    request.bytes = pick_bytes(in);
    request.id = pick_id(in);
    request.rank = pick_rank(in, own);
    request.ranks = pick_rank(in, RVLI_WIRE_AWAITS);
    request.sequence = next(in) % 6;
    request.from = pick_end(in);
    request.to = pick_end(in);
    uint8_t text = next(in);
    if (text == 255)
        memset(request.text, 'x', sizeof request.text - 1);
    else
        snprintf(request.text, sizeof request.text, "%s",
                 texts[text % (sizeof texts / sizeof *texts)]);
    return request;
}

static void learn(const rvli_wire_answer *answer)
{
    if (answer->id != 0)
        known[known_count++ % KNOWN] = answer->id;
    if (answer->key != 0)
        known[known_count++ % KNOWN] = answer->key;
}

static void keep_file(int file)
{
    if (file < 0)
        return;
    for (int i = 0; i < FILES; i++)
        if (files[i] < 0) {
            files[i] = file;
            return;
        }
    close(file);
}

static bool ask(rvli_client **process, const rvli_wire_request *request)
{
    rvli_wire_answer answer = {0};
    int file = -1;
    bool quiet = rvli_client_is_quiet(request);
    rvli_client_next then = rvli_client_serve(machine, *process, request, &answer, &file);
    require(then == RVLI_CLIENT_END || (then == RVLI_CLIENT_QUIET) == quiet);
    require(answer.status <= RVL_OK && (file < 0 || answer.status == RVL_OK));
    require(memchr(answer.text, '\0', sizeof answer.text) != NULL);
    keep_file(file);
    if (then == RVLI_CLIENT_ANSWER && answer.status == RVL_OK)
        learn(&answer);
    if (then == RVLI_CLIENT_END)
        end_process(process);
    return then == RVLI_CLIENT_ANSWER && answer.status == RVL_OK;
}

/* As the client library greets. */
static void greet(rvli_client **process, input *in)
{
    rvli_wire_request hello = {.kind = RVLI_WIRE_HELLO, .bytes = RVLI_WIRE_VERSION};
    rvli_wire_request named = {.kind = RVLI_WIRE_NAME, .text = "python"};
    named.ranks = next(in) % 2;
    named.rank = next(in) % 4;
    if (ask(process, &hello))
        (void)ask(process, &named);
}

static void begin_greeted(int index, input *in)
{
    begin_process(&processes[index], pid_of(index));
    greet(&processes[index], in);
}

/* As the ranks of a communicator do. */
static void meet_all(input *in)
{
    rvli_wire_request meet = {.kind = RVLI_WIRE_MEET, .ranks = PROCESSES};
    rvli_wire_answer answer = {0};
    int file = -1;
    snprintf(meet.text, sizeof meet.text, "communicator %u", meetings++);
    for (int i = 0; i < PROCESSES; i++) {
        if (processes[i] == NULL || processes[i]->tenant == NULL)
            return;
        meet.rank = (uint32_t)i;
        meet.bytes = next(in) % 2;
        require(rvli_client_serve(machine, processes[i], &meet, &answer, &file) ==
                RVLI_CLIENT_ANSWER);
        require(answer.status == RVL_OK);
    }
    whole = answer.id;
}

/* ---- An execution ---- */

static bool step(input *in)
{
    uint8_t what = next(in);
    rvli_client **process = &processes[what % PROCESSES];
    if (*process == NULL && what < 250) {
        begin_greeted(what % PROCESSES, in);
        return false;
    }
    if (*process == NULL) {
        begin_process(process, pid_of(what % PROCESSES)); /* and says nothing yet */
        return false;
    }
    if (what >= 248) {
        end_process(process);
        return false;
    }
    if (what >= 244) {
        close_files();
        return false;
    }
    if (what >= 232) {
        meet_all(in);
        return false;
    }
    const rvli_wire_request request = pick_request(in, what % PROCESSES);
    return ask(process, &request);
}

static void check_nothing_is_left(void)
{
    for (int device = 0; device < machine->gpus; device++) {
        uint64_t left = 0, total = 0;
        require(rvl_device_get_memory(machine->context, device, &left, &total) == RVL_OK);
        require(left == total);
    }
    require(machine->clients == NULL && machine->tenants == NULL);
    require(machine->meetings == NULL);
    require(machine->host_bytes[RVLI_WIRE_PINNED] == 0 &&
            machine->host_bytes[RVLI_WIRE_PAGEABLE] == 0);
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    input in = {data, data + size};
    rvl_error error = {.struct_size = sizeof error};
    const rvli_machine_options options = {.device = "1GiB",
                                          .gpus = 2,
                                          .host_bytes = 256 * MIB,
                                          .record = "/dev/null",
                                          .stage = "run",
                                          .keep_times = true};
    size_t good = 0;
    known_count = 0;
    whole = 0;
    meetings = 0;
    for (int i = 0; i < FILES; i++)
        files[i] = -1;
    require(rvli_machine_open(&options, &error, &machine) == RVL_OK);
    for (int i = 0; i < STEPS_MAX && in.at < in.end; i++)
        good += step(&in);
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i] != NULL)
            end_process(&processes[i]);
    close_files();
    check_nothing_is_left();
    rvli_machine_ended(machine, 0);
    require(rvli_machine_close(machine) == RVL_OK);
    return good > 0;
}
