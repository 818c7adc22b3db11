/* SPDX-License-Identifier: MIT */
/*
 * Integers are computed in 64 bits, floats of up to 32 bits in a double. A sum or product of two
 * such floats, rounded to double and then to the type, equals the result of rounding once.
 */
#include "simcuda/nccl/reduce.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum kind { SIGNED, UNSIGNED, FLOAT, SMALL } kind;

/* A float of fewer than 32 bits: a sign, an exponent, and a mantissa. */
typedef struct small_float {
    int exponent_bits, mantissa_bits, bias;
    unsigned largest;  /* the largest finite number */
    unsigned infinity; /* the result of overflow; 0: the largest finite number, as in fp8 */
    unsigned nan;
} small_float;

typedef struct type_facts {
    kind kind;
    size_t bytes;
    small_float small;
} type_facts;

static const type_facts facts[RVLI_NCCL_TYPES] = {
    [RVLI_NCCL_INT8] = {SIGNED, 1, {0}},
    [RVLI_NCCL_UINT8] = {UNSIGNED, 1, {0}},
    [RVLI_NCCL_INT32] = {SIGNED, 4, {0}},
    [RVLI_NCCL_UINT32] = {UNSIGNED, 4, {0}},
    [RVLI_NCCL_INT64] = {SIGNED, 8, {0}},
    [RVLI_NCCL_UINT64] = {UNSIGNED, 8, {0}},
    [RVLI_NCCL_FLOAT16] = {SMALL, 2, {5, 10, 15, 0x7bff, 0x7c00, 0x7fff}},
    [RVLI_NCCL_FLOAT32] = {FLOAT, 4, {0}},
    [RVLI_NCCL_FLOAT64] = {FLOAT, 8, {0}},
    [RVLI_NCCL_BFLOAT16] = {SMALL, 2, {8, 7, 127, 0x7f7f, 0x7f80, 0x7fff}},
    [RVLI_NCCL_FLOAT8_E4M3] = {SMALL, 1, {4, 3, 7, 0x7e, 0, 0x7f}},
    [RVLI_NCCL_FLOAT8_E5M2] = {SMALL, 1, {5, 2, 15, 0x7b, 0, 0x7f}},
};

/* An element, by its kind. */
typedef union number {
    int64_t i;
    uint64_t u;
    double f;
} number;

size_t rvli_type_bytes(rvli_nccl_type type)
{
    return facts[type].bytes;
}

static bool is_float(const type_facts *type)
{
    return type->kind == FLOAT || type->kind == SMALL;
}

/* ---- Small floats ---- */

static double decode(const small_float *type, unsigned code)
{
    int bits = type->exponent_bits + type->mantissa_bits;
    unsigned magnitude = code & ((1u << bits) - 1);
    double sign = code >> bits != 0 ? -1 : 1;
    if (magnitude > type->largest) /* fp8 E5M2 also has an infinity, but no number rounds to it */
        return magnitude == type->infinity || (type->mantissa_bits == 2 && magnitude == 0x7c)
                   ? sign * INFINITY
                   : NAN;
    int exponent = (int)(magnitude >> type->mantissa_bits);
    unsigned mantissa = magnitude & ((1u << type->mantissa_bits) - 1);
    if (exponent > 0)
        mantissa += 1u << type->mantissa_bits;
    else
        exponent = 1;
    return sign * ldexp(mantissa, exponent - type->bias - type->mantissa_bits);
}

/* Rounds to nearest, ties to even. */
static unsigned encode(const small_float *type, double value)
{
    int bits = type->exponent_bits + type->mantissa_bits, exponent = 0;
    unsigned sign = signbit(value) ? 1u << bits : 0;
    unsigned beyond = type->infinity != 0 ? type->infinity : type->largest;
    if (isnan(value))
        return sign | type->nan;
    if (isinf(value))
        return sign | beyond;
    if (value == 0)
        return sign;
    (void)frexp(value, &exponent);
    exponent -= 1; /* for 1.xxx */
    if (exponent < 1 - type->bias)
        exponent = 1 - type->bias;
    if (exponent > type->bias + 1)
        return sign | beyond;
    unsigned steps =
        (unsigned)nearbyint(ldexp(fabs(value), type->mantissa_bits - exponent)); /* ulps */
    /* A mantissa rounded up to the next power of two carries into the exponent. */
    unsigned code = ((unsigned)(exponent + type->bias - 1) << type->mantissa_bits) + steps;
    return sign | (code > type->largest ? beyond : code);
}

/* ---- Elements ---- */

static number load(const type_facts *type, const void *from)
{
    uint64_t raw = 0;
    float single;
    number value = {0};
    memcpy(&raw, from, type->bytes); /* little-endian */
    if (type->kind == SMALL)
        value.f = decode(&type->small, (unsigned)raw);
    else if (type->kind == FLOAT && type->bytes == sizeof single) {
        memcpy(&single, from, sizeof single);
        value.f = single;
    } else if (type->kind == SIGNED && type->bytes < sizeof raw)
        value.i = (int64_t)(raw << (64 - 8 * type->bytes)) >> (64 - 8 * type->bytes);
    else
        value.u = raw; /* also for a double */
    return value;
}

static void store(const type_facts *type, void *to, number value)
{
    if (type->kind == SMALL)
        value.u = encode(&type->small, value.f);
    if (type->kind == FLOAT && type->bytes == sizeof(float)) {
        float single = (float)value.f;
        memcpy(to, &single, sizeof single);
        return;
    }
    memcpy(to, &value, type->bytes);
}

/* If one of two numbers is NaN, the result is the other, as in fmax(), which NCCL uses. */
static number most(const type_facts *type, number a, number b, bool least)
{
    bool first = false;
    if (is_float(type))
        return (number){.f = least ? fmin(a.f, b.f) : fmax(a.f, b.f)};
    if (type->kind == SIGNED)
        first = least ? a.i < b.i : a.i > b.i;
    else
        first = least ? a.u < b.u : a.u > b.u;
    return first ? a : b;
}

static number multiply(const type_facts *type, number a, number b)
{
    return is_float(type) ? (number){.f = a.f * b.f} : (number){.u = a.u * b.u};
}

static number combine(const type_facts *type, rvli_reduction how, number a, number b)
{
    switch (how) {
    case RVLI_REDUCE_PRODUCT:
        return multiply(type, a, b);
    case RVLI_REDUCE_MAX:
        return most(type, a, b, false);
    case RVLI_REDUCE_MIN:
        return most(type, a, b, true);
    case RVLI_REDUCE_SUM:
    case RVLI_REDUCE_AVERAGE:
        break;
    }
    return is_float(type) ? (number){.f = a.f + b.f} : (number){.u = a.u + b.u};
}

/* ---- Arrays ---- */

void rvli_reduce_into(rvli_nccl_type type, rvli_reduction how, void *into, const void *with,
                      size_t count)
{
    const type_facts *of = &facts[type];
    for (size_t at = 0; at < count * of->bytes; at += of->bytes) {
        number a = load(of, (char *)into + at), b = load(of, (const char *)with + at);
        store(of, (char *)into + at, combine(of, how, a, b));
    }
}

void rvli_reduce_scale(rvli_nccl_type type, void *values, size_t count, const void *scalar)
{
    const type_facts *of = &facts[type];
    number by = load(of, scalar);
    for (size_t at = 0; at < count * of->bytes; at += of->bytes)
        store(of, (char *)values + at, multiply(of, load(of, (char *)values + at), by));
}

void rvli_reduce_before_average(rvli_nccl_type type, void *values, size_t count, int ranks)
{
    char scalar[sizeof(double)];
    if (!is_float(&facts[type]))
        return;
    store(&facts[type], scalar, (number){.f = 1.0 / ranks});
    rvli_reduce_scale(type, values, count, scalar);
}

void rvli_reduce_after_average(rvli_nccl_type type, void *values, size_t count, int ranks)
{
    const type_facts *of = &facts[type];
    for (size_t at = 0; !is_float(of) && at < count * of->bytes; at += of->bytes) {
        number sum = load(of, (char *)values + at);
        if (of->kind == SIGNED)
            sum.i /= ranks;
        else
            sum.u /= (unsigned)ranks;
        store(of, (char *)values + at, sum);
    }
}
