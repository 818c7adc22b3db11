/* SPDX-License-Identifier: MIT */
/*
 * A cubin: an ELF file for NVIDIA's cards. Kernels are functions of the symbol table that are
 * marked as entries. Their needs are in sections that carry their names, and in records of
 * .nv.info. The numbers of sections and records come from comparing `readelf` and `cuobjdump
 * -res-usage` on one file (ptxas 12.8 and 13.0). LLVM's ELF.h names the flags.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/image.h"

#define MACHINE 190 /* NVIDIA CUDA; older versions of elf.h lack the name */
#define ABI_NEW 8   /* from this ABI on, the architecture is 8 bits higher in the flags */
#define ENTRY_MARK 0x10
#define SHARED_OF_DRIVER                                                                           \
    1024u /* reserved for the driver in a section of shared memory, from 9.0 on */

/* Records of .nv.info: their format, and their kind. */
#define RECORD_SHORT 3 /* a value in place of the length */
#define RECORD_SIZED 4
#define SAYS_THREADS_MOST 0x05
#define SAYS_THREADS 0x10
#define SAYS_FRAME 0x11
#define SAYS_STACK 0x12
#define SAYS_ARGUMENTS 0x19
#define SAYS_REGISTERS 0x2f

typedef struct cubin {
    const unsigned char *bytes;
    size_t size_bytes;
    Elf64_Ehdr header;
    Elf64_Shdr names; /* the table of section names */
    uint64_t section_count;
    bool driver_shares; /* kernels' shared memory includes the driver's */
    unsigned constant_bytes;
    rvli_image *image;
} cubin;

static bool inside(const cubin *of, uint64_t offset, uint64_t bytes)
{
    return offset <= of->size_bytes && bytes <= of->size_bytes - offset;
}

/* ---- Sections ---- */

static bool section_at(const cubin *of, uint64_t index, Elf64_Shdr *out)
{
    if (index >= of->section_count)
        return false;
    memcpy(out, of->bytes + of->header.e_shoff + index * sizeof *out, sizeof *out);
    return out->sh_type == SHT_NOBITS || inside(of, out->sh_offset, out->sh_size);
}

/* A string of a table. NULL: it does not end inside the table. */
static const char *string_at(const cubin *of, const Elf64_Shdr *table, uint64_t offset)
{
    if (table->sh_type != SHT_STRTAB || offset >= table->sh_size)
        return NULL;
    const char *text = (const char *)of->bytes + table->sh_offset + offset;
    return memchr(text, '\0', table->sh_size - offset) != NULL ? text : NULL;
}

/* The kernel to which a section belongs by name: for prefix ".text.", section .text.NAME. NULL:
 * none. */
static rvli_kernel_entry *entry_of(const cubin *of, const char *section, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(section, prefix, length) != 0)
        return NULL;
    return (rvli_kernel_entry *)rvli_image_entry(of->image, section + length);
}

/* ---- Symbols ---- */

/* Reads a variable's initial bytes, if its section has any. */
static bool read_initial(const cubin *of, const Elf64_Shdr *section, const Elf64_Sym *symbol,
                         rvli_variable *variable)
{
    if (section->sh_type == SHT_NOBITS || symbol->st_size == 0)
        return true;
    variable->initial = malloc(symbol->st_size);
    if (variable->initial != NULL)
        memcpy(variable->initial, of->bytes + section->sh_offset + symbol->st_value,
               symbol->st_size);
    return variable->initial != NULL;
}

/* Adds a variable of global or constant memory. Objects in other sections cannot be looked up. */
static rvli_image_error add_variable(const cubin *of, const Elf64_Sym *symbol, const char *name)
{
    Elf64_Shdr section;
    if (!section_at(of, symbol->st_shndx, &section))
        return RVLI_IMAGE_INVALID;
    const char *lies_in = string_at(of, &of->names, section.sh_name);
    if (lies_in == NULL)
        return RVLI_IMAGE_INVALID;
    if (strncmp(lies_in, ".nv.global", 10) != 0 && strcmp(lies_in, ".nv.constant3") != 0)
        return RVLI_IMAGE_OK;
    if (symbol->st_value > section.sh_size || symbol->st_size > section.sh_size - symbol->st_value)
        return RVLI_IMAGE_INVALID;
    rvli_variable *added = rvli_image_add_variable(of->image, name, strlen(name));
    if (added == NULL)
        return RVLI_IMAGE_OUT_OF_HOST;
    added->size_bytes = symbol->st_size;
    return read_initial(of, &section, symbol, added) ? RVLI_IMAGE_OK : RVLI_IMAGE_OUT_OF_HOST;
}

static rvli_image_error add_symbol(const cubin *of, const Elf64_Sym *symbol, uint64_t number,
                                   const Elf64_Shdr *strings)
{
    unsigned kind = ELF64_ST_TYPE(symbol->st_info);
    bool entry = kind == STT_FUNC && (symbol->st_other & ENTRY_MARK);
    if (symbol->st_shndx != SHN_UNDEF && !entry && kind != STT_OBJECT)
        return RVLI_IMAGE_OK;
    const char *name = string_at(of, strings, symbol->st_name);
    if (name == NULL)
        return RVLI_IMAGE_INVALID;
    if (symbol->st_shndx == SHN_UNDEF) {
        of->image->asserts |= strcmp(name, "__assertfail") == 0;
        return RVLI_IMAGE_OK;
    }
    if (!entry)
        return symbol->st_shndx < SHN_LORESERVE ? add_variable(of, symbol, name) : RVLI_IMAGE_OK;
    rvli_kernel_entry *added = rvli_image_add_entry(of->image, name, strlen(name));
    if (added == NULL)
        return RVLI_IMAGE_OUT_OF_HOST;
    added->symbol = number;
    return RVLI_IMAGE_OK;
}

static rvli_image_error read_symbols(const cubin *of, const Elf64_Shdr *table)
{
    Elf64_Shdr strings;
    Elf64_Sym symbol;
    rvli_image_error error = RVLI_IMAGE_OK;
    if (!section_at(of, table->sh_link, &strings) || strings.sh_type != SHT_STRTAB)
        return RVLI_IMAGE_INVALID;
    for (uint64_t i = 0; error == RVLI_IMAGE_OK && i < table->sh_size / sizeof symbol; i++) {
        memcpy(&symbol, of->bytes + table->sh_offset + i * sizeof symbol, sizeof symbol);
        error = add_symbol(of, &symbol, i, &strings);
    }
    return error;
}

/* ---- Needs of kernels ---- */

static uint32_t number_at(const unsigned char *bytes)
{
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return number;
}

static int by_symbol(const void *wanted, const void *entry)
{
    uint64_t a = *(const uint64_t *)wanted, b = ((const rvli_kernel_entry *)entry)->symbol;
    return a < b ? -1 : a > b;
}

/* A record for the whole file: a kernel's symbol, and a number. */
static void note_number(const cubin *of, unsigned says, const unsigned char *body, size_t bytes)
{
    if (bytes < 8 || of->image->entry_count == 0)
        return;
    const uint64_t symbol = number_at(body);
    rvli_kernel_entry *entry = bsearch(&symbol, of->image->entries, of->image->entry_count,
                                       sizeof *of->image->entries, by_symbol);
    if (entry == NULL)
        return;
    if (says == SAYS_REGISTERS)
        entry->registers = number_at(body + 4);
    else if (says == SAYS_STACK || (says == SAYS_FRAME && entry->local_bytes == 0))
        entry->local_bytes = number_at(body + 4);
}

/* A record for one kernel: threads of a block in each dimension. */
static void note_threads(rvli_kernel_entry *entry, unsigned says, const unsigned char *body,
                         size_t bytes)
{
    uint64_t threads = 1;
    if ((says != SAYS_THREADS_MOST && says != SAYS_THREADS) || bytes < 12)
        return;
    for (size_t i = 0; i < 3; i++) {
        uint32_t along = number_at(body + 4 * i);
        threads *= along <= 1024 ? along : 1024;
        if (says == SAYS_THREADS)
            entry->required[i] = along;
    }
    if (says == SAYS_THREADS_MOST)
        entry->threads_most = threads < 1024 ? (unsigned)threads : 1024;
}

/* entry NULL: records for the whole file. */
static bool read_records(const cubin *of, const Elf64_Shdr *section, rvli_kernel_entry *entry)
{
    const unsigned char *at = of->bytes + section->sh_offset;
    if (section->sh_type == SHT_NOBITS)
        return false;
    for (uint64_t left = section->sh_size; left > 0;) {
        if (left < 4)
            return false;
        uint64_t bytes = at[0] == RECORD_SIZED ? at[2] | (unsigned)at[3] << 8 : 0;
        if (at[0] == 0 || at[0] > RECORD_SIZED || bytes > left - 4)
            return false;
        if (at[0] == RECORD_SHORT && at[1] == SAYS_ARGUMENTS && entry != NULL)
            entry->argument_bytes = at[2] | (unsigned)at[3] << 8;
        if (at[0] == RECORD_SIZED && entry != NULL)
            note_threads(entry, at[1], at + 4, bytes);
        else if (at[0] == RECORD_SIZED)
            note_number(of, at[1], at + 4, bytes);
        at += 4 + bytes;
        left -= 4 + bytes;
    }
    return true;
}

static void note_shared(const cubin *of, rvli_kernel_entry *entry, uint64_t bytes)
{
    if (of->driver_shares)
        bytes -= bytes < SHARED_OF_DRIVER ? bytes : SHARED_OF_DRIVER;
    entry->shared_bytes = bytes < UINT32_MAX ? (unsigned)bytes : UINT32_MAX;
}

/* ---- The file ---- */

/* Whether it runs on a card: the same major version, and a minor version that is not later. */
static bool runs_on(const cubin *of, int major, int minor)
{
    unsigned flags = of->header.e_flags;
    unsigned version =
        of->header.e_ident[EI_ABIVERSION] >= ABI_NEW ? flags >> 8 & 0xff : flags & 0xff;
    of->image->version = version;
    return (int)version / 10 == major && (int)version % 10 <= minor;
}

static bool read_header(cubin *of)
{
    Elf64_Shdr first;
    if (of->size_bytes < sizeof of->header)
        return false;
    memcpy(&of->header, of->bytes, sizeof of->header);
    const Elf64_Ehdr *header = &of->header;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != MACHINE || header->e_shentsize != sizeof first)
        return false;
    if (of->size_bytes == SIZE_MAX) {
        /* The tables lie behind all sections, so the later of them marks the end. */
        uint64_t sections = header->e_shoff + (uint64_t)header->e_shnum * sizeof first;
        uint64_t programs = header->e_phoff + (uint64_t)header->e_phnum * header->e_phentsize;
        of->size_bytes = sections > programs ? sections : programs;
        if (!rvli_image_mapped(of->bytes, of->size_bytes))
            return false;
    }
    if (!inside(of, header->e_shoff, sizeof first))
        return false;
    memcpy(&first, of->bytes + header->e_shoff, sizeof first);
    of->section_count = header->e_shnum;
    return inside(of, header->e_shoff, of->section_count * sizeof first) &&
           section_at(of, header->e_shstrndx, &of->names) && of->names.sh_type == SHT_STRTAB;
}

typedef rvli_image_error (*visit)(cubin *of, const Elf64_Shdr *section, const char *name);

static rvli_image_error each_section(cubin *of, visit call)
{
    rvli_image_error error = RVLI_IMAGE_OK;
    for (uint64_t i = 1; error == RVLI_IMAGE_OK && i < of->section_count; i++) {
        Elf64_Shdr section;
        const char *name =
            section_at(of, i, &section) ? string_at(of, &of->names, section.sh_name) : NULL;
        error = name != NULL ? call(of, &section, name) : RVLI_IMAGE_INVALID;
    }
    return error;
}

/* Adds kernels and variables, in the order of their symbols. */
static rvli_image_error find_symbols(cubin *of, const Elf64_Shdr *section, const char *name)
{
    if (strncmp(name, ".nv.shared.reserved.", 20) == 0)
        of->driver_shares = true;
    if (strcmp(name, ".nv.constant3") == 0)
        of->constant_bytes =
            section->sh_size < UINT32_MAX ? (unsigned)section->sh_size : UINT32_MAX;
    return section->sh_type == SHT_SYMTAB ? read_symbols(of, section) : RVLI_IMAGE_OK;
}

/* Reads the records that refer to kernels by symbol, before the kernels are sorted by name. */
static rvli_image_error find_numbers(cubin *of, const Elf64_Shdr *section, const char *name)
{
    return strcmp(name, ".nv.info") != 0 || read_records(of, section, NULL) ? RVLI_IMAGE_OK
                                                                            : RVLI_IMAGE_INVALID;
}

static rvli_image_error find_needs(cubin *of, const Elf64_Shdr *section, const char *name)
{
    rvli_kernel_entry *entry;
    if ((entry = entry_of(of, name, ".nv.info.")) != NULL)
        return read_records(of, section, entry) ? RVLI_IMAGE_OK : RVLI_IMAGE_INVALID;
    if ((entry = entry_of(of, name, ".nv.shared.")) != NULL)
        note_shared(of, entry, section->sh_size);
    else if ((entry = entry_of(of, name, ".text.")) != NULL)
        entry->code_bytes = section->sh_size;
    if (strncmp(name, ".nv.global", 10) == 0)
        of->image->global_bytes += section->sh_size;
    if (strncmp(name, ".text.", 6) == 0)
        of->image->code_bytes += section->sh_size;
    return RVLI_IMAGE_OK;
}

rvli_image_error rvli_cubin_read(const void *bytes, size_t size_bytes, int major, int minor,
                                 rvli_image *image)
{
    cubin of = {.bytes = bytes, .size_bytes = size_bytes, .image = image};
    if (!read_header(&of))
        return RVLI_IMAGE_INVALID;
    if (!runs_on(&of, major, minor))
        return RVLI_IMAGE_OTHER_CARD;
    rvli_image_error error = each_section(&of, find_symbols);
    if (error == RVLI_IMAGE_OK)
        error = each_section(&of, find_numbers);
    if (error != RVLI_IMAGE_OK)
        return error;
    rvli_image_sort(image);
    for (size_t i = 0; i < image->entry_count; i++)
        image->entries[i].constant_bytes = of.constant_bytes;
    return each_section(&of, find_needs);
}
