/* SPDX-License-Identifier: MIT */
/* Holes of the files that PyTorch maps, as `reveille weights` makes them. */
#ifndef RVL_SIMCUDA_HOST_FILES_H
#define RVL_SIMCUDA_HOST_FILES_H

/* From now on large holes of files that PyTorch maps privately take no memory. If PyTorch is not as
 * it is known, they stay as they are, which is slower. */
void rvli_host_files_follow(void);

#endif
