/* SPDX-License-Identifier: MIT */
/*
 * PTX: the text from which the driver makes machine code. Only directives are read: the version,
 * the target, kernels (.entry), their arguments (.param), limits (.maxntid, .reqntid) and static
 * shared memory, and variables (.global, .const). Instructions are skipped.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/image.h"

#define VERSION_MOST 90u       /* 9.0, the version of CUDA 13.0's driver */
#define ARGUMENTS_MOST 0xffffu /* bytes; a cubin's field holds no more */

/* A place in the text. Words are separated by spaces, comments and punctuation. */
typedef struct reader {
    const char *at, *end;
    const char *word; /* the current word */
    size_t length;
} reader;

static bool is_word(int letter)
{
    return isalnum(letter) || letter == '_' || letter == '$' || letter == '.' || letter == '%';
}

/* The end of the comment that begins at from. Returns from if there is none. */
static const char *skip_comment(const char *from, const char *end)
{
    if (end - from < 2 || from[0] != '/' || (from[1] != '/' && from[1] != '*'))
        return from;
    bool line = from[1] == '/';
    for (from += 2; from < end; from++)
        if (line ? *from == '\n' : *from == '/' && from[-1] == '*')
            return from + 1;
    return end;
}

static void skip_spaces(reader *of)
{
    while (of->at < of->end && isspace((unsigned char)*of->at))
        of->at++;
}

/* Reads the next word, or a single punctuation character. false: the text ends. */
static bool next(reader *of)
{
    for (;;) {
        skip_spaces(of);
        const char *behind = skip_comment(of->at, of->end);
        if (behind == of->at)
            break;
        of->at = behind;
    }
    if (of->at == of->end)
        return false;
    of->word = of->at;
    if (*of->at == '"') { /* a string, for debuggers */
        const char *close = memchr(of->at + 1, '"', (size_t)(of->end - of->at - 1));
        of->at = close != NULL ? close + 1 : of->end;
    } else if (is_word((unsigned char)*of->at)) {
        while (of->at < of->end && is_word((unsigned char)*of->at))
            of->at++;
    } else {
        of->at++;
    }
    of->length = (size_t)(of->at - of->word);
    return true;
}

static bool is(const reader *of, const char *word)
{
    return of->length == strlen(word) && memcmp(of->word, word, of->length) == 0;
}

static bool begins(const reader *of, const char *with)
{
    return of->length >= strlen(with) && memcmp(of->word, with, strlen(with)) == 0;
}

/* A word's number. 0: it is not a number. Saturates. */
static uint64_t number_of(const reader *of)
{
    uint64_t number = 0;
    for (size_t i = 0; i < of->length && isdigit((unsigned char)of->word[i]); i++) {
        uint64_t digit = (uint64_t)(of->word[i] - '0');
        number = number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : number * 10 + digit;
    }
    return number;
}

/* ---- Variables ---- */

/* Bytes of a type: .b8, .u32, .f64. 0: not a type. */
static uint64_t type_bytes(const reader *of)
{
    size_t digit = 1;
    if (of->length < 3 || of->word[0] != '.')
        return 0;
    if (is(of, ".bf16"))
        return 2;
    if (strchr("bsuf", of->word[1]) == NULL)
        return 0;
    const reader bits = {.word = of->word + digit + 1, .length = of->length - digit - 1};
    uint64_t count = number_of(&bits);
    return count == 8 || count == 16 || count == 32 || count == 64 || count == 128 ? count / 8 : 0;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* Reads "[16][4]" after a name, and multiplies *bytes_io. "[]" has size 0. */
static bool read_dimensions(reader *of, uint64_t *bytes_io)
{
    while (of->at < of->end && *of->at == '[') {
        if (!next(of) || !next(of))
            return false;
        *bytes_io = times(*bytes_io, is(of, "]") ? 0 : number_of(of));
        if (!is(of, "]") && (!next(of) || !is(of, "]")))
            return false;
    }
    return true;
}

typedef struct declared {
    const char *name;
    size_t length;
    uint64_t bytes, align;
} declared;

/*
 * Reads a declaration behind .global, .const, .shared or .param, up to its name and size:
 * ".align 4 .b8 name[16]". false: not a declaration. The target of a pointer may have an .align,
 * too: ".u64 .ptr .global .align 16 name".
 */
static bool read_variable(reader *of, declared *out)
{
    uint64_t bytes = 0, vector = 1, align = 0;
    bool points = false;
    while (next(of)) {
        if (is(of, ".align")) {
            if (!next(of))
                return false;
            align = points ? align : number_of(of);
        } else if (is(of, ".ptr")) {
            points = true;
        } else if (is(of, ".v2") || is(of, ".v4")) {
            vector = of->word[2] == '2' ? 2 : 4;
        } else if (type_bytes(of) > 0) {
            bytes = type_bytes(of);
        } else if (of->word[0] != '.') {
            *out = (declared){of->word, of->length, times(bytes, vector),
                              align > 0 ? align : times(bytes, vector)};
            skip_spaces(of);
            return bytes > 0 && is_word((unsigned char)*out->name) &&
                   read_dimensions(of, &out->bytes);
        }
    }
    return false;
}

/* ---- The whole text ---- */

typedef struct text {
    reader at;
    rvli_image *image;
    size_t depth;           /* of braces */
    rvli_kernel_entry *now; /* the current kernel; NULL: none */
    uint64_t constant_bytes;
    bool outside; /* an external declaration */
} text;

static rvli_image_error note_variable(text *of)
{
    bool constant = is(&of->at, ".const");
    declared it;
    if (!read_variable(&of->at, &it) || it.bytes > INT64_MAX)
        return RVLI_IMAGE_BAD_PTX;
    of->constant_bytes += constant && it.bytes <= UINT32_MAX ? it.bytes : 0;
    rvli_variable *added =
        of->outside ? NULL : rvli_image_add_variable(of->image, it.name, it.length);
    skip_spaces(&of->at);
    if (added != NULL) {
        added->size_bytes = it.bytes;
        added->unread = of->at.at < of->at.end && *of->at.at == '=';
    }
    return of->outside || added != NULL ? RVLI_IMAGE_OK : RVLI_IMAGE_OUT_OF_HOST;
}

static rvli_image_error note_shared(text *of)
{
    declared it;
    if (!read_variable(&of->at, &it))
        return RVLI_IMAGE_BAD_PTX;
    uint64_t bytes = of->outside ? 0 : it.bytes;
    if (bytes > UINT32_MAX || (of->now != NULL && of->now->shared_bytes > UINT32_MAX - bytes))
        return RVLI_IMAGE_BAD_PTX;
    if (of->now != NULL)
        of->now->shared_bytes += (unsigned)bytes;
    return RVLI_IMAGE_OK;
}

/* Adds an argument to the kernel. Unknown types (.texref) are skipped. */
static void note_argument(text *of)
{
    declared it;
    if (!read_variable(&of->at, &it) || it.bytes > ARGUMENTS_MOST || it.align > ARGUMENTS_MOST)
        return;
    uint64_t at = (of->now->argument_bytes + it.align - 1) / it.align * it.align;
    if (at + it.bytes <= ARGUMENTS_MOST)
        of->now->argument_bytes = (unsigned)(at + it.bytes);
}

static rvli_image_error note_entry(text *of)
{
    if (!next(&of->at) || !is_word((unsigned char)*of->at.word))
        return RVLI_IMAGE_BAD_PTX;
    of->now = rvli_image_add_entry(of->image, of->at.word, of->at.length);
    return of->now != NULL ? RVLI_IMAGE_OK : RVLI_IMAGE_OUT_OF_HOST;
}

/* ".maxntid 256, 1, 1": one to three numbers. .reqntid has the same form, but sets no limit. */
static rvli_image_error note_threads(text *of)
{
    bool required = is(&of->at, ".reqntid");
    uint64_t threads = 1;
    unsigned shape[3] = {1, 1, 1};
    size_t count = 0;
    do {
        if (!next(&of->at) || !isdigit((unsigned char)*of->at.word))
            return RVLI_IMAGE_BAD_PTX;
        if (count == 3)
            return RVLI_IMAGE_BAD_PTX;
        uint64_t along = number_of(&of->at);
        shape[count++] = along < UINT32_MAX ? (unsigned)along : UINT32_MAX;
        threads = times(threads, along);
        skip_spaces(&of->at);
    } while (of->at.at < of->at.end && *of->at.at == ',' && next(&of->at));
    if (of->now != NULL && required)
        memcpy(of->now->required, shape, sizeof shape);
    else if (of->now != NULL)
        of->now->threads_most = threads < 1024 ? (unsigned)threads : 1024;
    return RVLI_IMAGE_OK;
}

static rvli_image_error note_word(text *of)
{
    const reader *at = &of->at;
    if (is(at, "{")) {
        of->depth++;
    } else if (is(at, "}")) {
        if (of->depth == 0)
            return RVLI_IMAGE_BAD_PTX;
        of->depth--;
        of->now = of->depth == 0 ? NULL : of->now;
    } else if (is(at, ";")) {
        of->outside = false;
    } else if (is(at, ".extern")) {
        of->outside = true;
    } else if (is(at, ".entry")) {
        return note_entry(of);
    } else if (is(at, ".func")) {
        of->now = NULL;
    } else if (is(at, ".maxntid") || is(at, ".reqntid")) {
        return note_threads(of);
    } else if (of->depth == 0 && (is(at, ".global") || is(at, ".const"))) {
        return note_variable(of);
    } else if (is(at, ".shared")) {
        return note_shared(of);
    } else if (of->depth == 0 && of->now != NULL && is(at, ".param")) {
        note_argument(of);
    }
    return RVLI_IMAGE_OK;
}

/* ".version 9.0", ".target sm_90a": required at the start, in this order. */
static rvli_image_error read_start(reader *of, int major, int minor, rvli_image *image)
{
    if (!next(of) || !is(of, ".version"))
        return RVLI_IMAGE_INVALID;
    if (!next(of))
        return RVLI_IMAGE_BAD_PTX;
    const char *dot = memchr(of->word, '.', of->length);
    if (dot == NULL || !isdigit((unsigned char)*of->word))
        return RVLI_IMAGE_BAD_PTX;
    const reader behind = {.word = dot + 1, .length = of->length - (size_t)(dot + 1 - of->word)};
    if (times(number_of(of), 10) + number_of(&behind) > VERSION_MOST)
        return RVLI_IMAGE_NEW_PTX;
    if (!next(of) || !is(of, ".target") || !next(of) || !begins(of, "sm_"))
        return RVLI_IMAGE_BAD_PTX;
    const reader number = {.word = of->word + 3, .length = of->length - 3};
    uint64_t target = number_of(&number);
    if (target == 0 || target > (uint64_t)major * 10 + (uint64_t)minor)
        return RVLI_IMAGE_BAD_PTX;
    image->version = (unsigned)target;
    return RVLI_IMAGE_OK;
}

rvli_image_error rvli_ptx_read(const char *ptx, size_t length, int major, int minor,
                               rvli_image *image)
{
    text of = {.at = {.at = ptx, .end = ptx + length}, .image = image};
    rvli_image_error error = read_start(&of.at, major, minor, image);
    while (error == RVLI_IMAGE_OK && next(&of.at))
        error = note_word(&of);
    for (size_t i = 0; i < image->entry_count; i++) {
        image->entries[i].ptx_version = image->version;
        image->entries[i].constant_bytes =
            of.constant_bytes < UINT32_MAX ? (unsigned)of.constant_bytes : UINT32_MAX;
    }
    return error == RVLI_IMAGE_OK && of.depth > 0 ? RVLI_IMAGE_BAD_PTX : error;
}
