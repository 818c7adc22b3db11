/* SPDX-License-Identifier: MIT */
/*
 * Fits lines to medians.
 *
 * In the cost model, an act has a cost for each call and a cost for each byte. A line is fitted to
 * the medians of all sizes so that the sum of the squares of its relative errors is smallest. So a
 * call of 10 us counts as much as one of 10 ms. Neither part of a line is negative.
 *
 * Some costs are not measured alone: a warm pause includes its calls, and a cold one includes the
 * allocation of host memory as well. Known costs are subtracted first.
 */
#include "reveille/calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/options.h"

#define POINTS_MAX 16
#define FS_PER_NS 1e6
#define TURNS_ENOUGH 5
#define PIECE_BYTES 2097152.0
#define GIB_BYTES 1073741824.0
#define LARGE_BLOCKS_BYTES (16 * GIB_BYTES) /* four blocks of 4 GiB */

/* The measurements, converted to this version of their struct. */
typedef struct samples {
    rvl_measurement *list;
    size_t count;
} samples;

typedef struct points {
    double bytes[POINTS_MAX];
    double values[POINTS_MAX]; /* above 0 */
    size_t count;
} points;

typedef struct line {
    double fixed;
    double per_byte;
} line;

static void add_point(points *all, double bytes, double value)
{
    if (all->count < POINTS_MAX && value > 0) {
        all->bytes[all->count] = bytes;
        all->values[all->count++] = value;
    }
}

/* Returns the medians of an act by size. */
static points medians(const samples *all, const char *act)
{
    points found = {.count = 0};
    for (size_t i = 0; i < all->count; i++) {
        if (strcmp(all->list[i].act, act) == 0)
            add_point(&found, (double)all->list[i].bytes, (double)all->list[i].median_value);
    }
    return found;
}

/* Returns the median of an act on this many bytes; 0: it was not measured. */
static double median_of(const samples *all, const char *act, uint64_t bytes)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i].bytes == bytes && strcmp(all->list[i].act, act) == 0)
            return (double)all->list[i].median_value;
    }
    return 0;
}

/* Fits one part of a line, with the other part 0. */
static double fit_one(const points *all, bool per_byte)
{
    double upper = 0, lower = 0;
    for (size_t i = 0; i < all->count; i++) {
        double x = (per_byte ? all->bytes[i] : 1) / all->values[i];
        upper += x;
        lower += x * x;
    }
    return lower > 0 ? upper / lower : 0;
}

static line fit_line(const points *all)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
    for (size_t i = 0; i < all->count; i++) {
        double x = all->bytes[i], y = all->values[i], weight = 1 / (y * y);
        w += weight, wx += weight * x, wxx += weight * x * x;
        wy += weight * y, wxy += weight * x * y;
    }
    double determinant = w * wxx - wx * wx;
    line best = {.fixed = fit_one(all, false), .per_byte = 0};
    if (all->count < 2 || determinant <= 0)
        return best;
    line both = {.fixed = (wxx * wy - wx * wxy) / determinant,
                 .per_byte = (w * wxy - wx * wy) / determinant};
    if (both.per_byte < 0)
        return best;
    return both.fixed >= 0 ? both : (line){.fixed = 0, .per_byte = fit_one(all, true)};
}

static double at(line it, double bytes)
{
    return it.fixed + it.per_byte * bytes;
}

static uint32_t whole(double value)
{
    return value <= 0 ? 0 : value >= UINT32_MAX ? UINT32_MAX : (uint32_t)(value + 0.5);
}

static rvl_cost cost_of(line it)
{
    return (rvl_cost){.call_ns = whole(it.fixed), .fs_per_byte = whole(it.per_byte * FS_PER_NS)};
}

static line line_of(rvl_cost cost)
{
    return (line){.fixed = cost.call_ns, .per_byte = cost.fs_per_byte / FS_PER_NS};
}

/* ---- The costs ---- */

#define BIT(field) (UINT64_C(1) << RVL_COST_INDEX_##field)

static bool fit_act(const samples *all, const char *act, rvl_cost *cost)
{
    points found = medians(all, act);
    if (found.count > 0)
        *cost = cost_of(fit_line(&found));
    return found.count > 0;
}

/* Fits a call that costs the same for every size, from its medians over all sizes. */
static bool fit_call(const samples *all, const char *act, rvl_cost *cost)
{
    points found = medians(all, act);
    if (found.count > 0)
        *cost = (rvl_cost){.call_ns = whole(fit_one(&found, false)), .fs_per_byte = 0};
    return found.count > 0;
}

/*
 * Fits the extra time of the first create after releases, compared with a plain create. It is taken
 * from the largest pauses of blocks, in which no block is cleared while others are still being
 * released. If there was no room for these, it is taken from rows of calls, of at least 2 GiB.
 */
static bool fit_reclaim(const samples *all, rvl_cost_model *model)
{
    points extra = {.count = 0}, pauses = medians(all, "small_create_after_pause");
    points rows = medians(all, "create_after_release");
    double create = model->create.call_ns;
    for (size_t i = 0; i < pauses.count; i++) {
        if (pauses.bytes[i] >= LARGE_BLOCKS_BYTES)
            add_point(&extra, pauses.bytes[i], pauses.values[i] - create);
    }
    bool from_rows = extra.count == 0;
    for (size_t i = 0; i < rows.count && from_rows; i++) {
        if (rows.bytes[i] >= 2 * GIB_BYTES)
            add_point(&extra, rows.bytes[i], rows.values[i] - create);
    }
    if (pauses.count + rows.count > 0) /* reclaiming no bytes has no cost in the model */
        model->reclaim =
            (rvl_cost){.call_ns = 0, .fs_per_byte = whole(fit_one(&extra, true) * FS_PER_NS)};
    return pauses.count + rows.count > 0;
}

/* Returns the copy times of pauses or resumes: their times minus those of their calls. */
static points copying(const samples *all, const char *act, const rvl_cost_model *model, bool out)
{
    points found = medians(all, act), left = {.count = 0};
    for (size_t i = 0; i < found.count; i++) {
        double bytes = found.bytes[i];
        double calls = out ? at(line_of(model->unmap), bytes) + at(line_of(model->release), bytes)
                           : at(line_of(model->create), bytes) + at(line_of(model->map), bytes) +
                                 at(line_of(model->set_access), bytes) +
                                 at(line_of(model->reclaim), bytes);
        add_point(&left, bytes, found.values[i] - calls);
    }
    return left;
}

/*
 * Returns the points of at least 1 GiB. There the fixed costs of pauses and resumes do not matter.
 */
static points large(const points *all)
{
    points found = {.count = 0};
    for (size_t i = 0; i < all->count; i++) {
        if (all->bytes[i] >= GIB_BYTES)
            add_point(&found, all->bytes[i], all->values[i]);
    }
    return found;
}

/*
 * Fits one direction of the link. The cost of a byte is taken from pauses (resumes), or, if none
 * was large enough, from the largest plain copy. The cost of a call is taken from the same bytes
 * copied in pieces of 2 MiB, minus their time as one copy.
 */
static bool fit_copy(const samples *all, const points *moved, const char *plain, const char *pieces,
                     rvl_cost *cost)
{
    points whole_bytes = large(moved), copies = medians(all, plain), cut = medians(all, pieces);
    if (whole_bytes.count == 0 && copies.count > 0)
        add_point(&whole_bytes, copies.bytes[copies.count - 1], copies.values[copies.count - 1]);
    if (whole_bytes.count == 0)
        return false;
    cost->fs_per_byte = whole(fit_one(&whole_bytes, true) * FS_PER_NS);
    if (cut.count > 0) {
        double extra = cut.values[0] - median_of(all, plain, (uint64_t)cut.bytes[0]);
        cost->call_ns = whole(extra / (cut.bytes[0] / PIECE_BYTES));
    }
    return true;
}

static bool fit_copies(const samples *all, rvl_cost_model *model)
{
    points out = copying(all, "pause_warm", model, true);
    points in = copying(all, "resume_warm", model, false);
    return fit_copy(all, &out, "link_to_host", "link_to_host_by_2_mib", &model->copy_to_host) &&
           fit_copy(all, &in, "link_to_device", "link_to_device_by_2_mib", &model->copy_to_device);
}

/*
 * Returns the time to start allocating host memory, from the smallest pause, which allocates one
 * chunk.
 */
static double host_start(const points *cold, const rvl_cost_model *model)
{
    uint64_t chunks = ((uint64_t)cold->bytes[0] + RVL_HOST_CHUNK_BYTES - 1) / RVL_HOST_CHUNK_BYTES;
    double made_bytes = (double)(chunks * RVL_HOST_CHUNK_BYTES);
    return cold->values[0] - at(line_of(model->host_alloc), made_bytes);
}

/*
 * Returns the rate of allocating host memory for buffers, from pauses of the same buffers with host
 * memory that must be allocated and with host memory that exists. Their calls are the same. 0: not
 * measured.
 */
static double host_rate_in_buffers(const samples *all, const rvl_cost_model *model, double start)
{
    points cold = medians(all, "pause_cold_in_buffers"),
           warm = medians(all, "pause_warm_in_buffers");
    if (cold.count == 0 || warm.count == 0)
        return 0;
    double making = cold.values[0] - warm.values[0] - start;
    return making / cold.bytes[0] + line_of(model->copy_to_host).per_byte;
}

/*
 * Host memory is allocated in parallel with the copy into it, so a cold pause lasts as long as the
 * slower of the two. Small amounts show the time to start. The rate is that of large amounts in one
 * piece. If the rate of buffers is higher, it is the mean of the two.
 */
static bool fit_host(const samples *all, rvl_cost_model *model, rvl_cost_waits *waits)
{
    points cold = copying(all, "pause_cold", model, true), most = large(&cold);
    if (most.count == 0)
        return false;
    double rate = fit_one(&most, true);
    model->host_alloc.fs_per_byte = whole(rate * FS_PER_NS);
    waits->host_start = (rvl_cost){.call_ns = whole(host_start(&cold, model))};
    double in_buffers = host_rate_in_buffers(all, model, waits->host_start.call_ns);
    if (in_buffers > rate)
        model->host_alloc.fs_per_byte = whole((rate + in_buffers) / 2 * FS_PER_NS);
    return true;
}

/* Fits the extra time of the first pause of a process, compared with the same pause later. */
static bool fit_first(const samples *all, rvl_cost_waits *waits)
{
    points first = medians(all, "pause_first");
    double later = first.count > 0 ? median_of(all, "pause_cold", (uint64_t)first.bytes[0]) : 0;
    if (later == 0)
        return false;
    double extra = first.values[0] - later;
    waits->host_first = (rvl_cost){.call_ns = whole(extra)};
    return true;
}

/*
 * Fits the rate of clearing. A create that has to wait is done when the memory that it needs is
 * cleared and reclaimed.
 */
static bool fit_clear(const samples *all, const rvl_cost_model *model, rvl_cost_waits *waits)
{
    points waited = medians(all, "create_needing_cleared");
    if (waited.count == 0)
        return false;
    double per_byte = waited.values[0] / waited.bytes[0] - line_of(model->reclaim).per_byte;
    waits->clear = (rvl_cost){.fs_per_byte = whole(per_byte * FS_PER_NS)};
    return true;
}

/*
 * Fits the time that digests add to a pause, for sizes that were measured with and without them.
 * The difference is much smaller than either time. If it is less than half the time of writing the
 * same memory (fill), it is noise, since digests read all of the memory.
 */
static bool fit_digest(const samples *all, rvl_cost_model *model)
{
    points with = medians(all, "pause_verified"), added = {.count = 0};
    for (size_t i = 0; i < with.count; i++) {
        double without = median_of(all, "pause_warm", (uint64_t)with.bytes[i]);
        if (without > 0 && with.bytes[i] >= GIB_BYTES)
            add_point(&added, with.bytes[i], with.values[i] - without);
    }
    double fs_per_byte = added.count > 0 ? fit_one(&added, true) * FS_PER_NS : 0;
    if (added.count == 0 || fs_per_byte < model->fill.fs_per_byte / 2.0)
        return false;
    model->digest.fs_per_byte = whole(fs_per_byte);
    return true;
}

static bool fit_disk(const samples *all, const char *act, rvl_cost *cost)
{
    points found = medians(all, act);
    if (found.count > 0)
        *cost = (rvl_cost){.call_ns = 0, .fs_per_byte = whole(fit_one(&found, true) * FS_PER_NS)};
    return found.count > 0;
}

/* ---- Calls in a transition ---- */

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void lengthen(rvl_cost *cost, double times_call, double times_byte)
{
    cost->call_ns = whole(cost->call_ns * times_call);
    cost->fs_per_byte = whole(cost->fs_per_byte * times_byte);
}

static line sum_of(rvl_cost *const calls[], size_t count)
{
    line sum = {0};
    for (size_t i = 0; i < count; i++) {
        sum.fixed += line_of(*calls[i]).fixed;
        sum.per_byte += line_of(*calls[i]).per_byte;
    }
    return sum;
}

/*
 * Scales the sum of calls by the ratio of the time of blocks to that of the same calls in a row.
 * The ratio is the median of all sizes.
 */
static line by_ratio(const points *blocks, line sum)
{
    double ratios[POINTS_MAX];
    for (size_t i = 0; i < blocks->count; i++)
        ratios[i] =
            at(sum, blocks->bytes[i]) > 0 ? blocks->values[i] / at(sum, blocks->bytes[i]) : 1;
    qsort(ratios, blocks->count, sizeof *ratios, by_value);
    double times = ratios[blocks->count / 2];
    return (line){.fixed = times * sum.fixed, .per_byte = times * sum.per_byte};
}

/*
 * Scales the costs of some calls so that their sum is the time of blocks in transitions: the line
 * fitted to the blocks if these were measured often enough to be typical, or else by their ratio.
 * Each call keeps its share of the cost of a call and of a byte.
 */
static void make_sum(const points *blocks, bool typical, rvl_cost *const calls[], size_t count)
{
    if (blocks->count == 0)
        return;
    line sum = sum_of(calls, count);
    line wanted = typical && blocks->count > 1 ? fit_line(blocks) : by_ratio(blocks, sum);
    for (size_t i = 0; i < count; i++)
        lengthen(calls[i], sum.fixed > 0 ? wanted.fixed / sum.fixed : 1,
                 sum.per_byte > 0 ? wanted.per_byte / sum.per_byte : 1);
}

static bool is_typical(const samples *all, const char *act)
{
    bool often = true;
    for (size_t i = 0; i < all->count; i++)
        often = often && (strcmp(all->list[i].act, act) != 0 || all->list[i].count >= TURNS_ENOUGH);
    return often;
}

/*
 * Returns the times of blocks of a pause, minus what releases pay for memory that the driver has
 * cleared since the pause began. While a block is released, the driver clears a part of another.
 * Large blocks are few, and none is cleared before the last one is released.
 */
static points releasing(const samples *all, const rvl_cost_model *model, rvl_cost clear)
{
    points found = medians(all, "pause_block"), left = {.count = 0};
    for (size_t i = 0; i < found.count; i++) {
        bool pays = clear.fs_per_byte > 0 && found.bytes[i] < GIB_BYTES;
        double cleared = pays ? found.values[i] / line_of(clear).per_byte : 0;
        cleared = cleared < found.bytes[i] ? cleared : found.bytes[i];
        add_point(&left, found.bytes[i],
                  found.values[i] - line_of(model->reclaim).per_byte * cleared);
    }
    return left;
}

/* Fits calls in transitions, where they take longer than in a row of the same calls. */
static void fit_transitions(const samples *all, rvl_cost_model *model, rvl_cost clear)
{
    rvl_cost *const down[2] = {&model->unmap, &model->release};
    rvl_cost *const up[3] = {&model->create, &model->map, &model->set_access};
    points pauses = releasing(all, model, clear), resumes = medians(all, "resume_block");
    make_sum(&pauses, is_typical(all, "pause_block"), down, 2);
    make_sum(&resumes, is_typical(all, "resume_block"), up, 3);
}

/* ---- Memory that the driver uses ---- */

/*
 * Fits the device memory that the driver uses for pinned memory: a part for any backup, and a part
 * that grows with the pinned host memory.
 */
static void fit_pinned(const samples *all, rvl_driver_use *use)
{
    const rvl_measurement *least = NULL, *most = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const rvl_measurement *one = &all->list[i];
        if (strcmp(one->act, "pinned_takes") != 0)
            continue;
        least = least == NULL || one->bytes < least->bytes ? one : least;
        most = most == NULL || one->bytes > most->bytes ? one : most;
    }
    if (most == NULL)
        return;
    double low = (double)least->median_value, high = (double)most->median_value;
    /* Records take whole granules, so a small amount that took none is ignored. */
    double apart = (double)(low > 0 ? most->bytes - least->bytes : most->bytes);
    double per_byte = apart > 0 && high > low ? (high - low) / apart : 0;
    double fixed = low > 0 ? low - per_byte * (double)least->bytes : 0;
    use->first_backup_bytes = fixed > 0 ? (uint64_t)(fixed + 0.5) : 0;
    use->per_pinned_gib_bytes = (uint64_t)(per_byte * GIB_BYTES + 0.5);
}

static uint64_t fit(const samples *all, rvl_profile *profile)
{
    rvl_cost_model *model = &profile->cost;
    rvl_cost_waits *waits = &profile->waits;
    uint64_t known = 0;
    known |= fit_call(all, "reserve", &model->reserve) ? BIT(reserve) : 0;
    known |= fit_call(all, "release_range", &model->release_range) ? BIT(release_range) : 0;
    known |= fit_act(all, "create", &model->create) ? BIT(create) : 0;
    known |= fit_act(all, "release", &model->release) ? BIT(release) : 0;
    known |= fit_reclaim(all, model) ? BIT(reclaim) : 0;
    known |= fit_act(all, "map", &model->map) ? BIT(map) : 0;
    known |= fit_act(all, "set_access", &model->set_access) ? BIT(set_access) : 0;
    known |= fit_act(all, "unmap", &model->unmap) ? BIT(unmap) : 0;
    known |= fit_act(all, "fill", &model->fill) ? BIT(fill) : 0;
    known |= fit_copies(all, model) ? BIT(copy_to_host) | BIT(copy_to_device) : 0;
    known |= fit_host(all, model, waits) ? BIT(host_alloc) | BIT(host_start) : 0;
    known |= fit_first(all, waits) ? BIT(host_first) : 0;
    bool clears = fit_clear(all, model, waits);
    known |= clears ? BIT(clear) : 0;
    if (clears && waits->clear.fs_per_byte > 0) {
        /* Nothing takes longer during clearing (docs/fidelity/transitions.md). */
        waits->idle_clearing = waits->unmap_clearing = waits->release_clearing = (rvl_cost){0};
        known |= BIT(idle_clearing) | BIT(unmap_clearing) | BIT(release_clearing);
    }
    known |= fit_digest(all, model) ? BIT(digest) : 0;
    known |= fit_disk(all, "pause_to_disk", &model->disk_write) ? BIT(disk_write) : 0;
    known |= fit_disk(all, "resume_from_disk", &model->disk_read) ? BIT(disk_read) : 0;
    /* This comes last, since the fits above compare calls with calls. */
    fit_transitions(all, model, waits->clear);
    profile->driver.context_bytes = (uint64_t)median_of(all, "context_takes", 0);
    profile->driver.first_kernel_bytes = (uint64_t)median_of(all, "first_kernel_takes", 0);
    profile->driver.streams_bytes = (uint64_t)median_of(all, "34_streams_take", 0);
    profile->driver.graph_bytes = (uint64_t)median_of(all, "graph_takes", 0);
    fit_pinned(all, &profile->driver);
    return known;
}

/* ---- The call ---- */

static rvl_status read_all(const rvl_measurement *measurements, size_t size, samples *all)
{
    const rvli_element *element = RVLI_ELEMENT(rvl_measurement, count);
    rvl_status status = rvli_element_check(element, size);
    if (status != RVL_OK)
        return status;
    all->list = calloc(all->count, sizeof *all->list);
    if (all->list == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for measurements");
    for (size_t i = 0; i < all->count && status == RVL_OK; i++) {
        status = rvli_element_read_at(element, &all->list[i], measurements, size, i);
        if (status == RVL_OK && all->list[i].act == NULL)
            status = rvli_error(RVL_ERR_INVALID, "a measurement without an act");
    }
    return status;
}

rvl_status rvl_profile_fit(rvl_profile *profile, const rvl_measurement *measurements,
                           size_t measurement_size, size_t measurement_count, uint64_t *costs_out)
{
    samples all = {.count = measurement_count};
    rvl_profile fitted;
    if (profile == NULL || costs_out == NULL || (measurements == NULL && measurement_count > 0))
        return rvli_error(RVL_ERR_INVALID, "the profile, the measurements or the output is NULL");
    rvl_status status = rvli_options_read(&fitted, sizeof fitted, profile);
    if (status == RVL_OK && all.count > 0)
        status = read_all(measurements, measurement_size, &all);
    if (status == RVL_OK) {
        *costs_out = fit(&all, &fitted);
        status = rvli_result_write(profile, &fitted, sizeof fitted);
    }
    free(all.list);
    return status;
}
