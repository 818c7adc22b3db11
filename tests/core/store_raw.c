/* SPDX-License-Identifier: MIT */
#include "store_raw.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/packet.h"

int raw_connect(void)
{
    struct sockaddr_un address;
    assert_int_equal(rvli_store_address(store_path, &address), RVL_OK);
    int to = rvli_store_connect(&address);
    assert_true(to >= 0);
    return to;
}

int raw_file(uint64_t bytes, unsigned seals, int byte)
{
    int fd = memfd_create("reveille-store-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    memset(mapped, byte, bytes);
    munmap(mapped, bytes);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

rvli_store_message raw_ask(int to, rvli_store_message message, int fd, int *fd_out)
{
    unsigned count = 0;
    int came = -1;
    message.magic = RVLI_STORE_MAGIC;
    assert_true(rvli_packet_send(to, &message, sizeof message, &fd, fd >= 0 ? 1 : 0, 0));
    assert_int_equal(rvli_packet_take(to, &message, sizeof message, &came, 1, &count, 0),
                     RVLI_PACKET_TAKEN);
    if (fd_out != NULL)
        *fd_out = came;
    return message;
}

rvli_store_message raw_add(int to, uint64_t bytes, rvli_digest digest, int fd)
{
    const rvli_store_message message = {.kind = RVLI_STORE_ADD, .bytes = bytes, .digest = digest};
    return raw_ask(to, message, fd, NULL);
}

void raw_reserve(int to, uint64_t bytes)
{
    const rvli_store_message message = {.kind = RVLI_STORE_RESERVE, .bytes = bytes};
    assert_int_equal(raw_ask(to, message, -1, NULL).kind, RVLI_STORE_DONE);
}

rvli_secret raw_secret(int to)
{
    rvli_store_message told =
        raw_ask(to, (rvli_store_message){.kind = RVLI_STORE_SECRET}, -1, NULL);
    assert_int_equal(told.kind, RVLI_STORE_DONE);
    return (rvli_secret){told.digest.low, told.digest.high};
}

rvli_digest raw_name_of(user who, int to)
{
    return user_tell(who, (request){.what = CHECK, .secret = raw_secret(to)}).name;
}

uint32_t raw_find(int to, rvli_digest digest, bool claim)
{
    int fd = -1;
    const rvli_store_message message = {
        .kind = RVLI_STORE_FIND, .bytes = SMALL, .digest = digest, .claim = claim};
    rvli_store_message told = raw_ask(to, message, -1, &fd);
    if (fd >= 0)
        close(fd);
    return told.kind;
}

void raw_tell(int to, rvli_store_message message)
{
    message.magic = RVLI_STORE_MAGIC;
    assert_true(rvli_packet_send(to, &message, sizeof message, NULL, 0, 0));
}
