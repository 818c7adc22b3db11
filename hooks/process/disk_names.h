/* SPDX-License-Identifier: MIT */
/*
 * Names for disk backups.
 *
 * The files of disk backups have no name, so their space is freed however the process ends. But
 * users of torch_memory_saver expect one file for each paused allocation in the backup directory.
 * So each allocation gets a symbolic link to its open file under /proc, which shows the file and
 * its size. A killed process leaves only dangling links.
 */
#ifndef RVL_HOOKS_PROCESS_DISK_NAMES_H
#define RVL_HOOKS_PROCESS_DISK_NAMES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rvli_disk_name rvli_disk_name;

/*
 * Makes a name for the file in the directory. id: the number of the allocation on the device.
 * Returns NULL if the link cannot be made: nothing depends on it.
 */
rvli_disk_name *rvli_disk_name_add(const char *directory, int fd, int device,
                                   unsigned long long id);
/*
 * Removes the name; NULL is allowed. In a forked child, leaves the link: it belongs to the parent.
 */
void rvli_disk_name_remove(rvli_disk_name *name);

/* Removes all names, at exit. */
void rvli_disk_names_remove_all(void);

#endif
