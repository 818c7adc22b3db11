/* SPDX-License-Identifier: MIT */
/*
 * A resume in parts: several processes have the same content, and each restores one part of it. The
 * rest comes from the others, over links that are faster than the one to the host.
 *
 * Prepare a resume with part_index and part_count. This makes and maps all memory, and restores the
 * content of your part. All other pieces are open. List the pieces, fill open ones from processes
 * that have them, and call rvl_transition_fill(). It checks what you have filled against the
 * digests of your own backup, and restores from the backup what is wrong or missing. So the other
 * processes need not be trusted. Then commit.
 *
 * With RVL_RESUME_BY_PIECES the prepare returns while your part is still being restored, and its
 * pieces are open, too. rvl_transition_load_next() waits for them one by one. So you can send a
 * piece to others while later ones are still being restored.
 *
 * Processes with the same allocations in the same order (sizes and granularity) have the same
 * pieces. Without digests nothing is open: the prepare restores everything itself. Digests are
 * missing if the device cannot compute them, and with RVL_CONTEXT_NO_VERIFY unless the backup is
 * retained or in a store.
 */
#ifndef REVEILLE_PARTS_H
#define REVEILLE_PARTS_H

#include "reveille/transition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of parts of a resume. */
#define RVL_PARTS_MAX 65536u

typedef enum rvl_piece_state {
    RVL_PIECE_OPEN = 0, /* its content is missing */
    RVL_PIECE_RESTORED, /* from the backup of this process */
    RVL_PIECE_FILLED    /* by you, and the content is right */
} rvl_piece_state;

/* A piece of the content that a resume in parts restores. It lies within one allocation. */
typedef struct rvl_piece {
    rvl_addr addr;
    uint64_t size_bytes;
    uint64_t digest[2]; /* of its content in the backup; equal digests mean equal content */
    uint32_t part;      /* the part that it belongs to */
    int device;
    rvl_piece_state state;
    uint32_t reserved; /* 0 */
} rvl_piece;

/*
 * Writes up to capacity pieces of a prepared transition to pieces_out, by allocation in the order
 * in which those were made, and their full number to *count_out. piece_size: sizeof(rvl_piece).
 * There are none if it is not a resume in parts. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_STATE or
 * RVL_ERR_FORKED. One thread at a time may use a transition. Since 0.1.
 */
RVL_API rvl_status rvl_transition_copy_pieces(rvl_transition *transition, rvl_piece *pieces_out,
                                              size_t piece_size, size_t capacity,
                                              size_t *count_out);

/*
 * Waits until the next piece of your part is restored and checked, and stores its index in the list
 * of rvl_transition_copy_pieces() in *piece_out. If no piece of your part is open, stores the
 * number of pieces. Later pieces are restored meanwhile. Only waits with RVL_RESUME_BY_PIECES.
 *
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_HOST_OOM; RVL_ERR_DIGEST_MISMATCH; RVL_ERR_IO (the
 * backup cannot be read, and is kept); RVL_ERR_DEVICE_LOST; RVL_ERR_STATE; RVL_ERR_FORKED. After an
 * error the piece is still open: call again, fill it, or abort. Since 0.1.
 */
RVL_API rvl_status rvl_transition_load_next(rvl_transition *transition, size_t *piece_out);

/*
 * Closes all open pieces, so that the commit cannot fail. filled: for each piece, in the order of
 * rvl_transition_copy_pieces(), whether you have filled it. What you wrote must have arrived
 * (synchronize your streams). piece_count: the number of pieces, or 0 with filled NULL if you
 * filled none. Pieces that differ from the backup or were not filled are restored from the backup.
 * Pieces that are not open stay unchanged.
 *
 * Returns RVL_OK; RVL_ERR_INVALID (piece_count is not the number of pieces); RVL_ERR_HOST_OOM;
 * RVL_ERR_DIGEST_MISMATCH; RVL_ERR_IO (the backup cannot be read, and is kept);
 * RVL_ERR_DEVICE_LOST; RVL_ERR_STATE; RVL_ERR_FORKED. After an error the transition is still
 * prepared, and pieces that were open and are not right are still open: call again, or abort. Since
 * 0.1.
 */
RVL_API rvl_status rvl_transition_fill(rvl_transition *transition, const bool *filled,
                                       size_t piece_count);

#ifdef __cplusplus
}
#endif
#endif
