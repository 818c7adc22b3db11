/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of the simulated NCCL, libnccl.so.2, share. It uses the driver's
 * public functions. Ranks find each other through the machine's meetings
 * (simcuda/machine/meeting.h). After that, no call waits for another rank. A rank waits when the
 * data of others is read (carry.h), and when the program waits for the stream
 * (simcuda/driver/owed.h).
 */
#ifndef RVL_SIMCUDA_NCCL_COMM_H
#define RVL_SIMCUDA_NCCL_COMM_H

#include <cuda.h>
#include <stdbool.h>

#include "reveille/status.h"
#include "simcuda/nccl/nccl.h"
#include "simcuda/wire/wire.h"

typedef enum rvli_comm_state {
    RVLI_COMM_JOINING,
    RVLI_COMM_READY,
    RVLI_COMM_SUSPENDED, /* its memory is released */
    RVLI_COMM_OVER,      /* finalized, aborted, revoked, or failed */
} rvli_comm_state;

#define RVLI_COMM_NAME_BYTES 33 /* 32 hexadecimal digits */

/* The factor of a reduction operator that a program has made. */
typedef struct rvli_scalar {
    rvli_nccl_type type;
    CUdeviceptr on_device; /* 0: the value is in `value` */
    char value[sizeof(double)];
} rvli_scalar;

/* For an operation that never ends (stuck.h). */
typedef struct rvli_comm_stuck {
    _Atomic uint64_t since_ns; /* when a rank left; 0: none has */
    uint64_t failed_ns;        /* when the communicator failed for this; 0: not yet */
    char sentence[RVLI_WIRE_TEXT_BYTES];
} rvli_comm_stuck;

struct ncclComm {
    uint64_t mark; /* RVLI_COMM_MARK: it is valid */
    _Atomic rvli_comm_state state;
    _Atomic rvli_nccl_result result; /* asynchronous */
    int rank, ranks, device;
    int card; /* the machine's number of the device */
    bool blocking;
    bool shares;               /* it uses the memory of its parent */
    bool holds;                /* it has its own memory */
    bool used;                 /* by a collective, and its memory was taken */
    bool told;                 /* its waiting was reported */
    _Atomic bool unheard_told; /* it was reported that a receiver has left */
    bool sized;                /* ranks is known, not assumed */
    bool alone;                /* other ranks are not started and bring nothing */
    unsigned children;
    unsigned moves;      /* number of suspends and resumes */
    unsigned operations; /* made by ncclRedOpCreatePreMulSum() */
    rvli_scalar *scalars;
    uint64_t carried;     /* operations of all ranks that have carried data */
    uint64_t (*pairs)[2]; /* operations with each rank: receives, sends */
    uint64_t meeting;     /* 0: it has left the meeting */
    uint64_t group;       /* the last group for which it has launched a kernel */
    uint64_t began_ns;
    rvli_comm_stuck stuck;
    uint64_t suspendable_bytes, total_bytes; /* total_bytes: with persistent memory */
    char name[RVLI_COMM_NAME_BYTES];
    rvli_comm *next; /* in the list of all */
};
#define RVLI_COMM_MARK UINT64_C(0x72766c5f6e63636c)

/* Stores the reason of a failure for ncclGetLastError(), and returns the result. */
rvli_nccl_result rvli_nccl_fail(rvli_nccl_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define RVLI_NCCL_TIMEOUT_VARIABLE "REVEILLE_NCCL_TIMEOUT_S"
#define RVLI_NCCL_TELL_AFTER_S 10
#define RVLI_SECOND_NS UINT64_C(1000000000)

/* The clock, and the timeouts for ranks that are late and for ranks that have left. */
uint64_t rvli_nccl_now_ns(void);
uint64_t rvli_nccl_timeout_ns(void);
uint64_t rvli_nccl_left_timeout_ns(void);

/* Reports a failure of the driver. */
rvli_nccl_result rvli_nccl_driven(CUresult result);

/* Whether it is a communicator. _ready: whether operations can use it, too. */
rvli_nccl_result rvli_comm_check(const rvli_comm *comm);
rvli_nccl_result rvli_comm_check_ready(rvli_comm *comm);

/* This process's communicator for a rank of a meeting. NULL: it was destroyed. */
rvli_comm *rvli_comm_find(uint64_t meeting, int rank);

/* Calls the function with the communicator while no thread can destroy it. false: it was
 * destroyed. */
bool rvli_comm_with(uint64_t meeting, int rank, void (*call)(rvli_comm *, void *), void *user);

/* Makes all ranks meet once more, for a joint operation. Begin with all ranks before you wait
 * for the first. Does not wait if there are no other ranks, or their number is assumed. */
rvli_nccl_result rvli_comm_meet(rvli_comm *comm, const char *what, uint64_t *meeting_out);
rvli_nccl_result rvli_comm_wait(rvli_comm *comm, uint64_t *meeting);

/* The communicator has failed permanently. Returns the given result. */
rvli_nccl_result rvli_comm_give_up(rvli_comm *comm, rvli_nccl_result result);

/* Take and release the communicator's memory on its device, including the memory of collectives
 * if it was used. */
rvli_nccl_result rvli_comm_take_memory(rvli_comm *comm);
void rvli_comm_give_memory(rvli_comm *comm);

/* Takes the memory of the first collective. Does nothing if the communicator has it already, or
 * has no memory of its own. On failure, nothing is changed. */
rvli_nccl_result rvli_comm_use_memory(rvli_comm *comm);

/* Between ncclGroupStart() and ncclGroupEnd(). */
bool rvli_group_is_open(void);

/* The number of the open group, which is unique. 0: none is open. */
uint64_t rvli_group_number(void);

/* Adds work for the end of a group: to complete a communicator and hand it out. */
rvli_nccl_result rvli_group_add(rvli_nccl_result (*begin)(void *), rvli_nccl_result (*end)(void *),
                                void *job);

#endif
