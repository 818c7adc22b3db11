/* SPDX-License-Identifier: MIT */
/* A library with thread-local memory of the initial-exec model, as in allocators. */
#include <string.h>

static _Thread_local char memory[4096] __attribute__((tls_model("initial-exec")));

int static_tls_sum(void);

int static_tls_sum(void)
{
    int sum = 0;
    memset(memory, 1, sizeof memory);
    for (size_t i = 0; i < sizeof memory; i++)
        sum += memory[i];
    return sum;
}
