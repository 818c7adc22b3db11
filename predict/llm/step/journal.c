/* SPDX-License-Identifier: MIT */
#include "predict/llm/step/journal.h"

#include <stdlib.h>

#include "base/grow.h"

#define FIRST_ROOM 65536 /* large enough that malloc() maps it, and grows it without a copy */

void rvli_journal_free(rvli_journal *journal)
{
    free(journal->lines);
    *journal = (rvli_journal){0};
}

static bool grow(rvli_journal *journal)
{
    if (!RVLI_ROOM(journal->lines, journal->count, journal->room, FIRST_ROOM)) {
        journal->shown->failed = true;
        return false;
    }
    return true;
}

rvli_journal_line *rvli_journal_add(rvli_journal *journal, rvli_journal_kind kind)
{
    if (journal->shown == NULL || !grow(journal))
        return NULL;
    rvli_journal_line *line = &journal->lines[journal->count++];
    *line = (rvli_journal_line){.kind = (uint8_t)kind};
    return line;
}

/* Applies a line to the segments. Returns whether this may be the fullest moment. */
static bool follow(rvli_shown *shown, const rvli_journal_line *line, uint64_t *calls)
{
    switch ((rvli_journal_kind)line->kind) {
    case RVLI_JOURNAL_ALLOC:
        rvli_shown_segment_alloc(shown, line->addr, line->bytes);
        return false;
    case RVLI_JOURNAL_FREE:
        rvli_shown_segment_free(shown, line->addr);
        return false;
    case RVLI_JOURNAL_TAKE:
        ++*calls;
        rvli_shown_take(shown, line->segment, line->term, line->bytes);
        return true;
    case RVLI_JOURNAL_DROP:
        ++*calls;
        rvli_shown_drop(shown, line->segment, line->term, line->bytes);
        return false;
    case RVLI_JOURNAL_BETWEEN:
        rvli_shown_between(shown);
        return false;
    case RVLI_JOURNAL_WATCH:
        return true;
    }
    return false;
}

void rvli_journal_begin_step(rvli_journal *journal)
{
    uint64_t calls = 0;
    if (journal->shown == NULL)
        return;
    journal->shown->waits = true;
    for (size_t i = 0; i < journal->count; i++)
        follow(journal->shown, &journal->lines[i], &calls);
    journal->count = 0;
}

void rvli_journal_show(rvli_journal *journal, const uint64_t instants[2])
{
    uint64_t calls = 0;
    rvli_shown *shown = journal->shown;
    if (shown == NULL)
        return;
    rvli_shown_begin(shown);
    for (size_t i = 0; i < journal->count; i++) {
        bool fullest = follow(shown, &journal->lines[i], &calls);
        if (fullest && (calls == instants[0] || calls == instants[1]))
            rvli_shown_now(shown);
    }
}
