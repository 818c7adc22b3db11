/* SPDX-License-Identifier: MIT */
/* Loads the driver into a separate namespace, as a plugin host does, and counts its devices. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(void)
{
    void *driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    int count = -1;
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*begin)(unsigned) = (int (*)(unsigned))(uintptr_t)dlsym(driver, "cuInit");
    int (*devices)(int *) = (int (*)(int *))(uintptr_t)dlsym(driver, "cuDeviceGetCount");
    if (begin == NULL || devices == NULL || begin(0) != 0 || devices(&count) != 0)
        return 2;
    printf("%d devices\n", count);
    return 0;
}
