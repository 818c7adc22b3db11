/* SPDX-License-Identifier: MIT */
/*
 * Packets with file descriptors, between processes of one user, over Unix sockets.
 *
 * A packet is sent and received as a whole (SOCK_SEQPACKET). Descriptors are closed on exec.
 */
#ifndef RVL_BASE_PACKET_H
#define RVL_BASE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Maximum number of file descriptors in one packet. */
#define RVLI_PACKET_FDS 16u

/* flags: MSG_DONTWAIT or 0. False: the other end is closed, or does not read. */
bool rvli_packet_send(int socket, const void *bytes, size_t size, const int *fds, unsigned fd_count,
                      int flags);

typedef enum rvli_packet_result {
    RVLI_PACKET_TAKEN = 0,
    RVLI_PACKET_NONE,   /* with MSG_DONTWAIT: none has arrived yet; otherwise the socket's timeout
                           expired */
    RVLI_PACKET_CLOSED, /* the other end is closed or broken */
    RVLI_PACKET_WRONG,  /* wrong size, or too many descriptors */
    RVLI_PACKET_STARVED /* received, but this process had no descriptors left for those in it */
} rvli_packet_result;

/*
 * Receives a packet of exactly this size. The caller owns the descriptors that came with it. Any
 * result other than RVLI_PACKET_TAKEN leaves none.
 */
rvli_packet_result rvli_packet_take(int socket, void *bytes_out, size_t size, int *fds_out,
                                    unsigned fd_capacity, unsigned *fd_count_out, int flags);

/*
 * Stores the process at the other end, or 0 if it is not visible from here. False: another user's.
 */
bool rvli_packet_peer(int socket, pid_t *process_out);

#endif
