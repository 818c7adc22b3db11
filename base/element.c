/* SPDX-License-Identifier: MIT */
/* Elements of arrays: copies only the bytes that both sides know. */
#include "base/element.h"

#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"

/* Returns "holder" for "rvl_holder": the prefix of its size argument's name. */
static const char *noun_of(const rvli_element *element)
{
    return strrchr(element->type, '_') + 1;
}

rvl_status rvli_element_check(const rvli_element *element, size_t size)
{
    if (size >= element->first_bytes && size <= RVLI_ELEMENT_BYTES_MAX &&
        size % element->align_bytes == 0)
        return RVL_OK;
    char message[192];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, noun_of(element));
    rvli_text_add(&text, "_size is ");
    rvli_text_add_u64(&text, size);
    rvli_text_add(&text, ", and no ");
    rvli_text_add(&text, element->type);
    rvli_text_add(&text, " has that size: set it to sizeof(");
    rvli_text_add(&text, element->type);
    rvli_text_add(&text, ")");
    return rvli_error(RVL_ERR_INVALID, message);
}

static size_t common_bytes(const rvli_element *element, size_t size)
{
    return size < element->known_bytes ? size : element->known_bytes;
}

rvl_status rvli_element_read(const rvli_element *element, void *known_out, const void *user,
                             size_t size)
{
    size_t common = common_bytes(element, size);
    memcpy(known_out, user, common);
    memset((char *)known_out + common, 0, element->known_bytes - common);
    if (rvli_all_zero((const unsigned char *)user + common, size - common))
        return RVL_OK;
    char message[256];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "an ");
    rvli_text_add(&text, element->type);
    rvli_text_add(&text, " uses fields that this version of the library lacks: it knows ");
    rvli_text_add_u64(&text, element->known_bytes);
    rvli_text_add(&text, " bytes, and those behind must be 0. Leave the fields out, or use a newer "
                         "library");
    return rvli_error(RVL_ERR_VERSION, message);
}

rvl_status rvli_element_read_at(const rvli_element *element, void *known_out, const void *array,
                                size_t size, size_t index)
{
    return rvli_element_read(element, known_out, (const char *)array + index * size, size);
}

void rvli_element_write(const rvli_element *element, void *user_out, size_t size, const void *known)
{
    size_t common = common_bytes(element, size);
    memcpy(user_out, known, common);
    memset((char *)user_out + common, 0, size - common);
}

rvl_status rvli_elements_check(const rvli_elements_out *out, const size_t *count_out)
{
    if (count_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "count_out is NULL: say where the number goes");
    if (out->capacity == 0)
        return RVL_OK;
    if (out->array == NULL)
        return rvli_error(RVL_ERR_INVALID, "there is no array to write to: give one, or a capacity "
                                           "of 0 to ask for the number alone");
    return rvli_element_check(out->element, out->size);
}

void rvli_elements_put(const rvli_elements_out *out, size_t index, const void *known)
{
    if (index < out->capacity)
        rvli_element_write(out->element, (char *)out->array + index * out->size, out->size, known);
}

rvl_status rvli_elements_fill(const rvli_elements_out *out, const void *known, size_t count,
                              size_t *count_out)
{
    rvl_status status = rvli_elements_check(out, count_out);
    if (status != RVL_OK)
        return status;
    for (size_t i = 0; i < count && i < out->capacity; i++)
        rvli_elements_put(out, i, (const char *)known + i * out->element->known_bytes);
    *count_out = count;
    return RVL_OK;
}
