/* SPDX-License-Identifier: MIT */
/* Holes in files that PyTorch maps, such as those that `reveille weights` makes. */
#ifndef RVL_SIMCUDA_HOST_FILES_H
#define RVL_SIMCUDA_HOST_FILES_H

/* From now on, large holes of files that PyTorch maps privately take no memory. If PyTorch's
 * internals are not as expected, nothing changes, which is slower. */
void rvli_host_files_follow(void);

#endif
