/* SPDX-License-Identifier: MIT */
/*
 * A queue that uses io_uring.
 *
 * If the kernel later refuses the ring (no memory, or a filter installed in the meantime), requests
 * that it has not taken are done by blocking calls, and so are all later requests. Requests that it
 * has taken end in the ring as before, and are polled for there without a system call.
 *
 * liburing maps and unmaps rings by direct system calls, which a thread sanitizer does not see. To
 * the sanitizer, the ring of one thread at an address of another thread's earlier ring is one piece
 * of memory with two users. The kernel only reuses an address after it was unmapped, and the
 * annotations tell the sanitizer of that order. It never sees what the kernel writes into a ring.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "core/backup/disk/engine.h"
#include "core/backup/disk/problem.h"

#ifdef __has_feature
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#else
#define THREAD_SANITIZER 0
#endif

#if THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
static char addresses; /* represents all addresses of present and past rings */
#define TAKE_ADDRESSES() __tsan_acquire(&addresses)
#define GIVE_ADDRESSES() __tsan_release(&addresses)
#else
#define TAKE_ADDRESSES() ((void)0)
#define GIVE_ADDRESSES() ((void)0)
#endif

#define LOOK_AGAIN_NS 50000

typedef struct uring_queue {
    rvli_disk_queue queue;
    struct io_uring ring;
    bool refused;              /* the kernel takes no more requests */
    unsigned in_flight;        /* requests that have begun and not ended */
    unsigned prepared;         /* of these, requests that the kernel has not taken: */
    rvli_disk_request *first;  /* in the order of the ring */
    rvli_disk_request **after; /* where the next one is linked */
} uring_queue;

static uring_queue *uring_of(rvli_disk_queue *queue)
{
    return (uring_queue *)queue;
}

static void finish(uring_queue *uring, rvli_disk_request *request)
{
    request->done = true;
    uring->in_flight--;
}

static rvli_disk_request *pop_prepared(uring_queue *uring)
{
    rvli_disk_request *request = uring->first;
    uring->first = request->next;
    if (uring->first == NULL)
        uring->after = &uring->first;
    uring->prepared--;
    return request;
}

/* The ring has an entry for each request of the queue's depth. */
static void prepare(uring_queue *uring, rvli_disk_request *request)
{
    rvli_disk_rest rest = rvli_disk_request_rest(request);
    struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);
    if (request->write)
        io_uring_prep_write(entry, request->fd, rest.buffer, rest.bytes, rest.offset);
    else
        io_uring_prep_read(entry, request->fd, rest.buffer, rest.bytes, rest.offset);
    io_uring_sqe_set_data(entry, request);
    request->next = NULL;
    *uring->after = request;
    uring->after = &request->next;
    uring->prepared++;
}

/* Submits the prepared requests and waits for `wait_for` to end. */
static void enter(uring_queue *uring, unsigned wait_for)
{
    int answer = io_uring_submit_and_wait(&uring->ring, wait_for);
    while (uring->prepared > io_uring_sq_ready(&uring->ring))
        pop_prepared(uring);
    if (answer >= 0 || answer == -EINTR)
        return;
    uring->refused = true;
    while (uring->prepared > 0) {
        rvli_disk_request *request = pop_prepared(uring);
        rvli_disk_request_run(request);
        finish(uring, request);
    }
}

/*
 * Returns whether the kernel has returned a request undone: it would have to wait, or a signal was
 * pending when it tried to start a worker for it.
 */
static bool is_handed_back(int answer)
{
    return answer == -EAGAIN || answer == -ECANCELED;
}

/* Requests that the kernel returns or refuses are done here. */
static void take_answer(uring_queue *uring, rvli_disk_request *request, int answer)
{
    bool handed_back = is_handed_back(answer);
    if (!handed_back && rvli_disk_request_answer(request, answer)) {
        finish(uring, request);
    } else if (handed_back || uring->refused) {
        rvli_disk_request_run(request);
        finish(uring, request);
    } else {
        prepare(uring, request);
    }
}

/* Processes ended requests. Returns false if there were none. */
static bool reap(uring_queue *uring)
{
    struct io_uring_cqe *entry;
    unsigned head;
    unsigned count = 0;
    io_uring_for_each_cqe(&uring->ring, head, entry)
    {
        take_answer(uring, io_uring_cqe_get_data(entry), entry->res);
        count++;
    }
    io_uring_cq_advance(&uring->ring, count);
    if (uring->prepared > 0)
        enter(uring, 0);
    return count > 0;
}

static void progress(uring_queue *uring)
{
    if (reap(uring))
        return;
    if (uring->refused)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
    else
        enter(uring, 1);
}

static void begin(rvli_disk_queue *queue, rvli_disk_request *request)
{
    uring_queue *uring = uring_of(queue);
    uring->in_flight++;
    if (uring->refused) {
        rvli_disk_request_run(request);
        finish(uring, request);
        return;
    }
    prepare(uring, request);
    enter(uring, 0);
}

static void wait_request(rvli_disk_queue *queue, rvli_disk_request *request)
{
    while (!request->done)
        progress(uring_of(queue));
}

static void settle(rvli_disk_queue *queue, unsigned most)
{
    while (uring_of(queue)->in_flight > most)
        progress(uring_of(queue));
}

static void close_queue(rvli_disk_queue *queue)
{
    GIVE_ADDRESSES();
    io_uring_queue_exit(&uring_of(queue)->ring);
    free(queue);
}

static const rvli_disk_engine_ops ops = {
    .name = "io_uring",
    .begin = begin,
    .wait = wait_request,
    .settle = settle,
    .close = close_queue,
};

/* Kernels before 5.6 have io_uring without plain reads and writes. */
static bool reads_and_writes(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    if (probe == NULL)
        return false;
    bool both = io_uring_opcode_supported(probe, IORING_OP_READ) &&
                io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return both;
}

static rvl_status not_supported(int number)
{
    return rvli_disk_error(RVL_ERR_NOT_SUPPORTED, "io_uring", number,
                           "the kernel gives no io_uring (blocked, or too old): allow it, or let "
                           "threads do it");
}

rvl_status rvli_disk_uring_open(unsigned depth, rvli_disk_queue **queue_out)
{
    uring_queue *uring = calloc(1, sizeof *uring);
    if (uring == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a disk queue");
    int answer = io_uring_queue_init(depth, &uring->ring, 0);
    if (answer < 0) {
        free(uring);
        return not_supported(-answer);
    }
    TAKE_ADDRESSES();
    uring->queue = (rvli_disk_queue){.ops = &ops, .depth = depth};
    uring->after = &uring->first;
    if (!reads_and_writes(&uring->ring)) {
        close_queue(&uring->queue);
        return not_supported(ENOSYS);
    }
    *queue_out = &uring->queue;
    return RVL_OK;
}
