/* SPDX-License-Identifier: MIT */
/*
 * Packets with file descriptors between processes of one user, over Unix sockets.
 *
 * A packet is sent and taken as a whole (SOCK_SEQPACKET). Descriptors are closed on exec.
 */
#ifndef RVL_BASE_PACKET_H
#define RVL_BASE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* File descriptors in one packet, at most. */
#define RVLI_PACKET_FDS 16u

/* flags: MSG_DONTWAIT or 0. False: the other end is gone, or does not read. */
bool rvli_packet_send(int socket, const void *bytes, size_t size, const int *fds, unsigned fd_count,
                      int flags);

typedef enum rvli_packet_result {
    RVLI_PACKET_TAKEN = 0,
    RVLI_PACKET_NONE,   /* MSG_DONTWAIT: there is none yet; else the socket's timeout is over */
    RVLI_PACKET_CLOSED, /* the other end has closed, or is broken */
    RVLI_PACKET_WRONG,  /* another size, or more descriptors than fit */
    RVLI_PACKET_STARVED /* it was taken, and this process had no descriptor left for what it has */
} rvli_packet_result;

/*
 * Takes a packet of exactly this size. Descriptors that came with it are the caller's. What else is
 * answered, there are none.
 */
rvli_packet_result rvli_packet_take(int socket, void *bytes_out, size_t size, int *fds_out,
                                    unsigned fd_capacity, unsigned *fd_count_out, int flags);

/* The process at the other end, 0 if it is not seen from here. False: it is another user's. */
bool rvli_packet_peer(int socket, pid_t *process_out);

#endif
