/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread: one for all libraries of the process.
 *
 * It is in libreveille alone. Whatever else is made of base/ reaches it there, so that a caller
 * asks one function for what any of them failed at.
 *
 * Of the initial-exec model, since the dynamic models end the process where a thread's first use
 * finds no memory; and a pointer alone, since the loader keeps little room of that kind for the
 * libraries that are opened at run time, which PyTorch's and four of ours share. A thread's record
 * is made with its first failure. If there is no memory for it, the thread uses the common one.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"

static _Thread_local rvl_error *own __attribute__((tls_model("initial-exec")));
static rvl_error common = {.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};
static rvl_error none = {.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* frees the record of a thread that ends */
static bool key_made;

static void forget(void *gone)
{
    own = NULL;
    free(gone);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, forget) == 0;
}

/* The library may be closed while threads live on, which must not call into it then. */
__attribute__((destructor)) static void delete_key(void)
{
    if (key_made)
        pthread_key_delete(key);
    key_made = false;
}

rvl_error *rvl_private_error_record(bool make)
{
    if (own != NULL)
        return own;
    if (!make)
        return &none;
    pthread_once(&once, make_key);
    own = calloc(1, sizeof *own);
    if (own != NULL && (!key_made || pthread_setspecific(key, own) != 0)) {
        free(own);
        own = NULL;
    }
    if (own == NULL)
        own = &common;
    return own;
}
