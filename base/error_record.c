/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread, shared by all libraries of the process.
 *
 * It lives only in libreveille. Everything else built from base/ reaches it there, so a caller asks
 * one function about a failure in any of them.
 *
 * The thread-local variable uses the initial-exec model, because the dynamic models end the process
 * if a thread's first use finds no memory. It is only a pointer, because the loader reserves little
 * static TLS for libraries opened at run time, and PyTorch's libraries and four of ours share it. A
 * thread's record is made at its first failure. If there is no memory for it, the thread uses a
 * common one.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"

static _Thread_local rvl_error *own __attribute__((tls_model("initial-exec")));
static rvl_error common = {.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};
static rvl_error none = {.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* frees the record when a thread ends */
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

/* The library may be closed while threads live on. They must not call into it when they end. */
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
