/* SPDX-License-Identifier: MIT */
/* `reveille run`: programs that use CUDA, on simulated GPUs. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define MIB 1048576LL
#define H200 150109880320LL
#define CONTEXT 552402944LL /* what the driver takes for a process */
#define SECOND 548995072LL  /* and for each further process */
#define PAGE (2 * MIB)
#define OUT_OF_MEMORY 2

/* The i-th line of the output, as a number. */
static long long printed(int line)
{
    const char *at = answer.out;
    for (int i = 0; i < line && at != NULL; i++) {
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    assert_non_null(at);
    return atoll(at);
}

/* Runs the program with words on a machine with options. answer.out has only the program's
 * output. */
static int run_on(const char *options, const char *words)
{
    char line[2048];
    snprintf(line, sizeof line, COMMAND_WORD " run %s -- " PROGRAM " %s 2>err", options, words);
    return run_shell(line);
}

static void check_err(const char *part)
{
    char err[4096];
    folder_read("err", err, sizeof err);
    check_contains(err, part);
}

/* ---- Memory ---- */

static void what_is_in_use(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "memory malloc 1 memory malloc 1000 memory malloc 1048577 memory "
                                "free memory name"),
                     0);
    assert_int_equal(printed(0), CONTEXT);
    assert_int_equal(printed(2), CONTEXT + PAGE); /* a page that small allocations share */
    assert_int_equal(printed(4), CONTEXT + PAGE);
    assert_int_equal(printed(6), CONTEXT + 2 * PAGE); /* a page of its own */
    assert_int_equal(printed(8), CONTEXT + PAGE);
    check_printed("NVIDIA H200\n");
}

static void out_of_memory_at_the_byte(void **state)
{
    char words[256];
    long long room = (H200 - CONTEXT) / PAGE * PAGE;
    (void)state;
    snprintf(words, sizeof words, "malloc %lld error memory malloc %lld memory malloc 1", room + 1,
             room);
    assert_int_equal(run_on("", words), 0);
    assert_int_equal(printed(0), OUT_OF_MEMORY);
    check_printed("cudaErrorMemoryAllocation\n");
    assert_int_equal(printed(2), CONTEXT); /* the failure has changed nothing */
    assert_int_equal(printed(3), 0);
    assert_int_equal(printed(4), CONTEXT + room);
    assert_int_equal(printed(5), OUT_OF_MEMORY);
    check_printed("\nfits after 2 refusals that the program survived, with ");
    check_printed(" to spare; the first: simcuda-program[");
    check_printed("]/cudaMalloc asked for 139.3 GiB of device 0 with 139.3 GiB free, in run\n");
    assert_int_equal(run_on("--no-refusals", words), 3);
    assert_int_equal(run_on("--json", words), 0);
    check_printed("\"kind\":\"survived refusals\"");
    check_printed("\"refused\":{\"count\":2,\"cured\":0,\"first\":{\"process\":\"simcuda-program[");
    check_printed("\"requested_bytes\":149558394880");
}

/* The verdict is what happened to a program that ends because of memory, fails otherwise, or
 * does nothing. */
static void the_verdict_is_what_happened(void **state)
{
    (void)state;
    assert_int_equal(run_on("--device 1GiB", "malloc 2147483648 exit 1"), 1);
    check_printed("]/cudaMalloc asked for 2.0 GiB of device 0 with ");
    check_printed(" free, in run; the command failed with exit status 1\n");
    assert_int_equal(run_on("--device 1GiB --json", "malloc 2147483648 exit 1"), 1);
    check_printed("\"fits\":false,\"oom\":{\"file\":");
    check_printed("\"verdict\":{\"kind\":\"out of memory\"");
    assert_int_equal(run_on("", "malloc 1048576 exit 5"), 5);
    check_printed("\nno verdict: the command failed with exit status 5\n");
    assert_int_equal(run_on("--json", "malloc 1048576 exit 5"), 5);
    check_printed("\"fits\":null,\"oom\":null");
    check_printed("\"exit_status\":5");
    assert_int_equal(run_shell(COMMAND_WORD " run -- sh -c 'kill -9 $$' 2>err"), 137);
    check_printed("\nno verdict: the command was killed by signal 9 (SIGKILL)\n");
    assert_int_equal(run_shell(COMMAND_WORD " run --no-gpu-ok -- true 2>err"), 0);
    check_printed("\nno verdict: it used no GPU\n");
    assert_int_equal(run_on("--headroom 50%", "malloc 1048576"), 0);
    check_printed("\nfits, with 139.3 GiB to spare\n");
    assert_int_equal(run_on("--headroom 100%", "malloc 1048576"), 0);
    check_printed("\ntight: 139.3 GiB to spare on device 0, less than the headroom of 139.8 GiB\n");
    assert_int_equal(run_on("--headroom 101%", "malloc 1048576"), 2);
    check_err("--headroom 101%: expected a part such as 3%, a size such as 2GiB, or 0");
}

/* The trace of a run has the run's verdict. */
static void a_trace_has_its_verdict(void **state)
{
    (void)state;
    assert_int_equal(run_on("--device 1GiB -o run.rvt", "malloc 2147483648 exit 1"), 1);
    assert_int_equal(run_command("replay run.rvt"), 3);
    check_printed("\nout of memory: simcuda-program[");
    check_printed(" free, in run; the command failed with exit status 1\n");
    assert_int_equal(run_command("replay --device h200 run.rvt"), 3);
    check_printed("\nno verdict: the command ran out of memory where it was recorded, and did not "
                  "go on\n");
}

static void memory_by_the_driver(void **state)
{
    (void)state;
    assert_int_equal(run_on("--device 1GiB", "memory vmm 4194304 memory what read unmap 4194304 "
                                             "memory vmm 1073741824 memory"),
                     0);
    assert_int_equal(printed(0), CONTEXT);
    assert_int_equal(printed(1), 0);
    assert_int_equal(printed(2), CONTEXT + 2 * PAGE);
    assert_int_equal(printed(3), 2); /* cudaMemoryTypeDevice */
    assert_int_equal(printed(4), 0); /* reads as zero */
    assert_int_equal(printed(5), 0);
    assert_int_equal(printed(6), CONTEXT);
    assert_int_equal(printed(7), OUT_OF_MEMORY);
    assert_int_equal(printed(8), CONTEXT);
}

static void pinned_memory_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(run_on("--host-memory 1MiB", "pin 524288 pin 524289 pin 524288 pin 1"), 0);
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), OUT_OF_MEMORY);
    assert_int_equal(printed(2), 0);
    assert_int_equal(printed(3), OUT_OF_MEMORY);
    check_printed("]/pinned asked for 516.0 KiB of host memory with 512.0 KiB free, in run\n");
}

static void device_memory_faults(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "malloc 4096 touch"), 128 + SIGSEGV);
}

static void devices_are_apart(void **state)
{
    (void)state;
    assert_int_equal(run_on("--gpus 2 --json",
                            "malloc 4194304 device 1 memory malloc 8388608 memory "
                            "device 0 memory device 2"),
                     0);
    assert_int_equal(printed(2), CONTEXT);
    assert_int_equal(printed(4), CONTEXT + 8388608);
    assert_int_equal(printed(6), CONTEXT + 4194304);
    assert_int_equal(printed(7), 101); /* cudaErrorInvalidDevice */
    check_printed("\"device\":1");
}

/* A measured card's figures. Where a file lacks them, the H200's are used. */
static void a_profile_says_what_the_driver_takes(void **state)
{
    (void)state;
    const char words[] = "memory streams 1 memory streams 33 memory kernel kernel memory graph "
                         "graph memory";
    assert_int_equal(
        run_shell(COMMAND_WORD
                  " devices --device h200 --json >none.json && sed -e "
                  "'s/\"context_bytes\":0/\"context_bytes\":314572800/' -e "
                  "'s/\"first_kernel_bytes\":0/\"first_kernel_bytes\":6291456/' -e "
                  "'s/\"streams_bytes\":0/\"streams_bytes\":37748736/' -e "
                  "'s/\"graph_bytes\":0/\"graph_bytes\":3145728/' none.json >own.json"),
        0);
    assert_int_equal(run_on("--device own.json", words), 0);
    long long once = CONTEXT - SECOND, now = once + 314572800;
    assert_int_equal(printed(0), now);
    assert_int_equal(printed(2), now); /* the first stream takes nothing there either */
    assert_int_equal(printed(4), now += 18 * PAGE);
    assert_int_equal(printed(5), 0);
    assert_int_equal(printed(7), now += 3 * PAGE); /* the first kernel, but not the second */
    assert_int_equal(printed(8), 0);
    assert_int_equal(printed(10), now += 2 * PAGE); /* whole pages; the first graph only */
    assert_int_equal(run_on("--device none.json", words), 0);
    assert_int_equal(printed(0), CONTEXT);
    assert_int_equal(printed(4), CONTEXT + 9 * PAGE);
    assert_int_equal(printed(7), CONTEXT + 9 * PAGE);
    assert_int_equal(printed(10), CONTEXT + 9 * PAGE);
}

/* A profile's figure may not fit. Then nothing is taken, and it can be tried again. */
static void a_profiles_figures_may_not_fit(void **state)
{
    (void)state;
    assert_int_equal(run_shell("sed 's/150109880320/330301440/' own.json >small.json"), 0);
    assert_int_equal(run_on("--device small.json", "memory malloc 8388608 kernel streams 34 memory "
                                                   "free kernel memory"),
                     0);
    long long now = CONTEXT - SECOND + 314572800;
    assert_int_equal(printed(0), now);
    assert_int_equal(printed(1), 0);
    assert_int_equal(printed(2), OUT_OF_MEMORY);
    assert_int_equal(printed(3), OUT_OF_MEMORY);
    assert_int_equal(printed(4), now + 8388608); /* the second stream took two pages, or none */
    assert_int_equal(printed(5), 0);
    assert_int_equal(printed(6), 0);
    assert_int_equal(printed(7), now + 3 * PAGE);
}

/* NVML and the runtime agree, also in a process with NVML only. */
static void nvml_says_the_same(void **state)
{
    (void)state;
    assert_int_equal(run_on("--gpus 2", "nvml 0 nvml 1 malloc 4194304 nvml 0 nvml 1 nvml 2"), 0);
    assert_int_equal(printed(0), 0); /* it takes nothing itself */
    assert_int_equal(printed(1), 0);
    assert_int_equal(printed(3), CONTEXT + 4194304);
    assert_int_equal(printed(4), 0);
    assert_int_equal(printed(5), -2); /* NVML_ERROR_INVALID_ARGUMENT */
}

static void nvml_knows_no_confidential_computing(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "confidential 1 nvml 0 confidential 1 confidential 2"), 0);
    assert_int_equal(printed(0), -1); /* NVML_ERROR_UNINITIALIZED */
    assert_int_equal(printed(2), 0);
    assert_int_equal(printed(3), -25); /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
}

/* A process that sees only the second GPU calls it 0. NVML keeps its number. */
static void a_process_sees_the_devices_it_lists(void **state)
{
    (void)state;
    assert_int_equal(run_on("--gpus 3", "sees 2,1 uuid 0 bus 0 uuid 1 uuid 2 malloc 4194304 memory "
                                        "nvml 0 nvml 2 device 1 memory device 2 sees 0"),
                     0);
    assert_int_equal(printed(0), 2);
    assert_int_equal(printed(1), 2);
    assert_int_equal(printed(2), 3);
    assert_int_equal(printed(3), 1);
    assert_int_equal(printed(4), -101); /* cudaErrorInvalidDevice */
    assert_int_equal(printed(6), CONTEXT + 4194304);
    assert_int_equal(printed(7), 0);
    assert_int_equal(printed(8), CONTEXT + 4194304);
    assert_int_equal(printed(10), CONTEXT);
    assert_int_equal(printed(11), 101);
    assert_int_equal(printed(12), 2); /* too late */
}

/* Checks how many devices the list makes visible, and the number of the first. */
static void check_seen(const char *list, long long count, long long first)
{
    char words[256];
    snprintf(words, sizeof words, "sees '%s' uuid 0", list);
    assert_int_equal(run_on("--gpus 3", words), 0);
    if (printed(0) != count || printed(1) != first)
        fail_msg("%s shows %lld, first %lld: expected %lld, %lld", list, printed(0), printed(1),
                 count, first);
}

static void lists_of_devices_are_read_as_cuda_reads_them(void **state)
{
    (void)state;
    const long long none = -100; /* cudaErrorNoDevice */
    check_seen("1", 1, 1);
    check_seen(" 2, 0", 2, 2);
    check_seen("1,3,0", 1, 1); /* there is no 3, so later entries are ignored */
    check_seen("2,-1,0", 1, 2);
    check_seen("GPU-72657665-696c-6c65-2d73-696d00000002", 1, 2);
    check_seen("gpu-72657665-696c-6c65-2d73-696d00000001,GPU-72657665-696c-6c65-2d73-696d00000000",
               2, 1);
    check_seen("GPU-72", none, none); /* three UUIDs begin with it */
    check_seen("", none, none);
    check_seen("-1", none, none);
    check_seen("NoDevFiles", none, none);
    check_seen(",1", none, none);
    check_seen("1,0,1", none, none);
    check_seen("18446744073709551617", none, none);
}

/* The shell's variable refers to real GPUs, so it is ignored. */
static void the_list_outside_is_not_taken(void **state)
{
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    int code = run_on("--gpus 2", "device 1 memory");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(code, 0);
    assert_int_equal(printed(1), CONTEXT);
}

/* Python wheels carry copies of CUDA's libraries, with a digest in the name. */
static void a_copy_in_a_wheel_is_not_taken(void **state)
{
    (void)state;
    assert_int_equal(run_on("--no-gpu-ok", "opens libcuda.so.1 opens libcuda.faf08d9a.so.1 "
                                           "opens /nowhere/libcuda-faf08d9a.so.1 "
                                           "opens libcuda.faf08d9.so.1 opens libcuda.xaf08d9a.so.1 "
                                           "opens libcudafaf08d9a.so.1 "
                                           "opens libnothing-faf08d9a.so.1"),
                     0);
    check_printed("1\n1\n1\n-1\n-1\n-1\n-1\n");
    assert_int_equal(run_on("--gpus 2", "malloc 4096 wheel " WHEEL), 0);
    check_printed("0\n2\n");
}

/* LD_AUDIT and PYTHONPATH are lists separated by colons, in which the loader expands $. */
static void a_folder_of_any_name(void **state)
{
    (void)state;
    assert_int_equal(run_shell("d='a $ORIGIN b:c'; mkdir -p \"$d/cli\" && cp -r " LIBRARIES
                               " \"$d/simcuda\" && cp " COMMAND_WORD " \"$d/cli/reveille\" && "
                               "\"$d/cli/reveille\" run -- sh -c '" PROGRAM
                               " malloc 4096 memory & wait $!; echo \"$PYTHONPATH\"; "
                               "test -e \"$PYTHONPATH/sitecustomize.py\" && echo there' 2>err"),
                     0);
    assert_int_equal(printed(1), CONTEXT + PAGE);
    check_printed("there\n");
}

/* A program for CUDA 12 has its own runtime, and its own structs. */
static void a_program_of_cuda_12(void **state)
{
    (void)state;
#ifdef PROGRAM12
    assert_int_equal(run_shell(COMMAND_WORD " run -- " PROGRAM12 " 2>err"), 0);
    check_printed("0\n12080\n"
                  "0\n"
                  "NVIDIA H200, 9.0, 132, 1980000 kHz, 3201000 kHz, 232448\n"
                  "1\n"    /* the bytes behind the struct are unchanged */
                  "101\n"  /* cudaErrorInvalidDevice */
                  "0\n0\n" /* cudaMalloc, cudaPointerGetAttributes */
                  "2 on 0, 1, 1\n"
                  "0\n556597248\n0\n"
                  "0\n0\n0\n0\n1\n0\n"
                  "801\n");
    check_err("cudaMemcpyBatchAsync, asked for by ");
    check_err("simcuda-program12, is not simulated");
#else
    skip(); /* all tests use a program built with CUDA 12's headers */
#endif
}

/* ---- Processes ---- */

static void processes_see_each_other(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f in out; " COMMAND_WORD " run -- sh -c '" PROGRAM
                               " malloc 1073741824 mark in until out & " PROGRAM
                               " until in memory mark out; wait; " PROGRAM " memory' 2>err"),
                     0);
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), CONTEXT + SECOND + 1073741824);
    assert_int_equal(printed(2), CONTEXT);
}

/* What the first process takes stays for the second, and is released with the last. */
static void the_first_process_takes_more(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f in out gone; " COMMAND_WORD " run -- sh -c '(" PROGRAM
                               " malloc 1 mark in until out; touch gone) & " PROGRAM
                               " until in memory mark out until gone memory; wait; " PROGRAM
                               " memory' 2>err"),
                     0);
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), CONTEXT + SECOND + PAGE);
    assert_int_equal(printed(2), CONTEXT);
    assert_int_equal(printed(3), CONTEXT);
}

/* As in allocators. With an LD_AUDIT library, the loader has no room for it by default. */
static void a_preloaded_library_has_its_static_tls(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " run --no-gpu-ok -- env LD_PRELOAD=" STATIC_TLS
                                            " sh -c 'echo $GLIBC_TUNABLES' 2>err"),
                     0);
    check_printed("glibc.rtld.optional_static_tls=65536\n");
    /* The user's settings stay, including their own value for this one. */
    assert_int_equal(run_shell("GLIBC_TUNABLES=glibc.malloc.arena_max=2 " COMMAND_WORD
                               " run --no-gpu-ok -- sh -c 'echo $GLIBC_TUNABLES' 2>err"),
                     0);
    check_printed("glibc.malloc.arena_max=2:glibc.rtld.optional_static_tls=65536\n");
    assert_int_equal(run_shell("GLIBC_TUNABLES=glibc.rtld.optional_static_tls=1048576 " COMMAND_WORD
                               " run --no-gpu-ok -- sh -c 'echo $GLIBC_TUNABLES' 2>err"),
                     0);
    check_printed("glibc.rtld.optional_static_tls=1048576\n");
}

/* A context that does not fit takes nothing, and leaves other memory unchanged. */
static void a_second_context_may_not_fit(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f in out; " COMMAND_WORD
                               " run --device 700MiB -- sh -c '" PROGRAM
                               " memory mark in until out memory & " PROGRAM
                               " until in memory mark out; wait' 2>err"),
                     0);
    assert_int_equal(printed(0), CONTEXT);
    assert_int_equal(printed(1), -OUT_OF_MEMORY);
    assert_int_equal(printed(2), CONTEXT);
    check_printed("]/CUDA context asked for 523.6 MiB of device 0 with 173.2 MiB free, in run\n");
    assert_int_equal(run_on("--device 525MiB", "memory"), 0);
    assert_int_equal(printed(0), 0); /* too small for any context: none is counted */
}

static void a_killed_process_gives_back(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f in; " COMMAND_WORD " run -- sh -c '" PROGRAM
                               " malloc 1073741824 mark in held 600 & " PROGRAM
                               " until in; kill -9 $!; wait; " PROGRAM " memory' 2>err"),
                     0);
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), CONTEXT);
}

/* As on an H100: the parent had initialized CUDA, and the child cannot do it again. */
static void a_forked_child_has_no_cuda(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "malloc 4194304 child memory malloc 2097152 memory"), 0);
    assert_int_equal(printed(1), -3); /* cudaErrorInitializationError */
    assert_int_equal(printed(2), 3);
    assert_int_equal(printed(3), -3);
    assert_int_equal(run_on("", "child malloc 2097152 memory"), 0); /* forked before */
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), CONTEXT + PAGE);
}

/* A descriptor that the program has closed may now be its own file: nothing is written to it. */
static void a_program_that_closes_all_descriptors(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "malloc 4194304 steals malloc 1 memory written"), 0);
    assert_int_equal(printed(0), 0);
    assert_true(printed(1) != 0);
    assert_true(printed(2) < 0);
    assert_int_equal(printed(3), -1);
    check_err(
        "the program has closed the descriptor of its connection: no simulated GPU can be used");
    assert_int_equal(run_on("", "malloc 4194304 steals child written"), 0);
    assert_int_equal(printed(1), -1);
}

/* It has a copy of its parent's connection, and would take memory in its parent's name. */
static void a_child_that_no_library_hears_of(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "malloc 4194304 bare malloc 2097152 memory"), 0);
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), 3); /* cudaErrorInitializationError */
    assert_true(printed(2) < 0);
    check_printed("peak 530.8 MiB in run");
}

/* Results match an H100. */
static void addresses_without_memory_are_not_registered(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "register 0xffffffffffffffff 64 register 0x10000 1099511627776 "
                                "register 0 64"),
                     0);
    assert_int_equal(printed(0), 1);
    assert_int_equal(printed(1), 2);
    assert_int_equal(printed(2), 1);
}

/* Each process takes a descriptor of the machine. The soft limit is raised, but not for the
 * command. */
static void a_low_limit_of_descriptors(void **state)
{
    (void)state;
    assert_int_equal(run_shell("ulimit -Sn 24; " COMMAND_WORD " run -- sh -c 'ulimit -Sn; for i in "
                               "$(seq 30); do " PROGRAM " malloc 1073741824 held 1 & done; wait' "
                               ">out 2>err; grep -c ^0 out; head -n 1 out; tail -n 1 out; cat err"),
                     0);
    assert_int_equal(printed(0), 30);
    assert_int_equal(printed(1), 24);
    check_printed("fits, with ");
    assert_int_equal(run_shell("ulimit -n 24; " COMMAND_WORD
                               " run -- sh -c 'for i in $(seq 30); do " PROGRAM
                               " malloc 1073741824 held 1 & done; wait' >out 2>err; echo $?; "
                               "tail -n 1 out; cat err"),
                     0);
    assert_int_equal(printed(0), 2);
    check_printed("\nno verdict: the command had ");
    check_printed(" processes that found no simulated GPU\n");
    check_printed(
        "reveille: `reveille run` has no descriptor left for another process: no simulated GPU "
        "can be used: raise the limit of descriptors (ulimit -n) where it is started\n");
    check_printed(
        " processes found no simulated GPU, since there was no descriptor left, and nothing "
        "of theirs is counted: raise the limit (ulimit -n, and -Hn)\n");
}

/* ---- kill -9 of any process ---- */

/*
 * A machine with a command, its worker, and a worker in another session, as with torchrun. Each
 * sleeps for a different number of seconds, by which it is found, since other processes may run
 * during this test.
 */
#define OF_COMMAND '7'
#define OF_WORKER '8'
#define OF_SESSION '9'

static char seconds[32];

static int count(const char *line)
{
    assert_int_equal(run_shell(line), 0);
    return atoi(answer.out);
}

static int running(char which)
{
    char line[256];
    snprintf(line, sizeof line, "pgrep -f 'held %c%s$' | wc -l", which, seconds);
    return count(line);
}

static pid_t process_of(char which)
{
    char line[256];
    snprintf(line, sizeof line, "pgrep -f 'held %c%s$'", which, seconds);
    return (pid_t)count(line);
}

static int all_running(void)
{
    return running(OF_COMMAND) + running(OF_WORKER) + running(OF_SESSION);
}

static int sockets(void)
{
    return count("grep -c \"$(cat name)\" /proc/net/unix; true");
}

/* Counts only the machine's files: files that other processes of this host create do not matter. */
static int in_shared_memory(void)
{
    return count("ls -A /dev/shm | grep -c -e reveille -e \"$(cat name)\"; true");
}

/* Whether the count reaches this value within a minute. */
static bool becomes(int (*counted)(void), int wanted)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int i = 0; i < 3000 && counted() != wanted; i++)
        nanosleep(&moment, NULL);
    return counted() == wanted;
}

static pid_t start_machine(void)
{
    snprintf(seconds, sizeof seconds, "%ld", (long)getpid());
    assert_int_equal(run_shell("rm -f name"), 0);
    pid_t machine = run_start(WORDS("run", "--", "sh", "-c",
                                    "echo $REVEILLE_MACHINE >$1/name; " PROGRAM
                                    " malloc 4194304 held 8$0 >/dev/null & setsid " PROGRAM
                                    " malloc 4194304 held 9$0 >/dev/null & exec " PROGRAM
                                    " malloc 4194304 held 7$0 >/dev/null",
                                    seconds, folder),
                              1, 2);
    assert_true(becomes(all_running, 3));
    assert_true(sockets() > 0);
    return machine;
}

static void check_nothing_left(void)
{
    assert_true(becomes(all_running, 0));
    assert_true(becomes(sockets, 0));
    assert_int_equal(in_shared_memory(), 0);
}

static void a_killed_machine_leaves_nothing(void **state)
{
    char others[] = "/dev/shm/of-another-XXXXXX", own[64], name[64] = "";
    (void)state;
    pid_t machine = start_machine();
    int fd = mkstemp(others);
    assert_true(fd >= 0);
    folder_read("name", name, sizeof name);
    snprintf(own, sizeof own, "/dev/shm/%.*s", (int)strcspn(name, "\n"), name);
    kill(machine, SIGKILL);
    assert_int_equal(run_wait(machine), -1);
    check_nothing_left();
    assert_int_equal(link(others, own), 0);
    assert_int_equal(in_shared_memory(), 1);
    unlink(own);
    unlink(others);
    close(fd);
}

static void a_killed_command_leaves_nothing(void **state)
{
    (void)state;
    pid_t machine = start_machine();
    kill(process_of(OF_COMMAND), SIGKILL);
    assert_int_equal(run_wait(machine), 128 + SIGKILL);
    check_nothing_left();
}

static void a_killed_keeper_leaves_nothing(void **state)
{
    char line[64];
    (void)state;
    pid_t machine = start_machine();
    snprintf(line, sizeof line, "pgrep -P %ld", (long)machine);
    pid_t keeper = (pid_t)count(line);
    assert_true(keeper > 0);
    kill(keeper, SIGKILL);
    assert_int_equal(run_wait(machine), 128 + SIGKILL);
    check_nothing_left();
}

/* The others continue, and the machine ends when the command does. */
static void a_killed_worker_ends_alone(void **state)
{
    (void)state;
    pid_t machine = start_machine();
    kill(process_of(OF_SESSION), SIGKILL);
    kill(process_of(OF_WORKER), SIGKILL);
    assert_true(becomes(all_running, 1));
    assert_int_equal(running(OF_COMMAND), 1);
    kill(process_of(OF_COMMAND), SIGTERM);
    assert_int_equal(run_wait(machine), 128 + SIGTERM);
    check_nothing_left();
}

/* Processes that a command leaves behind end with it. Those that ended before are no zombies
 * until then. */
static void what_a_command_leaves_behind(void **state)
{
    char line[2048];
    (void)state;
    snprintf(seconds, sizeof seconds, "%ld", (long)getpid());
    snprintf(line, sizeof line,
             COMMAND_WORD " run -- sh -c 'echo $REVEILLE_MACHINE >name; await() { for i in $(seq "
                          "600); do [ $($1) = $2 ] && break; sleep 0.1; done; $1; }; "
                          "dead() { ps -o stat= --ppid $PPID | grep -c Z; }; "
                          "left() { pgrep -f \"held 9%s\\$\" | wc -l; }; "
                          "for i in 1 2 3; do (setsid true &); done; sleep 0.5; await dead 0; "
                          "setsid " PROGRAM " malloc 4194304 held 9%s >there & await left 1; "
                          "exit 5' 2>err",
             seconds, seconds);
    assert_int_equal(run_shell(line), 5);
    assert_int_equal(printed(0), 0);
    assert_int_equal(printed(1), 1);
    assert_int_equal(running(OF_SESSION), 0);
    assert_true(becomes(sockets, 0));
}

/* ---- The command ---- */

static void statuses(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "memory exit 7"), 7);
    assert_int_equal(run_on("--budget run=600MiB", "malloc 1048576"), 0);
    assert_int_equal(run_on("--budget run=526MiB", "malloc 1048576"), 3);
    assert_int_equal(run_on("--budget run=526MiB", "malloc 1048576 exit 7"), 7);
    /* The run's result is shown even if a budget names none of its stages. */
    assert_int_equal(run_on("--budget trian=1GiB --budget run=526MiB", "malloc 1048576"), 2);
    check_printed("peak 528.8 MiB in run, over budget\n");
    check_err("budget for unknown stage \"trian\"; the trace has: run");
    assert_int_equal(run_on("--json --budget later=1GiB", "malloc 1048576 exit 7"), 7);
    check_printed("{\"schema\":1,");
    check_err("budget for unknown stage \"later\"");
    assert_int_equal(run_command("run -- no-such-command"), 2);
    check_printed("no-such-command is not found in PATH");
    assert_int_equal(run_command("run --device h999 -- true"), 2);
    check_printed("--device h999");
    check_printed("reveille devices");
    assert_int_equal(run_command("run --gpus 65 -- true"), 2);
    assert_int_equal(run_command("run"), 2);
    check_printed("name the command to run");
    assert_int_equal(run_command("run -o nowhere/run.rvt -- true"), 2);
}

static void nobody_has_used_cuda(void **state)
{
    (void)state;
    assert_int_equal(run_command("run -- true"), 2);
    check_printed("no process of the command has used CUDA");
    check_printed("torch.version.cuda");
    assert_int_equal(run_command("run -- sh -c 'exit 7'"), 7);
    check_printed("no process of the command has used CUDA");
    assert_int_equal(run_on("", "nvml 0"), 0);
    folder_read("err", answer.out, sizeof answer.out);
    assert_null(strstr(answer.out, "has used CUDA"));
    assert_int_equal(run_command("run --no-gpu-ok -- true"), 0);
    assert_null(strstr(answer.out, "has used CUDA"));
}

/* As a runtime that is linked into a program does. */
static void a_runtime_that_is_linked_in(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "tables tables memory"), 0);
    assert_int_equal(printed(0), 801);
    assert_int_equal(printed(1), 801);
    assert_int_equal(printed(2), CONTEXT); /* the program continues */
    check_err("nvcc -cudart shared");
    assert_int_equal(run_shell("grep -c 'simcuda-program has CUDA.s runtime linked in "
                               "statically.*cuGetExportTable, libcuda.so.1' err"),
                     0);
    assert_int_equal(printed(0), 1);
    assert_int_equal(run_shell("cp " PROGRAM " libcute_dsl_runtime.so && " COMMAND_WORD
                               " run -- $PWD/libcute_dsl_runtime.so tables memory 2>err"),
                     0);
    assert_int_equal(printed(1), CONTEXT);
    assert_int_equal(
        run_shell("grep -c \"^reveille: $PWD/libcute_dsl_runtime.so has CUDA.s runtime "
                  "linked in, .*ARCHIVE=$PWD/libcuda_dialect_runtime_static.a$\" err"),
        0);
#ifdef PROGRAM_STATIC
    assert_int_equal(run_shell(COMMAND_WORD " run -- " PROGRAM_STATIC " memory 2>err"), 0);
    assert_int_equal(printed(0), -801);
    check_err("simcuda-static has CUDA's runtime linked in statically");
#endif
}

static void what_is_not_simulated_is_told_once(void **state)
{
    (void)state;
    assert_int_equal(run_on("", "unknown unknown memory"), 0);
    assert_int_equal(printed(0), 801);
    assert_int_equal(printed(1), 801);
    assert_int_equal(
        run_shell("grep -c 'cudaCtxResetPersistingL2Cache, asked for by .*simcuda-program, is not "
                  "simulated (libcudart.so.[0-9]*)' err"),
        0);
    assert_int_equal(printed(0), 1);
}

/* A program that checks first uses another way, as NCCL does without NVLS. One that does not
 * gets a message. */
static void multicast_is_refused_once(void **state)
{
    (void)state;
    assert_int_equal(run_on("--gpus 2", "malloc 1 multicast"), 0);
    check_printed("0\n0\n801\n801\n");
    assert_int_equal(run_shell("grep -c 'cuMulticastCreate, asked for by .*, is not simulated' "
                               "err"),
                     0);
    check_printed("1\n");
}

static void check_pool(const char *options, const char *words, const char *says)
{
    char line[256];
    assert_int_equal(run_on(options, words), 0);
    snprintf(line, sizeof line,
             "grep -o 'a pool of .* up to [0-9.]* [MG]iB,' err | sed 's/\\[.*\\]//'");
    assert_int_equal(run_shell(line), 0);
    assert_string_equal(answer.out, says);
}

/* Here, two free pieces of 20 MiB are merged to 40 MiB at once. On a card, the GPU may still use
 * them, and 40 MiB then need another chunk. */
static void a_pool_may_be_larger_on_a_card(void **state)
{
    (void)state;
    check_pool("", "pool 20,20 pool 40",
               "a pool of simcuda-program reserved up to 64.0 MiB of device 0. On a card it may be "
               "up to 96.0 MiB,\n");
    check_pool("", "pool 20,20 wait pool 40", ""); /* the GPU has caught up */
    check_pool("", "pool 20,20 pool 20,20", "");   /* each fits in a free piece */
    check_pool("", "malloc 1000", "");
    /* On a full card the driver waits for the GPU, so no more is reserved than fits. */
    check_pool("--device 600MiB", "pool 20,20 pool 40",
               "a pool of simcuda-program reserved up to 64.0 MiB of device 0. On a card it may be "
               "up to 73.2 MiB,\n");
}

static void without_a_machine(void **state)
{
    (void)state;
    assert_int_equal(run_shell("LD_LIBRARY_PATH=$(dirname '" RVL_COMMAND_PATH
                               "')/../simcuda " PROGRAM " memory 2>&1"),
                     0);
    check_printed("REVEILLE_MACHINE is not set");
    check_printed("-100\n"); /* cudaErrorNoDevice */
}

static void from_another_network(void **state)
{
    (void)state;
    if (run_shell("unshare --net true 2>/dev/null") != 0) {
        print_message("SKIP: no network namespace can be made here\n");
        skip();
    }
    assert_int_equal(
        run_shell(COMMAND_WORD " run --no-gpu-ok -- unshare --net " PROGRAM " memory 2>&1"), 0);
    check_printed("`reveille run` was started in another network namespace than this program's: no "
                  "simulated GPU can be used: start both in one: without `unshare --net`");
    check_printed("-100\n"); /* cudaErrorNoDevice */
    assert_int_equal(
        run_shell("REVEILLE_MACHINE=reveille-machine-00000000 LD_LIBRARY_PATH=$(dirname "
                  "'" RVL_COMMAND_PATH "')/../simcuda " PROGRAM " memory 2>&1"),
        0);
    check_printed("the machine is gone: no simulated GPU can be used: run the program under");
}

/* ---- The trace ---- */

static void the_trace_replays_to_the_same_peak(void **state)
{
    char shown[ANSWER_BYTES];
    (void)state;
    assert_int_equal(run_on("-o run.rvt --json", "malloc 4194304 malloc 8388608 free"), 0);
    snprintf(shown, sizeof shown, "%s", answer.out);
    check_contains(shown, "\"peak_bytes\":564985856"); /* the context, and 12 MiB */
    assert_int_equal(run_command("replay --json run.rvt"), 0);
    assert_string_equal(strstr(answer.out, "{\"schema\""), strstr(shown, "{\"schema\""));
}

static void ranges_are_stages(void **state)
{
    (void)state;
    assert_int_equal(run_on("--stages-nvtx stage: --json",
                            "malloc 4194304 stage stage:load malloc 8388608 stage other free stage "
                            "stage:train"),
                     0);
    check_printed("\"name\":\"load\",\"peak_bytes\":564985856,\"end_bytes\":556597248");
    check_printed("\"name\":\"train\",\"peak_bytes\":556597248");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_use),
        cmocka_unit_test(out_of_memory_at_the_byte),
        cmocka_unit_test(the_verdict_is_what_happened),
        cmocka_unit_test(a_trace_has_its_verdict),
        cmocka_unit_test(memory_by_the_driver),
        cmocka_unit_test(pinned_memory_is_bounded),
        cmocka_unit_test(device_memory_faults),
        cmocka_unit_test(devices_are_apart),
        cmocka_unit_test(a_profile_says_what_the_driver_takes),
        cmocka_unit_test(a_profiles_figures_may_not_fit),
        cmocka_unit_test(nvml_says_the_same),
        cmocka_unit_test(a_process_sees_the_devices_it_lists),
        cmocka_unit_test(lists_of_devices_are_read_as_cuda_reads_them),
        cmocka_unit_test(the_list_outside_is_not_taken),
        cmocka_unit_test(nvml_knows_no_confidential_computing),
        cmocka_unit_test(a_copy_in_a_wheel_is_not_taken),
        cmocka_unit_test(a_folder_of_any_name),
        cmocka_unit_test(a_program_of_cuda_12),
        cmocka_unit_test(processes_see_each_other),
        cmocka_unit_test(the_first_process_takes_more),
        cmocka_unit_test(a_preloaded_library_has_its_static_tls),
        cmocka_unit_test(a_second_context_may_not_fit),
        cmocka_unit_test(a_killed_process_gives_back),
        cmocka_unit_test(a_forked_child_has_no_cuda),
        cmocka_unit_test(a_low_limit_of_descriptors),
        cmocka_unit_test(a_program_that_closes_all_descriptors),
        cmocka_unit_test(a_child_that_no_library_hears_of),
        cmocka_unit_test(addresses_without_memory_are_not_registered),
        cmocka_unit_test(a_killed_machine_leaves_nothing),
        cmocka_unit_test(a_killed_command_leaves_nothing),
        cmocka_unit_test(a_killed_keeper_leaves_nothing),
        cmocka_unit_test(a_killed_worker_ends_alone),
        cmocka_unit_test(what_a_command_leaves_behind),
        cmocka_unit_test(statuses),
        cmocka_unit_test(nobody_has_used_cuda),
        cmocka_unit_test(a_runtime_that_is_linked_in),
        cmocka_unit_test(what_is_not_simulated_is_told_once),
        cmocka_unit_test(multicast_is_refused_once),
        cmocka_unit_test(a_pool_may_be_larger_on_a_card),
        cmocka_unit_test(without_a_machine),
        cmocka_unit_test(from_another_network),
        cmocka_unit_test(the_trace_replays_to_the_same_peak),
        cmocka_unit_test(ranges_are_stages),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
