/* SPDX-License-Identifier: MIT */
/* The protocol of a store spoken by hand, as a user that means harm would. */
#ifndef RVL_TESTS_CORE_STORE_RAW_H
#define RVL_TESTS_CORE_STORE_RAW_H

#include "core/backup/store/message.h"
#include "store_scene.h"

#define ALL_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int raw_connect(void);

/* A file with these seals that repeats one byte. */
int raw_file(uint64_t bytes, unsigned seals, int byte);

void raw_tell(int to, rvli_store_message message);

/* Returns the answer. A file that comes with it goes to *fd_out, -1 if none does. */
rvli_store_message raw_ask(int to, rvli_store_message message, int fd, int *fd_out);

void raw_reserve(int to, uint64_t bytes);
rvli_store_message raw_add(int to, uint64_t bytes, rvli_digest digest, int fd);

/* The kind of the answer, for a segment of SMALL bytes. */
uint32_t raw_find(int to, rvli_digest digest, bool claim);

rvli_secret raw_secret(int to);

/* The name of a user's small content. */
rvli_digest raw_name_of(user who, int to);

#endif
