/* SPDX-License-Identifier: MIT */
/*
 * What the files of the simulated NCCL, libnccl.so.2, share. It stands on the driver's public
 * functions. Ranks find each other by the machine's meetings (simcuda/machine/meeting.h), and no
 * rank waits for another in a call after that. Others are waited for when what they bring is read
 * (carry.h), and when the program waits for the stream (simcuda/driver/owed.h).
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
    RVLI_COMM_SUSPENDED, /* its memory is given back */
    RVLI_COMM_OVER,      /* finalized, aborted, revoked, or it has failed */
} rvli_comm_state;

#define RVLI_COMM_NAME_BYTES 33 /* 32 hexadecimal digits */

/* The factor of an operation that a program has made. */
typedef struct rvli_scalar {
    rvli_nccl_type type;
    CUdeviceptr on_device; /* 0: it is here */
    char value[sizeof(double)];
} rvli_scalar;

/* One of its operations never ends (stuck.h). */
typedef struct rvli_comm_stuck {
    _Atomic uint64_t since_ns; /* a rank has left; 0: none has */
    uint64_t failed_ns;        /* the communicator has failed of it; 0: not yet */
    char sentence[RVLI_WIRE_TEXT_BYTES];
} rvli_comm_stuck;

struct ncclComm {
    uint64_t mark; /* RVLI_COMM_MARK: it is one */
    _Atomic rvli_comm_state state;
    _Atomic rvli_nccl_result result; /* asynchronous */
    int rank, ranks, device;
    int card; /* the machine's number of the device */
    bool blocking;
    bool shares;               /* the memory of the one it was split from */
    bool holds;                /* memory of its own */
    bool used;                 /* by a collective, and has the memory for it */
    bool told;                 /* that it waits */
    _Atomic bool unheard_told; /* that what it sends goes to a rank that has left */
    bool sized;                /* ranks is known, and not assumed */
    bool alone;                /* others are not started: nobody brings what they would */
    unsigned children;
    unsigned moves;      /* times that it was suspended or resumed */
    unsigned operations; /* made by ncclRedOpCreatePreMulSum() */
    rvli_scalar *scalars;
    uint64_t carried;     /* operations of all ranks that have carried something */
    uint64_t (*pairs)[2]; /* those with each rank: receives, sends */
    uint64_t meeting;     /* 0: it has left */
    uint64_t group;       /* the last one that has launched its kernel */
    uint64_t began_ns;
    rvli_comm_stuck stuck;
    uint64_t suspendable_bytes, total_bytes; /* total_bytes: with what stays */
    char name[RVLI_COMM_NAME_BYTES];
    rvli_comm *next; /* of all there are */
};
#define RVLI_COMM_MARK UINT64_C(0x72766c5f6e63636c)

/* Keeps why something failed, for ncclGetLastError(), and answers the result. */
rvli_nccl_result rvli_nccl_fail(rvli_nccl_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define RVLI_NCCL_TIMEOUT_VARIABLE "REVEILLE_NCCL_TIMEOUT_S"
#define RVLI_NCCL_TELL_AFTER_S 10
#define RVLI_SECOND_NS UINT64_C(1000000000)

/* How long a rank waits for others, and for one that has left. */
uint64_t rvli_nccl_now_ns(void);
uint64_t rvli_nccl_timeout_ns(void);
uint64_t rvli_nccl_left_timeout_ns(void);

/* A failure of the driver. */
rvli_nccl_result rvli_nccl_driven(CUresult result);

/* Whether it is a communicator, and one that operations can use. */
rvli_nccl_result rvli_comm_check(const rvli_comm *comm);
rvli_nccl_result rvli_comm_check_ready(rvli_comm *comm);

/* This process's communicator of a meeting, as a rank. NULL: it has been destroyed. */
rvli_comm *rvli_comm_find(uint64_t meeting, int rank);

/* Calls with it while no thread can destroy it. false: it has been destroyed. */
bool rvli_comm_with(uint64_t meeting, int rank, void (*call)(rvli_comm *, void *), void *user);

/* All ranks come together once more, for what they do with it. Begun by all before the first waits.
 * Nobody is waited for where a rank has no others, or their number is assumed. */
rvli_nccl_result rvli_comm_meet(rvli_comm *comm, const char *what, uint64_t *meeting_out);
rvli_nccl_result rvli_comm_wait(rvli_comm *comm, uint64_t *meeting);

/* It has failed for good, with a result, which is what this answers. */
rvli_nccl_result rvli_comm_give_up(rvli_comm *comm, rvli_nccl_result result);

/* Takes memory on the communicator's device, and gives it back; all that it had where it was used.
 */
rvli_nccl_result rvli_comm_take_memory(rvli_comm *comm);
void rvli_comm_give_memory(rvli_comm *comm);

/* The memory of the first collective. Nothing where the communicator has it or has none of its own.
 * A failure changes nothing. */
rvli_nccl_result rvli_comm_use_memory(rvli_comm *comm);

/* Between ncclGroupStart() and ncclGroupEnd(). */
bool rvli_group_is_open(void);

/* Which group is open; 0: none. No two have the same number. */
uint64_t rvli_group_number(void);

/* What a group still has to do when it ends: see that a communicator is made, and hand it out. */
rvli_nccl_result rvli_group_add(rvli_nccl_result (*begin)(void *), rvli_nccl_result (*end)(void *),
                                void *job);

#endif
