/* SPDX-License-Identifier: MIT */
/*
 * A store for one rank without running peers: what PyTorch's TCPStore connects to instead of the
 * one that a launcher or rank 0 would hold. Its messages are those of TCPStore's clients.
 *
 * It keeps what is set, and waits for nobody. A key that another rank would have set is there as
 * soon as it is waited for; its value is made from its name, as long as a unique id of NCCL. An
 * address of another rank cannot be made up, and is empty.
 * Whether a key was set is answered as it is, since PyTorch looks so for signs of failure.
 */
#ifndef RVL_SIMCUDA_MACHINE_STORE_H
#define RVL_SIMCUDA_MACHINE_STORE_H

#include <stdint.h>

typedef struct rvli_store rvli_store;

#define RVLI_STORE_MADE_UP_BYTES 128

/* Listens on a port of this host alone. NULL, with errno: it cannot. */
rvli_store *rvli_store_open(void);
uint16_t rvli_store_port(const rvli_store *store);

/* Can be read when there is something to serve. */
int rvli_store_file(const rvli_store *store);
void rvli_store_serve(rvli_store *store);

void rvli_store_close(rvli_store *store);

#endif
