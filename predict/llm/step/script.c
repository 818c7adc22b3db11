/* SPDX-License-Identifier: MIT */
#include "predict/llm/step/script.h"

#include <stdlib.h>

#define FIRST_ROOM 65536 /* large enough that malloc() maps it, and grows it without a copy */

void rvli_script_free(rvli_script *script)
{
    free(script->lines);
    *script = (rvli_script){0};
}

static bool grow(rvli_script *script)
{
    size_t room = script->room > 0 ? 2 * script->room : FIRST_ROOM;
    rvli_script_line *lines = realloc(script->lines, room * sizeof *lines);
    if (lines == NULL)
        return false;
    script->lines = lines;
    script->room = room;
    return true;
}

rvli_script_line *rvli_script_add(rvli_script *script, rvli_script_kind kind)
{
    if (script->count == script->room && !grow(script))
        return NULL;
    rvli_script_line *line = &script->lines[script->count++];
    *line = (rvli_script_line){.kind = (uint8_t)kind};
    return line;
}
