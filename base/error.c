/* SPDX-License-Identifier: MIT */
/*
 * The error record of the calling thread.
 *
 * Of the initial-exec model, since the dynamic models end the process where a thread's first use
 * finds no memory; and a pointer alone, since the loader keeps little room of that kind for the
 * libraries that are opened at run time, which PyTorch's and four of ours share. A thread's record
 * is made with its first failure. If there is no memory for it, the thread uses the common one.
 */
#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Built for a C library that may not have it. A weak name finds it where a newer one runs. */
#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 32)
extern const char *strerrorname_np(int) __attribute__((weak));
#define NAMES_ERRNO (strerrorname_np != NULL)
#else
#define NAMES_ERRNO true
#endif

static _Thread_local rvl_error *own __attribute__((tls_model("initial-exec")));
static rvl_error common = {.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};
static const rvl_error none = {.struct_size = sizeof(rvl_error), .device = RVL_NO_DEVICE};

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

static rvl_error *record(void)
{
    if (own != NULL)
        return own;
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

rvl_status rvli_error(rvl_status status, const char *message)
{
    *record() = (rvl_error){
        .struct_size = sizeof(rvl_error),
        .status = status,
        .device = RVL_NO_DEVICE,
    };
    rvli_error_message(message);
    return status;
}

void rvli_error_native(int code, const char *name)
{
    rvl_error *to = record();
    to->native_code = code;
    rvli_text_copy(to->native_name, sizeof to->native_name, name);
}

void rvli_error_errno(int number)
{
    char plain[24];
    const char *name = NAMES_ERRNO ? strerrorname_np(number) : NULL;
    if (name == NULL) {
        rvli_text text = rvli_text_begin(plain, sizeof plain);
        rvli_text_add(&text, "errno ");
        rvli_text_add_u64(&text, (uint64_t)number);
        name = plain;
    }
    rvli_error_native(number, name);
}

void rvli_error_op(const char *op)
{
    rvl_error *to = record();
    rvli_text_copy(to->op, sizeof to->op, op);
}

void rvli_error_bytes(int device, uint64_t requested_bytes, uint64_t free_bytes)
{
    rvl_error *to = record();
    to->device = device;
    to->requested_bytes = requested_bytes;
    to->free_bytes = free_bytes;
}

void rvli_error_tag(const char *tag)
{
    rvl_error *to = record();
    rvli_text_copy(to->tag, sizeof to->tag, tag);
}

void rvli_error_message(const char *message)
{
    rvl_error *to = record();
    rvli_text_copy(to->message, sizeof to->message, message);
}

const rvl_error *rvli_error_get(void)
{
    return own != NULL ? own : &none;
}

void rvli_error_set(const rvl_error *saved)
{
    *record() = *saved;
}
