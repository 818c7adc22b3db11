/* SPDX-License-Identifier: MIT */
/* Reads values of a config. Refuses a missing, mistyped or impossible value, and names its key. */
#include "predict/llm/config_values.h"

const json_t *rvli_read_value(const rvli_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->config, key);
    return json_is_null(value) ? NULL : value;
}

void rvli_read_refuse(rvli_reader *r, const char *key, const char *why)
{
    if (r->status == RVL_OK)
        r->status = rvli_model_fail(RVL_ERR_INVALID, key, "%s", why);
}

/* Some families list a size once per layer. Returns the size if all are equal; else the list, which
 * is then refused because it is not a number. */
static const json_t *one_of_equals(const json_t *value)
{
    const json_t *first = json_array_get(value, 0);
    for (size_t i = 1; i < json_array_size(value); i++) {
        if (!json_equal(json_array_get(value, i), first))
            return value;
    }
    return first != NULL ? first : value;
}

uint64_t rvli_read_number(rvli_reader *r, const char *key, uint64_t fallback, uint64_t max)
{
    const json_t *value = rvli_read_value(r, key);
    if (value == NULL && fallback == 0)
        rvli_read_refuse(r, key,
                         "missing: take the config.json that lies beside the model's weights");
    if (value == NULL || r->status != RVL_OK)
        return fallback > 0 ? fallback : 1;
    value = one_of_equals(value);
    json_int_t n = json_integer_value(value);
    if (json_is_integer(value) && n >= 1 && (uint64_t)n <= max)
        return (uint64_t)n;
    r->status = rvli_model_fail(
        RVL_ERR_INVALID, key,
        json_is_array(value) ? "not known: layers of several sizes; expected one from 1 to %llu"
                             : "impossible: expected a whole number from 1 to %llu",
        (unsigned long long)max);
    return 1;
}

uint64_t rvli_read_dimension(rvli_reader *r, const char *key, uint64_t fallback)
{
    return rvli_read_number(r, key, fallback, RVLI_MODEL_DIM_MAX);
}

uint64_t rvli_read_number_or_zero(rvli_reader *r, const char *key, uint64_t max)
{
    const json_t *value = json_object_get(r->config, key);
    if (json_is_null(value) || (json_is_integer(value) && json_integer_value(value) == 0))
        return 0;
    return rvli_read_number(r, key, 0, max);
}

bool rvli_read_flag(rvli_reader *r, const char *key, bool fallback)
{
    const json_t *value = rvli_read_value(r, key);
    if (value == NULL)
        return fallback;
    if (!json_is_boolean(value))
        rvli_read_refuse(r, key, "impossible: expected true or false");
    return json_is_true(value);
}

uint64_t rvli_read_product(rvli_reader *r, const char *key, uint64_t count, uint64_t size)
{
    if (count * size > RVLI_MODEL_DIM_MAX)
        rvli_read_refuse(r, key, "impossible: all together are wider than 16777216");
    return count * size;
}
