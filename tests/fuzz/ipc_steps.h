/* SPDX-License-Identifier: MIT */
/*
 * What an input of the fuzz target of memory that processes share says: steps of one size, each of
 * this process, of importers of its memory, or of exporters to it, both played by hand. While a
 * call of this process waits for others, their next steps are made.
 */
#ifndef RVL_TESTS_FUZZ_IPC_STEPS_H
#define RVL_TESTS_FUZZ_IPC_STEPS_H

#include <stdint.h>

/* X(NAME, what it does). `who` names an allocation, an importer or an exporter. */
#define FUZZ_IPC_VERB_MAP(X)                                                                       \
    X(ALLOC, "allocates, in blocks: as many as value says")                                        \
    X(FREE, "frees it")                                                                            \
    X(EXPORT, "gets its handle; value: damages a byte of a copy")                                  \
    X(PAUSE, "pauses the tag of an allocation")                                                    \
    X(RESUME, "resumes it")                                                                        \
    X(IMPORT, "opens the handle of an exporter")                                                   \
    X(RELEASE, "closes it")                                                                        \
    X(CONNECT, "an importer connects")                                                             \
    X(ASK, "an importer asks for allocation `value`")                                              \
    X(SAY, "an importer says anything: kind")                                                      \
    X(ANSWER, "an importer takes a message, and answers what it was told, with a status")          \
    X(HANG_UP, "an importer closes")                                                               \
    X(GRANT, "an exporter sends blocks: of `value` in all as many as fds")                         \
    X(TELL, "an exporter says anything: kind")                                                     \
    X(HEAR, "an exporter takes a message")                                                         \
    X(END, "an exporter closes")

typedef enum fuzz_ipc_verb {
#define FUZZ_IPC_VERB_ENUM(name, meaning) FUZZ_IPC_##name,
    FUZZ_IPC_VERB_MAP(FUZZ_IPC_VERB_ENUM)
#undef FUZZ_IPC_VERB_ENUM
        FUZZ_IPC_VERBS
} fuzz_ipc_verb;

/* What is wrong with a message. */
typedef enum fuzz_ipc_change {
    FUZZ_IPC_AS_IT_IS,
    FUZZ_IPC_MAGIC,
    FUZZ_IPC_KIND,
    FUZZ_IPC_ABOUT,
    FUZZ_IPC_STATUS,
    FUZZ_IPC_NONCE,
    FUZZ_IPC_EXPORT_ID,
    FUZZ_IPC_SIZE,
    FUZZ_IPC_COUNT,
    FUZZ_IPC_FIRST,
    FUZZ_IPC_BLOCK,
    FUZZ_IPC_TEXT,
    FUZZ_IPC_SHORTER,
    FUZZ_IPC_LONGER,
    FUZZ_IPC_FDS, /* more than a message may have */
    FUZZ_IPC_CHANGES
} fuzz_ipc_change;

/* Numbers are taken modulo what there is, so that any bytes are steps. */
typedef struct fuzz_ipc_step {
    uint8_t verb, who, kind, change, value, status, fds, unused;
} fuzz_ipc_step;

#define FUZZ_IPC_WHO 4u         /* allocations, importers, exporters */
#define FUZZ_IPC_NO_BLOCK 0x80u /* of fds: they name no memory */

#endif
