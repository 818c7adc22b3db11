/* SPDX-License-Identifier: MIT */
/*
 * Hides our own dispatch mode from PyTorch's C++.
 *
 * simcuda/python keeps the contents of small tensors by a TorchDispatchMode. Where any mode is
 * active, autograd takes another way: it adds gradients out of place, and index_put() in a backward
 * pass copies (at::isTensorSubclassLike() in aten/src/ATen/TensorSubclassLikeUtils.h). A program
 * would take more memory than on a card. So libtorch_cpu.so is told of the modes of the program
 * alone. libtorch_python.so, which calls the modes, is told of all.
 */
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* c10::impl::TorchDispatchModeTLS::stack_len(), and dispatch_mode_enabled() with any arguments */
#define STACK_LENGTH "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"
#define IS_ANY_ACTIVE "_ZN3c104impl21dispatch_mode_enabledE"

static int64_t (*stack_length)(void); /* Python has all functions bound as it loads a library */

static bool has_other_modes(void)
{
    return stack_length != NULL && stack_length() > 1;
}

static bool is_file(const struct link_map *map, const char *name)
{
    const char *slash = strrchr(map->l_name, '/');
    return strcmp(slash != NULL ? slash + 1 : map->l_name, name) == 0;
}

/* The loader asks la_symbind64() about what libtorch_cpu.so takes from libc10.so. */
unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    const char *kept = getenv("REVEILLE_KEEP_CONTENTS");
    (void)space;
    (void)cookie;
    if (kept != NULL && strcmp(kept, "0") == 0)
        return 0; /* there is no mode of ours */
    if (is_file(map, "libtorch_cpu.so"))
        return LA_FLG_BINDFROM;
    return is_file(map, "libc10.so") ? LA_FLG_BINDTO : 0;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name)
{
    (void)index;
    (void)from;
    (void)to;
    (void)flags;
    if (strcmp(name, STACK_LENGTH) == 0)
        stack_length = (int64_t(*)(void))(uintptr_t)symbol->st_value;
    bool is_asked = strncmp(name, IS_ANY_ACTIVE, sizeof IS_ANY_ACTIVE - 1) == 0;
    return is_asked ? (uintptr_t)has_other_modes : symbol->st_value;
}
