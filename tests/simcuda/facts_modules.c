/* SPDX-License-Identifier: MIT */
/* Facts of device code: the content of a module, and which images and launches are refused. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "facts.h"

/* Kernels with limits and shared memory, and variables. How many registers a compiler uses for
 * them is up to it. */
static const char text[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .global .align 4 .u32 seen = 7;\n"
    ".global .align 4 .u32 hidden = 8;\n"
    ".visible .global .align 8 .b8 zeroes[100];\n"
    ".visible .const .align 4 .b8 table[64] = {1, 2, 3};\n"
    ".visible .entry plain() { ret; }\n"
    ".visible .entry bound()\n.maxntid 256, 1, 1\n{ ret; }\n"
    ".visible .entry required()\n.reqntid 32, 4, 1\n{ ret; }\n"
    ".visible .entry shared()\n{\n .shared .align 4 .b8 s[2048];\n .reg .u32 %r<2>;\n"
    " mov.u32 %r1, s;\n st.shared.u32 [%r1], %r1;\n ret;\n}\n";

static const char *driver_name(CUresult result)
{
    const char *name = "?";
    (void)cuGetErrorName(result, &name);
    return name;
}

/* ---- Images ---- */

static void load(const char *what, const void *image)
{
    CUmodule module = NULL;
    CUresult result = cuModuleLoadData(&module, image);
    say("modules load %s: %s", what, driver_name(result));
    if (result == CUDA_SUCCESS)
        NEED(cuModuleUnload(module));
}

static void images(void)
{
    static char broken[4096] = "\177ELF\2\1\1";
    CUmodule module = NULL;
    CUlibrary library = NULL;
    char none[] = "";
    load("words", "no code at all");
    load("nothing", none);
    load("no version", ".target sm_80\n.address_size 64\n.visible .entry f() { ret; }\n");
    load("later version",
         ".version 99.0\n.target sm_80\n.address_size 64\n.visible .entry f() { ret; }\n");
    load("later target",
         ".version 8.7\n.target sm_120\n.address_size 64\n.visible .entry f() { ret; }\n");
    load("no such instruction",
         ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry f() { jump; }\n");
    load("open brace",
         ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry f() { ret;\n");
    load("a comment first", "// made by nobody\n.version 7.8\n.target sm_80\n.address_size 64\n");
    load("an empty ELF", broken);
    say("modules load no file: %s", driver_name(cuModuleLoad(&module, "/nowhere/at.all")));
    say("modules load a folder: %s", driver_name(cuModuleLoad(&module, "/")));
    say("modules load NULL: %s", driver_name(cuModuleLoadData(&module, NULL)));
    say("modules library words: %s",
        driver_name(cuLibraryLoadData(&library, "no code at all", NULL, NULL, 0, NULL, NULL, 0)));
    say("modules unload NULL: %s", driver_name(cuModuleUnload(NULL)));
}

/* ---- Content of a module ---- */

static void variable(CUmodule module, const char *name)
{
    CUdeviceptr addr = 0;
    size_t bytes = 0, range = 0;
    CUdeviceptr base = 0;
    unsigned value = 0;
    CUresult result = cuModuleGetGlobal(&addr, &bytes, module, name);
    if (result != CUDA_SUCCESS) {
        say("modules variable %s: %s", name, driver_name(result));
        return;
    }
    CUresult ranged = cuMemGetAddressRange(&base, &range, addr);
    say("modules variable %s: %zu bytes, align %d, range %s %d, copied out %s, free %s", name,
        bytes, (int)(addr % 256 == 0), driver_name(ranged),
        ranged == CUDA_SUCCESS && base == addr && range == bytes,
        driver_name(cuMemcpyDtoH(&value, addr, sizeof value)), driver_name(cuMemFree(addr)));
    NEED(cuMemcpyHtoD(addr, "abcd", 4));
    NEED(cuMemcpyDtoH(&value, addr, sizeof value));
    say("modules variable %s written: %d", name, memcmp(&value, "abcd", 4) == 0);
}

static void attributes(const char *what, CUfunction function, bool registers)
{
    static const struct {
        const char *name;
        CUfunction_attribute id;
    } asked[] = {{"threads", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
                 {"shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
                 {"const", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES},
                 {"local", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
                 {"ptx", CU_FUNC_ATTRIBUTE_PTX_VERSION},
                 {"binary", CU_FUNC_ATTRIBUTE_BINARY_VERSION},
                 {"dynamic", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
                 {"carveout", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT},
                 {"clusters", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED},
                 {"registers", CU_FUNC_ATTRIBUTE_NUM_REGS}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked - !registers; i++) {
        int value = -99;
        CUresult result = cuFuncGetAttribute(&value, asked[i].id, function);
        say("modules %s %s: %s %d", what, asked[i].name, driver_name(result), value);
    }
}

static void settings(CUfunction function, const char *name)
{
    static const int sizes[] = {-1, 0, 49152, 100000, 229376, 230400, 231424, 232448, 232449};
    int value = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        say("modules set dynamic %s %d: %s", name, sizes[i],
            driver_name(cuFuncSetAttribute(
                function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sizes[i])));
    NEED(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    say("modules set dynamic %s, left: %d", name, value);
    say("modules set carveout %s 101: %s", name,
        driver_name(
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101)));
    say("modules set carveout %s -2: %s", name,
        driver_name(
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -2)));
    say("modules set registers %s: %s", name,
        driver_name(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 8)));
    say("modules get 1000 %s: %s", name,
        driver_name(cuFuncGetAttribute(&value, (CUfunction_attribute)1000, function)));
}

/* ---- Launches and occupancy ---- */

static void launch(const char *what, CUfunction function, unsigned grid_x, unsigned grid_z,
                   unsigned block_x, unsigned block_z, unsigned shared_bytes)
{
    say("modules launch %s: %s", what,
        driver_name(cuLaunchKernel(function, grid_x, 1, grid_z, block_x, 1, block_z, shared_bytes,
                                   NULL, NULL, NULL)));
}

static void cluster(CUfunction function, unsigned grid, unsigned size)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute.value.clusterDim.x = size;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    const CUlaunchConfig config = {grid, 1, 1, 32, 1, 1, 0, NULL, &attribute, 1};
    say("modules launch clusters of %u of %u: %s", size, grid,
        driver_name(cuLaunchKernelEx(&config, function, NULL, NULL)));
}

static void launches(CUmodule module)
{
    CUfunction plain = NULL, bound = NULL, required = NULL, shared = NULL;
    NEED(cuModuleGetFunction(&plain, module, "plain"));
    NEED(cuModuleGetFunction(&bound, module, "bound"));
    NEED(cuModuleGetFunction(&required, module, "required"));
    NEED(cuModuleGetFunction(&shared, module, "shared"));
    launch("plain", plain, 1, 1, 1024, 1, 0);
    launch("no grid", plain, 0, 1, 1, 1, 0);
    launch("no block", plain, 1, 1, 0, 1, 0);
    launch("large grid", plain, 2147483648u, 1, 1, 1, 0);
    launch("deep grid", plain, 1, 65536, 1, 1, 0);
    launch("deep block", plain, 1, 1, 1, 65, 0);
    launch("large block", plain, 1, 1, 1025, 1, 0);
    launch("much shared", plain, 1, 1, 1, 1, 49153);
    launch("just as much shared", plain, 1, 1, 1, 1, 49152);
    launch("more than its bound", bound, 1, 1, 257, 1, 0);
    launch("other than required", required, 1, 1, 64, 1, 0);
    launch("shared of its own", shared, 1, 1, 32, 1, 49152 - 2048);
    launch("too much beside its own", shared, 1, 1, 32, 1, 49152 - 2047);
    say("modules launch nothing: %s",
        driver_name(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)));
    cluster(plain, 16, 8);
    cluster(plain, 16, 16);
    cluster(plain, 12, 8);
    for (unsigned grid = 132 * 2; grid <= 132 * 2 + 1; grid++)
        say("modules launch together %u: %s", grid,
            driver_name(cuLaunchCooperativeKernel(plain, grid, 1, 1, 1024, 1, 1, 0, NULL, NULL)));
    NEED(cuCtxSynchronize());
}

static void occupancy(CUfunction function, const char *name, int threads, size_t dynamic_bytes)
{
    int blocks = -1;
    size_t left = 0;
    CUresult result =
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, dynamic_bytes);
    say("modules occupancy %s %d threads %zu bytes: %s %d", name, threads, dynamic_bytes,
        driver_name(result), blocks);
    if (result == CUDA_SUCCESS && blocks > 0 && dynamic_bytes == 0) {
        result = cuOccupancyAvailableDynamicSMemPerBlock(&left, function, blocks > 4 ? 4 : blocks,
                                                         threads);
        say("modules occupancy %s %d threads, shared for %d: %s %zu", name, threads,
            blocks > 4 ? 4 : blocks, driver_name(result), left);
    }
}

static void occupancies(CUfunction function, const char *name)
{
    static const int threads[] = {1, 32, 33, 128, 256, 512, 768, 1024, 1025, 0};
    static const size_t bytes[] = {0, 1, 16384, 49152, 100000};
    int grid = 0, block = 0;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        occupancy(function, name, threads[i], 0);
    for (size_t i = 1; i < sizeof bytes / sizeof *bytes; i++)
        occupancy(function, name, 128, bytes[i]);
    CUresult result = cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0);
    say("modules occupancy %s best: %s %d %d", name, driver_name(result), grid, block);
    result = cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 40000, 300);
    say("modules occupancy %s best of 300 with 40000 bytes: %s %d %d", name, driver_name(result),
        grid, block);
}

void modules(void)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    unsigned count = 0;
    CUdeviceptr addr = 0;
    images();
    NEED(cuModuleLoadData(&module, text));
    NEED(cuModuleGetFunctionCount(&count, module));
    say("modules count: %u", count);
    say("modules no such function: %s",
        driver_name(cuModuleGetFunction(&function, module, "none")));
    say("modules no module: %s", driver_name(cuModuleGetFunction(&function, NULL, "plain")));
    say("modules no name: %s", driver_name(cuModuleGetFunction(&function, module, "")));
    say("modules no such variable: %s",
        driver_name(cuModuleGetGlobal(&addr, NULL, module, "plain")));
    variable(module, "seen");
    variable(module, "hidden");
    variable(module, "zeroes");
    variable(module, "table");
    static const char *const names[] = {"plain", "bound", "required", "shared"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        NEED(cuModuleGetFunction(&function, module, names[i]));
        attributes(names[i], function, false);
        occupancies(function, names[i]);
    }
    launches(module);
    NEED(cuModuleGetFunction(&function, module, "plain"));
    settings(function, "plain");
    NEED(cuModuleGetFunction(&function, module, "shared"));
    settings(function, "shared");
    NEED(cuModuleUnload(module));
}

/* Also prints the memory that the file takes on the device: when it is loaded, and at the first
 * launch of each kernel. */
void tell_file(const char *path)
{
    CUmodule module = NULL;
    CUfunction functions[64];
    unsigned count = 0;
    const char *file = strrchr(path, '/') + 1, *name = "?";
    char what[256];
    long long was = used();
    CUresult result = cuModuleLoad(&module, path);
    say("file %s: %s", file, driver_name(result));
    if (result != CUDA_SUCCESS)
        return;
    say("cost %s loaded: %lld", file, used() - was);
    NEED(cuModuleGetFunctionCount(&count, module));
    say("file %s count: %u", file, count);
    NEED(cuModuleEnumerateFunctions(functions, count < 64 ? count : 64, module));
    for (unsigned i = 0; i < count && i < 64; i++) {
        NEED(cuFuncGetName(&name, functions[i]));
        snprintf(what, sizeof what, "%s %s", file, name);
        attributes(what, functions[i], true);
        occupancies(functions[i], what);
    }
    say("cost %s asked: %lld", file, used() - was);
    NEED(cuModuleUnload(module));
    say("cost %s unloaded: %lld", file, used() - was);
}
