/* SPDX-License-Identifier: MIT */
/* The C interface of torch_memory_saver, as its Python package binds it. */
#ifndef RVL_HOOKS_SHIM_ABI_H
#define RVL_HOOKS_SHIM_ABI_H

#include <stdbool.h>
#include <stdint.h>

#include "reveille/status.h"

RVL_API void tms_set_current_tag(const char *tag);
RVL_API const char *tms_get_current_tag(void);
RVL_API void tms_set_interesting_region(bool on);
RVL_API bool tms_get_interesting_region(void);
RVL_API void tms_set_enable_cpu_backup(bool on);
RVL_API bool tms_get_enable_cpu_backup(void);
RVL_API void tms_set_cpu_backup_backend(const char *kind);
RVL_API const char *tms_get_cpu_backup_backend(void);
RVL_API void tms_set_enable_disk_backup(bool on);
RVL_API bool tms_get_enable_disk_backup(void);
RVL_API void tms_set_disk_backup_dir(const char *directory);
RVL_API int tms_pause(const char *tag);
RVL_API int tms_resume(const char *tag);
RVL_API void set_memory_margin_bytes(uint64_t bytes);
RVL_API void tms_set_retain_cpu_backup(bool on);
RVL_API bool tms_get_retain_cpu_backup(void);
RVL_API uint8_t *tms_get_cpu_backup_pointer(const uint8_t *gpu, uint64_t bytes);

/* Forwarded to the CUDA runtime: the package looks them up in the hook library. */
RVL_API int cudaGetLastError(void);
RVL_API int cudaHostGetFlags(unsigned *flags, void *pointer);

#endif
