/* SPDX-License-Identifier: MIT */
/*
 * The public API as a program has it compiled in that was built with version 0.1. Written by
 * tests/abi/keep.py, and not to be changed: a later version gets a file of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RVL_ALLOC_EXPORTABLE 1u
#define RVL_ALLOC_IMPORTED 8u
#define RVL_ALLOC_PAUSED 4u
#define RVL_ALLOC_RDMA 2u
#define RVL_CONTEXT_DISK_TMPFS 4u
#define RVL_CONTEXT_LOG_OPS 1u
#define RVL_CONTEXT_NO_VERIFY 2u
#define RVL_LISTENED_UNKNOWN UINT64_MAX
#define RVL_MAX_DEVICES 64
#define RVL_MODEL_NO_LAYER UINT32_MAX
#define RVL_MODEL_RECOMPUTE 1u
#define RVL_MODEL_RESHARD 2u
#define RVL_NO_DEVICE (-1)
#define RVL_PAUSE_DISCARD 1u
#define RVL_PROFILE_NO_RDMA 1u
#define RVL_REPLAY_LISTED_HOLDERS 64u
#define RVL_REPLAY_PARTIAL 1u
#define RVL_REPLAY_SNAPSHOT_PARTS 2u
#define RVL_RESUME_NO_RESTORE 1u
#define RVL_SIM_OVERCOMMIT 1u
#define RVL_SNAPSHOT_BY_PART 1u
#define RVL_SNAPSHOT_EMPTY_CACHE 2u
#define RVL_SNAPSHOT_VERIFY 1u
#define RVL_TAG_RETAIN_BACKUPS 1u
#define RVL_TIMELINE_POINTS_DEFAULT 4000u
#define RVL_TIMELINE_POINTS_MAX 1000000u
#define RVL_TIMELINE_POINTS_MIN 16u
#define RVL_TRACE_MAJOR 1
#define RVL_TRACE_MINOR 0
#define RVL_TRACE_NO_TAG UINT32_MAX
#define RVL_TRACE_PARTIAL 1u
#define RVL_TRANSITION_MOVES 1u
#define RVL_TRANSITION_RENEWED 2u

typedef enum rvl_status {
    RVL_OK = (0),
    RVL_ERR_INVALID = (-1),
    RVL_ERR_STATE = (-2),
    RVL_ERR_BUSY = (-3),
    RVL_ERR_TIMEOUT = (-4),
    RVL_ERR_NOT_SUPPORTED = (-5),
    RVL_ERR_DEVICE_OOM = (-6),
    RVL_ERR_HOST_OOM = (-7),
    RVL_ERR_DISK_FULL = (-8),
    RVL_ERR_IO = (-9),
    RVL_ERR_NO_BACKEND = (-10),
    RVL_ERR_NO_DRIVER = (-11),
    RVL_ERR_DRIVER_TOO_OLD = (-12),
    RVL_ERR_NO_DEVICE = (-13),
    RVL_ERR_DEVICE_LOST = (-14),
    RVL_ERR_DIGEST_MISMATCH = (-15),
    RVL_ERR_CORRUPT_TRACE = (-16),
    RVL_ERR_VERSION = (-17),
    RVL_ERR_NOT_FOUND = (-18),
    RVL_ERR_VETOED = (-19),
    RVL_ERR_FORKED = (-20),
} rvl_status;
typedef struct rvl_error {
    size_t struct_size;
    rvl_status status;
    int native_code;
    int device;
    uint32_t line;
    uint64_t requested_bytes;
    uint64_t free_bytes;
    char op[24];
    char tag[48];
    char native_name[40];
    char message[256];
    char key[64];
    char file[1024];
    uint32_t column;
    uint32_t reserved;
} rvl_error;
const char *rvl_status_name(rvl_status status);
const char *rvl_status_text(rvl_status status);
rvl_status rvl_last_error(rvl_error *error_out);
void rvl_string_free(char *string);
typedef enum rvl_host_keep {
    RVL_HOST_KEEP_ALL = 0,
    RVL_HOST_KEEP_BYTES,
    RVL_HOST_KEEP_NONE
} rvl_host_keep;
typedef struct rvl_cuda_options {
    size_t struct_size;
    const int *devices;
    size_t device_count;
    rvl_host_keep host_keep;
    uint32_t reserved;
    uint64_t host_keep_bytes;
} rvl_cuda_options;
rvl_status rvl_cuda_get_entry(const char *name, int cuda_version, void **entry_out);
typedef struct rvl_context rvl_context;
typedef enum rvl_log_level {
    RVL_LOG_ERROR = 0,
    RVL_LOG_WARN,
    RVL_LOG_INFO,
    RVL_LOG_DEBUG
} rvl_log_level;
typedef void (*rvl_log_fn)(void *user, rvl_log_level level, const char *message);
typedef struct rvl_context_options {
    size_t struct_size;
    uint64_t flags;
    const void *backend_options;
    const char *process_name;
    rvl_log_fn log;
    void *log_user;
    uint64_t keep_bytes;
    const char *disk_directory;
} rvl_context_options;
rvl_status rvl_context_open(const char *backend, const rvl_context_options *options,
                            rvl_context **context_out);
rvl_status rvl_context_close(rvl_context *context, uint64_t *live_out);
typedef struct rvl_device_info {
    size_t struct_size;
    char name[64];
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    bool simulated;
    bool overcommit;
    bool rdma;
    uint8_t reserved[5];
} rvl_device_info;
int rvl_device_count(const rvl_context *context);
rvl_status rvl_device_get_info(const rvl_context *context, int device, rvl_device_info *info_out);
rvl_status rvl_device_synchronize(rvl_context *context, int device);
uint64_t rvl_clock_ns(const rvl_context *context);
rvl_status rvl_hooks_check_settings(void);
rvl_status rvl_hooks_get_context(int device, rvl_context **context_out);
rvl_status rvl_hooks_get_context_at(size_t index, int *device_out, rvl_context **context_out);
rvl_status rvl_hooks_pause(const char *tag);
rvl_status rvl_hooks_resume(const char *tag);
rvl_status rvl_hooks_stage(const char *name);
rvl_status rvl_hooks_step(void);
const char *rvl_hooks_mode(void);
typedef struct rvl_cost {
    uint32_t call_ns;
    uint32_t fs_per_byte;
} rvl_cost;
typedef struct rvl_cost_model {
    rvl_cost reserve;
    rvl_cost release_range;
    rvl_cost create;
    rvl_cost release;
    rvl_cost reclaim;
    rvl_cost map;
    rvl_cost set_access;
    rvl_cost unmap;
    rvl_cost fill;
    rvl_cost host_alloc;
    rvl_cost host_free;
    rvl_cost copy_to_host;
    rvl_cost copy_to_device;
    rvl_cost digest;
    rvl_cost disk_write;
    rvl_cost disk_read;
} rvl_cost_model;
typedef struct rvl_profile {
    size_t struct_size;
    const char *name;
    const char *description;
    const char *source;
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    uint32_t flags;
    uint32_t reserved;
    rvl_cost_model cost;
} rvl_profile;
size_t rvl_profile_count(void);
rvl_status rvl_profile_get(size_t index, rvl_profile *profile_out);
rvl_status rvl_profile_find(const char *text, rvl_profile *profile_out);
rvl_status rvl_size_parse(const char *text, uint64_t *bytes_out);
typedef enum rvl_sim_memory { RVL_SIM_BACKED = 0, RVL_SIM_ACCOUNTED } rvl_sim_memory;
typedef struct rvl_sim_options {
    size_t struct_size;
    uint64_t flags;
    const rvl_profile *const *devices;
    size_t device_count;
    rvl_sim_memory memory;
    int poison;
} rvl_sim_options;
typedef uint64_t rvl_addr;
typedef uint32_t rvl_process;
typedef uint32_t rvl_tag;
typedef enum rvl_backup { RVL_BACKUP_NONE = 0, RVL_BACKUP_HOST, RVL_BACKUP_DISK } rvl_backup;
typedef enum rvl_state {
    RVL_STATE_ACTIVE,
    RVL_STATE_PAUSING,
    RVL_STATE_PAUSED,
    RVL_STATE_RESUMING,
    RVL_STATE_LOST,
} rvl_state;
const char *rvl_state_text(rvl_state state);
rvl_status rvl_process_define(rvl_context *context, const char *name, rvl_process *process_out);
typedef rvl_status (*rvl_before_unmap_fn)(void *user, rvl_tag tag);
typedef void (*rvl_after_map_fn)(void *user, rvl_tag tag);
typedef struct rvl_tag_options {
    size_t struct_size;
    uint64_t flags;
    rvl_process process;
    uint32_t reserved;
    uint64_t block_bytes;
    uint64_t coalesce_bytes;
    rvl_before_unmap_fn before_unmap;
    rvl_after_map_fn after_map;
    void *callback_user;
} rvl_tag_options;
rvl_status rvl_tag_define(rvl_context *context, const char *name, const rvl_tag_options *options,
                          rvl_tag *tag_out);
rvl_status rvl_tag_find(rvl_context *context, rvl_process process, const char *name,
                        rvl_tag *tag_out);
const char *rvl_tag_name(rvl_context *context, rvl_tag tag);
rvl_status rvl_tag_set_retain_backups(rvl_context *context, rvl_tag tag, bool retain);
typedef struct rvl_alloc_options {
    size_t struct_size;
    uint64_t flags;
    const char *tag;
    rvl_tag tag_id;
    rvl_process process;
    int device;
    rvl_backup backup;
    const int *access;
    size_t access_count;
} rvl_alloc_options;
rvl_status rvl_alloc(rvl_context *context, uint64_t size_bytes, const rvl_alloc_options *options,
                     rvl_addr *addr_out);
rvl_status rvl_free(rvl_context *context, rvl_addr addr);
typedef struct rvl_allocation {
    size_t struct_size;
    rvl_addr addr;
    uint64_t size_bytes;
    uint64_t id;
    rvl_tag tag;
    rvl_process process;
    int device;
    rvl_backup backup;
    rvl_state state;
    uint32_t flags;
    uint64_t access_mask;
    uint64_t backup_bytes;
} rvl_allocation;
rvl_status rvl_allocation_find(rvl_context *context, rvl_addr addr, rvl_allocation *allocation_out);
rvl_status rvl_allocation_next(rvl_context *context, rvl_addr from, rvl_allocation *allocation_out);
rvl_status rvl_backup_find(rvl_context *context, rvl_addr addr, const void **host_out,
                           uint64_t *size_out);
rvl_status rvl_backup_find_file(rvl_context *context, rvl_addr addr, int *fd_out,
                                uint64_t *offset_out, uint64_t *size_out);
rvl_status rvl_stage(rvl_context *context, const char *name);
rvl_status rvl_step(rvl_context *context);
rvl_status rvl_external_set(rvl_context *context, int device, const char *cause, uint64_t bytes);
typedef struct rvl_oom {
    bool happened;
    bool external;
    uint8_t reserved[2];
    uint32_t stage;
    const char *cause;
    rvl_process process;
    rvl_tag tag;
    uint64_t requested_bytes;
    uint64_t free_bytes;
} rvl_oom;
typedef struct rvl_device_stats {
    size_t struct_size;
    uint32_t peak_stage;
    uint32_t reserved;
    rvl_oom oom;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t external_bytes;
    uint64_t kept_bytes;
    uint64_t stranded_bytes;
    uint64_t peak_bytes;
    uint64_t host_backup_bytes;
    uint64_t host_peak_bytes;
    uint64_t disk_backup_bytes;
    uint64_t disk_peak_bytes;
    uint64_t allocation_count;
    uint64_t alloc_calls;
    uint64_t free_calls;
    uint64_t pauses;
    uint64_t resumes;
    uint64_t backup_out_bytes;
    uint64_t backup_in_bytes;
    uint64_t transition_ns;
    uint64_t imported_bytes;
} rvl_device_stats;
rvl_status rvl_device_get_stats(rvl_context *context, int device, rvl_device_stats *stats_out);
rvl_status rvl_device_get_memory(rvl_context *context, int device, uint64_t *free_bytes_out,
                                 uint64_t *total_bytes_out);
typedef struct rvl_host_memory {
    size_t struct_size;
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t pageable_bytes;
    uint64_t staged_copy_bytes;
    uint64_t registering_refused;
} rvl_host_memory;
rvl_status rvl_host_get_memory(rvl_context *context, rvl_host_memory *memory_out);
rvl_status rvl_host_trim(rvl_context *context, uint64_t keep_bytes);
bool rvl_device_overcommitted(const rvl_context *context, int device);
typedef struct rvl_tag_stats {
    size_t struct_size;
    uint64_t active_bytes;
    uint64_t paused_bytes;
    uint64_t peak_bytes;
    uint64_t host_backup_bytes;
    uint64_t allocation_count;
    uint64_t pauses;
    uint64_t resumes;
} rvl_tag_stats;
rvl_status rvl_tag_get_stats(rvl_context *context, rvl_tag tag, int device,
                             rvl_tag_stats *stats_out);
typedef struct rvl_stage_stats {
    size_t struct_size;
    const char *name;
    const char *mark;
    uint32_t step;
    uint32_t reserved;
    uint64_t peak_bytes;
    uint64_t end_bytes;
    uint64_t free_at_peak_bytes;
    uint64_t host_bytes;
    uint64_t transition_ns;
} rvl_stage_stats;
uint32_t rvl_stage_count(rvl_context *context);
rvl_status rvl_stage_get_stats(rvl_context *context, uint32_t stage, int device,
                               rvl_stage_stats *stats_out);
typedef struct rvl_holder {
    const char *process;
    const char *tag;
    uint64_t bytes;
} rvl_holder;
rvl_status rvl_stage_get_holders(rvl_context *context, uint32_t stage, int device,
                                 rvl_holder *holders_out, size_t holder_size, size_t capacity,
                                 size_t *count_out);
typedef struct rvl_timeline rvl_timeline;
typedef struct rvl_timeline_options {
    size_t struct_size;
    uint32_t points;
    uint32_t reserved;
} rvl_timeline_options;
rvl_status rvl_timeline_open(const rvl_timeline_options *options, rvl_timeline **timeline_out);
typedef struct rvl_timeline_device {
    size_t struct_size;
    int device;
    uint32_t reserved;
    const char *profile;
    uint64_t capacity_bytes;
    uint64_t peak_bytes;
    uint64_t peak_ns;
    uint64_t changes;
    uint32_t series_count;
    uint32_t point_count;
} rvl_timeline_device;
size_t rvl_timeline_device_count(const rvl_timeline *timeline);
uint64_t rvl_timeline_end_ns(const rvl_timeline *timeline);
rvl_status rvl_timeline_get_device(const rvl_timeline *timeline, size_t index,
                                   rvl_timeline_device *device_out);
typedef struct rvl_timeline_series {
    size_t struct_size;
    const char *process;
    const char *tag;
    bool external;
    bool paused;
    uint8_t reserved[6];
    uint64_t peak_bytes;
} rvl_timeline_series;
rvl_status rvl_timeline_get_series(const rvl_timeline *timeline, size_t device_index,
                                   uint32_t series, rvl_timeline_series *series_out);
typedef struct rvl_timeline_value {
    uint32_t series;
    uint32_t reserved;
    uint64_t before_bytes;
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint64_t last_bytes;
    uint64_t at_peak_bytes;
} rvl_timeline_value;
typedef struct rvl_timeline_point {
    size_t struct_size;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t changes;
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint64_t last_bytes;
    uint64_t peak_ns;
    uint32_t value_count;
    uint32_t reserved;
} rvl_timeline_point;
rvl_status rvl_timeline_get_point(const rvl_timeline *timeline, size_t device_index, uint32_t point,
                                  rvl_timeline_point *point_out);
rvl_status rvl_timeline_get_values(const rvl_timeline *timeline, size_t device_index,
                                   uint32_t point, rvl_timeline_value *values_out,
                                   size_t value_size, size_t capacity, size_t *count_out);
typedef struct rvl_timeline_stage {
    size_t struct_size;
    const char *name;
    uint32_t step;
    uint32_t reserved;
    uint64_t begin_ns;
    uint32_t first;
    uint32_t count;
} rvl_timeline_stage;
uint32_t rvl_timeline_stage_count(const rvl_timeline *timeline);
rvl_status rvl_timeline_get_stage(const rvl_timeline *timeline, uint32_t stage,
                                  rvl_timeline_stage *stage_out);
void rvl_timeline_close(rvl_timeline *timeline);
typedef enum rvl_event_kind {
    RVL_EVENT_ALLOC,
    RVL_EVENT_FREE,
    RVL_EVENT_PAUSE,
    RVL_EVENT_RESUME,
    RVL_EVENT_STAGE,
    RVL_EVENT_STEP,
    RVL_EVENT_EXTERNAL,
    RVL_EVENT_SAMPLE,
    RVL_EVENT_KIND_COUNT
} rvl_event_kind;
typedef struct rvl_trace_event {
    rvl_event_kind kind;
    uint32_t process_index;
    uint64_t time_ns;
    uint64_t id;
    uint64_t bytes;
    uint64_t access_mask;
    uint32_t thread;
    uint32_t device;
    uint32_t tag_index;
    uint32_t flags;
    rvl_backup backup;
    bool skip_content;
    uint8_t reserved[3];
    const char *process;
    const char *tag;
    const char *name;
    uint32_t file;
    uint32_t line;
} rvl_trace_event;
typedef struct rvl_trace_device {
    uint32_t index;
    uint32_t reserved;
    const char *profile;
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
} rvl_trace_device;
typedef struct rvl_trace_writer rvl_trace_writer;
typedef struct rvl_trace_header {
    size_t struct_size;
    const char *boot_id;
    uint64_t mono_ns;
    uint64_t wall_ns;
    const rvl_trace_device *devices;
    size_t device_count;
    size_t device_size;
    const char *comment;
} rvl_trace_header;
rvl_status rvl_trace_writer_open(const char *path, const rvl_trace_header *header,
                                 rvl_trace_writer **writer_out);
rvl_status rvl_trace_writer_open_draft(const char *path, const rvl_trace_header *header,
                                       rvl_trace_writer **writer_out);
rvl_status rvl_trace_writer_add_process(rvl_trace_writer *writer, const char *name, uint64_t pid);
rvl_status rvl_trace_writer_add_event(rvl_trace_writer *writer, const rvl_trace_event *event,
                                      size_t event_size);
rvl_status rvl_trace_writer_add_comment(rvl_trace_writer *writer, const char *text);
rvl_status rvl_trace_writer_flush(rvl_trace_writer *writer);
rvl_status rvl_trace_writer_close(rvl_trace_writer *writer);
void rvl_trace_writer_discard(rvl_trace_writer *writer);
typedef struct rvl_trace_reader rvl_trace_reader;
typedef struct rvl_trace_reader_options {
    size_t struct_size;
    uint64_t flags;
    const char *const *names;
} rvl_trace_reader_options;
rvl_status rvl_trace_reader_open(const char *const *paths, size_t path_count,
                                 const rvl_trace_reader_options *options,
                                 rvl_trace_reader **reader_out);
rvl_status rvl_trace_reader_next(rvl_trace_reader *reader, rvl_trace_event *event_out,
                                 size_t event_size);
uint32_t rvl_trace_find_column(const char *path, uint32_t line, uint32_t field);
rvl_status rvl_trace_reader_get_devices(const rvl_trace_reader *reader,
                                        rvl_trace_device *devices_out, size_t device_size,
                                        size_t capacity, size_t *count_out);
const char *rvl_trace_reader_path(const rvl_trace_reader *reader, uint32_t file);
typedef struct rvl_trace_progress {
    size_t struct_size;
    uint64_t bytes_read;
    uint64_t bytes_total;
    uint64_t events;
    uint64_t skipped_events;
    uint64_t cut_files;
} rvl_trace_progress;
void rvl_trace_reader_get_progress(const rvl_trace_reader *reader,
                                   rvl_trace_progress *progress_out);
void rvl_trace_reader_close(rvl_trace_reader *reader);
typedef struct rvl_replay rvl_replay;
typedef enum rvl_wake { RVL_WAKE_STAGED = 0, RVL_WAKE_TOGETHER } rvl_wake;
typedef struct rvl_budget {
    const char *stage;
    uint64_t bytes;
} rvl_budget;
typedef void (*rvl_replay_progress_fn)(void *user, const rvl_trace_progress *progress);
typedef rvl_status (*rvl_replay_filter_fn)(void *user, rvl_trace_event *event, bool *keep_out);
typedef struct rvl_replay_options {
    size_t struct_size;
    uint64_t flags;
    const char *backend;
    const char *device;
    const char *conductor;
    rvl_wake wake;
    uint32_t settle_ms;
    const rvl_budget *budgets;
    size_t budget_count;
    size_t budget_size;
    rvl_replay_progress_fn progress;
    void *progress_user;
    rvl_timeline *timeline;
    const char *snapshot_process;
    uint32_t snapshot_device;
    uint32_t reserved;
    rvl_replay_filter_fn filter;
    void *filter_user;
    size_t event_size;
} rvl_replay_options;
rvl_status rvl_replay_run(const char *const *paths, size_t path_count,
                          const rvl_replay_options *options, rvl_replay **replay_out);
rvl_status rvl_replay_open_reader(const char *const *paths, size_t path_count,
                                  const rvl_replay_options *options, rvl_trace_reader **reader_out);
typedef struct rvl_replay_source {
    size_t struct_size;
    const char *name;
    const rvl_trace_device *devices;
    size_t device_count;
    size_t device_size;
    size_t event_size;
    rvl_status (*next)(void *user, rvl_trace_event *event_out);
    rvl_status (*rewind)(void *user);
    void *user;
} rvl_replay_source;
rvl_status rvl_replay_run_source(const rvl_replay_source *source, const rvl_replay_options *options,
                                 rvl_replay **replay_out);
typedef struct rvl_replay_events {
    size_t struct_size;
    const char *name;
    const rvl_trace_device *devices;
    size_t device_count;
    size_t device_size;
    const rvl_trace_event *events;
    size_t event_count;
    size_t event_size;
} rvl_replay_events;
rvl_status rvl_replay_run_events(const rvl_replay_events *events, const rvl_replay_options *options,
                                 rvl_replay **replay_out);
typedef struct rvl_replay_device {
    size_t struct_size;
    int device;
    bool fits;
    bool within_budgets;
    uint8_t reserved[2];
    const char *profile;
    uint64_t capacity_bytes;
    uint64_t peak_bytes;
    uint32_t peak_stage;
    uint32_t stage_count;
    const char *oom_file;
    uint32_t oom_line;
    uint32_t oom_stage;
    const char *oom_process;
    const char *oom_tag;
    uint64_t oom_requested_bytes;
    uint64_t oom_free_bytes;
    uint64_t sample_count;
    int64_t worst_sample_difference_bytes;
} rvl_replay_device;
size_t rvl_replay_device_count(const rvl_replay *replay);
uint64_t rvl_replay_event_count(const rvl_replay *replay, uint64_t *skipped_out);
rvl_status rvl_replay_get_device(const rvl_replay *replay, size_t index,
                                 rvl_replay_device *device_out);
rvl_status rvl_replay_get_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                rvl_stage_stats *stage_out, bool *over_budget_out);
rvl_status rvl_replay_get_holders(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  rvl_holder *holders_out, size_t holder_size, size_t capacity,
                                  size_t *count_out);
rvl_status rvl_replay_get_measured(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                   uint64_t *peak_bytes_out, uint64_t *end_bytes_out);
rvl_status rvl_replay_get_reading(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  uint64_t *read_bytes_out, uint64_t *predicted_bytes_out);
rvl_status rvl_replay_to_json(const rvl_replay *replay, char **json_out);
typedef bool (*rvl_replay_write_fn)(void *user, const char *text, size_t size);
rvl_status rvl_replay_write_json(const rvl_replay *replay, rvl_replay_write_fn write, void *user);
void rvl_replay_close(rvl_replay *replay);
typedef struct rvl_model rvl_model;
typedef struct rvl_model_step rvl_model_step;
rvl_status rvl_model_open(const char *path, rvl_model **model_out);
rvl_status rvl_model_parse(const char *text, size_t length, rvl_model **model_out);
void rvl_model_close(rvl_model *model);
const char *rvl_model_type(const rvl_model *model);
uint64_t rvl_model_parameter_count(const rvl_model *model);
typedef struct rvl_model_tensor {
    size_t struct_size;
    char name[96];
    uint32_t layer;
    uint32_t reserved;
    uint64_t rows;
    uint64_t columns;
} rvl_model_tensor;
typedef void (*rvl_model_tensor_fn)(void *user, const rvl_model_tensor *tensor);
void rvl_model_visit_tensors(const rvl_model *model, rvl_model_tensor_fn fn, void *user);
const char *rvl_model_family(size_t index);
typedef enum rvl_model_term {
    RVL_MODEL_WEIGHTS,
    RVL_MODEL_KV_CACHE,
    RVL_MODEL_CUDA_GRAPH,
    RVL_MODEL_BUFFERS,
    RVL_MODEL_SHARDED_WEIGHTS,
    RVL_MODEL_MASTER_WEIGHTS,
    RVL_MODEL_OPTIMIZER,
    RVL_MODEL_GRADIENTS,
    RVL_MODEL_GRADIENT_BUCKETS,
    RVL_MODEL_ALL_GATHER,
    RVL_MODEL_ACTIVATIONS,
    RVL_MODEL_LOGITS,
    RVL_MODEL_TRAINING_COPY,
    RVL_MODEL_ENGINE_CONTEXT,
    RVL_MODEL_TRAINER_CONTEXT,
    RVL_MODEL_TRAINER_RESIDUE,
    RVL_MODEL_ASLEEP,
    RVL_MODEL_TERM_COUNT
} rvl_model_term;
typedef enum rvl_model_train {
    RVL_MODEL_TRAIN_NONE = 0,
    RVL_MODEL_TRAIN_FSDP,
    RVL_MODEL_TRAIN_DDP
} rvl_model_train;
typedef enum rvl_model_strategy {
    RVL_MODEL_V3 = 0,
    RVL_MODEL_V0,
    RVL_MODEL_V1,
    RVL_MODEL_V2
} rvl_model_strategy;
typedef enum rvl_model_dtype {
    RVL_MODEL_DTYPE_AUTO = 0,
    RVL_MODEL_BF16,
    RVL_MODEL_FP8,
    RVL_MODEL_INT4,
    RVL_MODEL_INT8
} rvl_model_dtype;
typedef enum rvl_model_optimizer {
    RVL_MODEL_ADAMW,
    RVL_MODEL_ADAMW_BF16,
    RVL_MODEL_ADAMW_8BIT,
    RVL_MODEL_SGD_MOMENTUM,
    RVL_MODEL_SGD,
    RVL_MODEL_OPTIMIZER_COUNT
} rvl_model_optimizer;
typedef struct rvl_model_given {
    rvl_model_term term;
    uint32_t reserved;
    uint64_t bytes;
} rvl_model_given;
typedef struct rvl_model_options {
    size_t struct_size;
    uint64_t flags;
    const char *device;
    uint32_t tp;
    uint32_t pp;
    uint32_t pp_rank;
    uint32_t ep;
    rvl_model_train train;
    uint32_t train_ranks;
    uint32_t mem_fraction_ppm;
    rvl_model_strategy strategy;
    rvl_wake wake;
    uint32_t micro_batch;
    uint32_t seq_len;
    rvl_model_optimizer optimizer;
    rvl_model_dtype weights_dtype;
    rvl_model_dtype kv_dtype;
    const char *name;
    const char *const *notes;
    size_t note_count;
    const rvl_model_given *given;
    size_t given_count;
    size_t given_size;
} rvl_model_options;
rvl_status rvl_model_step_make(const rvl_model *model, const rvl_model_options *options,
                               rvl_model_step **step_out);
void rvl_model_step_close(rvl_model_step *step);
uint64_t rvl_model_step_bytes(const rvl_model_step *step, rvl_model_term term);
size_t rvl_model_step_allocation_count(const rvl_model_step *step, rvl_model_term term);
const char *rvl_model_step_tag(const rvl_model_step *step, rvl_model_term term);
uint64_t rvl_model_step_token_count(const rvl_model_step *step);
rvl_status rvl_model_step_get_device(const rvl_model_step *step, rvl_trace_device *device_out,
                                     size_t device_size);
rvl_status rvl_model_step_get_events(const rvl_model_step *step, rvl_trace_event *events_out,
                                     size_t event_size, size_t capacity, size_t *count_out);
rvl_status rvl_model_step_replay(const rvl_model_step *step, const rvl_replay_options *options,
                                 rvl_replay **replay_out);
rvl_status rvl_model_step_write(const rvl_model_step *step, const char *path);
rvl_status rvl_record_start(rvl_context *context, const char *path);
rvl_status rvl_record_stop(rvl_context *context);
typedef struct rvl_transition rvl_transition;
typedef struct rvl_pause_options {
    size_t struct_size;
    uint64_t flags;
    rvl_process process;
    uint32_t reserved;
    void *const *events;
    size_t event_count;
    void *const *streams;
    size_t stream_count;
} rvl_pause_options;
rvl_status rvl_pause(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                     const rvl_pause_options *options);
typedef struct rvl_resume_options {
    size_t struct_size;
    uint64_t flags;
    rvl_process process;
    uint32_t reserved;
    uint64_t timeout_ns;
    void *const *streams;
    size_t stream_count;
} rvl_resume_options;
rvl_status rvl_resume(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                      const rvl_resume_options *options);
rvl_status rvl_pause_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_pause_options *options, rvl_transition **transition_out);
rvl_status rvl_resume_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                              const rvl_resume_options *options, rvl_transition **transition_out);
rvl_status rvl_transition_commit(rvl_transition *transition);
rvl_status rvl_transition_abort(rvl_transition *transition);
typedef struct rvl_forecast {
    size_t struct_size;
    int device;
    bool fits;
    uint8_t reserved[3];
    uint64_t needed_bytes;
    uint64_t free_bytes;
    uint64_t host_bytes;
    uint64_t disk_bytes;
    uint64_t allocation_count;
    uint64_t time_ns;
} rvl_forecast;
rvl_status rvl_pause_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                              const rvl_pause_options *options, rvl_forecast *forecast_out);
rvl_status rvl_resume_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                               const rvl_resume_options *options, rvl_forecast *forecast_out);
typedef enum rvl_transition_kind {
    RVL_TRANSITION_PAUSE = 0,
    RVL_TRANSITION_RESUME
} rvl_transition_kind;
rvl_transition_kind rvl_transition_get_kind(const rvl_transition *transition);
rvl_context *rvl_transition_get_context(const rvl_transition *transition);
rvl_tag rvl_transition_get_tag(const rvl_transition *transition, size_t index);
uint32_t rvl_transition_find(const rvl_transition *transition, uint64_t allocation_id);
typedef rvl_status (*rvl_guard_before_fn)(void *user, const rvl_transition *transition);
typedef void (*rvl_guard_after_fn)(void *user, const rvl_transition *transition, bool done);
typedef struct rvl_guard {
    size_t struct_size;
    rvl_guard_before_fn before;
    rvl_guard_after_fn after;
    void *user;
} rvl_guard;
rvl_status rvl_context_set_guard(rvl_context *context, const rvl_guard *guard);
typedef struct rvl_listened {
    size_t struct_size;
    const rvl_context *context;
    rvl_addr addr;
    uint64_t size_bytes;
    const char *tag;
    int ordinal;
    rvl_backup backup;
    rvl_state state;
    uint32_t reserved;
} rvl_listened;
typedef struct rvl_listener {
    size_t struct_size;
    void (*opening)(uint64_t *used_bytes);
    void (*opened)(uint64_t ordinals, const uint64_t *used_bytes);
    void (*closed)(uint64_t ordinals);
    void (*allocated)(const rvl_listened *what);
    void (*freeing)(const rvl_context *context, rvl_addr addr);
    void (*before)(const rvl_transition *transition);
    void (*after)(const rvl_transition *transition);
    void (*stage)(const rvl_context *context, const char *name);
    void (*step)(const rvl_context *context);
} rvl_listener;
rvl_status rvl_listener_set(const rvl_listener *listener);
bool rvl_address_is_paused(rvl_addr addr);
typedef struct rvl_export_options {
    size_t struct_size;
    uint64_t allocation_id;
    uint64_t first_block;
} rvl_export_options;
typedef struct rvl_export {
    size_t struct_size;
    uint64_t allocation_id;
    uint64_t size_bytes;
    uint64_t block_count;
    uint64_t file_count;
} rvl_export;
rvl_status rvl_allocation_export(rvl_context *context, rvl_addr addr,
                                 const rvl_export_options *options, int *fds_out,
                                 uint64_t *block_bytes_out, size_t capacity,
                                 rvl_export *export_out);
typedef struct rvl_import rvl_import;
typedef struct rvl_import_options {
    size_t struct_size;
    const char *tag;
    rvl_process process;
    int device;
    const int *access;
    size_t access_count;
} rvl_import_options;
rvl_status rvl_import_begin(rvl_context *context, uint64_t size_bytes,
                            const rvl_import_options *options, rvl_import **import_out);
rvl_status rvl_import_add(rvl_import *import, const int *fds, const uint64_t *block_bytes,
                          size_t count);
rvl_status rvl_import_finish(rvl_import *import, rvl_addr *addr_out);
void rvl_import_cancel(rvl_import *import);
rvl_status rvl_import_pause(rvl_context *context, rvl_addr addr);
rvl_status rvl_import_resume(rvl_context *context, rvl_addr addr);
rvl_status rvl_import_release(rvl_context *context, rvl_addr addr);
const char *rvl_version(void);
typedef struct rvl_snapshot rvl_snapshot;
typedef struct rvl_snapshot_options {
    size_t struct_size;
    uint64_t flags;
    const char *stage_prefix;
    const char *const *settings;
    size_t setting_count;
    uint64_t capacity_bytes;
    uint32_t device;
    uint32_t reserved;
} rvl_snapshot_options;
rvl_status rvl_snapshot_run(const char *path, const rvl_snapshot_options *options,
                            rvl_snapshot **snapshot_out);
typedef struct rvl_snapshot_trace {
    size_t struct_size;
    uint64_t flags;
    const char *process;
    const rvl_trace_device *device;
    size_t device_size;
} rvl_snapshot_trace;
rvl_status rvl_snapshot_write_trace(const char *path, const rvl_snapshot_options *options,
                                    const rvl_snapshot_trace *trace, const char *trace_path);
typedef struct rvl_snapshot_facts {
    size_t struct_size;
    bool verify;
    bool exact;
    bool diverged;
    uint8_t reserved[5];
    uint64_t diverged_at;
    const char *diverged_action;
    const char *diverged_why;
    uint64_t diverged_addr;
    uint64_t diverged_expected_addr;
    uint64_t diverged_bytes;
    uint64_t diverged_expected_bytes;
    uint64_t event_count;
    uint64_t skipped_count;
    uint64_t oom_count;
    uint64_t oom_event;
    uint64_t oom_requested_bytes;
    uint32_t stage_count;
    uint32_t note_count;
} rvl_snapshot_facts;
rvl_status rvl_snapshot_get_facts(const rvl_snapshot *snapshot, rvl_snapshot_facts *facts_out);
const char *rvl_snapshot_note(const rvl_snapshot *snapshot, uint32_t note);
typedef struct rvl_snapshot_stage {
    size_t struct_size;
    const char *name;
    uint64_t peak_allocated_bytes;
    uint64_t peak_reserved_bytes;
    uint64_t end_reserved_bytes;
    uint64_t num_alloc_retries;
    uint64_t rounding_bytes;
    uint64_t split_bytes;
    uint64_t cached_bytes;
    uint64_t pending_bytes;
    uint64_t pinned_bytes;
    uint64_t pinning_event;
    uint64_t pinning_addr;
    uint64_t pinning_size_bytes;
} rvl_snapshot_stage;
rvl_status rvl_snapshot_get_stage(const rvl_snapshot *snapshot, uint32_t stage,
                                  rvl_snapshot_stage *stage_out);
rvl_status rvl_snapshot_to_json(const rvl_snapshot *snapshot, char **json_out);
void rvl_snapshot_close(rvl_snapshot *snapshot);
