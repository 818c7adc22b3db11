/* SPDX-License-Identifier: MIT */
/* NUMA nodes from sysfs(5), and mbind(2) without libnuma, for one call. */
#include "backends/cuda/numa.h"

#include <ctype.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"

#define NODES_ONLINE "/sys/devices/system/node/online"
#define PCI_DEVICES "/sys/bus/pci/devices/"
#define NODES_MAX 1024 /* the maximum of any kernel: CONFIG_NODES_SHIFT is at most 10 */
#define WORD_BITS (8 * (int)sizeof(unsigned long))

static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool read = fgets(line, size, file) != NULL;
    fclose(file);
    return read;
}

/*
 * Whether there are several nodes: the kernel lists them as "0-1" or "0,2", and one without a sign.
 */
static bool has_nodes(void)
{
    char line[256];
    return read_line(NODES_ONLINE, line, sizeof line) && strpbrk(line, "-,") != NULL;
}

int rvli_numa_node_of(const char *bus_id)
{
    char path[128], name[32], line[32];
    int node = RVLI_NUMA_ANY;
    size_t length = strlen(bus_id);
    if (length >= sizeof name || !has_nodes())
        return RVLI_NUMA_ANY;
    for (size_t i = 0; i <= length; i++)
        name[i] = (char)tolower((unsigned char)bus_id[i]);
    rvli_text text = rvli_text_begin(path, sizeof path);
    rvli_text_add(&text, PCI_DEVICES);
    rvli_text_add(&text, name);
    rvli_text_add(&text, "/numa_node");
    if (!read_line(path, line, sizeof line) || sscanf(line, "%d", &node) != 1 || node < 0 ||
        node >= NODES_MAX)
        return RVLI_NUMA_ANY;
    return node;
}

void rvli_numa_prefer(void *at, uint64_t size, int node)
{
    unsigned long nodes[NODES_MAX / WORD_BITS] = {0};
    if (node < 0 || node >= NODES_MAX)
        return;
    nodes[node / WORD_BITS] = 1UL << node % WORD_BITS;
    /* The kernel reads one bit fewer than this number. */
    syscall(SYS_mbind, at, (unsigned long)size, (unsigned long)MPOL_PREFERRED, nodes,
            (unsigned long)NODES_MAX + 1, 0UL);
}
