/* SPDX-License-Identifier: MIT */
/* What the files of the machine share. */
#ifndef RVL_SIMCUDA_MACHINE_INTERNAL_H
#define RVL_SIMCUDA_MACHINE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/intmap.h"
#include "simcuda/machine/machine.h"
#include "simcuda/machine/times.h"
#include "simcuda/machine/store.h"

typedef struct rvli_client rvli_client;
typedef struct rvli_meeting rvli_meeting;
typedef struct rvli_shared rvli_shared;
typedef struct rvli_marks rvli_marks;
typedef struct rvli_known_name rvli_known_name;

/* The memory that NCCL has on a device in a process, by part. */
typedef struct rvli_nccl_share {
    uint32_t communicators[RVLI_WIRE_NCCL_PARTS];
    bool code[RVLI_WIRE_NCCL_PARTS]; /* loaded; stays until the process ends */
} rvli_nccl_share;

/* A process that has told its name. Each simulated library in it has its own connection. */
typedef struct rvli_tenant {
    struct rvli_tenant *next;
    uint32_t connections;
    pid_t pid;
    bool away;  /* off its devices: its memory there is paused */
    bool ended; /* its end is recorded */
    rvl_process process;
    uint64_t seen_bytes[RVL_MAX_DEVICES]; /* on each device, at the last look (view.c) */
    char name[RVLI_WIRE_TEXT_BYTES];
} rvli_tenant;

/* A connection of a process. */
struct rvli_client {
    rvli_client *next;
    int file;
    pid_t pid;
    bool greeted;
    bool user;                          /* has sent a request other than to mark stages */
    rvli_tenant *tenant;                /* NULL: no request so far has needed a name */
    uint32_t contexts[RVL_MAX_DEVICES]; /* the driver's share is counted for each */
    rvli_nccl_share nccl[RVL_MAX_DEVICES];
    /* The number of holds by key: an address in the machine's context, or an event. */
    rvli_intmap memory;
    uint64_t host_bytes[RVLI_WIRE_HOST_KINDS];
    rvli_marks *marks; /* NULL: no marks */
};

struct rvli_machine {
    rvl_context *context;
    rvl_profile profile;
    int gpus;
    int events;
    int listener;
    char name[RVLI_WIRE_NAME_BYTES];
    rvli_client *clients;
    rvli_tenant *tenants;
    uint64_t named; /* processes that have had a name, including those that ended */
    bool over;      /* the command has ended: later ends are not recorded */
    uint64_t host_limit_bytes;
    uint64_t host_bytes[RVLI_WIRE_HOST_KINDS];
    rvli_machine_host host_peak;
    rvli_machine_refusal refused;
    uint64_t users; /* processes that have used CUDA or NVML */
    uint64_t marks_made;
    rvli_known_name *names; /* given to processes */
    rvli_meeting *meetings;
    uint64_t meetings_begun;
    rvli_shared *shared;
    int spare;        /* a descriptor, closed to turn away a process if none is left */
    bool keeps_times; /* for rvli_machine_take_times() */
    rvli_strays strays;
    pid_t strays_root;                /* its descendants are checked; 0: no check */
    uint64_t turned_away;             /* processes without a connection, for lack of descriptors */
    char waits[RVLI_WIRE_TEXT_BYTES]; /* about the first rank that waits forever; "": none */
    rvli_store *store; /* NULL: all ranks run; else only one does, and it waits for no other */
    rvli_unknown_reads unknown;
    rvli_unknown_reads assumed;
    rvli_machine_pool pool;
    rvli_machine_races races;
    rvli_machine_engines engines;
    rvli_machine_lengths lengths;
    rvli_times times;
};

typedef enum rvli_client_next {
    RVLI_CLIENT_ANSWER,
    RVLI_CLIENT_QUIET, /* no answer */
    RVLI_CLIENT_END,   /* drop the connection: a malformed message */
} rvli_client_next;

/* Serves a request. file_out: a file descriptor to send with the answer, or unchanged at -1. */
rvli_client_next rvli_client_serve(rvli_machine *machine, rvli_client *client,
                                   const rvli_wire_request *request, rvli_wire_answer *answer,
                                   int *file_out);

/* Whether a request is of a kind that has no answer. */
bool rvli_client_is_quiet(const rvli_wire_request *request);

/* Takes back what an ended process has. Does nothing the second time. */
void rvli_client_take_back(rvli_machine *machine, rvli_client *client);

/*
 * Notes a request that did not fit. tag: its purpose, to be recorded; NULL: the context has
 * recorded the refusal already.
 */
void rvli_machine_tell_refusal(rvli_machine *machine, const rvli_client *client, int device,
                               uint64_t requested_bytes, uint64_t free_bytes, const char *tag);

/* ---- engines.c ---- */

/* An engine has sized its KV cache. Ignored if the list is full. */
void rvli_engines_note(rvli_machine *machine, const rvli_wire_request *request);

/* A sequence has been given its length. */
void rvli_lengths_note(rvli_machine *machine, uint64_t tokens);

/* ---- marks.c: stages of processes ---- */

/* A flat stage of a process begins; a range begins or ends. Ignored if there is no room for it. */
void rvli_marks_flat(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark);
void rvli_marks_enter(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark);
void rvli_marks_leave(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark);

/* The process has ended. Ends its stages and ranges. */
void rvli_marks_end(rvli_machine *machine, rvli_client *client);

/* The stage that began last in a process that uses the device; if no such process has a stage,
 * in any process. NULL: there is none. */
const char *rvli_marks_now(const rvli_machine *machine, int device);

/* ---- names.c: names of processes ---- */

/*
 * Names the process of a connection: "train.py[rank 3]", or without a rank "train.py[1]". The
 * number is a count, since a process id changes from run to run. A process keeps its first name,
 * on all its connections. RVL_ERR_STATE: this connection has a name already; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_name_client(rvli_machine *machine, rvli_client *client,
                            const rvli_wire_request *named);

/* The connection ends; with the last one, the process is dropped. */
void rvli_name_drop(rvli_machine *machine, rvli_client *client);
void rvli_names_forget(rvli_machine *machine);

/* ---- ends.c: how processes end ---- */

/* The process reports its own end. */
void rvli_ends_note(rvli_machine *machine, rvli_tenant *tenant, const rvli_wire_request *request);

/* A connection of the process is lost. tenant NULL: the process has no name. */
void rvli_ends_lose(rvli_machine *machine, rvli_tenant *tenant);

/* ---- nccl.c ---- */

/* A communicator of a process takes a part of its memory on a device (rvli_wire_nccl_part).
 * RVL_ERR_DEVICE_OOM: nothing has changed; RVL_ERR_INVALID: there is no such part. */
rvl_status rvli_nccl_take(rvli_machine *machine, rvli_client *client, int device, uint64_t part,
                          rvli_wire_answer *answer);
rvl_status rvli_nccl_give(rvli_machine *machine, rvli_client *client, int device, uint64_t part);

/* Sets the bytes that the machine counts for the communicators of a connection on a device, in
 * addition to those of the process's other connections. */
rvl_status rvli_nccl_set(rvli_machine *machine, const rvli_client *client, int device,
                         uint64_t bytes);

/* The bytes that the communicators of a connection have on a device. */
uint64_t rvli_nccl_bytes(const rvli_client *client, int device);

/* Takes back the memory of all its communicators. */
void rvli_nccl_take_back(rvli_machine *machine, rvli_client *client);

/* The driver's share on a device for each context of a process. */
uint64_t rvli_driver_share_bytes(const rvl_profile *profile);

/* Sets the driver's share on a device to that of so many contexts of a connection, in addition
 * to those of the process's other connections. */
rvl_status rvli_driver_share_set(rvli_machine *machine, const rvli_client *client, int device,
                                 uint32_t contexts);

/* ---- away.c ---- */

/* A process leaves its devices, or comes back. RVL_ERR_STATE: it is already away, or already
 * there; RVL_ERR_DEVICE_OOM: there is no room, and it stays away. */
rvl_status rvli_away_set(rvli_machine *machine, rvli_tenant *tenant, bool away);

/* Counts a read of unknown content. text: of RVLI_WIRE_TEXT_BYTES. */
void rvli_unknown_count(rvli_unknown_reads *reads, uint64_t bytes, const char *text);

#endif
