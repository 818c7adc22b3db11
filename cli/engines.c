/* SPDX-License-Identifier: MIT */
#include "engines.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "command.h"
#include "markdown.h"

#define OPTION_BYTES 64

/* The option that makes the engine allocate this KV cache on any card. "": not known. */
static void option_of(const rvli_machine_engine *engine, char text[OPTION_BYTES])
{
    text[0] = '\0';
    if (strcmp(engine->name, "vLLM") == 0)
        snprintf(text, OPTION_BYTES, "--kv-cache-memory-bytes %" PRIu64, engine->bytes);
    else if (strcmp(engine->name, "SGLang") == 0)
        snprintf(text, OPTION_BYTES, "--max-total-tokens %" PRIu64, engine->tokens);
}

void engines_describe(const rvli_machine_engine *engine, char text[ENGINES_LINE_BYTES])
{
    char many[COUNT_TEXT_BYTES + 16] = "", size[SIZE_TEXT_BYTES], option[OPTION_BYTES];
    option_of(engine, option);
    if (engine->count > 1)
        snprintf(many, sizeof many, "each of %" PRIu64 " engines of ", engine->count);
    int length = snprintf(text, ENGINES_LINE_BYTES,
                          "KV cache of %s%s: %" PRIu64 " tokens in %" PRIu64 " blocks of %" PRIu64,
                          many, engine->name, engine->tokens, engine->blocks, engine->block_tokens);
    if (engine->bytes > 0)
        length += snprintf(text + length, ENGINES_LINE_BYTES - (size_t)length, ", %s on a GPU",
                           format_size(engine->bytes, size));
    if (option[0] != '\0')
        snprintf(text + length, ENGINES_LINE_BYTES - (size_t)length, "; the same by %s", option);
}

uint64_t engines_least_tokens(const rvli_machine_engines *of)
{
    uint64_t least = of->count > 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < of->count; i++) {
        if (of->list[i].tokens < least)
            least = of->list[i].tokens;
    }
    return least;
}

void engines_print(const rvli_machine_engines *of)
{
    char text[ENGINES_LINE_BYTES];
    for (size_t i = 0; i < of->count; i++) {
        engines_describe(&of->list[i], text);
        (void)say("%s\n", text);
    }
}

void engines_write_markdown(FILE *out, const rvli_machine_engines *of)
{
    char text[ENGINES_LINE_BYTES];
    for (size_t i = 0; i < of->count; i++) {
        engines_describe(&of->list[i], text);
        fputs("- ", out);
        (void)markdown_text(out, text);
        fputs("\n", out);
    }
}

static json_t *engine_to_json(const rvli_machine_engine *engine, bool *ok)
{
    char option[OPTION_BYTES];
    json_t *object = json_object();
    option_of(engine, option);
    rvli_json_set(object, "engine", rvli_json_text(engine->name), ok);
    rvli_json_set(object, "count", rvli_json_bytes(engine->count), ok);
    rvli_json_set(object, "kv_cache_tokens", rvli_json_bytes(engine->tokens), ok);
    rvli_json_set(object, "kv_cache_blocks", rvli_json_bytes(engine->blocks), ok);
    rvli_json_set(object, "block_tokens", rvli_json_bytes(engine->block_tokens), ok);
    rvli_json_set(object, "kv_cache_bytes",
                  engine->bytes > 0 ? rvli_json_bytes(engine->bytes) : json_null(), ok);
    rvli_json_set(object, "option", rvli_json_text(option[0] != '\0' ? option : NULL), ok);
    return object;
}

bool engines_write_json(FILE *out, const rvli_machine_engines *of)
{
    bool ok = true;
    json_t *all = json_array();
    for (size_t i = 0; i < of->count; i++)
        rvli_json_append(all, engine_to_json(&of->list[i], &ok), &ok);
    char *text = ok ? json_dumps(all, JSON_COMPACT) : NULL;
    if (text != NULL && of->count > 0)
        fprintf(out, ",\"engines\":%s", text);
    free(text);
    json_decref(all);
    return ok && text != NULL;
}
