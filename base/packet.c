/* SPDX-License-Identifier: MIT */
#include "base/packet.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_BYTES CMSG_SPACE(RVLI_PACKET_FDS * sizeof(int))

bool rvli_packet_send(int socket, const void *bytes, size_t size, const int *fds, unsigned fd_count,
                      int flags)
{
    _Alignas(struct cmsghdr) char control[CONTROL_BYTES] = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, size};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        packet.msg_control = control;
        packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &packet, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)size;
}

static unsigned take_descriptors(struct msghdr *packet, int *fds_out)
{
    unsigned count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(packet); header != NULL;
         header = CMSG_NXTHDR(packet, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        count = (unsigned)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds_out, CMSG_DATA(header), count * sizeof(int));
    }
    return count;
}

rvli_packet_result rvli_packet_take(int socket, void *bytes_out, size_t size, int *fds_out,
                                    unsigned fd_capacity, unsigned *fd_count_out, int flags)
{
    _Alignas(struct cmsghdr) char control[CONTROL_BYTES] = {0};
    int fds[RVLI_PACKET_FDS];
    struct iovec part = {bytes_out, size};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_capacity > 0) {
        packet.msg_control = control;
        packet.msg_controllen = sizeof control;
    }
    ssize_t bytes;
    do
        bytes = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | flags);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return RVLI_PACKET_NONE;
    if (bytes <= 0)
        return RVLI_PACKET_CLOSED;
    unsigned count = fd_capacity > 0 ? take_descriptors(&packet, fds) : 0;
    bool cut = (packet.msg_flags & MSG_CTRUNC) != 0;
    if (bytes != (ssize_t)size || (packet.msg_flags & MSG_TRUNC) != 0 || cut ||
        count > fd_capacity) {
        /* The kernel omits descriptors only if this process has no numbers left for them. Any other
           truncation fills the array. */
        bool starved = cut && bytes == (ssize_t)size && fd_capacity > 0 && count < RVLI_PACKET_FDS;
        while (count > 0)
            close(fds[--count]);
        return starved ? RVLI_PACKET_STARVED : RVLI_PACKET_WRONG;
    }
    if (count > 0)
        memcpy(fds_out, fds, count * sizeof *fds);
    *fd_count_out = count;
    return RVLI_PACKET_TAKEN;
}

bool rvli_packet_peer(int socket, pid_t *process_out)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())
        return false;
    *process_out = peer.pid;
    return true;
}
