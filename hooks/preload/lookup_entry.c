/* SPDX-License-Identifier: MIT */
/*
 * dlsym(handle, name) and dlvsym(handle, name, version), as the program calls them: see
 * hooks/preload/lookup.h. In assembly, because C cannot keep the caller's return address in place.
 */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rdx\n"
        "    call rvli_lookup_dlsym\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jne 1f\n"
        "    jmp *rvli_libc_dlsym(%rip)\n"
        "1:  ret\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, @function\n"
        "dlvsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rdx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rcx\n"
        "    call rvli_lookup_dlvsym\n"
        "    popq %rdx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jne 1f\n"
        "    jmp *rvli_libc_dlvsym(%rip)\n"
        "1:  ret\n"
        ".cfi_endproc\n"
        ".size dlvsym, .-dlvsym\n");
#elif defined(__aarch64__)
/* The return address is in x30. x16 may be used for jumps between libraries, as in a PLT. */
#define PUSH_RETURN                                                                                \
    ".cfi_startproc\n"                                                                             \
    "    hint #34\n" /* bti c */                                                                   \
    "    stp x29, x30, [sp, #-48]!\n"                                                              \
    "    .cfi_def_cfa_offset 48\n"                                                                 \
    "    .cfi_offset x29, -48\n"                                                                   \
    "    .cfi_offset x30, -40\n"                                                                   \
    "    mov x29, sp\n"
#define POP_RETURN                                                                                 \
    "    ldp x29, x30, [sp], #48\n"                                                                \
    "    .cfi_restore x30\n"                                                                       \
    "    .cfi_restore x29\n"                                                                       \
    "    .cfi_def_cfa_offset 0\n"
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n" PUSH_RETURN "    stp x0, x1, [sp, #16]\n"
        "    mov x2, x30\n"
        "    bl rvli_lookup_dlsym\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n" POP_RETURN "    cbnz x16, 1f\n"
        "    adrp x16, rvli_libc_dlsym\n"
        "    ldr x16, [x16, #:lo12:rvli_libc_dlsym]\n"
        "    br x16\n"
        "1:  mov x0, x16\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, %function\n"
        "dlvsym:\n" PUSH_RETURN "    stp x0, x1, [sp, #16]\n"
        "    str x2, [sp, #32]\n"
        "    mov x3, x30\n"
        "    bl rvli_lookup_dlvsym\n"
        "    mov x16, x0\n"
        "    ldr x2, [sp, #32]\n"
        "    ldp x0, x1, [sp, #16]\n" POP_RETURN "    cbnz x16, 1f\n"
        "    adrp x16, rvli_libc_dlvsym\n"
        "    ldr x16, [x16, #:lo12:rvli_libc_dlvsym]\n"
        "    br x16\n"
        "1:  mov x0, x16\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size dlvsym, .-dlvsym\n");
#else
#error "look-ups have no entry for this processor: hooks/CMakeLists.txt leaves them out"
#endif

typedef int rvli_lookup_entry_is_assembly; /* C requires at least one declaration in a file */
