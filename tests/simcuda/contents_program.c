/* SPDX-License-Identifier: MIT */
/*
 * A program that writes to device memory and reads it back. It executes its words in order:
 *
 *     alloc BYTES           device memory           vmm BYTES    with the driver's functions
 *     put AT TEXT           a copy from the host    big AT COUNT the same, with COUNT 'B'
 *     fill AT LETTER COUNT                          get AT COUNT prints it, 0 as a dot
 *     move TO FROM COUNT    within the memory       apart AT     rows with gaps, and back
 *     free                  and allocates as much   remap        the same memory at its address
 *     async BYTES           from the device's pool  again        frees it, and allocates as much
 *     out KIND COUNT        to host memory filled with 'P', from byte 1 on; prints the result.
 *                           KIND: pinned, private, shared, file (a private mapping of a file)
 *     stop                  stops the parent, which continues a moment later
 *     backup                copies everything to the host, and then overwrites it
 *     restore               copies it back      scribble AT TEXT   the host changes the backup
 *     peek AT               copies four bytes to their place in the backup
 *     given NUMBER          reads return it     assume COUNT       so many bytes were made up
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "simcuda/driver/contents.h"

static char *memory;
static size_t size_bytes;
static CUmemGenericAllocationHandle handle;
static const CUmemAccessDesc access_all = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

/* CUDA's results are 0 on success. */
static void must(bool failed, const char *word)
{
    if (failed) {
        fprintf(stderr, "%s has failed\n", word);
        exit(1);
    }
}

static void map(const char *word)
{
    const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = access_all.location};
    CUdeviceptr addr = 0;
    must(cudaFree(NULL) != 0 || cuMemCreate(&handle, size_bytes, &kind, 0) != 0, word);
    must(cuMemAddressReserve(&addr, size_bytes, 0, 0, 0) != 0, word);
    must(cuMemMap(addr, size_bytes, 0, handle, 0) != 0, word);
    must(cuMemSetAccess(addr, size_bytes, &access_all, 1) != 0, word);
    memory = (char *)addr;
}

static void remap(const char *word)
{
    CUdeviceptr addr = (CUdeviceptr)memory;
    must(cuMemUnmap(addr, size_bytes) != 0, word);
    must(cuMemMap(addr, size_bytes, 0, handle, 0) != 0, word);
    must(cuMemSetAccess(addr, size_bytes, &access_all, 1) != 0, word);
}

static void get(size_t at, size_t count, const char *word)
{
    char *text = malloc(count + 1);
    memset(text, '?', count);
    must(cudaMemcpy(text, memory + at, count, cudaMemcpyDeviceToHost), word);
    for (size_t i = 0; i < count; i++)
        text[i] = text[i] == '\0' ? '.' : text[i];
    text[count] = '\0';
    puts(text);
    fflush(stdout);
    free(text);
}

/* Maps memory: private, or of an unnamed file. */
static char *map_host(const char *kind, size_t bytes, const char *word)
{
    bool shared = strcmp(kind, "shared") == 0, of_file = shared || strcmp(kind, "file") == 0;
    int file = of_file ? memfd_create("host", MFD_CLOEXEC) : -1;
    int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | (of_file ? 0 : MAP_ANONYMOUS);
    must(of_file && (file < 0 || ftruncate(file, (off_t)bytes) != 0), word);
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    must(mapped == MAP_FAILED || (file >= 0 && close(file) != 0), word);
    return mapped;
}

/* Prints the nonzero bytes, the bytes around the copy, and how many pages of real memory are
 * left. */
static void copy_out(const char *kind, size_t count, const char *word)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (count + 2 + page - 1) / page, left = 0;
    bool pinned = strcmp(kind, "pinned") == 0;
    unsigned char *there = malloc(pages);
    char *host_memory = NULL;
    if (pinned)
        must(cudaMallocHost((void **)&host_memory, count + 2), word);
    else
        host_memory = map_host(kind, count + 2, word);
    memset(host_memory, 'P', count + 2);
    must(cudaMemcpy(host_memory + 1, memory, count, cudaMemcpyDeviceToHost), word);
    must(mincore(host_memory, count + 2, there) != 0, word);
    for (size_t i = 0; i < pages; i++)
        left += there[i] & 1;
    printf("%c", host_memory[0]);
    for (size_t i = 1; i <= count; i++)
        if (host_memory[i] != '\0')
            printf(" %zu:%c", i - 1, host_memory[i]);
    printf(" %c %zu\n", host_memory[count + 1], left);
    fflush(stdout);
    must(pinned ? cudaFreeHost(host_memory) != 0 : munmap(host_memory, count + 2) != 0, word);
    free(there);
}

static void put_big(size_t at, size_t count, const char *word)
{
    char *text = malloc(count);
    memset(text, 'B', count);
    must(cudaMemcpy(memory + at, text, count, cudaMemcpyHostToDevice), word);
    free(text);
}

static char *host;

static void back_up(const char *word)
{
    host = host != NULL ? host : malloc(size_bytes);
    must(cudaMemcpy(host, memory, size_bytes, cudaMemcpyDeviceToHost), word);
    put_big(0, size_bytes, word);
}

/* A tensor of bytes with sizes 2, 3 and strides 8, 2; its transpose; and rows that were partly
 * written, read back. */
static void write_apart(size_t at)
{
    const int64_t sizes[] = {2, 3}, strides[] = {8, 2};
    const int64_t turned_sizes[] = {3, 2}, turned_strides[] = {2, 8}, rows[] = {8, 1};
    uint64_t addr = (uint64_t)memory + at;
    char text[7] = "", row[7] = "";
    rvli_contents_write_strided(addr, 1, 2, sizes, strides, "abcdef");
    bool known = rvli_contents_read_strided(addr, 1, 2, turned_sizes, turned_strides, text);
    printf("%s%s", text, known ? "!" : "?");
    known = rvli_contents_read_strided(addr, 1, 2, sizes, rows, row);
    printf("%c%c%s\n", row[0], row[2], known ? "!" : "?");
    fflush(stdout);
}

static void stop_parent(void)
{
    const struct timespec moment = {.tv_nsec = 300000000};
    pid_t parent = getppid();
    if (fork() == 0) {
        nanosleep(&moment, NULL);
        kill(parent, SIGCONT);
        _exit(0);
    }
    kill(parent, SIGSTOP);
}

static int act(char **words)
{
    const char *word = words[0];
    if (strcmp(word, "stop") == 0) {
        stop_parent();
        return 1;
    }
    if (strcmp(word, "free") == 0) {
        void *before = memory;
        must(cudaFree(memory), word);
        must(cudaMalloc((void **)&memory, size_bytes), word);
        must(memory != before, "the same place again");
        return 1;
    }
    if (strcmp(word, "again") == 0) {
        void *before = memory;
        must(cudaFreeAsync(memory, NULL), word);
        must(cudaMallocAsync((void **)&memory, size_bytes, NULL), word);
        must(memory != before, "the same place again");
        return 1;
    }
    if (strcmp(word, "backup") == 0) {
        back_up(word);
        return 1;
    }
    if (strcmp(word, "restore") == 0) {
        must(cudaMemcpy(memory, host, size_bytes, cudaMemcpyHostToDevice), word);
        return 1;
    }
    if (strcmp(word, "remap") == 0) {
        remap(word);
        return 1;
    }
    size_t at = strtoull(words[1], NULL, 10);
    if (strcmp(word, "assume") == 0) {
        rvli_contents_assumed(at, "sample.py:3 in choose");
        return 2;
    }
    if (strcmp(word, "given") == 0 || strcmp(word, "apart") == 0) {
        if (word[0] == 'g')
            rvli_contents_reading(RVLI_READING_GIVEN, at, NULL);
        else
            write_apart(at);
        return 2;
    }
    if (strcmp(word, "out") == 0) {
        copy_out(words[1], strtoull(words[2], NULL, 10), word);
        return 3;
    }
    if (strcmp(word, "alloc") == 0 || strcmp(word, "vmm") == 0 || strcmp(word, "async") == 0) {
        size_bytes = at;
        if (word[0] == 'v')
            map(word);
        else if (word[1] == 's')
            must(cudaMallocAsync((void **)&memory, size_bytes, NULL), word);
        else
            must(cudaMalloc((void **)&memory, size_bytes), word);
        return 2;
    }
    if (strcmp(word, "scribble") == 0) {
        memcpy(host + at, words[2], strlen(words[2]));
        return 3;
    }
    if (strcmp(word, "peek") == 0) {
        must(cudaMemcpy(host + at, memory + at, 4, cudaMemcpyDeviceToHost), word);
        return 2;
    }
    if (strcmp(word, "put") == 0) {
        must(cudaMemcpy(memory + at, words[2], strlen(words[2]), cudaMemcpyHostToDevice), word);
        return 3;
    }
    size_t second = strtoull(words[2], NULL, 10);
    if (strcmp(word, "get") == 0 || strcmp(word, "big") == 0) {
        if (word[0] == 'g')
            get(at, second, word);
        else
            put_big(at, second, word);
        return 3;
    }
    size_t count = strtoull(words[3], NULL, 10);
    if (strcmp(word, "fill") == 0)
        must(cudaMemset(memory + at, words[2][0], count), word);
    else
        must(cudaMemcpy(memory + at, memory + second, count, cudaMemcpyDeviceToDevice), word);
    return 4;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc;)
        i += act(argv + i);
    return 0;
}
