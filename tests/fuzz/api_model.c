/* SPDX-License-Identifier: MIT */
#include "api_model.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "base/packet.h"
#include "fuzz.h"

bool api_done(const api_model *m, rvl_status status)
{
    rvl_error error = {.struct_size = sizeof error};
    if (status == RVL_OK)
        return true;
    rvl_last_error(&error);
    require(error.status == status && error.message[0] != '\0');
    require(m->faulty || status != RVL_ERR_DEVICE_LOST);
    return false;
}

unsigned api_tag_bit(int tag)
{
    return 1u << tag;
}

/* ---- Where files are ---- */

static char trace_path[320];

static void remove_trace(void)
{
    unlink(trace_path);
}

const char *api_trace_path(void)
{
    if (trace_path[0] == '\0') {
        snprintf(trace_path, sizeof trace_path, "%s/trace.rvt", fuzz_folder());
        atexit(remove_trace);
    }
    return trace_path;
}

/* ---- A store that this thread owns ---- */

#define STORE_UNITS 40u
#define TOLD_MAX 40 /* all slots are freed at once, and the connection ends */

static rvl_store *served;
static int stop_serving = -1; /* can always be read: the owner serves what has come, and returns */

rvli_packet_result __real_rvli_packet_take(int socket, void *bytes_out, size_t size, int *fds_out,
                                           unsigned fd_capacity, unsigned *fd_count_out, int flags);
__attribute__((visibility("default"))) rvli_packet_result
__wrap_rvli_packet_take(int socket, void *bytes_out, size_t size, int *fds_out,
                        unsigned fd_capacity, unsigned *fd_count_out, int flags);

/* What waits for the owner is the owner. Instead of a wait, it serves. */
rvli_packet_result __wrap_rvli_packet_take(int socket, void *bytes_out, size_t size, int *fds_out,
                                           unsigned fd_capacity, unsigned *fd_count_out, int flags)
{
    struct pollfd poller = {.fd = socket, .events = POLLIN};
    for (int i = 0; flags == 0 && served != NULL && poll(&poller, 1, 0) == 0; i++)
        require(i < 8 && rvl_store_serve(served, stop_serving) == RVL_OK);
    return __real_rvli_packet_take(socket, bytes_out, size, fds_out, fd_capacity, fd_count_out,
                                   flags);
}

/* The budget is a part of what contents may take. */
static const char *open_store(api_model *m)
{
    static char path[320];
    snprintf(path, sizeof path, "%s/store", fuzz_folder());
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = path, .budget_bytes = STORE_UNITS * m->granule};
    require(rvl_store_open(&options, &m->store) == RVL_OK);
    stop_serving = eventfd(1, EFD_CLOEXEC);
    require(stop_serving >= 0);
    served = m->store;
    return path;
}

static rvl_store_stats ask_store(void)
{
    char path[320];
    rvl_store_stats stats = {.struct_size = sizeof stats};
    snprintf(path, sizeof path, "%s/store", fuzz_folder());
    for (int i = 0; i < TOLD_MAX; i++) /* what was told has no answer to wait for */
        require(rvl_store_serve(served, stop_serving) == RVL_OK);
    require(rvl_store_get_stats(path, &stats) == RVL_OK);
    return stats;
}

/* What the store keeps is what the context has there: it is the only user. */
static void check_store(const api_model *m)
{
    rvl_host_memory host = {.struct_size = sizeof host};
    const rvl_store_stats stats = ask_store();
    require(rvl_host_get_memory(m->context, &host) == RVL_OK);
    require(stats.user_count == 1 && stats.referenced_bytes == host.store_bytes);
    require(stats.kept_bytes + host.store_found_bytes >= host.store_bytes);
    require(stats.kept_bytes <= host.store_bytes);
    require(stats.kept_bytes + stats.promised_bytes <= stats.budget_bytes);
    require(stats.promised_bytes == 0 || m->prepared.transition != NULL);
}

/* Once its user is gone it has nothing. */
static void close_store(api_model *m)
{
    const rvl_store_stats stats = ask_store();
    require(stats.user_count == 0 && stats.segment_count == 0 && stats.kept_bytes == 0);
    require(stats.promised_bytes == 0 && stats.referenced_bytes == 0);
    served = NULL;
    rvl_store_close(m->store);
    close(stop_serving);
}

/* ---- A simulated device that shares ---- */

/* A file stands for a block. Who imports it gets memory of the same size, which counts as much. */
static rvl_status export_block(void *self, int device, rvli_handle block, int *fd_out)
{
    (void)self;
    (void)device;
    (void)block;
    *fd_out = memfd_create("block", MFD_CLOEXEC);
    require(*fd_out >= 0);
    return RVL_OK;
}

static rvl_status import_block(void *self, int device, int fd, uint64_t size,
                               rvli_handle *block_out)
{
    (void)fd;
    return rvli_sim_ops.create(self, device, size, 0, block_out);
}

static rvl_status open_in_real_time(const void *options, rvli_clock *clock, void **self_out,
                                    int *device_count_out)
{
    rvl_status status = rvli_sim_ops.open(options, clock, self_out, device_count_out);
    clock->virtual_time = false;
    return status;
}

/* ---- Opening ---- */

static void log_line(void *user, rvl_log_level level, const char *message)
{
    (void)user;
    require(level <= RVL_LOG_DEBUG && message[0] != '\0');
}

/* Callbacks may read, and may change nothing. */
static void try_to_change(api_model *m)
{
    rvl_addr addr = 0;
    rvl_device_stats stats = {.struct_size = sizeof stats};
    require(rvl_device_get_stats(m->context, 0, &stats) == RVL_OK);
    require(rvl_alloc(m->context, m->granule, NULL, &addr) == RVL_ERR_STATE && addr == 0);
    require(rvl_pause(m->context, m->tags, 1, NULL) == RVL_ERR_STATE);
}

static rvl_status before_unmap(void *user, rvl_tag tag)
{
    api_model *m = user;
    require(tag == m->tags[API_TAGS - 1]);
    try_to_change(m);
    return m->veto ? RVL_ERR_BUSY : RVL_OK;
}

static void after_map(void *user, rvl_tag tag)
{
    api_model *m = user;
    require(tag == m->tags[API_TAGS - 1]);
    try_to_change(m);
}

static void define_tags(api_model *m, unsigned retained)
{
    static const char *const names[API_TAGS] = {"a", "b", "c", "", "d"};
    require(rvl_process_define(m->context, "other", &m->other) == RVL_OK);
    for (int i = 0; i < API_TAGS; i++) {
        bool last = i == API_TAGS - 1;
        rvl_tag_options tag = {.struct_size = sizeof tag,
                               .flags = (retained & api_tag_bit(i) ? RVL_TAG_RETAIN_BACKUPS : 0) |
                                        (i == 1 ? RVL_TAG_POISON : 0),
                               .process = last ? m->other : 0,
                               .block_bytes = i == 1 ? m->granule : 0,
                               .coalesce_bytes = i == 2 ? 8 * m->granule : 0,
                               .before_unmap = last ? before_unmap : NULL,
                               .after_map = last ? after_map : NULL,
                               .callback_user = m};
        rvl_tag found = 0;
        require(rvl_tag_define(m->context, names[i], &tag, &m->tags[i]) == RVL_OK);
        require(rvl_tag_find(m->context, tag.process, names[i], &found) == RVL_OK);
        require(found == m->tags[i]);
        require(strcmp(rvl_tag_name(m->context, found), names[i]) == 0);
    }
}

void api_open(api_model *m, uint8_t mode, uint8_t kept)
{
    memset(m, 0, sizeof *m);
    m->mode = mode | (mode & API_STORE ? API_BACKED : 0);
    mode = (uint8_t)m->mode;
    m->devices = mode & API_TWO ? API_DEVICES : 1;
    m->granule = mode & API_BACKED ? UINT64_C(1) << 16 : UINT64_C(2) << 20;
    rvl_profile profile = {.struct_size = sizeof profile};
    require(rvl_profile_find("h200", &profile) == RVL_OK);
    profile.granularity_bytes = m->granule;
    profile.capacity_bytes = API_GRANULES * m->granule;
    const rvl_profile *devices[API_DEVICES] = {&profile, &profile};
    rvl_sim_options sim = {.struct_size = sizeof sim,
                           .flags = mode & API_OVERCOMMIT ? RVL_SIM_OVERCOMMIT : 0,
                           .memory = mode & API_BACKED ? RVL_SIM_BACKED : RVL_SIM_ACCOUNTED,
                           .devices = devices,
                           .device_count = m->devices};
    rvl_context_options options = {.struct_size = sizeof options,
                                   .flags = RVL_CONTEXT_DISK_TMPFS |
                                            (mode & API_LOG ? RVL_CONTEXT_LOG_OPS : 0) |
                                            (mode & API_NO_VERIFY ? RVL_CONTEXT_NO_VERIFY : 0),
                                   .backend_options = &sim,
                                   .log = log_line,
                                   .keep_bytes = kept % 16 * m->granule,
                                   .disk_directory = mode & API_DISK ? fuzz_folder() : NULL,
                                   .store_path = mode & API_STORE ? open_store(m) : NULL};
    if ((mode & API_STORE) && (mode & API_DISK))
        options.flags |= RVL_CONTEXT_STORE_OVERFLOW;
    rvli_backend_ops ops = rvli_sim_ops;
    ops.export_block = export_block;
    ops.import_block = import_block;
    ops.open = mode & API_REAL_TIME ? open_in_real_time : ops.open;
    require(fault_context_open(&ops, &options, &m->fault, &m->context) == RVL_OK);
    m->stages = rvl_stage_count(m->context);
    define_tags(m, kept / 16);
}

bool api_is_prepared(const api_model *m)
{
    return m->prepared.transition != NULL || m->prepared.resuming != NULL;
}

void api_close(api_model *m)
{
    uint64_t live = 0, expected = 0;
    if (api_is_prepared(m))
        require(rvl_context_close(m->context, NULL) == RVL_ERR_BUSY);
    if (m->prepared.resuming != NULL)
        require(rvl_resume_start_abort(m->prepared.resuming) == RVL_OK);
    if (m->prepared.transition != NULL) {
        if (rvl_transition_commit(m->prepared.transition) != RVL_OK) /* pieces are open */
            require(rvl_transition_abort(m->prepared.transition) == RVL_OK);
    }
    for (int i = 0; i < API_SLOTS; i++)
        expected += m->slots[i].addr != 0;
    for (int i = 0; i < API_IMPORTS; i++)
        expected += m->imports[i].addr != 0;
    rvl_status status = rvl_context_close(m->context, &live);
    require(m->ever_faulty || status == RVL_OK);
    require(live == expected);
    if (m->store != NULL)
        close_store(m);
    if (m->recording)
        unlink(trace_path);
}

/* ---- Content ---- */

void api_write(api_model *m, api_slot *s, uint8_t content)
{
    if (!(m->mode & API_BACKED))
        return;
    memset((void *)(uintptr_t)s->addr, content, s->size);
    s->content = content;
    s->known = true;
}

/* The ends of each granule. */
static void check_content(const api_model *m, const api_slot *s)
{
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)s->addr;
    for (uint64_t at = 0; at < s->size; at += m->granule)
        require(bytes[at] == s->content && bytes[at + m->granule - 1] == s->content);
}

/* ---- What the library says ---- */

static rvl_state state_of(api_model *m, const api_slot *s)
{
    rvl_allocation found = {.struct_size = sizeof found}, next = {.struct_size = sizeof next};
    require(rvl_allocation_find(m->context, s->addr + s->size - 1, &found) == RVL_OK);
    require(found.addr == s->addr && found.size_bytes == s->size && found.device == s->device);
    require(found.tag == m->tags[s->tag] && found.backup == s->backup);
    require(rvl_allocation_next(m->context, s->addr, &next) == RVL_OK);
    require(next.addr == s->addr && next.id == found.id);
    return found.state;
}

static void check_slot(api_model *m, api_slot *s)
{
    rvl_state state = state_of(m, s);
    if (state == RVL_STATE_LOST && s->state != RVL_STATE_LOST) {
        require(m->faulty);
        s->state = state;
        s->moving = false;
    } else if (s->state == RVL_STATE_LOST && state == RVL_STATE_PAUSED) {
        require(m->faulty); /* a resume of it has failed */
        s->state = state;
    } else if (s->moving) {
        require(state == (m->prepared.pauses ? RVL_STATE_PAUSING : RVL_STATE_RESUMING));
    } else {
        require(state == s->state);
        if (state == RVL_STATE_ACTIVE && s->known)
            check_content(m, s);
    }
}

static void check_imports(api_model *m)
{
    for (int i = 0; i < API_IMPORTS; i++) {
        const api_import *import = &m->imports[i];
        rvl_allocation found = {.struct_size = sizeof found};
        if (import->addr == 0)
            continue;
        require(rvl_allocation_find(m->context, import->addr, &found) == RVL_OK);
        require(found.addr == import->addr && found.size_bytes == import->size);
        require(found.state == import->state && (found.flags & RVL_ALLOC_IMPORTED));
    }
}

static void check_device(api_model *m, int device)
{
    uint64_t active = 0, paused = 0, tagged = 0, tagged_paused = 0, host = 0;
    for (int i = 0; i < API_SLOTS; i++) {
        const api_slot *s = &m->slots[i];
        if (s->addr == 0 || s->device != device || s->moving)
            continue;
        active += s->state == RVL_STATE_ACTIVE ? s->size : 0;
        paused += s->state == RVL_STATE_ACTIVE ? 0 : s->size;
    }
    rvl_device_stats stats = {.struct_size = sizeof stats};
    require(rvl_device_get_stats(m->context, device, &stats) == RVL_OK);
    for (int i = 0; i < API_TAGS; i++) {
        rvl_tag_stats tag = {.struct_size = sizeof tag};
        require(rvl_tag_get_stats(m->context, m->tags[i], device, &tag) == RVL_OK);
        tagged += tag.active_bytes;
        tagged_paused += tag.paused_bytes;
        host += tag.host_backup_bytes;
    }
    require(tagged >= active && tagged_paused >= paused); /* shared blocks have room to spare */
    require(stats.external_bytes == m->external[device] && stats.host_backup_bytes == host);
    require(stats.used_bytes == tagged + stats.kept_bytes + stats.stranded_bytes +
                                    stats.external_bytes + stats.imported_bytes);
    require(stats.peak_bytes >= stats.used_bytes);
    uint64_t free_bytes = 0, total_bytes = 0;
    require(rvl_device_get_memory(m->context, device, &free_bytes, &total_bytes) == RVL_OK);
    require(total_bytes == stats.capacity_bytes);
    uint64_t taken_bytes = total_bytes - free_bytes;
    uint64_t held_bytes = stats.used_bytes + stats.prepared_bytes;
    require(api_is_prepared(m) || stats.prepared_bytes == 0);
    require(held_bytes > total_bytes ? free_bytes == 0 : taken_bytes == held_bytes);
    require(rvl_device_overcommitted(m->context, device) == stats.oom.happened);
    require(!stats.oom.happened || (m->mode & API_OVERCOMMIT));
}

void api_check(api_model *m)
{
    for (int i = 0; i < API_SLOTS; i++)
        if (m->slots[i].addr != 0)
            check_slot(m, &m->slots[i]);
    check_imports(m);
    for (unsigned i = 0; i < m->devices; i++)
        check_device(m, (int)i);
    if (m->store != NULL)
        check_store(m);
    require(rvl_stage_count(m->context) == m->stages);
}
