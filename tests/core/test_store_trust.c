/* SPDX-License-Identifier: MIT */
/* Users of a store, and an owner, that mean harm: nobody else is harmed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/packet.h"
#include "core/backup/store/client.h"
#include "store_raw.h"

static void only_sealed_segments_are_kept(void **state)
{
    (void)state;
    static const unsigned lacking[] = {0, F_SEAL_WRITE, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW,
                                       F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL};
    const rvli_digest digest = {1, 2};
    owner of = owner_start(4 * SMALL);
    int to = raw_connect();
    raw_reserve(to, SMALL);
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
        int fd = raw_file(SMALL, lacking[i], 1);
        assert_int_equal(raw_add(to, SMALL, digest, fd).kind, RVLI_STORE_REFUSED);
        close(fd);
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(raw_add(to, SMALL, digest, ends[0]).kind, RVLI_STORE_REFUSED);
    assert_int_equal(raw_add(to, SMALL, digest, -1).kind, RVLI_STORE_REFUSED);
    int fd = raw_file(2 * SMALL, ALL_SEALS, 1);
    assert_int_equal(raw_add(to, SMALL, digest, fd).kind, RVLI_STORE_REFUSED); /* another size */
    assert_int_equal(raw_add(to, 2 * SMALL, digest, fd).kind,
                     RVLI_STORE_REFUSED); /* not reserved */
    assert_int_equal(raw_add(to, 0, digest, fd).kind, RVLI_STORE_REFUSED);
    close(fd);
    const rvli_store_message huge = {.kind = RVLI_STORE_RESERVE, .bytes = UINT64_MAX - SMALL};
    rvli_store_message full = raw_ask(to, huge, -1, NULL);
    assert_int_equal(full.kind, RVLI_STORE_FULL);
    assert_int_equal(full.promised_bytes, SMALL);
    fd = raw_file(SMALL, ALL_SEALS, 1);
    assert_int_equal(raw_add(to, SMALL, digest, fd).kind, RVLI_STORE_DONE);
    assert_int_equal(store_stats().kept_bytes, SMALL);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    close(to);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* The second to add is answered with the first one's, and what comes cannot be changed. */
static void the_first_segment_is_everybodys(void **state)
{
    (void)state;
    const rvli_digest digest = {3, 4};
    owner of = owner_start(0);
    int first = raw_connect(), second = raw_connect(), came = -1;
    int files_made[2] = {raw_file(SMALL, ALL_SEALS, 1), raw_file(SMALL, ALL_SEALS, 1)};
    raw_reserve(first, SMALL);
    raw_reserve(second, SMALL);
    rvli_store_message added = raw_add(first, SMALL, digest, files_made[0]);
    assert_int_equal(added.kind, RVLI_STORE_DONE);
    const rvli_store_message again = {.kind = RVLI_STORE_ADD, .bytes = SMALL, .digest = digest};
    rvli_store_message found = raw_ask(second, again, files_made[1], &came);
    assert_int_equal(found.kind, RVLI_STORE_FOUND);
    assert_int_equal(found.id, added.id);
    assert_true(came >= 0);
    assert_int_equal(write(came, "x", 1), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(came, 0), -1);
    assert_int_equal(fcntl(came, F_ADD_SEALS, 0), -1);
    assert_ptr_equal(mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED, came, 0), MAP_FAILED);
    char *seen = mmap(NULL, SMALL, PROT_READ, MAP_SHARED, came, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_int_equal(seen[SMALL - 1], 1);
    assert_int_equal(mprotect(seen, SMALL, PROT_READ | PROT_WRITE), -1);
    munmap(seen, SMALL);
    rvl_store_stats stats = store_stats();
    assert_int_equal(stats.kept_bytes, SMALL);
    assert_int_equal(stats.referenced_bytes, 2 * SMALL);
    assert_int_equal(stats.promised_bytes, SMALL); /* the second one's is not used */
    assert_int_equal(stats.shared_bytes, SMALL);
    close(came);
    close(files_made[0]);
    close(files_made[1]);
    const rvli_store_message unused = {
        .magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_RETURN, .bytes = SMALL};
    assert_true(rvli_packet_send(second, &unused, sizeof unused, NULL, 0, 0));
    close(first); /* who has put it there is gone */
    store_await_stats(1, SMALL, SMALL);
    assert_int_equal(store_stats().shared_bytes, 0);
    close(second);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/*
 * Other content under the digest of what a user is about to save: it looks, whether it has copied
 * its own or not, and keeps that.
 */
static void a_wrong_digest_harms_nobody(void **state)
{
    (void)state;
    for (int no_digests = 0; no_digests < 2; no_digests++) {
        owner of = owner_start(0);
        user only = user_start((user_options){.no_digests = no_digests});
        user_fill(only, 18);
        int to = raw_connect(), fd = raw_file(SMALL, ALL_SEALS, 1);
        rvli_digest name = raw_name_of(only, to);
        raw_reserve(to, SMALL);
        assert_int_equal(raw_add(to, SMALL, name, fd).kind, RVLI_STORE_DONE);
        answer said = user_tell(only, (request){.what = PAUSE});
        assert_int_equal(said.status, RVL_OK);
        assert_int_equal(said.memory.store_bytes, CONTENT);
        assert_int_equal(said.memory.store_found_bytes, 0);
        assert_int_equal(said.copied, CONTENT);
        assert_int_equal(said.read, no_digests ? 0 : SMALL);
        store_await_stats(2, CONTENT + SMALL, CONTENT + SMALL);
        user_resume(only);
        user_check(only, 18);
        close(fd);
        close(to);
        user_end(only);
        owner_stop(of);
    }
}

/* The user that has added other content under its digest says that it has looked. */
static void the_word_of_who_added_it_does_not_count(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    user_fill(only, 18);
    int to = raw_connect(), again = raw_connect(), fd = raw_file(SMALL, ALL_SEALS, 1), came = -1;
    rvli_digest name = raw_name_of(only, to);
    raw_reserve(to, SMALL);
    rvli_store_message added = raw_add(to, SMALL, name, fd);
    assert_int_equal(added.kind, RVLI_STORE_DONE);
    const rvli_store_message look = {.kind = RVLI_STORE_FIND, .bytes = SMALL, .digest = name};
    const rvli_store_message word = {.kind = RVLI_STORE_CHECKED, .id = added.id};
    raw_tell(to, word);
    assert_int_equal(raw_ask(to, look, -1, &came).checked, 0);
    close(came);
    assert_int_equal(raw_ask(again, look, -1, &came).checked, 0); /* it has a reference now */
    close(came);
    raw_tell(again, word); /* the same process over another connection */
    answer said = user_tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.memory.store_found_bytes, 0);
    assert_int_equal(said.read, SMALL);
    user_resume(only);
    user_check(only, 18);
    pid_t other = fork(); /* one that has not added it counts, which spares others the work */
    if (other == 0) {
        int from = raw_connect();
        (void)raw_ask(from, look, -1, &came);
        raw_tell(from, word);
        _exit(raw_ask(from, look, -1, &came).checked == 1 ? 0 : 1);
    }
    assert_int_equal(store_end_of(other), 0);
    close(fd);
    close(to);
    close(again);
    user_end(only);
    owner_stop(of);
}

/* Its digests mean nothing to other owners. */
static void every_owner_has_its_own_secret(void **state)
{
    (void)state;
    rvl_store *store = NULL;
    const rvl_store_options options = {.struct_size = sizeof options, .path = store_path};
    rvli_secret secrets[2];
    for (size_t i = 0; i < 2; i++) {
        owner of = owner_start(0);
        int first = raw_connect(), second = raw_connect();
        secrets[i] = raw_secret(first);
        rvli_secret same = raw_secret(second);
        assert_int_equal(secrets[i].low, same.low);
        assert_int_equal(secrets[i].high, same.high);
        assert_int_equal(secrets[i].low & 1, 1);
        assert_int_equal(secrets[i].high >> 63, 0);
        close(first);
        close(second);
        owner_stop(of);
    }
    assert_int_not_equal(secrets[0].low, secrets[1].low);
    assert_int_not_equal(secrets[0].high, secrets[1].high);
    store_no_random_bytes = true;
    assert_int_equal(rvl_store_open(&options, &store), RVL_ERR_IO);
    store_no_random_bytes = false;
    assert_int_equal(access(store_path, F_OK), -1);
}

static void what_is_no_message_ends_the_connection(void **state)
{
    (void)state;
    owner of = owner_start(0);
    int to = raw_connect();
    char byte = 0;
    assert_int_equal(send(to, "nonsense", 8, 0), 8);
    assert_int_equal(recv(to, &byte, 1, 0), 0);
    close(to);
    to = raw_connect();
    rvli_store_message message = {.magic = RVLI_STORE_MAGIC + 1, .kind = RVLI_STORE_ASK};
    int fd = raw_file(SMALL, ALL_SEALS, 1);
    assert_true(rvli_packet_send(to, &message, sizeof message, &fd, 1, 0));
    assert_int_equal(recv(to, &byte, 1, 0), 0);
    close(to);
    to = raw_connect();
    message = (rvli_store_message){.kind = 77};
    assert_int_equal(raw_ask(to, message, fd, NULL).kind, RVLI_STORE_REFUSED);
    message = (rvli_store_message){.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_DROP, .id = 5};
    assert_true(rvli_packet_send(to, &message, sizeof message, NULL, 0, 0));
    message = (rvli_store_message){
        .magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_RETURN, .bytes = UINT64_MAX};
    assert_true(rvli_packet_send(to, &message, sizeof message, NULL, 0, 0));
    store_await_stats(1, 0, 0);
    close(fd);
    close(to);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* What plays the owner answers with a file that can still be written to. */
static void an_owner_is_not_trusted_either(void **state)
{
    (void)state;
    struct sockaddr_un address;
    rvli_store_message message;
    rvli_store_client *client = NULL;
    rvli_store_found found = {.fd = -1};
    unsigned count = 0;
    assert_int_equal(rvli_store_address(store_path, &address), RVL_OK);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    pid_t plays = fork();
    if (plays == 0) {
        int fd = raw_file(SMALL, F_SEAL_SHRINK, 1);
        int to = accept(listener, NULL, NULL);
        (void)rvli_packet_take(to, &message, sizeof message, NULL, 0, &count, 0);
        message.kind = RVLI_STORE_FOUND;
        message.id = 1;
        (void)rvli_packet_send(to, &message, sizeof message, &fd, 1, 0);
        (void)rvli_packet_take(to, &message, sizeof message, NULL, 0, &count, 0);
        _exit(0);
    }
    assert_int_equal(rvli_store_client_new(store_path, &client), RVL_OK);
    assert_int_equal(rvli_store_find(client, (rvli_digest){1, 1}, SMALL, false, &found),
                     RVL_ERR_IO);
    assert_int_equal(found.fd, -1);
    assert_int_equal(rvli_store_find(client, (rvli_digest){1, 1}, SMALL, false, &found),
                     RVL_ERR_IO); /* the connection is given up */
    rvli_store_client_delete(client);
    assert_int_equal(store_end_of(plays), 0);
    close(listener);
    assert_int_equal(unlink(store_path), 0);
}

static void another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    owner of = owner_start(0);
    struct stat facts;
    assert_int_equal(stat(store_path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(chmod(store_path, 0666), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    pid_t other = fork();
    if (other == 0) {
        struct sockaddr_un address;
        char byte;
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        (void)rvli_store_address(store_path, &address);
        if (rvli_store_connect(&address) >= 0 || errno != EPERM) /* the owner is another user */
            _exit(2);
        int to = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        rvli_store_message message = {.magic = RVLI_STORE_MAGIC, .kind = RVLI_STORE_ASK};
        if (connect(to, (struct sockaddr *)&address, sizeof address) != 0)
            _exit(3);
        (void)rvli_packet_send(to, &message, sizeof message, NULL, 0, 0);
        _exit(recv(to, &byte, 1, 0) > 0 ? 4 : 0);
    }
    assert_int_equal(store_end_of(other), 0);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_sealed_segments_are_kept),
        cmocka_unit_test(the_first_segment_is_everybodys),
        cmocka_unit_test(a_wrong_digest_harms_nobody),
        cmocka_unit_test(the_word_of_who_added_it_does_not_count),
        cmocka_unit_test(every_owner_has_its_own_secret),
        cmocka_unit_test(what_is_no_message_ends_the_connection),
        cmocka_unit_test(an_owner_is_not_trusted_either),
        cmocka_unit_test(another_user_is_refused),
    };
    return cmocka_run_group_tests(tests, store_make_folder, folder_remove_empty);
}
