/* SPDX-License-Identifier: MIT */
/* A user's program: built against the installed tree, by pkg-config and by CMake. */
#include <stdio.h>
#include <string.h>

#include <reveille/replay.h>
#include <reveille/reveille.h>

int main(int argc, char **argv)
{
    const char *paths[] = {argc > 1 ? argv[1] : ""};
    rvl_replay *replay = NULL;
    rvl_replay_device device = {.struct_size = sizeof device};
    if (strcmp(rvl_version(), RVL_VERSION_STRING) != 0)
        return 1;
    if (rvl_replay_run(paths, 1, NULL, &replay) != RVL_OK ||
        rvl_replay_get_device(replay, 0, &device) != RVL_OK)
        return 1;
    printf("%u stages, fits: %d\n", device.stage_count, device.fits);
    rvl_replay_close(replay);
    return 0;
}
