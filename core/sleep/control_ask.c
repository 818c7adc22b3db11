/* SPDX-License-Identifier: MIT */
/* The asking side: finds the process, and waits for its one answer. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/packet.h"
#include "base/shown.h"
#include "core/sleep/control_wire.h"

#define CONNECT_S 10 /* while it performs another request */
#define BEYOND_NS                                                                                  \
    UINT64_C(300000000000) /* added to the request's timeout, while waiting for the                \
                              answer */

static rvl_status refuse(rvl_status status, int process, const char *why)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "process ");
    rvli_text_add_u64(&text, (uint64_t)process);
    rvli_text_add(&text, " ");
    rvli_text_add(&text, why);
    return rvli_error(status, message);
}

static rvl_status explain_connect(int process, int cause)
{
    if (kill(process, 0) != 0 && errno == ESRCH)
        return refuse(RVL_ERR_NOT_FOUND, process, "does not exist");
    if (cause == EAGAIN)
        return refuse(RVL_ERR_TIMEOUT, process, "takes no request: others wait for it already");
    return refuse(RVL_ERR_NOT_FOUND, process,
                  "does not listen: have it call rvl_control_open() or reveille.control.open(), or "
                  "start it with REVEILLE_CONTROL=1; from another container it cannot be reached");
}

static rvl_status connect_to(int process, int *socket_out)
{
    struct sockaddr_un address;
    socklen_t length = rvli_control_address(process, &address);
    const struct timeval patience = {.tv_sec = CONNECT_S};
    pid_t owner = 0;
    int result, to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (to < 0)
        return rvli_error(RVL_ERR_IO, "no socket could be made");
    (void)setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    do
        result = connect(to, (struct sockaddr *)&address, length);
    while (result != 0 && errno == EINTR);
    if (result != 0) {
        int cause = errno;
        close(to);
        return explain_connect(process, cause);
    }
    if (!rvli_packet_peer(to, &owner) || owner != process) { /* any process may take any name */
        close(to);
        return refuse(RVL_ERR_NOT_FOUND, process,
                      "is another user's, or another listens in its name");
    }
    *socket_out = to;
    return RVL_OK;
}

/* Returns false if the time is over. */
static bool wait_for_answer(int socket, uint64_t timeout_ns)
{
    uint64_t now_ns = rvli_monotonic_ns(), end_ns;
    if (__builtin_add_overflow(now_ns + BEYOND_NS, timeout_ns, &end_ns))
        end_ns = UINT64_MAX;
    for (; now_ns < end_ns; now_ns = rvli_monotonic_ns()) {
        uint64_t left_ms = (end_ns - now_ns) / 1000000 + 1;
        struct pollfd waits = {.fd = socket, .events = POLLIN};
        int ready = poll(&waits, 1, left_ms > 1000000 ? 1000000 : (int)left_ms);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true;
    }
    return false;
}

static rvl_status take_answer(int socket, int process, const rvl_control_request *request,
                              rvli_control_answer *answer_out)
{
    unsigned descriptors = 0;
    bool to_sleep = request->verb == RVL_CONTROL_SLEEP;
    if (!wait_for_answer(socket, request->timeout_ns))
        return refuse(RVL_ERR_TIMEOUT, process,
                      "gives no answer: it may still do what it was asked for");
    if (rvli_packet_take(socket, answer_out, sizeof *answer_out, NULL, 0, &descriptors, 0) !=
            RVLI_PACKET_TAKEN ||
        answer_out->magic != RVLI_CONTROL_MAGIC)
        return refuse(RVL_ERR_IO, process,
                      to_sleep ? "ended on its way to sleep: its devices are free"
                               : "ended on its way back: its devices are free");
    return RVL_OK;
}

/* Puts the other process's failure into this thread's error record. */
static rvl_status pass_on(int process, rvli_control_answer *answer)
{
    char why[RVL_CONTROL_WHY_BYTES];
    answer->why[sizeof answer->why - 1] = '\0';
    rvli_shown(RVLI_SHOWN_PLAIN, answer->why, why, sizeof why);
    bool known = answer->status < 0 && rvl_status_name((rvl_status)answer->status) != NULL;
    char message[RVL_CONTROL_WHY_BYTES + 16];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "refuses: ");
    rvli_text_add(&text, why[0] != '\0' ? why : "it does not say why");
    return refuse(known ? (rvl_status)answer->status : RVL_ERR_IO, process, message);
}

rvl_status rvl_control_ask(int process, const rvl_control_request *user_request,
                           rvl_control_answer *answer_out)
{
    rvl_control_request request;
    rvli_control_answer answer = {0};
    int socket = -1;
    rvl_status status = rvli_options_read(&request, sizeof request, user_request);
    if (status == RVL_OK &&
        (process <= 0 || request.reserved != 0 ||
         (request.verb != RVL_CONTROL_SLEEP && request.verb != RVL_CONTROL_WAKE_UP)))
        status = rvli_error(RVL_ERR_INVALID, "a process's number and a verb are needed");
    if (status == RVL_OK)
        status = connect_to(process, &socket);
    if (status != RVL_OK)
        return status;
    const rvli_control_request asked = {.magic = RVLI_CONTROL_MAGIC,
                                        .verb = (uint32_t)request.verb,
                                        .flags = request.flags,
                                        .timeout_ns = request.timeout_ns};
    (void)rvli_packet_send(socket, &asked, sizeof asked, NULL, 0, 0);
    status = take_answer(socket, process, &request, &answer); /* also if sending failed because the
                                                                 process has ended */
    close(socket);
    if (status == RVL_OK && answer.status != RVL_OK)
        status = pass_on(process, &answer);
    if (status != RVL_OK)
        return status;
    const rvl_control_answer done = {
        .struct_size = sizeof done, .changed = answer.changed != 0, .time_ns = answer.time_ns};
    return answer_out != NULL ? rvli_result_write(answer_out, &done, sizeof done) : RVL_OK;
}
