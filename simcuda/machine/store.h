/* SPDX-License-Identifier: MIT */
/*
 * A store for one rank that runs without its peers. PyTorch's TCPStore connects to it instead of to
 * the store of a launcher or of rank 0. It speaks the protocol of TCPStore's clients.
 *
 * It keeps the values that are set, and never waits. A key that another rank would set exists as
 * soon as a client waits for it. Its value is made from the key, and is as long as a unique id
 * of NCCL. The address of another rank cannot be made up, and is empty. Whether a key was set is
 * answered truthfully, since PyTorch uses such queries to detect failures.
 */
#ifndef RVL_SIMCUDA_MACHINE_STORE_H
#define RVL_SIMCUDA_MACHINE_STORE_H

#include <stdint.h>

typedef struct rvli_store rvli_store;

#define RVLI_STORE_MADE_UP_BYTES 128

/* Listens on a port of the loopback interface only. NULL, with errno: it cannot. */
rvli_store *rvli_store_open(void);
uint16_t rvli_store_port(const rvli_store *store);

/* Readable when there is something to serve. */
int rvli_store_file(const rvli_store *store);
void rvli_store_serve(rvli_store *store);

void rvli_store_close(rvli_store *store);

#endif
