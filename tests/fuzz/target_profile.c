/* SPDX-License-Identifier: MIT */
/*
 * The reader of device profiles. One that it accepts can be simulated; one that it refuses is
 * refused with a message and the file's name.
 */
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "reveille/context.h"
#include "reveille/replay.h"

#define PATH "fuzz.json"
#define WRAP __attribute__((visibility("default")))

static const uint8_t *now_data;
static size_t now_size;

FILE *__real_fopen(const char *path, const char *mode);
WRAP FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    static uint8_t nothing[1];
    if (strcmp(path, PATH) != 0)
        return __real_fopen(path, mode);
    return fmemopen(now_size > 0 ? (void *)(uintptr_t)now_data : nothing, now_size, "rb");
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    rvl_context *context = NULL;
    now_data = data;
    now_size = size;
    rvl_status status = rvl_profile_load(PATH, &profile);
    if (status != RVL_OK) {
        rvl_error error = {.struct_size = sizeof error};
        require(status == RVL_ERR_INVALID || status == RVL_ERR_VERSION || status == RVL_ERR_IO);
        require(rvl_last_error(&error) == RVL_OK);
        require(error.message[0] != '\0' && strcmp(error.file, PATH) == 0);
        require(profile.name == NULL);
        return false;
    }
    require(profile.name[0] != '\0' && profile.description[0] != '\0');
    require(profile.capacity_doubt_bytes <= profile.capacity_bytes);
    const rvl_profile *devices[] = {&profile};
    const rvl_sim_options sim = {.struct_size = sizeof sim,
                                 .memory = RVL_SIM_ACCOUNTED,
                                 .devices = devices,
                                 .device_count = 1};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &sim};
    require(rvl_context_open("sim", &options, &context) == RVL_OK);
    require(rvl_context_close(context, NULL) == RVL_OK);
    return true;
}
