/* SPDX-License-Identifier: MIT */
#include "cubin_writer.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTIONS_MOST 40
#define TEXT_MOST 1024
#define MACHINE 190
#define INFO 0x70000000u /* the type of .nv.info */
#define ENTRY_MARK 0x10
#define DRIVER_SHARED 1024u

typedef struct table {
    char text[TEXT_MOST];
    size_t length;
} table;

typedef struct writer {
    unsigned char *bytes;
    size_t length;
    Elf64_Shdr sections[SECTIONS_MOST];
    size_t section_count;
    table section_names, symbol_names;
    Elf64_Sym symbols[SECTIONS_MOST];
    size_t symbol_count;
} writer;

/* All shapes that tests use must fit. */
static void need(bool room)
{
    if (!room)
        abort();
}

static size_t put_text(table *into, const char *text)
{
    size_t at = into->length, length = strlen(text) + 1;
    need(at + length <= TEXT_MOST);
    memcpy(into->text + at, text, length);
    into->length += length;
    return at;
}

static void put(writer *to, const void *bytes, size_t length)
{
    need(to->length + length <= CUBIN_BYTES_MOST);
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
}

/* bytes NULL: a section with a size and no content. */
static size_t add_section(writer *to, const char *prefix, const char *name, unsigned type,
                          const void *bytes, size_t length)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    need(to->section_count < SECTIONS_MOST);
    Elf64_Shdr *added = &to->sections[to->section_count];
    added->sh_name = (unsigned)put_text(&to->section_names, whole);
    added->sh_type = type;
    added->sh_offset = to->length;
    added->sh_size = length;
    if (bytes != NULL)
        put(to, bytes, length);
    return to->section_count++;
}

static size_t add_symbol(writer *to, const char *name, unsigned kind, size_t section, size_t value,
                         size_t size_bytes)
{
    to->symbols[to->symbol_count] =
        (Elf64_Sym){.st_name = (unsigned)put_text(&to->symbol_names, name),
                    .st_info = ELF64_ST_INFO(STB_GLOBAL, kind),
                    .st_other = kind == STT_FUNC ? ENTRY_MARK : 0,
                    .st_shndx = (uint16_t)section,
                    .st_value = value,
                    .st_size = size_bytes};
    return to->symbol_count++;
}

/* A record of .nv.info: its kind, followed by its numbers. */
static size_t record(unsigned char *to, unsigned kind, const uint32_t *numbers, size_t count)
{
    const unsigned char head[4] = {4, (unsigned char)kind, (unsigned char)(4 * count), 0};
    memcpy(to, head, sizeof head);
    memcpy(to + 4, numbers, 4 * count);
    return 4 + 4 * count;
}

static size_t add_kernel(writer *to, const cubin_kernel *of, unsigned code_bytes,
                         unsigned argument_bytes)
{
    static const unsigned char code[32];
    unsigned char info[64] = {3, 0x1b, 0xff, 0}; /* short records first, as in ptxas's files */
    const unsigned char arguments[4] = {3, 0x19, argument_bytes & 0xff, argument_bytes >> 8 & 0xff};
    memcpy(info + 4, arguments, sizeof arguments);
    size_t length = argument_bytes > 0 ? 8 : 4;
    bool plain = code_bytes == 0;
    size_t text = add_section(to, ".text.", of->name, plain ? SHT_PROGBITS : SHT_NOBITS,
                              plain ? code : NULL, plain ? sizeof code : code_bytes);
    if (of->threads[0] > 0)
        length += record(info + length, 0x05, of->threads, 3);
    add_section(to, ".nv.info.", of->name, INFO, info, length);
    if (of->shared_bytes > 0)
        add_section(to, ".nv.shared.", of->name, SHT_NOBITS, NULL,
                    of->shared_bytes + DRIVER_SHARED);
    return add_symbol(to, of->name, STT_FUNC, text, 0, sizeof code);
}

static void add_needs(writer *to, const cubin_shape *shape, const size_t *symbols)
{
    unsigned char info[1024];
    size_t length = 0;
    for (size_t i = 0; i < shape->kernel_count; i++) {
        const cubin_kernel *of = &shape->kernels[i];
        const uint32_t registers[] = {(uint32_t)symbols[i], of->registers};
        const uint32_t stack[] = {(uint32_t)symbols[i], of->stack_bytes};
        need(length + 36 <= sizeof info);
        length += record(info + length, 0x2f, registers, 2);
        length += record(info + length, 0x11, stack, 2);
        length += record(info + length, 0x12, stack, 2);
    }
    add_section(to, ".nv.info", "", INFO, info, length);
}

static void add_variables(writer *to)
{
    static const uint32_t seen = 7;
    static const unsigned char constants[64] = {1, 2, 3, 4};
    size_t at = add_section(to, ".nv.global.init", "", SHT_PROGBITS, &seen, sizeof seen);
    add_symbol(to, "seen", STT_OBJECT, at, 0, sizeof seen);
    at = add_section(to, ".nv.global", "", SHT_NOBITS, NULL, 100);
    add_symbol(to, "zeroes", STT_OBJECT, at, 0, 100);
    at = add_section(to, ".nv.constant3", "", SHT_PROGBITS, constants, sizeof constants);
    add_symbol(to, "table", STT_OBJECT, at, 0, sizeof constants);
}

/* The names come last, after the symbols, when all are known. */
static void add_tables(writer *to)
{
    size_t at = add_section(to, ".symtab", "", SHT_SYMTAB, to->symbols,
                            to->symbol_count * sizeof *to->symbols);
    to->sections[at].sh_link = (unsigned)to->section_count;
    add_section(to, ".strtab", "", SHT_STRTAB, to->symbol_names.text, to->symbol_names.length);
    at = add_section(to, ".shstrtab", "", SHT_STRTAB, NULL, 0);
    to->sections[at].sh_size = to->section_names.length;
    put(to, to->section_names.text, to->section_names.length);
}

size_t cubin_write(const cubin_shape *shape, unsigned char bytes[CUBIN_BYTES_MOST])
{
    writer to = {.bytes = bytes, .length = sizeof(Elf64_Ehdr), .section_count = 1};
    size_t symbols[SECTIONS_MOST];
    Elf64_Ehdr header = {.e_type = ET_EXEC,
                         .e_machine = MACHINE,
                         .e_ehsize = sizeof header,
                         .e_shentsize = sizeof(Elf64_Shdr)};
    put_text(&to.section_names, "");
    put_text(&to.symbol_names, "");
    to.symbol_count = 1;
    memset(bytes, 0, CUBIN_BYTES_MOST);
    for (size_t i = 0; i < shape->kernel_count; i++)
        symbols[i] = add_kernel(&to, &shape->kernels[i], i == 0 ? shape->code_bytes : 0,
                                shape->argument_bytes);
    add_needs(&to, shape, symbols);
    add_section(&to, ".nv.shared.reserved.0", "", SHT_NOBITS, NULL, 0);
    if (shape->calls != NULL)
        add_symbol(&to, shape->calls, STT_FUNC, SHN_UNDEF, 0, 0);
    if (shape->variables)
        add_variables(&to);
    add_tables(&to);
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_ABIVERSION] = shape->old ? 7 : 8;
    header.e_flags = shape->old ? shape->version << 16 | 0x500u | shape->version
                                : 0x6000004u | shape->version << 8;
    header.e_shoff = to.length;
    header.e_shnum = (uint16_t)to.section_count;
    header.e_shstrndx = (uint16_t)(to.section_count - 1);
    memcpy(bytes, &header, sizeof header);
    put(&to, to.sections, to.section_count * sizeof *to.sections);
    return to.length;
}
