/* SPDX-License-Identifier: MIT */
#include "predict/llm/step/script.h"

#include <stdlib.h>

#include "base/grow.h"

#define FIRST_ROOM 65536 /* large enough that malloc() maps it, and grows it without a copy */

void rvli_script_free(rvli_script *script)
{
    free(script->lines);
    *script = (rvli_script){0};
}

rvli_script_line *rvli_script_add(rvli_script *script, rvli_script_kind kind)
{
    if (!RVLI_ROOM(script->lines, script->count, script->room, FIRST_ROOM))
        return NULL;
    rvli_script_line *line = &script->lines[script->count++];
    *line = (rvli_script_line){.kind = (uint8_t)kind};
    return line;
}
