/* SPDX-License-Identifier: MIT */
/*
 * Versioned structs. The size is the version: only the bytes that both sides know are copied. The
 * rest is set to zero on output, and must be zero on input.
 */
#include "base/options.h"

#include <string.h>

#include "base/error.h"

/* struct_size is the first field of every versioned struct. */
static size_t struct_size_of(const void *versioned)
{
    size_t size;
    memcpy(&size, versioned, sizeof(size));
    return size;
}

bool rvli_all_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

rvl_status rvli_options_read(void *options, size_t known_size, const void *user)
{
    size_t user_size = known_size;
    if (user) {
        user_size = struct_size_of(user);
        if (user_size < sizeof(size_t))
            return rvli_error(RVL_ERR_INVALID, "struct_size of the options is not set");
        if (user_size > known_size &&
            !rvli_all_zero((const unsigned char *)user + known_size, user_size - known_size))
            return rvli_error(RVL_ERR_VERSION,
                              "the options use fields that this version of the library lacks");
    }
    size_t common_size = user_size < known_size ? user_size : known_size;
    if (user)
        memcpy(options, user, common_size);
    else
        common_size = 0;
    memset((char *)options + common_size, 0, known_size - common_size);
    memcpy(options, &known_size, sizeof(known_size));
    return RVL_OK;
}

rvl_status rvli_flags_check(uint64_t flags, uint64_t known, uint32_t reserved)
{
    if ((flags & ~known) != 0 || reserved != 0)
        return rvli_error(RVL_ERR_VERSION, "the options use flags that this version of the library "
                                           "lacks, or a reserved field is not 0");
    return RVL_OK;
}

rvl_status rvli_result_write(void *user_out, const void *result, size_t known_size)
{
    if (!user_out)
        return rvli_error(RVL_ERR_INVALID, "no struct to write the result to");
    size_t user_size = struct_size_of(user_out);
    if (user_size < sizeof(size_t))
        return rvli_error(RVL_ERR_INVALID, "struct_size of the result is not set");
    size_t common_size = user_size < known_size ? user_size : known_size;
    memcpy(user_out, result, common_size);
    memset((char *)user_out + common_size, 0, user_size - common_size);
    memcpy(user_out, &user_size, sizeof(user_size));
    return RVL_OK;
}
