/* SPDX-License-Identifier: MIT */
/* Reads the tensors of the snapshots of a report, for its page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "cli/report/report.h"
#include "reveille/snapshot.h"

/* A larger page is slow to open and to send. */
#define TENSORS_BYTES_MAX ((size_t)48 << 20)
#define DEFAULT_PROCESS "trainer"

/* Whether all inputs are snapshots. With a trace beside it, a snapshot has another clock than the
 * page. */
static bool all_snapshots(const char *const *paths, size_t path_count)
{
    for (size_t i = 0; i < path_count; i++) {
        if (!options_is_snapshot(paths[i]))
            return false;
    }
    return true;
}

int tensors_read(const char *const *paths, size_t path_count, report_tensors *tensors_out)
{
    report_tensors found = {.paths = paths};
    size_t bytes = 0;
    if (!all_snapshots(paths, path_count))
        return 0;
    found.list = calloc(path_count, sizeof *found.list);
    if (found.list == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    for (; found.count < path_count; found.count++) {
        char **text = &found.list[found.count];
        rvl_status status = rvl_snapshot_get_tensors(paths[found.count], NULL, text);
        if (status != RVL_OK) {
            tensors_free(&found);
            return explain_replay(status);
        }
        if (bytes + strlen(*text) > TENSORS_BYTES_MAX) {
            rvl_string_free(*text);
            *text = NULL;
        } else {
            bytes += strlen(*text);
        }
    }
    *tensors_out = found;
    return 0;
}

void tensors_free(report_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        rvl_string_free(tensors->list[i]);
    free(tensors->list);
    *tensors = (report_tensors){0};
}

void tensors_process(const char *base, size_t index, char name[TENSORS_PROCESS_BYTES])
{
    if (base == NULL)
        base = DEFAULT_PROCESS;
    if (index == 0)
        snprintf(name, TENSORS_PROCESS_BYTES, "%s", base);
    else
        snprintf(name, TENSORS_PROCESS_BYTES, "%s%zu", base, index + 1);
}
