/* SPDX-License-Identifier: MIT */
/* Finds the word that a misspelled one may mean. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "options.h"

#define WORD_BYTES_MAX 48

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int lower(char letter)
{
    return tolower((unsigned char)letter);
}

/* Optimal string alignment. Keeps three rows of the table; the oldest is for swapped neighbours. */
size_t suggest_distance(const char *a, const char *b)
{
    size_t rows[3][WORD_BYTES_MAX + 1];
    size_t width = strlen(b), height = strlen(a);
    if (width > WORD_BYTES_MAX || height > WORD_BYTES_MAX)
        return SIZE_MAX;
    for (size_t k = 0; k <= width; k++)
        rows[0][k] = k;
    for (size_t i = 1; i <= height; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= width; k++) {
            bool same = lower(a[i - 1]) == lower(b[k - 1]);
            now[k] = least(least(before[k], now[k - 1]) + 1, before[k - 1] + !same);
            if (i > 1 && k > 1 && lower(a[i - 1]) == lower(b[k - 2]) &&
                lower(a[i - 2]) == lower(b[k - 1]))
                now[k] = least(now[k], earlier[k - 2] + 1);
        }
    }
    return rows[height % 3][width];
}

bool suggest_matches(const char *word, const char *name)
{
    size_t length = strlen(word), whole = strlen(name);
    if (length == 0)
        return false;
    if (length >= 3 && strncasecmp(word, name, least(length, whole)) == 0)
        return true;
    return suggest_distance(word, name) <= (least(length, whole) + 1) / 3;
}
