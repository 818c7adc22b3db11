/* SPDX-License-Identifier: MIT */
/*
 * Ways in which users start programs: with tools, from other languages, with other allocators,
 * in containers. Each runs, or is refused by name. Tests of what is not installed are skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define LIBRARIES "$(dirname '" RVL_COMMAND_PATH "')/../simcuda"

static void need(const char *probe)
{
    char line[512];
    snprintf(line, sizeof line, "%s >/dev/null 2>&1", probe);
    if (run_shell(line) != 0) {
        print_message("SKIP: not here: %s\n", probe);
        skip();
    }
}

static void check_err(const char *part)
{
    char err[8192];
    folder_read("err", err, sizeof err);
    check_contains(err, part);
}

/* The loader's audit functions abort there, so the libraries are found in another way. */
static void valgrind(void **state)
{
    (void)state;
#ifdef __clang__
    print_message("SKIP: valgrind 3.19 does not read the debug information of clang 14\n");
    skip();
#endif
    need("valgrind --version");
    assert_int_equal(run_shell(COMMAND_WORD " run -- valgrind -q --error-exitcode=9 " PROGRAM
                                            " malloc 4194304 2>err"),
                     0);
    check_printed("/cudaMalloc 4.0 MiB");
    assert_int_equal(run_shell(COMMAND_WORD " run --no-gpu-ok -- sh -c 'valgrind -q " PROGRAM
                                            " malloc 1; exit $?' 2>err"),
                     127);
    check_err("valgrind aborts in programs that the loader audits: name it as the command");
}

/* It loads a copy of the driver, which does not count as ours. With our driver, a program has
 * possibly overwritten its environment, and it is counted. */
static void a_child_without_the_environment(void **state)
{
    (void)state;
    assert_int_equal(run_shell("cp " LIBRARIES "/libcuda.so.1 libcuda.so.1"), 0);
    assert_int_equal(run_shell(COMMAND_WORD
                               " run --no-gpu-ok -- sh -c \"setsid env -i LD_PRELOAD=" LIBRARIES
                               "/libcuda.so.1 sleep 3 & sleep 2\" 2>err"),
                     0);
    assert_int_equal(run_shell("grep -q 'was started without' err"), 1);
    assert_int_equal(run_shell(COMMAND_WORD
                               " run --no-gpu-ok -- sh -c \"setsid env -i LD_PRELOAD=$PWD"
                               "/libcuda.so.1 sleep 3 & sleep 2\" 2>err"),
                     0);
    check_err("sleep[");
    check_err("] was started without the environment of this command (env -i, sudo), and has "
              "loaded the CUDA driver of this machine, ");
    check_err("/libcuda.so.1: nothing of it is counted. Pass the environment on");
    assert_int_equal(run_shell("rm libcuda.so.1"), 0);
    assert_int_equal(run_shell(COMMAND_WORD " run --no-gpu-ok -- env -i sleep 0.5 2>err"), 0);
    assert_int_equal(run_shell("grep -q 'was started without' err"), 1);
}

static void go(void **state)
{
    (void)state;
    need("go version && cc --version");
    folder_write("g.go",
                 "package main\n"
                 "/*\n"
                 "#cgo LDFLAGS: -ldl\n"
                 "#include <dlfcn.h>\n"
                 "static int devices(void) {\n"
                 "    void *driver = dlopen(\"libcuda.so.1\", RTLD_NOW);\n"
                 "    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, \"cuInit\");\n"
                 "    int (*count)(int *) = (int (*)(int *))dlsym(driver, \"cuDeviceGetCount\");\n"
                 "    int n = -1;\n"
                 "    return init(0) == 0 && count(&n) == 0 ? n : -1;\n"
                 "}\n"
                 "*/\n"
                 "import \"C\"\n"
                 "func main() { print(int(C.devices()), \" devices\\n\") }\n");
    folder_write("s.go", "package main\nfunc main() { print(\"static\\n\") }\n");
    assert_int_equal(run_shell("export GOCACHE=$PWD/cache GOPATH=$PWD/go GO111MODULE=off; "
                               "go build -o g g.go && CGO_ENABLED=0 go build -o s s.go"),
                     0);
    assert_int_equal(run_shell(COMMAND_WORD " run --gpus 2 -- ./g 2>err"), 0);
    check_err("2 devices");
    assert_int_equal(run_shell(COMMAND_WORD " run -- ./s 2>err"), 2);
    check_err("./s is statically linked: nothing can be loaded into it");
    assert_int_equal(run_shell("chmod -R u+w cache go 2>/dev/null; rm -rf cache go"), 0);
}

/* CUDA's libraries need glibc. A program with musl uses none, but its children may. */
static void musl(void **state)
{
    (void)state;
    need("musl-gcc --version");
    folder_write("m.c", "#include <unistd.h>\n"
                        "int main(int count, char **words)\n"
                        "{ return count > 1 ? execv(words[1], words + 1) : 0; }\n");
    assert_int_equal(run_shell("musl-gcc -o m m.c && musl-gcc -static -o s m.c"), 0);
    assert_int_equal(run_shell(COMMAND_WORD " run -- ./m " PROGRAM " malloc 4194304 2>err"), 0);
    check_printed("/cudaMalloc 4.0 MiB");
    assert_int_equal(run_shell(COMMAND_WORD " run -- ./m 2>err"), 2);
    check_err("no process of the command has used CUDA");
    assert_int_equal(run_shell(COMMAND_WORD " run -- ./s 2>err"), 2);
    check_err("./s is statically linked: nothing can be loaded into it");
}

/* Preloaded for the program only, and also for `reveille run`. */
static void other_allocators(void **state)
{
    static const char *const libraries[] = {"libtcmalloc.so.4", "libtcmalloc_minimal.so.4",
                                            "libmimalloc.so.2", "libjemalloc.so.2"};
    char line[1024];
    size_t found = 0;
    (void)state;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        snprintf(line, sizeof line, "test -z \"$(LD_PRELOAD=%s true 2>&1)\"", libraries[i]);
        if (run_shell(line) != 0)
            continue;
        found++;
        snprintf(line, sizeof line,
                 COMMAND_WORD " run -- env LD_PRELOAD=%s " PROGRAM " malloc 4194304 2>err",
                 libraries[i]);
        assert_int_equal(run_shell(line), 0);
        check_printed("/cudaMalloc 4.0 MiB");
        snprintf(line, sizeof line,
                 "LD_PRELOAD=%s " COMMAND_WORD " run -- " PROGRAM " malloc 4194304 2>err",
                 libraries[i]);
        assert_int_equal(run_shell(line), 0);
        check_printed("/cudaMalloc 4.0 MiB");
    }
    if (found == 0) {
        print_message("SKIP: no tcmalloc, mimalloc or jemalloc is here\n");
        skip();
    }
}

static void a_namespace_of_the_loader(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " run --gpus 2 -- " NAMESPACE " 2>err"), 0);
    check_printed("2 devices\n");
}

static void a_root_that_cannot_be_written(void **state)
{
    (void)state;
    need("unshare -rm sh -c 'mount --rbind / / && mount -o remount,bind,ro /'");
    assert_int_equal(
        run_shell("unshare -rm sh -c \"mount --rbind / / && mount -o remount,bind,ro / "
                  "&& ! touch none 2>/dev/null && " COMMAND_WORD " run -- " PROGRAM
                  " malloc 4194304\" 2>&1"),
        0);
    check_printed("/cudaMalloc 4.0 MiB");
}

/* The counted memory does not change if a library precedes the C library. */
static void check_preloaded(const char *library)
{
    static const char words[] =
        " run --gpus 2 -- " PROGRAM " malloc 4194304 stage late malloc 4194304 free memory 2>err";
    char line[1024], expected[ANSWER_BYTES];
    snprintf(line, sizeof line, COMMAND_WORD "%s", words);
    assert_int_equal(run_shell(line), 0);
    snprintf(expected, sizeof expected, "%s", answer.out);
    snprintf(line, sizeof line, "LD_PRELOAD=%s " COMMAND_WORD "%s", library, words);
    assert_int_equal(run_shell(line), 0);
    assert_string_equal(answer.out, expected);
}

/* Only PyTorch's history uses the wall clock. The counted memory does not depend on it. */
static void a_clock_that_jumps(void **state)
{
    (void)state;
    check_preloaded(CLOCK);
}

/* As under qemu's user mode. */
static void sockets_without_numbers(void **state)
{
    (void)state;
    check_preloaded(COOKIE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valgrind),
        cmocka_unit_test(a_child_without_the_environment),
        cmocka_unit_test(go),
        cmocka_unit_test(musl),
        cmocka_unit_test(other_allocators),
        cmocka_unit_test(a_namespace_of_the_loader),
        cmocka_unit_test(a_root_that_cannot_be_written),
        cmocka_unit_test(a_clock_that_jumps),
        cmocka_unit_test(sockets_without_numbers),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
