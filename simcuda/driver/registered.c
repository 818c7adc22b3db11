/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/registered.h"

#include <stdlib.h>

#include "base/intmap.h"
#include "simcuda/driver/loaded.h"
#include "simcuda/driver/share.h"

typedef struct registered_fat fat;

typedef struct kernel {
    struct kernel *next; /* in the same fat binary */
    fat *of;
    uint64_t host;
    const char *name; /* the program's string, valid as long as the fat binary */
    rvli_loaded at;
} kernel;

struct registered_fat {
    const void *wrapper;
    kernel *kernels;
    rvli_image image;
    bool read;
    rvli_loaded at;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_intmap kernels;   /* by launch address */
static rvli_intmap libraries; /* rvli_loaded, by the number of a library's kernel */
static rvli_intmap described; /* argument bytes, by launch address */

void rvli_registered_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
}

void *rvli_registered_begin(const void *wrapper)
{
    fat *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->wrapper = wrapper;
    return made;
}

/* Without host memory, nothing is known of the kernel. It can still be launched. */
void rvli_registered_kernel(void *handle, const void *host, const char *name)
{
    fat *of = handle;
    kernel *made = of != NULL && host != NULL ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return;
    *made = (kernel){.next = of->kernels, .of = of, .host = (uintptr_t)host, .name = name};
    pthread_mutex_lock(&mutex);
    if (rvli_intmap_insert(&kernels, made->host, (uintptr_t)made) == RVL_OK)
        of->kernels = made;
    else
        free(made);
    pthread_mutex_unlock(&mutex);
}

void rvli_registered_end(void *handle)
{
    fat *of = handle;
    if (of == NULL)
        return;
    pthread_mutex_lock(&mutex);
    for (kernel *each = of->kernels, *next; each != NULL; each = next) {
        next = each->next;
        (void)rvli_intmap_remove(&kernels, each->host, NULL);
        free(each);
    }
    pthread_mutex_unlock(&mutex);
    rvli_image_free(&of->image);
    free(of);
}

/* Reads the image once. A fat binary that is unreadable, or has no code for the card, has no
 * kernels. */
static void need_image(fat *of, int device)
{
    const rvli_card *card = rvli_device_card(device);
    if (!of->read)
        (void)rvli_image_read(of->wrapper, SIZE_MAX, card->major, card->minor, &of->image);
    of->read = true;
}

CUresult rvli_registered_load(int device, const void *host)
{
    uint64_t found;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (rvli_intmap_get(&kernels, (uintptr_t)host, &found)) {
        kernel *of = (kernel *)(uintptr_t)found;
        need_image(of->of, device);
        result = rvli_loaded_kernel(device, &of->of->image, &of->of->at,
                                    rvli_image_entry(&of->of->image, of->name), &of->at);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

void rvli_registered_describe(const void *host, uint64_t argument_bytes)
{
    uint64_t found;
    pthread_mutex_lock(&mutex);
    if (!rvli_intmap_get(&described, (uintptr_t)host, &found))
        (void)rvli_intmap_insert(&described, (uintptr_t)host, argument_bytes);
    pthread_mutex_unlock(&mutex);
}

static uint64_t arguments_of(kernel *of, int device)
{
    need_image(of->of, device);
    const rvli_kernel_entry *entry = rvli_image_entry(&of->of->image, of->name);
    return entry != NULL ? entry->argument_bytes : 0;
}

uint64_t rvli_registered_arguments(int device, const void *host)
{
    uint64_t found, bytes = 0;
    pthread_mutex_lock(&mutex);
    if (rvli_intmap_get(&kernels, (uintptr_t)host, &found))
        bytes = arguments_of((kernel *)(uintptr_t)found, device);
    else if (rvli_intmap_get(&described, (uintptr_t)host, &found))
        bytes = found;
    pthread_mutex_unlock(&mutex);
    return bytes;
}

/* Kernels of libraries are never freed, like their code. */
static rvli_loaded *need_library(uint64_t number)
{
    uint64_t found;
    if (rvli_intmap_get(&libraries, number, &found))
        return (rvli_loaded *)(uintptr_t)found;
    rvli_loaded *made = calloc(1, sizeof *made);
    if (made != NULL && rvli_intmap_insert(&libraries, number, (uintptr_t)made) == RVL_OK)
        return made;
    free(made);
    return NULL;
}

CUresult rvli_registered_library(int device, uint64_t number, uint64_t code_bytes)
{
    const rvli_image none = {0};
    const rvli_kernel_entry entry = {.code_bytes = code_bytes};
    rvli_loaded image_at = {0};
    pthread_mutex_lock(&mutex);
    rvli_loaded *at = need_library(number);
    CUresult result = at != NULL ? rvli_loaded_kernel(device, &none, &image_at, &entry, at)
                                 : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_registered_assert(int device)
{
    return rvli_share_image(device, 0, true);
}
