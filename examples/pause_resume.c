/* SPDX-License-Identifier: MIT */
/* Pause and resume on a simulated GPU: real bytes behind the address, no driver needed. */
#include <stdio.h>
#include <string.h>

#include "reveille/reveille.h"

int main(void)
{
    rvl_context *gpu;
    rvl_addr weights;
    rvl_tag tag;
    rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .backup = RVL_BACKUP_HOST};

    if (rvl_context_open("sim", NULL, &gpu) != RVL_OK ||
        rvl_alloc(gpu, 64u << 20, &options, &weights) != RVL_OK ||
        rvl_tag_find(gpu, 0, "weights", &tag) != RVL_OK)
        return 1;
    strcpy((char *)weights, "still here");

    rvl_pause(gpu, &tag, 1, NULL);  /* memory is free, content is in host memory */
    rvl_resume(gpu, &tag, 1, NULL); /* same address, same content */
    printf("%s\n", (const char *)weights);
    return rvl_context_close(gpu, NULL) == RVL_OK ? 0 : 1;
}
