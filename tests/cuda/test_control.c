/* SPDX-License-Identifier: MIT */
/*
 * Sleep from outside: a child on the fake driver listens, and this process asks it, also where the
 * child is busy, refuses, has another version, or ends midway.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/sleep/control_wire.h"
#include "fake.h"
#include "gpu.h"
#include "reveille/control.h"
#include "reveille/sleep.h"

/* A child that listens, says so on a pipe, and then does what a letter on another one says. */
typedef struct child {
    pid_t process;
    int to, from;
} child;

static rvl_context *context;
static rvl_addr weights;

/* ---- The child ---- */

static rvl_status busy(void *user, const rvl_control_request *request, char *why_out)
{
    (void)user;
    (void)request;
    rvli_text_copy(why_out, RVL_CONTROL_WHY_BYTES, "3 requests are being served\033[1m");
    return RVL_ERR_BUSY;
}

/* Ends once the process is on its way. */
static rvl_status die(void *user, const rvl_control_request *request, char *why_out)
{
    (void)user;
    (void)request;
    (void)why_out;
    raise(SIGKILL);
    return RVL_OK;
}

static rvl_status close_within(void *user, const rvl_control_request *request, char *why_out)
{
    (void)user;
    (void)request;
    (void)why_out;
    return rvl_control_close();
}

static void listen_with(rvl_control_fn move)
{
    const rvl_control_options options = {.struct_size = sizeof options, .move = move};
    if (rvl_control_open(&options) != RVL_OK)
        _exit(10);
}

static char state_letter(void)
{
    if (rvl_context_is_asleep(NULL))
        return 's';
    return support_state(context, weights) == RVL_STATE_ACTIVE &&
                   gpu_holds(context, 0, weights, 2 * GRANULE, 1)
               ? 'a'
               : 'p';
}

static void fork_a_child(int from, int to)
{
    char letter = 0;
    if (fork() != 0)
        return;
    pid_t own = getpid(); /* told from here: by now the copy of the socket is closed */
    (void)!write(to, &own, sizeof own);
    while (read(from, &letter, 1) == 1) /* it lives on, without a thread to answer */
        ;
    _exit(0);
}

static void limit_descriptors(rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        _exit(12);
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        _exit(12);
}

static void obey(char letter, int from, int to)
{
    switch (letter) {
    case '?':
        letter = state_letter();
        (void)!write(to, &letter, 1);
        return;
    case 'b':
        listen_with(busy);
        break;
    case 'd':
        listen_with(die);
        break;
    case 'w':
        listen_with(close_within);
        break;
    case 'm': /* the driver cannot take it off */
        fake_fail("cuCheckpointProcessCheckpoint", 1, CUDA_ERROR_NOT_SUPPORTED, false);
        break;
    case 'f':
        fork_a_child(from, to);
        return;
    case 'n':
        limit_descriptors(3); /* as many as poll() asks about */
        break;
    case 'N':
        limit_descriptors(1024);
        break;
    case 'c':
        if (rvl_control_close() != RVL_OK)
            _exit(11);
        break;
    case 'o':
        listen_with(NULL);
        break;
    }
    (void)!write(to, &letter, 1);
}

static void be_child(int from, int to)
{
    char letter = 'r';
    gpu_fake_kernels();
    cuInit(0);
    context = gpu_open(NULL, NULL);
    weights = support_alloc(context, "weights", 0, 2 * GRANULE, RVL_BACKUP_HOST);
    gpu_fill(context, 0, weights, 2 * GRANULE, 1);
    listen_with(NULL);
    (void)!write(to, &letter, 1);
    while (read(from, &letter, 1) == 1)
        obey(letter, from, to);
    _exit(0);
}

static int start_child(void **state)
{
    static child c;
    int down[2], up[2];
    char letter = 0;
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    c.process = fork();
    assert_true(c.process >= 0);
    if (c.process == 0) {
        close(down[1]);
        close(up[0]);
        be_child(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    c.to = down[1];
    c.from = up[0];
    assert_int_equal(read(c.from, &letter, 1), 1);
    *state = &c;
    return 0;
}

static int end_child(void **state)
{
    const child *c = *state;
    int status = 0;
    close(c->to);
    assert_int_equal(waitpid(c->process, &status, 0), c->process);
    close(c->from);
    assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return 0;
}

static char tell(const child *c, char letter)
{
    assert_int_equal(write(c->to, &letter, 1), 1);
    assert_int_equal(read(c->from, &letter, 1), 1);
    return letter;
}

/* ---- Asking it ---- */

static rvl_status ask(int process, rvl_control_verb verb, rvl_control_answer *answer)
{
    const rvl_control_request request = {.struct_size = sizeof request, .verb = verb};
    return rvl_control_ask(process, &request, answer);
}

static const char *message(void)
{
    static rvl_error error;
    error.struct_size = sizeof error;
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error.message;
}

static void assert_says(const child *c, const char *what)
{
    char wanted[512];
    snprintf(wanted, sizeof wanted, "process %d %s", (int)c->process, what);
    assert_string_equal(message(), wanted);
}

static void it_sleeps_and_wakes(void **state)
{
    const child *c = *state;
    rvl_control_answer answer = {.struct_size = sizeof answer};
    for (int round = 0; round < 2; round++) {
        assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, &answer), RVL_OK);
        assert_true(answer.changed);
        assert_true(answer.time_ns > 0);
        assert_int_equal(tell(c, '?'), 's');
        assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, &answer), RVL_OK);
        assert_false(answer.changed);
        assert_int_equal(ask(c->process, RVL_CONTROL_WAKE_UP, &answer), RVL_OK);
        assert_true(answer.changed);
        assert_int_equal(tell(c, '?'), 'a');
        assert_int_equal(ask(c->process, RVL_CONTROL_WAKE_UP, NULL), RVL_OK);
    }
}

static void flags_go_with_it(void **state)
{
    const child *c = *state;
    rvl_control_request request = {
        .struct_size = sizeof request, .verb = RVL_CONTROL_SLEEP, .flags = 1u << 20};
    assert_int_equal(rvl_control_ask(c->process, &request, NULL), RVL_ERR_VERSION);
    assert_int_equal(tell(c, '?'), 'a');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_OK);
    request.verb = RVL_CONTROL_WAKE_UP;
    request.flags = RVL_WAKE_UP_PAUSED;
    assert_int_equal(rvl_control_ask(c->process, &request, NULL), RVL_OK);
    assert_int_equal(tell(c, '?'), 'p');
}

static void a_program_at_work_refuses(void **state)
{
    const child *c = *state;
    tell(c, 'b');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_ERR_BUSY);
    assert_says(c, "refuses: 3 requests are being served%1B[1m");
    assert_int_equal(tell(c, '?'), 'a');
    tell(c, 'o'); /* replaces what was said */
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_OK);
}

static void the_reason_of_the_driver_comes_back(void **state)
{
    const child *c = *state;
    tell(c, 'm');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(message(), "managed memory"));
    assert_int_equal(tell(c, '?'), 'a');
}

static void one_that_is_killed_midway_is_named(void **state)
{
    const child *c = *state;
    tell(c, 'd');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_ERR_IO);
    assert_says(c, "ended on its way to sleep: its devices are free");
}

static void who_is_not_there_or_does_not_listen(void **state)
{
    const child *c = *state;
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    assert_int_equal(ask(gone, RVL_CONTROL_SLEEP, NULL), RVL_ERR_NOT_FOUND);
    assert_non_null(strstr(message(), "does not exist"));
    tell(c, 'c');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_ERR_NOT_FOUND);
    assert_non_null(strstr(message(), "does not listen: have it call rvl_control_open()"));
    tell(c, 'c'); /* once more changes nothing */
    tell(c, 'o');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_OK);
    assert_int_equal(ask(0, RVL_CONTROL_SLEEP, NULL), RVL_ERR_INVALID);
    assert_int_equal(ask(c->process, (rvl_control_verb)3, NULL), RVL_ERR_INVALID);
}

/* A child of the one that listens holds no name: nobody waits for an answer that never comes. */
static void a_fork_does_not_listen(void **state)
{
    child *c = *state;
    pid_t grandchild = 0;
    const char letter = 'f';
    assert_int_equal(write(c->to, &letter, 1), 1);
    assert_int_equal(read(c->from, &grandchild, sizeof grandchild), sizeof grandchild);
    assert_int_equal(ask(grandchild, RVL_CONTROL_SLEEP, NULL), RVL_ERR_NOT_FOUND);
    assert_int_equal(kill(c->process, SIGKILL), 0);
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    socklen_t length = rvli_control_address(c->process, &address);
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)c->process, &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(connect(to, (struct sockaddr *)&address, length), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(to);
    kill(grandchild, SIGKILL);
}

static int connect_plainly(const child *c)
{
    struct sockaddr_un address;
    socklen_t length = rvli_control_address(c->process, &address);
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(to >= 0);
    assert_int_equal(connect(to, (struct sockaddr *)&address, length), 0);
    return to;
}

/* Words of another version are answered; one that says nothing is left after 2 s. */
static void others_words_do_no_harm(void **state)
{
    const child *c = *state;
    rvli_control_request request = {.magic = RVLI_CONTROL_MAGIC + 1, .verb = RVL_CONTROL_SLEEP};
    rvli_control_answer answer;
    int to = connect_plainly(c);
    assert_int_equal(send(to, &request, sizeof request, MSG_NOSIGNAL), sizeof request);
    assert_int_equal(recv(to, &answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(answer.status, RVL_ERR_VERSION);
    close(to);
    to = connect_plainly(c);
    assert_int_equal(send(to, "short", 5, MSG_NOSIGNAL), 5);
    assert_int_equal(recv(to, &answer, sizeof answer, 0), 0);
    close(to);
    to = connect_plainly(c); /* and is in the way of the next one for that long */
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_OK);
    close(to);
    to = connect_plainly(c); /* one that does not wait for its answer */
    request.magic = RVLI_CONTROL_MAGIC;
    request.verb = RVL_CONTROL_WAKE_UP;
    assert_int_equal(send(to, &request, sizeof request, MSG_NOSIGNAL), sizeof request);
    close(to);
    assert_int_equal(ask(c->process, RVL_CONTROL_WAKE_UP, NULL), RVL_OK);
    assert_int_equal(tell(c, '?'), 'a');
}

static double processor_s(const child *c)
{
    clockid_t clock;
    struct timespec used;
    assert_int_equal(clock_getcpuclockid(c->process, &clock), 0);
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* Who asks waits meanwhile, and the child does not spin. */
static void one_without_descriptors_waits_for_one(void **state)
{
    const child *c = *state;
    tell(c, 'n');
    int to = connect_plainly(c);
    double before = processor_s(c);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    assert_true(processor_s(c) - before < 0.3);
    close(to);
    tell(c, 'N');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_OK);
    assert_int_equal(ask(c->process, RVL_CONTROL_WAKE_UP, NULL), RVL_OK);
}

static void it_cannot_close_from_within(void **state)
{
    const child *c = *state;
    tell(c, 'w');
    assert_int_equal(ask(c->process, RVL_CONTROL_SLEEP, NULL), RVL_ERR_STATE);
    assert_says(c, "refuses: a request is being done on this thread: close later");
}

int main(void)
{
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    setenv("RVL_NVML_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_child, end_child)
        TEST(it_sleeps_and_wakes),
        TEST(flags_go_with_it),
        TEST(a_program_at_work_refuses),
        TEST(the_reason_of_the_driver_comes_back),
        TEST(one_that_is_killed_midway_is_named),
        TEST(who_is_not_there_or_does_not_listen),
        TEST(a_fork_does_not_listen),
        TEST(others_words_do_no_harm),
        TEST(one_without_descriptors_waits_for_one),
        TEST(it_cannot_close_from_within),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
