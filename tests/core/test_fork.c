/* SPDX-License-Identifier: MIT */
/* After fork the child's inherited contexts answer an error, and the parent's go on. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support.h"

/* Number of calls in the child that did not answer RVL_ERR_FORKED. */
static int count_wrong(rvl_context *context, rvl_addr addr, rvl_tag tag)
{
    rvl_addr other = 0;
    rvl_allocation allocation = {.struct_size = sizeof allocation};
    rvl_device_stats stats = {.struct_size = sizeof stats};
    rvl_device_info info = {.struct_size = sizeof info};
    int wrong = 0;
    wrong += rvl_alloc(context, GRANULE, NULL, &other) != RVL_ERR_FORKED;
    wrong += rvl_free(context, addr) != RVL_ERR_FORKED;
    wrong += rvl_pause(context, &tag, 1, NULL) != RVL_ERR_FORKED;
    wrong += rvl_resume(context, &tag, 1, NULL) != RVL_ERR_FORKED;
    wrong += rvl_stage(context, "child") != RVL_ERR_FORKED;
    wrong += rvl_step(context) != RVL_ERR_FORKED;
    wrong += rvl_allocation_find(context, addr, &allocation) != RVL_ERR_FORKED;
    wrong += rvl_device_get_stats(context, 0, &stats) != RVL_ERR_FORKED;
    wrong += rvl_device_get_info(context, 0, &info) != RVL_ERR_FORKED;
    wrong += rvl_stage_count(context) != 0;
    wrong += rvl_context_close(context, NULL) != RVL_ERR_FORKED;
    return wrong;
}

/* A context of the child's own works. */
static int count_wrong_of_own(void)
{
    rvl_context *own = NULL;
    rvl_addr addr = 0;
    int wrong = rvl_context_open("sim", NULL, &own) != RVL_OK;
    wrong += rvl_alloc(own, GRANULE, NULL, &addr) != RVL_OK;
    wrong += rvl_context_close(own, NULL) != RVL_OK;
    return wrong;
}

static void children_are_refused_and_parents_go_on(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    rvl_addr addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    rvl_tag tag = support_tag(context, "weights");
    support_fill(addr, GRANULE, 1);

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(count_wrong(context, addr, tag) + count_wrong_of_own());
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);

    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
    assert_true(support_holds(addr, GRANULE, 1));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_are_refused_and_parents_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
