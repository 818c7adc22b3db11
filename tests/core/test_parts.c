/* SPDX-License-Identifier: MIT */
/*
 * Resumes in parts: the pieces of replicas, what is filled right, wrong or not at all, and what is
 * refused. tests/core/test_faults.c fails every operation of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/short_memory.h"
#include "tests/support/support.h"

#define COUNT 4
#define PIECES_MAX 64

static const uint64_t sizes[COUNT] = {3 * GRANULE, GRANULE, 5 * GRANULE, 2 * GRANULE};
#define ALL_BYTES (11 * GRANULE)

SHORT_MALLOC

/* A replica: the same allocations with the same content, at addresses of its own. */
typedef struct replica {
    rvl_context *context;
    rvl_addr addrs[COUNT];
    rvl_tag tag;
    rvl_transition *resume;
    rvl_piece pieces[PIECES_MAX];
    size_t count;
} replica;

static replica open_replica(support_options options, rvl_backup backup, uint64_t flags)
{
    replica r = {.context = support_open(options, NULL)};
    const rvl_tag_options tag = {.struct_size = sizeof tag, .flags = flags};
    assert_int_equal(rvl_tag_define(r.context, "weights", &tag, &r.tag), RVL_OK);
    for (uint64_t i = 0; i < COUNT; i++) {
        r.addrs[i] = support_alloc(r.context, "weights", 0, sizes[i], backup);
        support_fill(r.addrs[i], sizes[i], i);
    }
    return r;
}

/* One that is paused, with backups in host memory. */
static replica paused_replica(void)
{
    replica r = open_replica((support_options){0}, RVL_BACKUP_HOST, 0);
    assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
    return r;
}

static void list_pieces(replica *r)
{
    assert_int_equal(
        rvl_transition_copy_pieces(r->resume, r->pieces, sizeof *r->pieces, PIECES_MAX, &r->count),
        RVL_OK);
    assert_true(r->count <= PIECES_MAX);
}

static void prepare_part(replica *r, uint32_t index, uint32_t count)
{
    const rvl_resume_options options = {
        .struct_size = sizeof options, .part_index = index, .part_count = count};
    assert_int_equal(rvl_resume_prepare(r->context, &r->tag, 1, &options, &r->resume), RVL_OK);
    list_pieces(r);
}

/* Its own pieces come when they are asked for. */
static void prepare_by_pieces(replica *r, uint32_t index, uint32_t count)
{
    const rvl_resume_options options = {.struct_size = sizeof options,
                                        .flags = RVL_RESUME_BY_PIECES,
                                        .part_index = index,
                                        .part_count = count};
    assert_int_equal(rvl_resume_prepare(r->context, &r->tag, 1, &options, &r->resume), RVL_OK);
    list_pieces(r);
}

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

static void *at(rvl_addr addr)
{
    return (void *)(uintptr_t)addr;
}

/* Brings a piece from one replica to the other, as a copy between devices would. */
static void bring(replica *to, const replica *from, size_t i)
{
    assert_int_equal(from->pieces[i].state, RVL_PIECE_RESTORED);
    memcpy(at(to->pieces[i].addr), at(from->pieces[i].addr), from->pieces[i].size_bytes);
}

static uint64_t bytes_in(const replica *r, rvl_piece_state state)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->count; i++)
        bytes += r->pieces[i].state == state ? r->pieces[i].size_bytes : 0;
    return bytes;
}

static void check_content(const replica *r)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(support_state(r->context, r->addrs[i]), RVL_STATE_ACTIVE);
        assert_true(support_holds(r->addrs[i], sizes[i], i));
    }
}

static void commit_and_check(replica *r, uint64_t filled_bytes)
{
    assert_int_equal(rvl_transition_commit(r->resume), RVL_OK);
    check_content(r);
    rvl_device_stats stats = support_stats(r->context, 0);
    assert_int_equal(stats.filled_in_bytes, filled_bytes);
    assert_int_equal(stats.backup_in_bytes, ALL_BYTES - filled_bytes);
    assert_int_equal(stats.resumes, COUNT);
}

static void close_replica(replica *r)
{
    assert_int_equal(rvl_context_close(r->context, NULL), RVL_OK);
}

/* ---- Pieces ---- */

static void pieces_cover_all_content_once(void **state)
{
    (void)state;
    replica r = paused_replica();
    for (uint32_t parts = 2; parts <= 13; parts++) /* 11 granules: some parts have none */
        for (uint32_t index = 0; index < parts; index++) {
            uint64_t of_part[13] = {0}, covered = 0;
            uint32_t last = 0;
            prepare_part(&r, index, parts);
            for (size_t i = 0, of = 0; i < r.count; i++) {
                const rvl_piece *piece = &r.pieces[i];
                assert_int_equal(piece->addr, r.addrs[of] + covered);
                assert_true(piece->size_bytes > 0 && piece->size_bytes % GRANULE == 0);
                assert_true(piece->part >= last && piece->part < parts);
                assert_int_equal(piece->state,
                                 piece->part == index ? RVL_PIECE_RESTORED : RVL_PIECE_OPEN);
                last = piece->part;
                of_part[piece->part] += piece->size_bytes;
                covered += piece->size_bytes;
                assert_true(covered <= sizes[of]);
                if (covered == sizes[of]) {
                    covered = 0;
                    of++;
                }
                assert_int_equal(i + 1 == r.count, of == COUNT);
            }
            for (uint32_t part = 0; part < parts; part++) /* balanced to a granule */
                assert_true(of_part[part] <= ALL_BYTES / parts + GRANULE &&
                            of_part[part] + GRANULE >= ALL_BYTES / parts);
            assert_int_equal(bytes_in(&r, RVL_PIECE_RESTORED), of_part[index]);
            assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
            assert_int_equal(support_state(r.context, r.addrs[0]), RVL_STATE_PAUSED);
        }
    close_replica(&r);
}

static void own_pieces_are_restored_and_no_others(void **state)
{
    (void)state;
    static char before[COUNT][5 * GRANULE];
    replica r = open_replica((support_options){0}, RVL_BACKUP_HOST, 0);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(before[i], at(r.addrs[i]), sizes[i]);
    assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
    prepare_part(&r, 1, 3);
    for (size_t i = 0; i < r.count; i++) {
        const rvl_piece *piece = &r.pieces[i];
        size_t of = 0;
        while (piece->addr < r.addrs[of] || piece->addr >= r.addrs[of] + sizes[of])
            of++;
        const char *wanted = before[of] + (piece->addr - r.addrs[of]);
        assert_int_equal(memcmp(at(piece->addr), wanted, piece->size_bytes) == 0, piece->part == 1);
    }
    assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
    close_replica(&r);
}

static void replicas_have_the_same_pieces(void **state)
{
    (void)state;
    replica a = paused_replica();
    rvl_context *between = support_open((support_options){0}, NULL); /* other addresses */
    support_alloc(between, "cache", 0, GRANULE, RVL_BACKUP_NONE);
    replica b = open_replica((support_options){0}, RVL_BACKUP_HOST, 0);
    support_fill(b.addrs[3], GRANULE, 99); /* one granule has other content */
    assert_int_equal(rvl_pause(b.context, &b.tag, 1, NULL), RVL_OK);
    prepare_part(&a, 0, 4);
    prepare_part(&b, 2, 4);
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        const rvl_piece *mine = &a.pieces[i], *theirs = &b.pieces[i];
        bool other = theirs->addr <= b.addrs[3] && b.addrs[3] < theirs->addr + theirs->size_bytes;
        assert_int_equal(mine->size_bytes, theirs->size_bytes);
        assert_int_equal(mine->part, theirs->part);
        assert_int_equal(memcmp(mine->digest, theirs->digest, sizeof mine->digest) != 0, other);
    }
    assert_int_equal(rvl_transition_abort(a.resume), RVL_OK);
    assert_int_equal(rvl_transition_abort(b.resume), RVL_OK);
    assert_int_equal(rvl_context_close(between, NULL), RVL_OK);
    close_replica(&a);
    close_replica(&b);
}

static void large_parts_are_cut(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.capacity_bytes = 256 * MIB}, NULL);
    rvl_addr addr = support_alloc(context, "large", 0, 200 * MIB, RVL_BACKUP_HOST);
    replica r = {.context = context, .tag = support_tag(context, "large")};
    assert_int_equal(rvl_pause(context, &r.tag, 1, NULL), RVL_OK);
    prepare_part(&r, 0, 2);
    const uint64_t wanted[] = {64 * MIB, 36 * MIB, 64 * MIB, 36 * MIB};
    assert_int_equal(r.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r.pieces[i].addr, addr);
        assert_int_equal(r.pieces[i].size_bytes, wanted[i]);
        addr += wanted[i];
    }
    assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
    close_replica(&r);
}

/* ---- Filling ---- */

static void what_neighbours_bring_is_taken(void **state)
{
    (void)state;
    replica each[3];
    for (uint32_t i = 0; i < 3; i++) {
        each[i] = paused_replica();
        prepare_part(&each[i], i, 3);
    }
    for (uint32_t i = 0; i < 3; i++) {
        bool filled[PIECES_MAX] = {false};
        for (size_t k = 0; k < each[i].count; k++) {
            filled[k] = each[i].pieces[k].part != i;
            if (filled[k])
                bring(&each[i], &each[each[i].pieces[k].part], k);
        }
        uint64_t open_bytes = bytes_in(&each[i], RVL_PIECE_OPEN);
        assert_int_equal(rvl_transition_commit(each[i].resume), RVL_ERR_STATE);
        assert_non_null(strstr(last_error().message, "rvl_transition_fill()"));
        assert_int_equal(support_state(each[i].context, each[i].addrs[0]), RVL_STATE_RESUMING);
        assert_int_equal(rvl_transition_fill(each[i].resume, filled, each[i].count), RVL_OK);
        list_pieces(&each[i]);
        assert_int_equal(bytes_in(&each[i], RVL_PIECE_FILLED), open_bytes);
        assert_int_equal(bytes_in(&each[i], RVL_PIECE_OPEN), 0);
        /* A second time nothing is open. */
        assert_int_equal(rvl_transition_fill(each[i].resume, filled, each[i].count), RVL_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t filled_bytes = bytes_in(&each[i], RVL_PIECE_FILLED);
        assert_true(filled_bytes >= 7 * GRANULE && filled_bytes <= 8 * GRANULE);
        commit_and_check(&each[i], filled_bytes);
        close_replica(&each[i]);
    }
}

/* One byte of one piece is wrong, and it is not the neighbour's content that comes of it. */
static void what_they_bring_wrong_is_restored(void **state)
{
    (void)state;
    replica a = paused_replica(), b = paused_replica();
    prepare_part(&a, 0, 2);
    prepare_part(&b, 1, 2);
    bool filled[PIECES_MAX] = {false};
    uint64_t right_bytes = 0;
    size_t brought = 0;
    for (size_t i = 0; i < a.count; i++) {
        filled[i] = a.pieces[i].state == RVL_PIECE_OPEN;
        if (!filled[i])
            continue;
        bring(&a, &b, i);
        if (brought++ == 0)
            ((char *)at(a.pieces[i].addr))[a.pieces[i].size_bytes - 1] ^= 1;
        else
            right_bytes += a.pieces[i].size_bytes;
    }
    assert_true(brought >= 2);
    assert_int_equal(rvl_transition_fill(a.resume, filled, a.count), RVL_OK);
    commit_and_check(&a, right_bytes);
    assert_int_equal(rvl_transition_abort(b.resume), RVL_OK);
    close_replica(&a);
    close_replica(&b);
}

static void what_nobody_brings_is_restored(void **state)
{
    (void)state;
    static const rvl_backup backups[] = {RVL_BACKUP_HOST, RVL_BACKUP_DISK};
    for (size_t i = 0; i < 2; i++) {
        replica r = open_replica((support_options){.disk_directory = "/tmp"}, backups[i], 0);
        assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
        prepare_part(&r, 1, 2);
        assert_int_equal(rvl_transition_fill(r.resume, NULL, 0), RVL_OK);
        list_pieces(&r);
        assert_int_equal(bytes_in(&r, RVL_PIECE_RESTORED), ALL_BYTES);
        commit_and_check(&r, 0);
        close_replica(&r);
    }
}

/* Neither side is right: nothing is lost, and the handle goes on. */
static void a_damaged_backup_is_found(void **state)
{
    (void)state;
    replica a = paused_replica(), b = paused_replica();
    const void *host = NULL;
    uint64_t left = 0;
    assert_int_equal(rvl_backup_find(a.context, a.addrs[3], &host, &left), RVL_OK);
    ((char *)(uintptr_t)host)[5] ^= 1;
    prepare_part(&a, 0, 2);
    prepare_part(&b, 1, 2);
    assert_int_equal(rvl_transition_fill(a.resume, NULL, 0), RVL_ERR_DIGEST_MISMATCH);
    rvl_error error = last_error();
    assert_string_equal(error.tag, "weights");
    assert_string_equal(error.op, "digest");
    assert_non_null(strstr(error.message, "resume in parts of \"weights\""));
    list_pieces(&a);
    assert_true(bytes_in(&a, RVL_PIECE_OPEN) > 0);
    assert_int_equal(rvl_transition_commit(a.resume), RVL_ERR_STATE);

    /* The neighbour has it right, and this backup is needed no more. */
    bool filled[PIECES_MAX] = {false};
    for (size_t i = 0; i < a.count; i++) {
        filled[i] = a.pieces[i].state == RVL_PIECE_OPEN;
        if (filled[i])
            bring(&a, &b, i);
    }
    uint64_t open_bytes = bytes_in(&a, RVL_PIECE_OPEN);
    assert_int_equal(rvl_transition_fill(a.resume, filled, a.count), RVL_OK);
    commit_and_check(&a, open_bytes);
    assert_int_equal(rvl_transition_abort(b.resume), RVL_OK);
    close_replica(&a);
    close_replica(&b);
}

/* After an abort all content is in the backups, whatever was written to the memory. */
static void an_abort_forgets_what_was_filled(void **state)
{
    (void)state;
    replica r = paused_replica();
    prepare_part(&r, 0, 2);
    for (size_t i = 0; i < r.count; i++)
        memset(at(r.pieces[i].addr), 3, r.pieces[i].size_bytes);
    assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
    assert_int_equal(support_stats(r.context, 0).used_bytes, 0);
    assert_int_equal(support_stats(r.context, 0).filled_in_bytes, 0);
    assert_int_equal(rvl_resume(r.context, &r.tag, 1, NULL), RVL_OK);
    check_content(&r);
    close_replica(&r);
}

/* ---- Piece by piece ---- */

static size_t first_of_part(const replica *r, uint32_t part)
{
    size_t first = 0;
    while (first < r->count && r->pieces[first].part != part)
        first++;
    return first;
}

static size_t load_next(replica *r)
{
    size_t piece = SIZE_MAX;
    assert_int_equal(rvl_transition_load_next(r->resume, &piece), RVL_OK);
    assert_true(piece <= r->count);
    list_pieces(r);
    return piece;
}

/* Of the weights as they were filled, wherever the piece lies. */
static bool piece_is_right(const replica *r, const replica *whole, size_t i)
{
    const rvl_piece *piece = &r->pieces[i];
    size_t of = 0;
    while (piece->addr < r->addrs[of] || piece->addr >= r->addrs[of] + sizes[of])
        of++;
    return memcmp(at(piece->addr), at(whole->addrs[of] + (piece->addr - r->addrs[of])),
                  piece->size_bytes) == 0;
}

static void own_pieces_come_one_after_the_other(void **state)
{
    (void)state;
    static const rvl_backup backups[] = {RVL_BACKUP_HOST, RVL_BACKUP_DISK};
    replica whole = open_replica((support_options){0}, RVL_BACKUP_HOST, 0);
    for (uint32_t index = 0; index < 6; index++) {
        replica r =
            open_replica((support_options){.disk_directory = "/tmp"}, backups[index / 3], 0);
        assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
        prepare_by_pieces(&r, index % 3, 3);
        assert_int_equal(bytes_in(&r, RVL_PIECE_OPEN), ALL_BYTES);
        size_t next = first_of_part(&r, index % 3);
        uint64_t own_bytes = 0;
        for (; next < r.count && r.pieces[next].part == index % 3; next++) {
            assert_int_equal(load_next(&r), next);
            own_bytes += r.pieces[next].size_bytes;
            assert_true(piece_is_right(&r, &whole, next));
            assert_int_equal(r.pieces[next].state, RVL_PIECE_RESTORED);
            assert_int_equal(bytes_in(&r, RVL_PIECE_RESTORED), own_bytes);
        }
        assert_true(own_bytes >= 3 * GRANULE);
        assert_int_equal(load_next(&r), r.count);
        assert_int_equal(rvl_transition_commit(r.resume), RVL_ERR_STATE);
        assert_int_equal(rvl_transition_fill(r.resume, NULL, 0), RVL_OK);
        assert_int_equal(load_next(&r), r.count);
        commit_and_check(&r, 0);
        close_replica(&r);
    }
    close_replica(&whole);
}

/* The first piece is there when half of the part is, not when all of it is. */
static void the_link_goes_on_meanwhile(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){.capacity_bytes = 256 * MIB}, NULL);
    (void)support_alloc(context, "large", 0, 256 * MIB, RVL_BACKUP_HOST);
    replica r = {.context = context, .tag = support_tag(context, "large")};
    assert_int_equal(rvl_pause(context, &r.tag, 1, NULL), RVL_OK);
    prepare_by_pieces(&r, 0, 2);
    uint64_t start_ns = rvl_clock_ns(context), first_ns = 0;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(load_next(&r), i);
        first_ns = i == 0 ? rvl_clock_ns(context) - start_ns : first_ns;
    }
    uint64_t all_ns = rvl_clock_ns(context) - start_ns;
    assert_true(first_ns > 0);
    assert_in_range(all_ns * 100 / first_ns, 180, 220);
    assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
    close_replica(&r);
}

/* Wherever it stops, what is on its way is waited for, and the rest comes from the backup. */
static void a_load_ends_at_any_piece(void **state)
{
    (void)state;
    static const rvl_backup backups[] = {RVL_BACKUP_HOST, RVL_BACKUP_DISK};
    for (size_t loaded = 0; loaded < 12; loaded++) {
        replica r =
            open_replica((support_options){.disk_directory = "/tmp"}, backups[loaded % 2], 0);
        assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
        for (int abort = 1; abort >= 0; abort--) {
            prepare_by_pieces(&r, 1, 2);
            for (size_t i = 0; i < loaded / 4; i++)
                (void)load_next(&r);
            if (abort) {
                assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
                assert_int_equal(support_state(r.context, r.addrs[0]), RVL_STATE_PAUSED);
                assert_int_equal(support_stats(r.context, 0).used_bytes, 0);
            }
        }
        assert_int_equal(rvl_transition_fill(r.resume, NULL, 0), RVL_OK);
        commit_and_check(&r, 0);
        close_replica(&r);
    }
}

/* The own backup of a piece is damaged: it stays open, and a neighbour may bring it. */
static void a_piece_that_is_damaged_stays_open(void **state)
{
    (void)state;
    replica a = paused_replica(), b = paused_replica();
    const void *host = NULL;
    uint64_t left = 0;
    size_t piece = 77;
    assert_int_equal(rvl_backup_find(a.context, a.addrs[1], &host, &left), RVL_OK);
    ((char *)(uintptr_t)host)[5] ^= 1; /* the second of the own pieces */
    prepare_by_pieces(&a, 0, 2);
    prepare_part(&b, 1, 2);
    assert_int_equal(load_next(&a), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(rvl_transition_load_next(a.resume, &piece), RVL_ERR_DIGEST_MISMATCH);
        assert_non_null(strstr(last_error().message, "resume in parts of \"weights\""));
        assert_int_equal(piece, 77);
        list_pieces(&a);
        assert_int_equal(bytes_in(&a, RVL_PIECE_RESTORED), a.pieces[0].size_bytes);
    }
    assert_int_equal(rvl_transition_fill(a.resume, NULL, 0), RVL_ERR_DIGEST_MISMATCH);

    bool filled[PIECES_MAX] = {false};
    assert_int_equal(a.pieces[1].addr, a.addrs[1]);
    support_fill(a.pieces[1].addr, sizes[1], 1);
    filled[1] = true;
    assert_int_equal(rvl_transition_fill(a.resume, filled, a.count), RVL_OK);
    commit_and_check(&a, sizes[1]);
    assert_int_equal(rvl_transition_abort(b.resume), RVL_OK);
    close_replica(&a);
    close_replica(&b);
}

/* What was filled in its place is passed over. */
static void a_filled_piece_is_not_loaded(void **state)
{
    (void)state;
    replica r = open_replica((support_options){0}, RVL_BACKUP_HOST, 0);
    assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
    prepare_by_pieces(&r, 0, 2);
    assert_int_equal(load_next(&r), 0);
    bool filled[PIECES_MAX] = {false};
    for (size_t i = 1; i < r.count; i++) {
        filled[i] = true;
        memset(at(r.pieces[i].addr), 1, r.pieces[i].size_bytes); /* and is wrong */
    }
    assert_int_equal(rvl_transition_fill(r.resume, filled, r.count), RVL_OK);
    assert_int_equal(load_next(&r), r.count);
    commit_and_check(&r, 0);
    close_replica(&r);
}

/* ---- What is not open ---- */

static void expect_all_restored(replica *r, uint32_t parts, uint64_t in_bytes)
{
    prepare_part(r, 0, parts);
    assert_int_equal(r->count, 0);
    assert_int_equal(rvl_transition_fill(r->resume, NULL, 0), RVL_OK);
    assert_int_equal(rvl_transition_commit(r->resume), RVL_OK);
    assert_int_equal(support_stats(r->context, 0).backup_in_bytes, in_bytes);
    assert_int_equal(support_stats(r->context, 0).filled_in_bytes, 0);
}

static void one_part_is_everything(void **state)
{
    (void)state;
    for (uint32_t parts = 0; parts < 2; parts++) {
        replica r = paused_replica();
        expect_all_restored(&r, parts, ALL_BYTES);
        check_content(&r);
        close_replica(&r);
    }
}

static void without_digests_nothing_is_open(void **state)
{
    (void)state;
    replica r = open_replica((support_options){.no_verify = true}, RVL_BACKUP_HOST, 0);
    assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
    expect_all_restored(&r, 2, ALL_BYTES);
    check_content(&r);
    close_replica(&r);

    replica accounted =
        open_replica((support_options){.memory = RVL_SIM_BACKED}, RVL_BACKUP_NONE, 0);
    assert_int_equal(rvl_pause(accounted.context, &accounted.tag, 1, NULL), RVL_OK);
    expect_all_restored(&accounted, 2, 0); /* no backup: no content */
    close_replica(&accounted);
}

/* Retained backups have digests. What is brought is checked also where nothing else is. */
static void retained_backups_are_enough(void **state)
{
    (void)state;
    replica r =
        open_replica((support_options){.no_verify = true}, RVL_BACKUP_HOST, RVL_TAG_RETAIN_BACKUPS);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(rvl_pause(r.context, &r.tag, 1, NULL), RVL_OK);
        prepare_part(&r, 0, 2);
        bool filled[PIECES_MAX] = {false};
        for (size_t i = 0; i < r.count; i++)
            filled[i] = true; /* it is not */
        assert_true(bytes_in(&r, RVL_PIECE_OPEN) >= 5 * GRANULE);
        assert_int_equal(rvl_transition_fill(r.resume, filled, r.count), RVL_OK);
        assert_int_equal(rvl_transition_commit(r.resume), RVL_OK);
        check_content(&r);
    }
    assert_int_equal(support_stats(r.context, 0).filled_in_bytes, 0);
    close_replica(&r);
}

static void what_is_not_restored_has_no_pieces(void **state)
{
    (void)state;
    replica r = paused_replica();
    const rvl_resume_options options = {
        .struct_size = sizeof options, .flags = RVL_RESUME_NO_RESTORE, .part_count = 2};
    assert_int_equal(rvl_resume_prepare(r.context, &r.tag, 1, &options, &r.resume), RVL_OK);
    list_pieces(&r);
    assert_int_equal(r.count, 0);
    assert_int_equal(rvl_transition_commit(r.resume), RVL_OK);
    close_replica(&r);
}

/* ---- Wrong calls ---- */

static void parts_are_for_prepared_resumes(void **state)
{
    (void)state;
    replica r = paused_replica();
    rvl_resume_options options = {.struct_size = sizeof options, .part_count = 2};
    rvl_resuming *wake = NULL;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_resume(r.context, &r.tag, 1, &options), RVL_ERR_INVALID);
    assert_non_null(strstr(last_error().message, "rvl_resume_prepare()"));
    assert_int_equal(rvl_resume_start(r.context, &r.tag, 1, &options, &wake), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_forecast(r.context, &r.tag, 1, &options, &forecast),
                     RVL_ERR_INVALID);
    options.part_count = 0;
    options.flags = RVL_RESUME_BY_PIECES;
    assert_int_equal(rvl_resume(r.context, &r.tag, 1, &options), RVL_ERR_INVALID);
    assert_non_null(strstr(last_error().message, "rvl_resume_prepare()"));
    assert_int_equal(rvl_resume_start(r.context, &r.tag, 1, &options, &wake), RVL_ERR_INVALID);
    assert_int_equal(rvl_resume_forecast(r.context, &r.tag, 1, &options, &forecast),
                     RVL_ERR_INVALID);
    options.flags = 0;
    static const uint32_t wrong[][2] = {
        {2, 2}, {1, 0}, {UINT32_MAX, 5}, {0, RVL_PARTS_MAX + 1}, {1, UINT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.part_index = wrong[i][0];
        options.part_count = wrong[i][1];
        assert_int_equal(rvl_resume_prepare(r.context, &r.tag, 1, &options, &r.resume),
                         RVL_ERR_INVALID);
        assert_null(r.resume);
    }
    prepare_part(&r, RVL_PARTS_MAX - 1, RVL_PARTS_MAX);
    assert_int_equal(rvl_transition_fill(r.resume, NULL, 0), RVL_OK);
    assert_int_equal(rvl_transition_commit(r.resume), RVL_OK);
    check_content(&r);

    /* A pause has no pieces. */
    assert_int_equal(rvl_pause_prepare(r.context, &r.tag, 1, NULL, &r.resume), RVL_OK);
    list_pieces(&r);
    assert_int_equal(r.count, 0);
    assert_int_equal(rvl_transition_fill(r.resume, NULL, 0), RVL_OK);
    assert_int_equal(rvl_transition_abort(r.resume), RVL_OK);
    close_replica(&r);
}

static void wrong_calls_change_nothing(void **state)
{
    (void)state;
    replica r = paused_replica();
    bool filled[PIECES_MAX] = {false};
    rvl_piece longer[2 * PIECES_MAX];
    size_t count = 77;
    prepare_part(&r, 0, 2);
    assert_int_equal(rvl_transition_copy_pieces(NULL, r.pieces, sizeof *r.pieces, 1, &count),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_copy_pieces(r.resume, NULL, sizeof *r.pieces, 1, &count),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_copy_pieces(r.resume, r.pieces, 8, 1, &count), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_copy_pieces(r.resume, r.pieces, sizeof *r.pieces, 1, NULL),
                     RVL_ERR_INVALID);
    assert_int_equal(count, 77);
    assert_int_equal(rvl_transition_copy_pieces(r.resume, NULL, 0, 0, &count), RVL_OK);
    assert_int_equal(count, r.count);
    memset(longer, 1, sizeof longer); /* a later version's are longer */
    assert_int_equal(rvl_transition_copy_pieces(r.resume, longer, 2 * sizeof *longer, 2, &count),
                     RVL_OK);
    assert_memory_equal(&longer[0], &r.pieces[0], sizeof *longer);
    assert_memory_equal(&longer[2], &r.pieces[1], sizeof *longer);
    assert_int_equal(longer[1].addr, 0);
    assert_int_equal(longer[4].addr, UINT64_C(0x0101010101010101)); /* no more than two */

    assert_int_equal(rvl_transition_load_next(NULL, &count), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_load_next(r.resume, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_load_next(r.resume, &count), RVL_OK);
    assert_int_equal(count, r.count); /* the prepare has restored the part */
    assert_int_equal(rvl_transition_fill(NULL, NULL, 0), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_fill(r.resume, filled, r.count - 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_fill(r.resume, filled, r.count + 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_transition_fill(r.resume, NULL, r.count), RVL_ERR_INVALID);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(rvl_transition_fill(r.resume, NULL, 0) != RVL_ERR_FORKED ||
              rvl_transition_load_next(r.resume, &count) != RVL_ERR_FORKED ||
              rvl_transition_copy_pieces(r.resume, NULL, 0, 0, &count) != RVL_ERR_FORKED);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    list_pieces(&r);
    assert_true(bytes_in(&r, RVL_PIECE_OPEN) > 0);
    assert_int_equal(rvl_transition_fill(r.resume, filled, r.count), RVL_OK);
    commit_and_check(&r, 0);
    close_replica(&r);
}

static void run_out_of_host_memory(uint64_t flags)
{
    replica r = paused_replica();
    const rvl_resume_options options = {
        .struct_size = sizeof options, .flags = flags, .part_count = 2};
    uint64_t failures = 0, fills = 0;
    for (;; failures++) {
        short_memory_refuse_nth(failures + 1);
        rvl_status status = rvl_resume_prepare(r.context, &r.tag, 1, &options, &r.resume);
        if (status == RVL_OK)
            break;
        assert_int_equal(status, RVL_ERR_HOST_OOM);
        assert_int_equal(support_stats(r.context, 0).used_bytes, 0);
        assert_int_equal(support_state(r.context, r.addrs[0]), RVL_STATE_PAUSED);
    }
    assert_true(failures >= 4); /* the tags, the items, the pieces, digests */
    short_memory_refuse_nth(0);
    list_pieces(&r);
    uint64_t open_bytes = bytes_in(&r, RVL_PIECE_OPEN);
    for (;; fills++) {
        short_memory_refuse_nth(fills + 1);
        rvl_status status = rvl_transition_fill(r.resume, NULL, 0);
        if (status == RVL_OK)
            break;
        assert_int_equal(status, RVL_ERR_HOST_OOM);
        list_pieces(&r);
        assert_int_equal(bytes_in(&r, RVL_PIECE_OPEN), open_bytes);
    }
    short_memory_refuse_nth(0);
    assert_true(fills > 0);
    commit_and_check(&r, 0);
    close_replica(&r);
}

static void host_memory_runs_out(void **state)
{
    (void)state;
    run_out_of_host_memory(0);
    run_out_of_host_memory(RVL_RESUME_BY_PIECES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_all_content_once),
        cmocka_unit_test(own_pieces_are_restored_and_no_others),
        cmocka_unit_test(replicas_have_the_same_pieces),
        cmocka_unit_test(large_parts_are_cut),
        cmocka_unit_test(what_neighbours_bring_is_taken),
        cmocka_unit_test(what_they_bring_wrong_is_restored),
        cmocka_unit_test(what_nobody_brings_is_restored),
        cmocka_unit_test(a_damaged_backup_is_found),
        cmocka_unit_test(an_abort_forgets_what_was_filled),
        cmocka_unit_test(own_pieces_come_one_after_the_other),
        cmocka_unit_test(the_link_goes_on_meanwhile),
        cmocka_unit_test(a_load_ends_at_any_piece),
        cmocka_unit_test(a_piece_that_is_damaged_stays_open),
        cmocka_unit_test(a_filled_piece_is_not_loaded),
        cmocka_unit_test(one_part_is_everything),
        cmocka_unit_test(without_digests_nothing_is_open),
        cmocka_unit_test(retained_backups_are_enough),
        cmocka_unit_test(what_is_not_restored_has_no_pieces),
        cmocka_unit_test(parts_are_for_prepared_resumes),
        cmocka_unit_test(wrong_calls_change_nothing),
        cmocka_unit_test(host_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
