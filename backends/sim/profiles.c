/* SPDX-License-Identifier: MIT */
/*
 * Profiles of GPUs: capacities with their sources, and the costs of calls and copies.
 *
 * The costs of the H200 and the H100 are those of profiles/, which `reveille calibrate` measured
 * (docs/calibrate.md); tests/backends/builtin_profiles.py reports differences. Other cards have the
 * H200's costs for calls and the rate of their own link. These are estimates, and marked as such.
 */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "reveille/sim.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GRANULARITY_BYTES (2 * MIB)

/* Femtoseconds per byte at a rate in tenths of GB/s. */
#define FS_AT(tenths_gb_per_s) (10000000u / (tenths_gb_per_s))

/*
 * From profiles/h200.json and profiles/h100-80g.json. The rates of the link are parameters, in
 * femtoseconds per byte, because other cards have their own.
 */
#define H200_COSTS(to_host, to_device)                                                             \
    {                                                                                              \
        .reserve = {18636, 0}, .release_range = {37352, 0}, .create = {9657, 10},                  \
        .release = {11907, 317}, .reclaim = {0, 193}, .map = {6928, 0}, .set_access = {27231, 48}, \
        .unmap = {23580, 10}, .fill = {10558, 220}, .host_alloc = {2000, 35033},                   \
        .host_free = {1000, 0}, .copy_to_host = {2077, to_host},                                   \
        .copy_to_device = {2974, to_device}, .digest = {8000, 179}, .disk_write = {0, 421029},     \
        .disk_read = {0, 468864},                                                                  \
    }
#define H100_COSTS(to_host, to_device)                                                             \
    {                                                                                              \
        .reserve = {26269, 0}, .release_range = {50574, 0}, .create = {15018, 15},                 \
        .release = {16874, 573}, .reclaim = {0, 399}, .map = {10871, 1},                           \
        .set_access = {38750, 56}, .unmap = {32110, 9}, .fill = {10383, 307},                      \
        .host_alloc = {2000, 39636}, .host_free = {1000, 0}, .copy_to_host = {2177, to_host},      \
        .copy_to_device = {3085, to_device}, .digest = {8000, 278}, .disk_write = {0, 468399},     \
        .disk_read = {0, 573836},                                                                  \
    }

#define H200_WAITS                                                                                 \
    {                                                                                              \
        .host_first = {5901841, 0}, .host_start = {1697867, 0}, .clear = {0, 2600},                \
        .idle_clearing = {0, 0}, .unmap_clearing = {0, 0}, .release_clearing = {0, 0},             \
    }
#define H100_WAITS                                                                                 \
    {                                                                                              \
        .host_first = {10983436, 0}, .host_start = {1755708, 0}, .clear = {0, 2644},               \
        .idle_clearing = {0, 0}, .unmap_clearing = {0, 0}, .release_clearing = {0, 0},             \
    }

#define COSTS_OF(card, to_host, to_device)                                                         \
    .cost = card##_COSTS(to_host, to_device), .waits = card##_WAITS

#define FLAGGED_PROFILE(id, text, origin, bytes, doubt, bits)                                      \
    .struct_size = sizeof(rvl_profile), .name = id, .description = text, .source = origin,         \
    .capacity_bytes = bytes, .granularity_bytes = GRANULARITY_BYTES, .flags = bits,                \
    .capacity_doubt_bytes = doubt

/* The capacity that programs get, and the costs of a measured card. */
#define MEASURED(id, text, origin, bytes, card, to_host, to_device)                                \
    {                                                                                              \
        FLAGGED_PROFILE(id, text, origin, bytes, 0, RVL_PROFILE_MEASURED),                         \
            COSTS_OF(card, to_host, to_device)                                                     \
    }

/* The capacity that programs get. */
#define PROFILE(id, text, origin, bytes, link, bits)                                               \
    {                                                                                              \
        FLAGGED_PROFILE(id, text, origin, bytes, 0, bits),                                         \
            COSTS_OF(H200, FS_AT(link), FS_AT(link))                                               \
    }

/*
 * The framebuffer that nvidia-smi shows. Programs get less: 0.43 % less on an H200 and 0.59 % on an
 * H100. Here 1 % is in doubt. GeForce cards keep more than that, so where programs have printed
 * what they get, that value is used.
 */
#define UPPER_BOUND(id, text, origin, bytes, link, bits)                                           \
    {                                                                                              \
        FLAGGED_PROFILE(id, text, origin, bytes, (bytes) / 100, bits),                             \
            COSTS_OF(H200, FS_AT(link), FS_AT(link))                                               \
    }

/*
 * Totals that PyTorch programs print in errors, in hundredths of a GiB: the largest, and the
 * smallest under other drivers and ECC settings. A printed total is rounded, so half a hundredth
 * more or less is in doubt, too.
 */
#define HUNDREDTHS(gib) ((uint64_t)(gib)*1024 * MIB / 100)
#define HALF (1024 * MIB / 200)
#define READ_BY_PROGRAMS(id, text, origin, most, least, link, bits)                                \
    {                                                                                              \
        FLAGGED_PROFILE(id, text, origin, HUNDREDTHS(most) + HALF,                                 \
                        HUNDREDTHS(most) - HUNDREDTHS(least) + 2 * HALF, bits),                    \
            COSTS_OF(H200, FS_AT(link), FS_AT(link))                                               \
    }

/*
 * A source is a public report (GitHub repository and number) with the card's own output, or a quote
 * that many public reports share. "cuda": the memory that the driver gives to programs. "smi": the
 * framebuffer that nvidia-smi shows, which is an upper bound.
 *
 * NVIDIA offers GPUDirect RDMA on its cards for data centres and workstations, not on GeForce.
 */
#define ESTIMATED "; costs estimated from the H200"

static const rvl_profile profiles[] = {
    MEASURED("h200", "NVIDIA H200, 141 GB HBM3e",
             "cuda: measured by reveille calibrate, CUDA 13.0, driver 580", UINT64_C(150109880320),
             H200, 18213, 18153),
    MEASURED("h100-80g", "NVIDIA H100 SXM, 80 GB HBM3",
             "cuda: measured by reveille calibrate, CUDA 13.0, driver 580", UINT64_C(85017493504),
             H100, 18027, 18273),
    PROFILE("h100-94g", "NVIDIA H100 NVL, 94 GB HBM3",
            "cuda: fastfetch-cli/fastfetch#1658" ESTIMATED, UINT64_C(99961274368), 553, 0),
    UPPER_BOUND("a100-80g", "NVIDIA A100 SXM, 80 GB HBM2e",
                "smi: modal-labs/modal-client#2797" ESTIMATED, 81920 * MIB, 250, 0),
    PROFILE("a100-40g", "NVIDIA A100 SXM, 40 GB HBM2",
            "cuda: bottlerocket-os/bottlerocket#3873" ESTIMATED, UINT64_C(42298834944), 250, 0),
    UPPER_BOUND("b200", "NVIDIA B200, 180 GB HBM3e usable",
                "smi: NVIDIA/TensorRT-LLM#10278" ESTIMATED, 183359 * MIB, 553, 0),
    UPPER_BOUND("l40s", "NVIDIA L40S, 48 GB GDDR6", "smi: modal-labs/modal-client#2797" ESTIMATED,
                46068 * MIB, 250, 0),
    UPPER_BOUND("l4", "NVIDIA L4, 24 GB GDDR6", "smi: modal-labs/modal-client#2797" ESTIMATED,
                23034 * MIB, 250, 0),
    UPPER_BOUND("a10", "NVIDIA A10, 24 GB GDDR6", "smi: modal-labs/modal-client#2797" ESTIMATED,
                23028 * MIB, 250, 0),
    UPPER_BOUND("rtx5090", "NVIDIA GeForce RTX 5090, 32 GB GDDR7",
                "smi: noonghunna/club-3090#617" ESTIMATED, 32607 * MIB, 553, RVL_PROFILE_NO_RDMA),
    READ_BY_PROGRAMS("rtx4090", "NVIDIA GeForce RTX 4090, 24 GB GDDR6X",
                     "cuda: zai-org/CogVideo#36, 3DTopia/Phidias-Diffusion#8" ESTIMATED, 2368, 2364,
                     250, RVL_PROFILE_NO_RDMA),
    UPPER_BOUND("h20", "NVIDIA H20, 96 GB HBM3", "smi: listings of \"97871MiB\"" ESTIMATED,
                97871 * MIB, 553, 0),
    READ_BY_PROGRAMS("gh200", "NVIDIA GH200, 96 GB HBM3",
                     "smi: listings of \"97871MiB\"; cuda: 94.50 GiB in an error" ESTIMATED, 9557,
                     9450, 553, 0),
    READ_BY_PROGRAMS("b300", "NVIDIA B300 SXM6, 288 GB HBM3e",
                     "cuda: errors with \"total capacity of 267.69 GiB\"" ESTIMATED, 26769, 26769,
                     553, 0),
    READ_BY_PROGRAMS("gb300", "NVIDIA GB300, 288 GB HBM3e",
                     "cuda: errors with \"total capacity of 276.50 GiB\"" ESTIMATED, 27650, 27650,
                     553, 0),
    UPPER_BOUND("a6000", "NVIDIA RTX A6000, 48 GB GDDR6", "smi: listings of \"49140MiB\"" ESTIMATED,
                49140 * MIB, 250, 0),
    READ_BY_PROGRAMS("rtx3090", "NVIDIA GeForce RTX 3090, 24 GB GDDR6X",
                     "cuda: vllm-project/vllm#2140, GaoLii/DSP#10" ESTIMATED, 2370, 2369, 250,
                     RVL_PROFILE_NO_RDMA),
    READ_BY_PROGRAMS("t4", "NVIDIA T4, 16 GB GDDR6",
                     "cuda: Morizeyao/GPT2-Chinese#215; 14.56 GiB by newer drivers" ESTIMATED, 1476,
                     1456, 125, 0),
    READ_BY_PROGRAMS("v100", "NVIDIA V100 SXM2, 32 GB HBM2",
                     "cuda: open-mmlab/mmdetection3d#697, liucongg/ChatGLM-Finetuning#73" ESTIMATED,
                     3175, 3174, 125, 0),
};

/* A smaller size probably lacks its unit, or is a number of devices. */
#define CAPACITY_BYTES_MIN (UINT64_C(1) << 20)

#define PROFILES (sizeof profiles / sizeof *profiles)

size_t rvl_profile_count(void)
{
    return PROFILES;
}

rvl_status rvl_profile_get(size_t index, rvl_profile *profile_out)
{
    if (index >= PROFILES)
        return rvli_error(RVL_ERR_NOT_FOUND, "no profile of this index");
    return rvli_result_write(profile_out, &profiles[index], sizeof profiles[index]);
}

/* The message has the text, since it may be one of several. */
static rvl_status refuse_text(rvl_status status, const char *text, const char *why)
{
    char message[sizeof((rvl_error *)NULL)->message];
    rvli_text words = rvli_text_begin(message, sizeof message);
    rvli_text_add(&words, why);
    rvli_text_add(&words, ": \"");
    rvli_text_add(&words, text);
    rvli_text_add(&words, "\"");
    return rvli_error(status, message);
}

/* The bytes of a unit, ignoring case: GiB and G are 2^30, GB is 10^9. 0: not a unit. */
static uint64_t unit_bytes(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"K", KIB},
                 {"KiB", KIB},
                 {"KB", 1000},
                 {"M", MIB},
                 {"MiB", MIB},
                 {"MB", 1000000},
                 {"G", KIB * MIB},
                 {"GiB", KIB * MIB},
                 {"GB", 1000000000},
                 {"T", MIB * MIB},
                 {"TiB", MIB * MIB},
                 {"TB", UINT64_C(1000000000000)}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(units[i].name, unit) == 0)
            return units[i].bytes;
    return 0;
}

/* Whole bytes of a decimal fraction (the digits after the point) of a unit. */
static uint64_t fraction_bytes(const char *digits, size_t count, uint64_t unit)
{
    uint64_t numerator = 0, denominator = 1;
    for (size_t i = 0; i < count && i < 6; i++) { /* 10^6 * 2^40 still fits */
        numerator = numerator * 10 + (uint64_t)(digits[i] - '0');
        denominator *= 10;
    }
    return numerator * unit / denominator;
}

/* Whether the text is a size. */
static bool parse_size(const char *text, uint64_t *bytes_out)
{
    uint64_t whole = 0;
    size_t fraction = 0;
    if (!isdigit((unsigned char)text[0]))
        return false;
    for (; isdigit((unsigned char)*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (whole > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        whole = whole * 10 + digit;
    }
    const char *digits = text + 1;
    if (*text == '.') {
        while (isdigit((unsigned char)digits[fraction]))
            fraction++;
        text = digits + fraction;
    }
    uint64_t unit = unit_bytes(text);
    if (unit == 0 || text[-1] == '.' || whole > (uint64_t)INT64_MAX / unit)
        return false;
    uint64_t bytes = whole * unit + (fraction ? fraction_bytes(digits, fraction, unit) : 0);
    *bytes_out = bytes;
    return bytes > 0 && bytes <= (uint64_t)INT64_MAX;
}

rvl_status rvl_profile_find(const char *text, rvl_profile *profile_out)
{
    uint64_t bytes = 0;
    if (text == NULL)
        return rvli_error(RVL_ERR_INVALID, "the name of the profile is NULL");
    for (size_t i = 0; i < PROFILES; i++)
        if (strcasecmp(profiles[i].name, text) == 0)
            return rvl_profile_get(i, profile_out);
    if (!parse_size(text, &bytes))
        return refuse_text(RVL_ERR_NOT_FOUND, text,
                           "no device profile of this name (`reveille devices` lists them), "
                           "and not a size such as 80GiB");
    if (bytes < CAPACITY_BYTES_MIN)
        return refuse_text(RVL_ERR_INVALID, text,
                           "a device of less than 1 MiB, which no GPU has: write the unit, such "
                           "as 80GiB");
    rvl_profile profile = profiles[0];
    profile.name = NULL;
    profile.description = "given by its size";
    profile.source = "given; costs of the H200";
    profile.capacity_bytes = bytes;
    profile.flags = 0;
    return rvli_result_write(profile_out, &profile, sizeof profile);
}

/* ---- Sizes ---- */

rvl_status rvl_size_parse(const char *text, uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    if (text == NULL || bytes_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the text of a size, or the place for it, is NULL");
    if (!parse_size(text, &bytes))
        return refuse_text(RVL_ERR_INVALID, text,
                           "not a size: digits, then B, KiB, MiB, GiB or TiB (or KB, MB, GB, TB: "
                           "powers of ten); above 0");
    *bytes_out = bytes;
    return RVL_OK;
}
