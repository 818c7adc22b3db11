/* SPDX-License-Identifier: MIT */
#include "hooks/nccl/facts.h"

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "hooks/nccl/device.h"
#include "hooks/record/recorder.h"

/* ---- One communicator ---- */

static rvl_state state_of(const rvli_known *known, bool suspended)
{
    if (rvli_nccl_call_is_done(known->call))
        return suspended ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE;
    return rvli_nccl_call_kind(known->call) == RVL_TRANSITION_PAUSE ? RVL_STATE_PAUSING
                                                                    : RVL_STATE_RESUMING;
}

static rvl_status describe_memory(const rvli_nccl *nccl, const rvli_known *known,
                                  rvl_communicator *into)
{
    uint64_t suspended = 0;
    rvl_status status =
        rvli_nccl_stat(nccl, known->comm, RVLI_NCCL_STAT_SUSPENDABLE, &into->size_bytes);
    if (status == RVL_OK)
        status = rvli_nccl_stat(nccl, known->comm, RVLI_NCCL_STAT_PERSISTENT, &into->kept_bytes);
    if (status == RVL_OK)
        status = rvli_nccl_stat(nccl, known->comm, RVLI_NCCL_STAT_SUSPENDED, &suspended);
    into->state = state_of(known, suspended != 0);
    return status;
}

rvl_status rvli_nccl_describe(const rvli_nccl *nccl, const rvli_known *known,
                              rvl_communicator *into)
{
    *into = (rvl_communicator){.comm = known->comm,
                               .device = known->device,
                               .state = RVL_STATE_ACTIVE,
                               .can_pause = rvli_nccl_can_suspend(nccl)};
    rvl_status status =
        rvli_nccl_check(nccl, "ncclCommUserRank", nccl->ncclCommUserRank(known->comm, &into->rank));
    if (status == RVL_OK)
        status = rvli_nccl_check(nccl, "ncclCommCount",
                                 nccl->ncclCommCount(known->comm, &into->rank_count));
    return status == RVL_OK && into->can_pause ? describe_memory(nccl, known, into) : status;
}

rvl_status rvl_communicator_get(size_t index, rvl_communicator *communicator_out)
{
    rvli_nccl nccl;
    rvli_known *known = NULL;
    size_t count = 0;
    rvl_communicator found;
    rvl_status status = rvli_known_list(&known, &count);
    if (status != RVL_OK)
        return status;
    if (index >= count)
        status = rvli_error(RVL_ERR_NOT_FOUND, "there is no communicator of this index: count "
                                               "from 0 until you get this error");
    if (status == RVL_OK)
        status = rvli_nccl_find(&nccl);
    if (status == RVL_OK)
        status = rvli_nccl_describe(&nccl, &known[index], &found);
    rvli_known_free(known, count);
    return status == RVL_OK ? rvli_result_write(communicator_out, &found, sizeof found) : status;
}

/* ---- An NCCL that is too old ---- */

static void add_number(rvli_text *text, int version)
{
    rvli_text_add_u64(text, (uint64_t)(version / 10000));
    rvli_text_add(text, ".");
    rvli_text_add_u64(text, (uint64_t)(version / 100 % 100));
    rvli_text_add(text, ".");
    rvli_text_add_u64(text, (uint64_t)(version % 100));
}

/* Adds the bytes that NCCL holds on each of their devices, if this process is recorded. */
static void add_kept(rvli_text *text, const rvli_known *known, size_t count)
{
    uint64_t told = 0, bytes = 0; /* a bit for each device */
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = UINT64_C(1) << (known[i].device & 63);
        if (told & bit)
            continue;
        if (!rvli_recorder_nccl_bytes(known[i].device, &bytes)) {
            rvli_text_add(text, told != 0 ? ", more" : "memory");
            rvli_text_add(text, " that only `reveille record` can tell (nccl:PID)");
            return;
        }
        rvli_text_add(text, told != 0 ? ", " : "");
        rvli_text_add_bytes(text, bytes);
        rvli_text_add(text, " on device ");
        rvli_text_add_u64(text, (uint64_t)known[i].device);
        told |= bit;
    }
}

rvl_status rvli_nccl_require(const rvli_nccl *nccl, const rvli_known *known, size_t count)
{
    if (count == 0 || rvli_nccl_can_suspend(nccl))
        return RVL_OK;
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "NCCL ");
    add_number(&text, nccl->version);
    rvli_text_add(&text, " cannot give its memory back; 2.29.7 and later can. Its communicators "
                         "here keep ");
    add_kept(&text, known, count);
    rvli_text_add(&text, ". Load a newer libnccl.so.2, or leave them out");
    rvli_error(RVL_ERR_NOT_SUPPORTED, message);
    rvli_error_op(rvli_nccl_move_name(RVL_TRANSITION_PAUSE));
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    return RVL_ERR_NOT_SUPPORTED;
}

/* ---- Sums ---- */

typedef struct sum {
    uint64_t needed_bytes[RVL_MAX_DEVICES];
    uint64_t counts[RVL_MAX_DEVICES];
} sum;

/* Adds up what would move, for each device. */
static rvl_status add_up(const rvli_nccl *nccl, rvl_transition_kind kind, const rvli_known *known,
                         size_t count, sum *into)
{
    const rvl_state moved = kind == RVL_TRANSITION_PAUSE ? RVL_STATE_ACTIVE : RVL_STATE_PAUSED;
    for (size_t i = 0; i < count; i++) {
        rvl_communicator found;
        int device = known[i].device;
        rvl_status status = rvli_nccl_describe(nccl, &known[i], &found);
        if (status != RVL_OK)
            return status;
        if (found.state != moved || device < 0 || device >= RVL_MAX_DEVICES)
            continue;
        into->needed_bytes[device] += found.size_bytes;
        into->counts[device]++;
    }
    return RVL_OK;
}

/* The free bytes beyond those needed; negative if it does not fit. */
static int64_t room(const rvl_forecast *forecast)
{
    return (int64_t)(forecast->free_bytes - forecast->needed_bytes);
}

rvl_status rvli_nccl_forecast(const rvli_nccl *nccl, rvl_transition_kind kind,
                              const rvli_known *known, size_t count, rvl_forecast *forecast_out)
{
    sum sums = {0};
    rvl_forecast least = {.device = RVL_NO_DEVICE, .fits = true};
    uint64_t moving = 0;
    rvl_status status = add_up(nccl, kind, known, count, &sums);
    for (int device = 0; status == RVL_OK && device < RVL_MAX_DEVICES; device++) {
        rvl_forecast here = {.device = device, .needed_bytes = sums.needed_bytes[device]};
        if (sums.counts[device] == 0)
            continue;
        status = rvli_device_free_bytes(device, &here.free_bytes);
        here.fits = kind == RVL_TRANSITION_PAUSE || here.needed_bytes <= here.free_bytes;
        if (least.device == RVL_NO_DEVICE || room(&here) < room(&least))
            least = here;
        moving += sums.counts[device];
    }
    least.allocation_count = moving;
    if (status == RVL_OK)
        *forecast_out = least;
    return status;
}

/*
 * Lists all named communicators and finds NCCL, which must be able to suspend. Without
 * communicators, NCCL need not be loaded.
 */
static rvl_status begin_asking(rvli_nccl *nccl_out, rvli_known **known_out, size_t *count_out)
{
    rvl_status status = rvli_known_list(known_out, count_out);
    if (status == RVL_OK && *count_out > 0)
        status = rvli_nccl_find(nccl_out);
    return status == RVL_OK ? rvli_nccl_require(nccl_out, *known_out, *count_out) : status;
}

rvl_status rvl_communicator_forecast(rvl_transition_kind kind, rvl_forecast *forecast_out)
{
    rvli_nccl nccl = {0};
    rvli_known *known = NULL;
    size_t count = 0;
    rvl_forecast forecast = {0};
    if (kind != RVL_TRANSITION_PAUSE && kind != RVL_TRANSITION_RESUME)
        return rvli_error(RVL_ERR_INVALID, "the kind is neither a pause nor a resume");
    rvl_status status = begin_asking(&nccl, &known, &count);
    if (status == RVL_OK)
        status = rvli_nccl_forecast(&nccl, kind, known, count, &forecast);
    rvli_known_free(known, count);
    return status == RVL_OK ? rvli_result_write(forecast_out, &forecast, sizeof forecast) : status;
}

static void add_stats(rvl_tag_stats *stats, const rvli_known *known, const rvl_communicator *found)
{
    uint64_t active = found->state == RVL_STATE_ACTIVE ? found->size_bytes : 0;
    stats->active_bytes += active;
    stats->paused_bytes += found->size_bytes - active;
    stats->peak_bytes += found->size_bytes;
    stats->allocation_count++;
    stats->pauses += known->pauses;
    stats->resumes += known->resumes;
}

rvl_status rvl_communicator_get_stats(int device, rvl_tag_stats *stats_out)
{
    rvli_nccl nccl = {0};
    rvli_known *known = NULL;
    size_t count = 0;
    rvl_tag_stats stats = {0};
    if (device < -1)
        return rvli_error(RVL_ERR_INVALID, "the device's number is neither -1 nor one of CUDA's");
    rvl_status status = begin_asking(&nccl, &known, &count);
    for (size_t i = 0; status == RVL_OK && i < count; i++) {
        rvl_communicator found;
        if (device != -1 && device != known[i].device)
            continue;
        status = rvli_nccl_describe(&nccl, &known[i], &found);
        if (status == RVL_OK)
            add_stats(&stats, &known[i], &found);
    }
    rvli_known_free(known, count);
    return status == RVL_OK ? rvli_result_write(stats_out, &stats, sizeof stats) : status;
}
