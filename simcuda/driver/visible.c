/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NONE (-1)

/* The only device with a UUID that begins with this text. */
static int by_uuid(const char *text, size_t length, int devices)
{
    int found = NONE;
    for (int each = 0; each < devices; each++) {
        char uuid[64];
        snprintf(uuid, sizeof uuid, RVLI_UUID_TEXT "%02x", (unsigned)each);
        if (length > strlen(uuid) || strncasecmp(uuid, text, length) != 0)
            continue;
        if (found != NONE)
            return NONE;
        found = each;
    }
    return found;
}

static int by_number(const char *text, int devices)
{
    if (!isdigit((unsigned char)*text))
        return NONE;
    unsigned long number = strtoul(text, NULL, 10);
    return number < (unsigned long)devices ? (int)number : NONE;
}

/* Parses one item, which ends at a comma or at the end of the list. */
static int find(const char *item, int devices)
{
    item += strspn(item, " \t");
    return strncasecmp(item, "GPU-", 4) == 0 ? by_uuid(item, strcspn(item, ", \t"), devices)
                                             : by_number(item, devices);
}

static bool holds(const int *numbers, int count, int number)
{
    for (int each = 0; each < count; each++)
        if (numbers[each] == number)
            return true;
    return false;
}

int rvli_visible_devices(const char *list, int devices, int numbers_out[RVLI_DEVICES_MAX])
{
    int count = 0, number;
    devices = devices < RVLI_DEVICES_MAX ? devices : RVLI_DEVICES_MAX;
    for (; list == NULL && count < devices; count++)
        numbers_out[count] = count;
    while (list != NULL && (number = find(list, devices)) != NONE) {
        if (holds(numbers_out, count, number))
            return 0;
        numbers_out[count++] = number;
        list = strchr(list, ',');
        if (list != NULL)
            list++;
    }
    return count;
}
