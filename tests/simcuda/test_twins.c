/* SPDX-License-Identifier: MIT */
/* Twins of kept content: their numbers stay in the table until the content changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "simcuda/driver/contents.h"

#define BYTES ((size_t)2000) /* four of the pieces in which contents are kept */

static CUdeviceptr memory;
static char content[BYTES], got[BYTES];

static bool is_right(uint64_t number)
{
    const volatile uint64_t *table = rvli_contents_twins();
    return number != 0 && table[number % RVLI_CONTENTS_TWINS] == number;
}

static uint64_t make(void)
{
    uint64_t number = rvli_contents_write_twin(memory, content, BYTES);
    assert_true(is_right(number));
    return number;
}

static int begin(void **state)
{
    CUcontext context;
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (char)('a' + i % 26);
    return !(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
             cuCtxSetCurrent(context) == CUDA_SUCCESS &&
             cuMemAlloc(&memory, 4 << 20) == CUDA_SUCCESS);
}

static int forget(void **state)
{
    (void)state;
    rvli_contents_forget(memory, 4 << 20);
    return 0;
}

static void reads_and_writes_elsewhere_leave_it(void **state)
{
    (void)state;
    uint64_t number = make();
    assert_true(rvli_contents_read(memory, got, BYTES));
    assert_memory_equal(got, content, BYTES);
    rvli_contents_write(memory + 2048, "x", 1);
    rvli_contents_forget(memory + 4096, 1000);
    assert_true(is_right(number));
}

static void a_twin_is_read(void **state)
{
    (void)state;
    rvli_contents_write(memory, content, BYTES);
    uint64_t number = rvli_contents_read_twin(memory + 100, got, 1000);
    assert_true(is_right(number));
    assert_memory_equal(got, content + 100, 1000);
    rvli_contents_write(memory + 1099, "x", 1);
    assert_false(is_right(number));
}

/* At the beginning, in the middle, and in its last piece. */
static void each_write_ends_it(void **state)
{
    const size_t places[] = {0, 700, BYTES - 1};
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        CUdeviceptr at = memory + places[i];
        uint64_t number = make();
        rvli_contents_write(at, "x", 1);
        assert_false(is_right(number));
        number = make();
        rvli_contents_fill(at, 'x', 1, 1);
        assert_false(is_right(number));
        number = make();
        rvli_contents_move(at, memory + 4096, 1); /* unknown content */
        assert_false(is_right(number));
        number = make();
        rvli_contents_end(at, 1, NULL);
        assert_false(is_right(number));
        number = make();
        assert_int_equal(cuMemsetD8(at, 'x', 1), CUDA_SUCCESS);
        assert_false(is_right(number));
        number = make();
        assert_int_equal(cuMemcpyHtoD(at, "x", 1), CUDA_SUCCESS);
        assert_false(is_right(number));
    }
}

static void a_later_twin_takes_its_place(void **state)
{
    (void)state;
    uint64_t number = make();
    assert_true(is_right(rvli_contents_read_twin(memory + 600, got, 10)));
    assert_false(is_right(number));
    number = make();
    for (size_t i = 0; i < RVLI_CONTENTS_TWINS; i++)
        assert_true(is_right(rvli_contents_write_twin(memory + 4096, content, 8)));
    assert_false(is_right(number)); /* its place in the table was reused */
}

static void what_has_none(void **state)
{
    static char large[RVLI_CONTENTS_TWIN_BYTES + 1];
    (void)state;
    assert_int_equal(rvli_contents_write_twin(memory, large, sizeof large), 0);
    assert_true(rvli_contents_read(memory, got, BYTES)); /* it is written anyway */
    rvli_contents_forget(memory + 10, 1);
    memset(got, 'x', BYTES);
    assert_int_equal(rvli_contents_read_twin(memory, got, BYTES), 0);
    assert_int_equal(got[0], 'x');
    assert_true(is_right(rvli_contents_read_twin(memory + 11, got, BYTES)));
    assert_int_equal(rvli_contents_read_twin(memory + (1 << 20), got, 1), 0);
}

static void freed_memory_has_none(void **state)
{
    CUdeviceptr other;
    (void)state;
    assert_int_equal(cuMemAlloc(&other, 4 << 20), CUDA_SUCCESS);
    uint64_t number = rvli_contents_write_twin(other, content, 8);
    assert_true(is_right(number));
    assert_int_equal(cuMemFree(other), CUDA_SUCCESS);
    assert_false(is_right(number));
}

static void a_forked_child_has_none(void **state)
{
    int status = 1;
    (void)state;
    uint64_t number = make();
    pid_t child = fork();
    if (child == 0) {
        rvli_contents_forget_all();
        _exit(is_right(number));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(is_right(number));
}

int main(void)
{
#define ON_CLEAN_MEMORY(test) cmocka_unit_test_teardown(test, forget)
    const struct CMUnitTest tests[] = {
        ON_CLEAN_MEMORY(reads_and_writes_elsewhere_leave_it),
        ON_CLEAN_MEMORY(a_twin_is_read),
        ON_CLEAN_MEMORY(each_write_ends_it),
        ON_CLEAN_MEMORY(a_later_twin_takes_its_place),
        ON_CLEAN_MEMORY(what_has_none),
        ON_CLEAN_MEMORY(freed_memory_has_none),
        ON_CLEAN_MEMORY(a_forked_child_has_none),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
