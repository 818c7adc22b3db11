/* SPDX-License-Identifier: MIT */
#include "need.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench_gpu: %s\n", what);
    exit(1);
}

double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
