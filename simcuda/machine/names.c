/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/machine/internal.h"

/* A name that processes have, and how many. */
struct rvli_known_name {
    rvli_known_name *next;
    uint64_t count;
    char text[];
};

/* Counts one more process of a name. NULL: no memory. */
static rvli_known_name *count_name(rvli_machine *machine, const char *text)
{
    rvli_known_name *each = machine->names;
    while (each != NULL && strcmp(each->text, text) != 0)
        each = each->next;
    if (each == NULL) {
        size_t size = strlen(text) + 1;
        each = calloc(1, sizeof *each + size);
        if (each == NULL)
            return NULL;
        memcpy(each->text, text, size);
        each->next = machine->names;
        machine->names = each;
    }
    each->count++;
    return each;
}

bool rvli_name_client(rvli_machine *machine, rvli_client *client, const rvli_wire_request *hello)
{
    char text[RVLI_WIRE_TEXT_BYTES];
    snprintf(text, sizeof text, "%.200s", hello->text[0] != '\0' ? hello->text : "?");
    if (hello->ranks == 1)
        snprintf(text + strlen(text), sizeof text - strlen(text), "[rank %u]", hello->rank);
    const rvli_known_name *known = count_name(machine, text);
    if (known == NULL)
        return false;
    snprintf(client->name, sizeof client->name, "%.220s", text);
    size_t length = strlen(client->name);
    if (hello->ranks != 1)
        snprintf(client->name + length, sizeof client->name - length, "[%llu]",
                 (unsigned long long)known->count);
    else if (known->count > 1) /* of the rank, too */
        snprintf(client->name + length, sizeof client->name - length, "#%llu",
                 (unsigned long long)known->count);
    return true;
}

void rvli_names_forget(rvli_machine *machine)
{
    while (machine->names != NULL) {
        rvli_known_name *first = machine->names;
        machine->names = first->next;
        free(first);
    }
}
