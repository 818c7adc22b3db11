/* SPDX-License-Identifier: MIT */
/*
 * Names for disk backups.
 *
 * The files of disk backups have no name, so that their space is free again whatever becomes of the
 * process. Users of torch_memory_saver look for a file of each allocation in the backup directory
 * while it is paused. So each gets a symbolic link to the open file under /proc: it shows the file
 * and its size, and all that a killed process leaves behind is a link to nothing.
 */
#ifndef RVL_HOOKS_PROCESS_DISK_NAMES_H
#define RVL_HOOKS_PROCESS_DISK_NAMES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rvli_disk_name rvli_disk_name;

/*
 * Makes a name for the file in a directory. id: the number of the allocation on the device. NULL if
 * it cannot be made: nothing depends on it.
 */
rvli_disk_name *rvli_disk_name_add(const char *directory, int fd, int device,
                                   unsigned long long id);
/* Takes it away; NULL is fine. Not in a forked child: it belongs to the parent. */
void rvli_disk_name_remove(rvli_disk_name *name);

/* Takes all away, at exit. */
void rvli_disk_names_remove_all(void);

#endif
