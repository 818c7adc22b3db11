/* SPDX-License-Identifier: MIT */
/* A program on libreveille.so, which test_hooks_record.c records: it knows nothing of the hooks. */
#include <stdio.h>
#include <stdlib.h>

#include "reveille/reveille.h"

#define MIB (UINT64_C(1) << 20)

static void need(bool good, const char *what)
{
    rvl_error error = {.struct_size = sizeof error};
    if (good)
        return;
    rvl_last_error(&error);
    printf("failed: %s: %s\n", what, error.message);
    exit(1);
}
#define NEED(condition) need(condition, #condition)

static void live(rvl_context *context)
{
    rvl_tag tag = 0;
    rvl_addr addr = 0;
    NEED(rvl_stage(context, "load") == RVL_OK);
    NEED(rvl_tag_define(context, "weights", NULL, &tag) == RVL_OK);
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag_id = tag, .backup = RVL_BACKUP_HOST};
    NEED(rvl_alloc(context, 4 * MIB, &options, &addr) == RVL_OK);
    NEED(rvl_pause(context, &tag, 1, NULL) == RVL_OK);
    NEED(rvl_stage(context, "asleep") == RVL_OK);
    NEED(rvl_stage(context, "") == RVL_ERR_INVALID);
    NEED(rvl_resume(context, &tag, 1, NULL) == RVL_OK);
    NEED(rvl_step(context) == RVL_OK);
    NEED(rvl_free(context, addr) == RVL_OK);
}

/* usage: library_program BACKEND */
int main(int argc, char **argv)
{
    rvl_context *context = NULL;
    if (argc != 2)
        return 64;
    NEED(rvl_context_open(argv[1], NULL, &context) == RVL_OK);
    live(context);
    NEED(rvl_context_close(context, NULL) == RVL_OK);
    return 0;
}
