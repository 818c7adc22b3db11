/* SPDX-License-Identifier: MIT */
#include "core/backup/store/message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/packet.h"

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

rvl_status rvli_store_address(const char *path, struct sockaddr_un *address_out)
{
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path == NULL || path[0] == '\0')
        return rvli_error(RVL_ERR_INVALID, "a store needs the path of its socket");
    size_t length = strlen(path);
    if (length >= sizeof address_out->sun_path) {
        rvli_error(RVL_ERR_INVALID, "the path of a store has more than 107 bytes: give a shorter "
                                    "one");
        rvli_error_place(path, 0, 0);
        return RVL_ERR_INVALID;
    }
    memcpy(address_out->sun_path, path, length);
    return RVL_OK;
}

int rvli_store_connect(const struct sockaddr_un *address)
{
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (to < 0)
        return -1;
    const struct timeval patience = {.tv_sec = RVLI_STORE_PATIENCE_S};
    (void)setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    (void)setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int result;
    do
        result = connect(to, (const struct sockaddr *)address, sizeof *address);
    while (result != 0 && errno == EINTR);
    int cause = result != 0 ? errno : EPERM;
    pid_t owner;
    if (result == 0 && rvli_packet_peer(to, &owner))
        return to;
    close(to);
    errno = cause;
    return -1;
}

bool rvli_store_is_sealed(int fd, uint64_t bytes)
{
    struct stat facts;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &facts) == 0 &&
           (uint64_t)facts.st_size == bytes;
}

bool rvli_store_seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, SEALS) == 0;
}
