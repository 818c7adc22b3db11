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

/* What NCCL has on a device in a process, by part. */
typedef struct rvli_nccl_share {
    uint32_t communicators[RVLI_WIRE_NCCL_PARTS];
    bool code[RVLI_WIRE_NCCL_PARTS]; /* stays until the process ends */
} rvli_nccl_share;

/* A process that has said its name. Each simulated library in it has a connection of its own. */
typedef struct rvli_tenant {
    struct rvli_tenant *next;
    uint32_t connections;
    pid_t pid;
    bool away;  /* off its devices: what it has there is paused */
    bool ended; /* and how is known */
    rvl_process process;
    uint64_t seen_bytes[RVL_MAX_DEVICES]; /* on each device, when it was last looked at (view.c) */
    char name[RVLI_WIRE_TEXT_BYTES];
} rvli_tenant;

/* A connection of a process. */
struct rvli_client {
    rvli_client *next;
    int file;
    pid_t pid;
    bool greeted;
    bool user;                          /* it has come for more than to mark stages */
    rvli_tenant *tenant;                /* NULL: it has asked for nothing that needs a name */
    uint32_t contexts[RVL_MAX_DEVICES]; /* the driver has its share for each */
    rvli_nccl_share nccl[RVL_MAX_DEVICES];
    /* What it has: addresses of the machine's context and events, each with how often. */
    rvli_intmap memory;
    uint64_t host_bytes[RVLI_WIRE_HOST_KINDS];
    rvli_marks *marks; /* what it has marked; NULL: nothing */
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
    uint64_t named; /* tenants, with those that have gone */
    bool over;      /* the command has ended: who goes now was ended with it */
    uint64_t host_limit_bytes;
    uint64_t host_bytes[RVLI_WIRE_HOST_KINDS];
    rvli_machine_host host_peak;
    rvli_machine_refusal refused;
    uint64_t users; /* processes that have used CUDA, or NVML */
    uint64_t marks_made;
    rvli_known_name *names; /* that they have been given */
    rvli_meeting *meetings;
    uint64_t meetings_begun;
    rvli_shared *shared;
    int spare;        /* a descriptor that is given up for who finds no place */
    bool keeps_times; /* somebody will ask for them */
    rvli_strays strays;
    pid_t strays_root;                /* its processes are looked at; 0: nobody's */
    uint64_t turned_away;             /* processes that found none */
    char waits[RVLI_WIRE_TEXT_BYTES]; /* the first rank that waits forever; "": none */
    rvli_store *store; /* NULL: all ranks run; else one does, and nobody waits for the others */
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
    RVLI_CLIENT_QUIET, /* there is no answer to wait for */
    RVLI_CLIENT_END,   /* it does not speak this language */
} rvli_client_next;

/* Does what a process asks for. file_out: what goes with the answer, or -1 as it was. */
rvli_client_next rvli_client_serve(rvli_machine *machine, rvli_client *client,
                                   const rvli_wire_request *request, rvli_wire_answer *answer,
                                   int *file_out);

/* Whether it is of the kinds that have no answer. */
bool rvli_client_is_quiet(const rvli_wire_request *request);

/* Takes back what a process has: once it has ended, nothing more is there to take. */
void rvli_client_take_back(rvli_machine *machine, rvli_client *client);

/*
 * Notes a request that did not fit. tag: what for, to be recorded; NULL: the context has recorded
 * it.
 */
void rvli_machine_tell_refusal(rvli_machine *machine, const rvli_client *client, int device,
                               uint64_t requested_bytes, uint64_t free_bytes, const char *tag);

/* ---- engines.c ---- */

/* An engine has sized its KV cache. What does not fit is left out. */
void rvli_engines_note(rvli_machine *machine, const rvli_wire_request *request);

/* A sequence has been given its length. */
void rvli_lengths_note(rvli_machine *machine, uint64_t tokens);

/* ---- marks.c: stages of processes ---- */

/* A flat stage of a process begins; a range begins or ends. What does not fit is left out. */
void rvli_marks_flat(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark);
void rvli_marks_enter(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark);
void rvli_marks_leave(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark);

/* The process has ended: with it what it has marked. */
void rvli_marks_end(rvli_machine *machine, rvli_client *client);

/* The stage that was begun last, of a process that uses a device or of any; NULL: none. */
const char *rvli_marks_now(const rvli_machine *machine, int device);

/* ---- names.c: what processes are called ---- */

/*
 * "train.py[rank 3]", or without a rank "train.py[1]": counted, since a process's id changes from
 * run to run. What a process is called first, it stays, on all its connections. RVL_ERR_STATE: this
 * one has said it; RVL_ERR_HOST_OOM.
 */
rvl_status rvli_name_client(rvli_machine *machine, rvli_client *client,
                            const rvli_wire_request *named);

/* The connection ends, and with its last one the process. */
void rvli_name_drop(rvli_machine *machine, rvli_client *client);
void rvli_names_forget(rvli_machine *machine);

/* ---- ends.c: how processes end ---- */

/* It says so itself. */
void rvli_ends_note(rvli_machine *machine, rvli_tenant *tenant, const rvli_wire_request *request);

/* A connection of it is gone. NULL: of a process without a name. */
void rvli_ends_lose(rvli_machine *machine, rvli_tenant *tenant);

/* ---- nccl.c ---- */

/* A communicator of a process takes a part of its memory on a device (rvli_wire_nccl_part).
 * RVL_ERR_DEVICE_OOM, and nothing has changed; RVL_ERR_INVALID: there is no such part. */
rvl_status rvli_nccl_take(rvli_machine *machine, rvli_client *client, int device, uint64_t part,
                          rvli_wire_answer *answer);
rvl_status rvli_nccl_give(rvli_machine *machine, rvli_client *client, int device, uint64_t part);

/* What the machine counts for them on a device, beside what other connections of the process have.
 */
rvl_status rvli_nccl_set(rvli_machine *machine, const rvli_client *client, int device,
                         uint64_t bytes);

/* What they have on a device. */
uint64_t rvli_nccl_bytes(const rvli_client *client, int device);

/* Takes back what all its communicators have. */
void rvli_nccl_take_back(rvli_machine *machine, rvli_client *client);

/* What the driver takes on a device for a process that uses it. */
uint64_t rvli_driver_share_bytes(const rvl_profile *profile);

/* What the driver has on a device for so many contexts of a connection, beside those of others of
 * the process. */
rvl_status rvli_driver_share_set(rvli_machine *machine, const rvli_client *client, int device,
                                 uint32_t contexts);

/* ---- away.c ---- */

/* A process leaves its devices, or comes back. RVL_ERR_STATE: it is there already, or away;
 * RVL_ERR_DEVICE_OOM: there is no room, and it stays away. */
rvl_status rvli_away_set(rvli_machine *machine, rvli_tenant *tenant, bool away);

/* Counts a read of what is not known. text: RVLI_WIRE_TEXT_BYTES. */
void rvli_unknown_count(rvli_unknown_reads *reads, uint64_t bytes, const char *text);

#endif
