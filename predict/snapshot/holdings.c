/* SPDX-License-Identifier: MIT */
/* Finds the tags and lines of tensors (predict/snapshot/holdings.h). */
#include "predict/snapshot/holdings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/intmap.h"
#include "predict/snapshot/observed.h"

#define ROUNDING 512u /* PyTorch's blocks are multiples of this */
/* Tensors to look at, over all stages. Beyond this, the last stages get no parts and lines. */
#define WORK_MAX (UINT64_C(1) << 31)
#define TAGS_MAX 1024u

/* X(NAME, text): the tags that rules assign. */
#define TAG_MAP(X)                                                                                 \
    X(TENSORS, "tensors")                                                                          \
    X(WEIGHTS, "weights")                                                                          \
    X(GATHERED, "gathered weights")                                                                \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(ACTIVATIONS, "activations")                                                                  \
    X(TEMPORARY, "temporary")                                                                      \
    X(CACHE, "KV cache")                                                                           \
    X(GRAPHS, "graphs")                                                                            \
    X(OTHER, "other tensors")                                                                      \
    X(ROUNDED, "rounding")                                                                         \
    X(PENDING, "pending")                                                                          \
    X(CACHED, "cached")

#define AWAY_MOST 4u /* pools that can be released; further ones are always present */

typedef enum tag_number {
#define TAG_ENUM(name, text) TAG_##name,
    TAG_MAP(TAG_ENUM)
#undef TAG_ENUM
        TAG_RULES
} tag_number;

/* Facts about every tensor with this stack. */
typedef struct stack_facts {
    rvli_place place;
    uint16_t module; /* + 1; 0: none */
    uint8_t tag;     /* tag_number by its functions; TAG_TENSORS: none */
    bool known;
    bool forward;   /* a module computes in its forward pass */
    bool recompute; /* a checkpoint computes again, in the backward pass */
} stack_facts;

/* Facts about a tensor that hold at every instant. */
typedef struct tensor_facts {
    uint16_t tag;
    uint16_t module;
    bool of_graphs; /* in a pool of CUDA graphs */
    uint32_t away;  /* the bit of its pool; 0: the pool is always present */
    uint32_t phase; /* of a tensor without a stack: index into `observed.phases` + 1 */
} tensor_facts;

typedef struct finder {
    const rvli_run *run;
    const rvli_recording *recording;
    const rvli_pickle *pickle;
    rvli_observed observed;
    rvli_tensors tensors;
    uint8_t *kinds;      /* by frame */
    stack_facts *stacks; /* by stack */
    tensor_facts *facts; /* by tensor */
    bool *graphs;        /* by pool: CUDA graphs were captured into it */
    uint32_t *away;      /* by pool: its bit if it can be released, or 0 */
    uint32_t away_count; /* number of pools with a bit */
    uint32_t gone;       /* bits of the pools that are released in the current stage */
    rvli_snapshot_piece tags[TAGS_MAX];
    uint32_t tag_count;
    uint64_t work;
    bool all_frames;
    bool goes_on; /* another recording follows: the last instant ends with the last entry */
} finder;

/* ---- Texts ---- */

static rvli_snapshot_piece piece_of(const char *text)
{
    return (rvli_snapshot_piece){text, (uint32_t)strlen(text)};
}

static rvli_snapshot_piece text_of(const finder *from, uint32_t text)
{
    if (text == 0)
        return (rvli_snapshot_piece){"", 0};
    const rvli_text_row *row = &from->pickle->texts[text - 1];
    return (rvli_snapshot_piece){(const char *)from->pickle->data + row->at, row->length};
}

static bool same(rvli_snapshot_piece left, rvli_snapshot_piece right)
{
    return left.length == right.length &&
           (left.length == 0 || memcmp(left.text, right.text, left.length) == 0);
}

static bool has(rvli_snapshot_piece piece, const char *part)
{
    return piece.length > 0 && memmem(piece.text, piece.length, part, strlen(part)) != NULL;
}

/*
 * Returns the number of a tag, and adds a new one. Once the table is full, new tags become "other
 * tensors".
 */
static uint16_t tag_named(finder *from, rvli_snapshot_piece name)
{
    for (uint32_t i = 0; i < from->tag_count; i++) {
        if (same(from->tags[i], name))
            return (uint16_t)i;
    }
    if (from->tag_count == TAGS_MAX)
        return TAG_OTHER;
    from->tags[from->tag_count] = name;
    return (uint16_t)from->tag_count++;
}

/* ---- Facts from stacks ---- */

/*
 * Finds functions of PyTorch that allocate for one purpose: the gathers and reductions of FSDP, and
 * the buckets of DDP. KV caches are known by the names that engines give them. A module further in
 * cancels this: the engine runs the model to measure its memory, as vLLM does before it sizes its
 * cache.
 */
static void look_at_frame(finder *from, stack_facts *facts, uint32_t frame)
{
    const rvli_frame_row *row = &from->pickle->frames[frame];
    rvli_snapshot_piece file = text_of(from, row->file), name = text_of(from, row->name);
    bool torch = from->kinds[frame] == RVLI_FRAME_TORCH;
    if (torch && has(file, "/fsdp/") && (has(name, "all_gather") || has(name, "unshard")))
        facts->tag = TAG_GATHERED;
    else if (torch &&
             ((has(file, "/fsdp/") && has(name, "reduce")) ||
              has(file, "/nn/parallel/distributed.py")) &&
             facts->tag == TAG_TENSORS && !has(name, "forward"))
        facts->tag = TAG_GRADIENTS;
    else if (!torch && from->kinds[frame] <= RVLI_FRAME_PACKAGE &&
             (has(name, "kv_cache") || has(file, "/cache_utils.py")))
        facts->tag = TAG_CACHE;
    else if (torch && has(name, "_call_impl") && facts->tag == TAG_CACHE)
        facts->tag = TAG_TENSORS;
    facts->forward = facts->forward || (torch && has(name, "_call_impl"));
    facts->recompute = facts->recompute ||
                       (torch && has(file, "/utils/checkpoint.py") &&
                        (has(name, "recompute") || has(name, "unpack") || has(name, "backward")));
}

/* Finds the innermost module class with a line on the stack. Later frames are further in. */
static void look_for_module(const finder *from, stack_facts *facts, uint32_t frame)
{
    const rvli_frame_row *row = &from->pickle->frames[frame];
    if (from->kinds[frame] > RVLI_FRAME_PACKAGE || row->line == 0)
        return;
    rvli_snapshot_piece file = text_of(from, row->file);
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < from->observed.module_count && i < UINT16_MAX; i++) {
        const rvli_module *module = &from->observed.modules[i];
        if (row->line >= module->first && row->line <= module->last && same(module->file, file) &&
            (found == SIZE_MAX || module->first > from->observed.modules[found].first))
            found = i;
    }
    if (found != SIZE_MAX)
        facts->module = (uint16_t)(found + 1);
}

static const stack_facts *facts_of_stack(finder *from, uint32_t stack)
{
    static const stack_facts none = {0};
    if (stack == 0)
        return &none;
    stack_facts *facts = &from->stacks[stack - 1];
    if (facts->known)
        return facts;
    facts->known = true;
    facts->place = rvli_frames_place(from->pickle, from->kinds, stack, from->all_frames);
    for (uint32_t node = stack; node > 0; node = from->pickle->stacks[node - 1].inner) {
        look_at_frame(from, facts, from->pickle->stacks[node - 1].frame);
        look_for_module(from, facts, from->pickle->stacks[node - 1].frame);
    }
    return facts;
}

/* ---- What a tensor is for ---- */

/* Translates the label that the program or PyTorch's profiler wrote on a tensor. */
static bool tag_of_label(finder *from, uint32_t label, uint16_t *tag_out)
{
    static const struct {
        const char *said;
        tag_number tag;
    } words[] = {{"parameter", TAG_WEIGHTS},
                 {"weight", TAG_WEIGHTS},
                 {"gradient", TAG_GRADIENTS},
                 {"optimizer_state", TAG_OPTIMIZER},
                 {"activation", TAG_ACTIVATIONS},
                 {"autograd_detail", TAG_TEMPORARY},
                 {"input", TAG_OTHER}};
    rvli_snapshot_piece said = text_of(from, label);
    if (said.length == 0 || said.length > 255 || same(said, piece_of("unknown")) ||
        (said.length > 4 && memcmp(said.text, "rvl:", 4) == 0))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (same(said, piece_of(words[i].said))) {
            *tag_out = (uint16_t)words[i].tag;
            return true;
        }
    }
    *tag_out = tag_named(from, said);
    return true;
}

/* Finds what was seen at the tensor's address while it was live. */
static bool tag_of_seen(finder *from, const rvli_snapshot_tensor *tensor, uint16_t *tag_out)
{
    const rvli_observed *observed = &from->observed;
    size_t low = 0, high = observed->seen_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (observed->seen[middle].addr < tensor->addr)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < observed->seen_count && observed->seen[low].addr < tensor->addr + tensor->size;
         low++) {
        const rvli_snapshot_seen *seen = &observed->seen[low];
        if (seen->instant >= tensor->begin && (seen->instant < tensor->end)) {
            *tag_out = tag_named(from, seen->tag);
            return true;
        }
    }
    return false;
}

/* Returns the first backward pass after an instant; NULL: none. */
static const rvli_phase *backward_after(const rvli_observed *observed, uint32_t instant)
{
    for (size_t i = 0; i < observed->phase_count; i++) {
        if (observed->phases[i].begin > instant && observed->phases[i].kind == RVLI_PHASE_BACKWARD)
            return &observed->phases[i];
    }
    return NULL;
}

static uint32_t end_of(const finder *from, const rvli_phase *phase)
{
    const rvli_phase *last = from->observed.phases + from->observed.phase_count - 1;
    return phase < last ? phase[1].begin : from->recording->event_count;
}

/*
 * A tensor is an activation if it is live when a backward pass begins and was made for that pass: a
 * module made it, or it is freed by the end of the pass. Within a backward pass, a tensor that a
 * checkpoint computes again is an activation. Tensors that are freed before the pass, and the
 * others of a backward pass, are temporary.
 */
static uint16_t tag_of_lifetime(finder *from, const rvli_snapshot_tensor *tensor,
                                const stack_facts *stack)
{
    uint32_t instant = tensor->begin > 0 ? tensor->begin - 1 : 0;
    const rvli_phase *phase = rvli_observed_phase(&from->observed, instant);
    rvli_phase_kind kind = phase != NULL ? phase->kind : RVLI_PHASE_BETWEEN;
    if (kind == RVLI_PHASE_BACKWARD)
        return stack->recompute ? TAG_ACTIVATIONS : TAG_TEMPORARY;
    if (kind == RVLI_PHASE_OPTIMIZER)
        return TAG_TEMPORARY;
    const rvli_phase *next = backward_after(&from->observed, instant);
    if (next == NULL) /* the run ends in this pass, maybe because memory ran out */
        return !stack->forward             ? TAG_OTHER
               : tensor->end == RVLI_NEVER ? TAG_ACTIVATIONS
                                           : TAG_TEMPORARY;
    if (tensor->end <= next->begin)
        return TAG_TEMPORARY;
    return stack->forward || tensor->end <= end_of(from, next) ? TAG_ACTIVATIONS : TAG_OTHER;
}

/*
 * Returns the pool that the entry names, or else the pool of the final segment at the address. 0:
 * the default pool.
 */
static uint32_t pool_of(const finder *from, uint64_t addr, uint32_t begin)
{
    const rvli_recording *recording = from->recording;
    uint32_t low = 0, high = recording->segment_count;
    if (begin > 0 && begin <= recording->event_count && recording->events[begin - 1].has_pool)
        return recording->events[begin - 1].pool;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (recording->segments[middle].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || addr - recording->segments[low - 1].addr >= recording->segments[low - 1].size)
        return 0;
    const rvli_segment_row *segment = &recording->segments[low - 1];
    return begin >= segment->since ? segment->pool : 0;
}

static void look_at_tensor(finder *from, uint32_t index)
{
    const rvli_snapshot_tensor *tensor = &from->tensors.list[index];
    tensor_facts *facts = &from->facts[index];
    const stack_facts *stack = facts_of_stack(from, tensor->stack);
    uint32_t instant = tensor->begin > 0 ? tensor->begin - 1 : 0;
    const rvli_phase *phase = rvli_observed_phase(&from->observed, instant);
    uint32_t pool = pool_of(from, tensor->addr, tensor->begin);
    facts->of_graphs = from->graphs[pool];
    facts->away = from->away[pool];
    if (stack->place.own == 0 && phase != NULL && phase->file.length > 0)
        facts->phase = (uint32_t)(phase - from->observed.phases) + 1;
    if (facts->of_graphs)
        facts->tag = TAG_GRAPHS;
    else if (tag_of_label(from, tensor->label, &facts->tag))
        return;
    else if (stack->tag == TAG_GATHERED)
        facts->tag = TAG_GATHERED;
    else if (tag_of_seen(from, tensor, &facts->tag))
        return;
    else if (stack->tag != TAG_TENSORS)
        facts->tag = stack->tag;
    else if (from->observed.phase_count > 0)
        facts->tag = tag_of_lifetime(from, tensor, stack);
    if (facts->tag == TAG_ACTIVATIONS)
        facts->module = stack->module;
}

/* ---- A stage ---- */

/* Sums by their distinguishing fields, in order of first appearance. */
typedef struct sums {
    struct sum {
        uint64_t bytes, count;
        uint16_t tag, module;
        uint32_t own, via, phase;
    } * list;
    uint32_t count, capacity;
    rvli_intmap numbers;
} sums;

static rvl_status add(sums *to, struct sum what)
{
    uint64_t key = 1469598103934665603u, number = to->count;
    const uint64_t parts[] = {what.tag, what.module, what.own, what.via, what.phase};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key = (key ^ parts[i]) * 0x9e3779b97f4a7c15u;
    key |= 1;
    if (rvli_intmap_get(&to->numbers, key, &number)) {
        to->list[number].bytes += what.bytes;
        to->list[number].count += what.count;
        return RVL_OK;
    }
    if (!RVLI_ROOM(to->list, to->count, to->capacity, 64))
        return RVL_ERR_HOST_OOM;
    rvl_status status = rvli_intmap_insert(&to->numbers, key, number);
    if (status == RVL_OK)
        to->list[to->count++] = what;
    return status;
}

static void clear(sums *of)
{
    free(of->list);
    rvli_intmap_destroy(&of->numbers);
    *of = (sums){0};
}

static int by_bytes(const void *a, const void *b)
{
    const struct sum *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    if (left->tag != right->tag)
        return left->tag < right->tag ? -1 : 1;
    if (left->module != right->module)
        return left->module < right->module ? -1 : 1;
    if (left->own != right->own)
        return left->own < right->own ? -1 : 1;
    return (left->via > right->via) - (left->via < right->via);
}

static char *copy(rvli_snapshot_piece piece, bool *ok)
{
    char *text = strndup(piece.length > 0 ? piece.text : "", piece.length);
    *ok = *ok && text != NULL;
    return text;
}

static char *module_of(const finder *from, uint16_t module, bool *ok)
{
    return module > 0 ? copy(from->observed.modules[module - 1].name, ok) : NULL;
}

static void sort(const sums *all)
{
    if (all->count > 0) /* an empty list is NULL, which qsort() does not accept */
        qsort(all->list, all->count, sizeof *all->list, by_bytes);
}

static rvl_status keep_parts(const finder *from, sums *parts, rvli_holdings *to)
{
    bool ok = true;
    sort(parts);
    to->parts = calloc(parts->count + (size_t)1, sizeof *to->parts);
    for (uint32_t i = 0; to->parts != NULL && i < parts->count; i++) {
        const struct sum *sum = &parts->list[i];
        if (sum->bytes == 0)
            continue;
        to->parts[to->part_count++] = (rvli_held_part){.tag = copy(from->tags[sum->tag], &ok),
                                                       .module = module_of(from, sum->module, &ok),
                                                       .bytes = sum->bytes};
    }
    return ok && to->parts != NULL ? RVL_OK : RVL_ERR_HOST_OOM;
}

static void name_frame(const finder *from, uint32_t frame, char **name, char **file, uint32_t *line,
                       bool *ok)
{
    const rvli_frame_row *row = &from->pickle->frames[frame - 1];
    *name = copy(text_of(from, row->name), ok);
    *file = copy(text_of(from, row->file), ok);
    *line = row->line;
}

static rvl_status keep_lines(const finder *from, sums *lines, rvli_held_line **kept_out,
                             uint32_t *count_out)
{
    bool ok = true;
    sort(lines);
    uint32_t count = lines->count < RVLI_HOLDING_LINES ? lines->count : RVLI_HOLDING_LINES;
    rvli_held_line *kept = *kept_out = calloc(count + (size_t)1, sizeof *kept);
    for (uint32_t i = 0; kept != NULL && i < count; i++) {
        const struct sum *sum = &lines->list[i];
        rvli_held_line *line = &kept[(*count_out)++];
        *line = (rvli_held_line){.tag = copy(from->tags[sum->tag], &ok),
                                 .module = module_of(from, sum->module, &ok),
                                 .bytes = sum->bytes,
                                 .count = sum->count};
        if (sum->own > 0) {
            name_frame(from, sum->own, &line->name, &line->file, &line->line, &ok);
        } else if (sum->phase > 0) {
            const rvli_phase *phase = &from->observed.phases[sum->phase - 1];
            line->name = copy(phase->name, &ok);
            line->file = copy(phase->file, &ok);
            line->line = phase->line;
        }
        if (sum->via > 0)
            name_frame(from, sum->via, &line->via_name, &line->via_file, &line->via_line, &ok);
    }
    return ok && kept != NULL ? RVL_OK : RVL_ERR_HOST_OOM;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns all bytes in pools of graphs. Nothing else may use the free bytes there. */
static uint64_t graph_bytes(const finder *from, uint32_t instant)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < from->tensors.mapped_count; i++) {
        const rvli_mapped *mapped = &from->tensors.mapped[i];
        if (mapped->begin <= instant && mapped->end > instant &&
            from->graphs[pool_of(from, mapped->addr, mapped->begin)])
            bytes += mapped->size;
    }
    return bytes;
}

/*
 * Adds reserved bytes that no tensor has. They are divided so that the sum is exact in every case.
 */
static rvl_status add_rest(sums *parts, const rvli_bytes *bytes, uint64_t tensors,
                           uint64_t graph_rounding)
{
    uint64_t rest = bytes->reserved > tensors ? bytes->reserved - tensors : 0;
    uint64_t rounding =
        bytes->allocated > bytes->requested ? bytes->allocated - bytes->requested : 0;
    rounding = rounding > graph_rounding ? rounding - graph_rounding : 0;
    rounding = least(rounding, rest);
    uint64_t pending = least(bytes->pending, rest - rounding);
    rvl_status status = add(parts, (struct sum){.bytes = rounding, .tag = TAG_ROUNDED});
    if (status == RVL_OK)
        status = add(parts, (struct sum){.bytes = pending, .tag = TAG_PENDING});
    if (status == RVL_OK)
        status = add(parts, (struct sum){.bytes = rest - rounding - pending, .tag = TAG_CACHED});
    return status;
}

static struct sum line_of(const finder *from, uint32_t index)
{
    const rvli_snapshot_tensor *tensor = &from->tensors.list[index];
    const tensor_facts *facts = &from->facts[index];
    rvli_place place = tensor->stack > 0 ? from->stacks[tensor->stack - 1].place : (rvli_place){0};
    uint16_t module = tensor->stack > 0 ? from->stacks[tensor->stack - 1].module : 0;
    return (struct sum){.bytes = tensor->size,
                        .count = 1,
                        .tag = facts->tag,
                        .module = module,
                        .own = place.own,
                        .via = place.via,
                        .phase = facts->phase};
}

/*
 * Whether a frame appears again further in on the stack. A function that calls itself counts once.
 */
static bool comes_again(const rvli_pickle *pickle, uint32_t node)
{
    uint32_t frame = pickle->stacks[node - 1].frame;
    while ((node = pickle->stacks[node - 1].inner) > 0) {
        if (pickle->stacks[node - 1].frame == frame)
            return true;
    }
    return false;
}

/* Adds an activation to every line on its stack that belongs to the program or to a package. */
static rvl_status add_calls(const finder *from, uint32_t index, sums *calls)
{
    const rvli_snapshot_tensor *tensor = &from->tensors.list[index];
    rvl_status status = RVL_OK;
    for (uint32_t node = tensor->stack; node > 0 && status == RVL_OK;
         node = from->pickle->stacks[node - 1].inner) {
        uint32_t frame = from->pickle->stacks[node - 1].frame;
        if (from->kinds[frame] <= RVLI_FRAME_PACKAGE && !comes_again(from->pickle, node))
            status = add(calls, (struct sum){.bytes = tensor->size,
                                             .count = 1,
                                             .tag = TAG_ACTIVATIONS,
                                             .own = frame + 1});
    }
    return status;
}

static rvl_status sum_up(finder *from, const rvli_held *held, sums *parts, sums *lines, sums *calls)
{
    rvl_status status = RVL_OK;
    uint64_t graph_rounding = 0, tensors = 0;
    for (uint32_t i = 0; i < from->tensors.count && status == RVL_OK; i++) {
        const rvli_snapshot_tensor *tensor = &from->tensors.list[i];
        const tensor_facts *facts = &from->facts[i];
        if (tensor->begin > held->instant || tensor->end <= held->instant ||
            (facts->away & from->gone) != 0)
            continue;
        status = add(lines, line_of(from, i));
        if (status == RVL_OK && facts->tag == TAG_ACTIVATIONS)
            status = add_calls(from, i, calls);
        if (facts->of_graphs) {
            graph_rounding += (ROUNDING - tensor->size % ROUNDING) % ROUNDING;
            continue;
        }
        tensors += tensor->size;
        if (status == RVL_OK)
            status = add(
                parts,
                (struct sum){.bytes = tensor->size, .tag = facts->tag, .module = facts->module});
    }
    /* With other settings the model may have fewer bytes reserved than were recorded. */
    uint64_t reserved = held->bytes.reserved;
    uint64_t graphs =
        least(graph_bytes(from, held->instant), reserved > tensors ? reserved - tensors : 0);
    if (graphs > 0 && status == RVL_OK)
        status = add(parts, (struct sum){.bytes = graphs, .tag = TAG_GRAPHS});
    return status == RVL_OK ? add_rest(parts, &held->bytes, tensors + graphs, graph_rounding)
                            : status;
}

static rvl_status find_stage(finder *from, rvli_snapshot_stage *stage)
{
    sums parts = {0}, lines = {0}, calls = {0};
    from->work += from->tensors.count;
    if (from->work > WORK_MAX)
        return RVL_OK;
    rvli_holdings *to = &stage->holdings;
    rvl_status status = sum_up(from, &stage->held, &parts, &lines, &calls);
    if (status == RVL_OK)
        status = keep_parts(from, &parts, to);
    if (status == RVL_OK)
        status = keep_lines(from, &lines, &to->lines, &to->line_count);
    if (status == RVL_OK)
        status = keep_lines(from, &calls, &to->calls, &to->call_count);
    clear(&parts);
    clear(&lines);
    clear(&calls);
    return status;
}

/* ---- All stages ---- */

static rvl_status begin(finder *from)
{
    static const char *const rules[TAG_RULES] = {
#define TAG_TEXT(name, text) text,
        TAG_MAP(TAG_TEXT)
#undef TAG_TEXT
    };
    for (; from->tag_count < TAG_RULES; from->tag_count++)
        from->tags[from->tag_count] = piece_of(rules[from->tag_count]);
    rvl_status status = rvli_observed_read(from->recording, &from->observed);
    if (status == RVL_OK)
        status = rvli_tensors_find(from->recording, &from->tensors);
    if (status != RVL_OK)
        return status;
    from->kinds = rvli_frames_kinds(from->pickle);
    from->stacks = calloc(from->pickle->stack_count + (size_t)1, sizeof *from->stacks);
    from->facts = calloc(from->tensors.count + (size_t)1, sizeof *from->facts);
    from->graphs = calloc(from->pickle->pool_count + (size_t)1, sizeof *from->graphs);
    from->away = calloc(from->pickle->pool_count + (size_t)1, sizeof *from->away);
    for (uint32_t i = 1; from->graphs != NULL && from->away != NULL && i < from->pickle->pool_count;
         i++) {
        from->graphs[i] = rvli_observed_graphs(&from->observed, from->pickle->pools[i]);
        if (!from->graphs[i] && from->away_count < AWAY_MOST)
            from->away[i] = 1u << from->away_count++;
    }
    return from->kinds != NULL && from->stacks != NULL && from->facts != NULL &&
                   from->graphs != NULL && from->away != NULL
               ? RVL_OK
               : RVL_ERR_HOST_OOM;
}

/* ---- Windows ---- */

/*
 * Returns reserved bytes by instant, as recorded, without the pools in `gone`. The model may have
 * reserved other amounts.
 */
static uint64_t *reserved_by_instant(const finder *from, uint32_t gone)
{
    uint32_t count = from->recording->event_count;
    uint64_t *bytes = calloc(count + (size_t)2, sizeof *bytes);
    for (uint32_t i = 0; bytes != NULL && i < from->tensors.mapped_count; i++) {
        const rvli_mapped *mapped = &from->tensors.mapped[i];
        if (gone != 0 && (from->away[pool_of(from, mapped->addr, mapped->begin)] & gone) != 0)
            continue;
        bytes[mapped->begin] += mapped->size;
        if (mapped->end <= count)
            bytes[mapped->end] -= mapped->size;
    }
    for (uint32_t i = 1; bytes != NULL && i <= count; i++)
        bytes[i] += bytes[i - 1];
    return bytes;
}

/*
 * The instants at which a window may have its peak, from first to last. A mark narrows them;
 * otherwise they are all instants.
 */
typedef struct reach {
    uint32_t first, last;
    bool begins, ends; /* set by a mark, which overrides times */
} reach;

static reach reach_of(const finder *from, const rvl_snapshot_window *window)
{
    reach within = {.last = from->recording->event_count};
    uint32_t first = rvli_observed_mark(&from->observed, window->begin_us);
    uint32_t last = rvli_observed_mark(&from->observed, window->end_us);
    within.begins = first != UINT32_MAX;
    within.ends = last != UINT32_MAX && (!within.begins || last >= first);
    if (within.begins)
        within.first = first;
    if (within.ends)
        within.last = last;
    return within;
}

/* Reserved bytes by instant, possibly without some pools. */
typedef struct reading {
    const uint64_t *reserved;
    const uint64_t *least; /* without all pools that can be released; NULL: none is released */
} reading;

/*
 * Returns the instant of a window's peak; UINT32_MAX: there is none. An instant lasts until the
 * next entry. Clocks agree only to some microseconds, so the instants of marks take precedence over
 * times.
 */
static uint32_t peak_of(const finder *from, const rvl_snapshot_window *window, reading of,
                        int64_t slack_us)
{
    const rvli_recording *recording = from->recording;
    const uint64_t *reserved = of.reserved;
    const reach within = reach_of(from, window);
    uint32_t best = UINT32_MAX;
    for (uint32_t i = within.first; i <= within.last; i++) {
        int64_t begin_us = i > 0 ? recording->events[i - 1].time_us : INT64_MIN;
        int64_t end_us = i < recording->event_count ? recording->events[i].time_us
                         : from->goes_on            ? begin_us
                                                    : INT64_MAX;
        if ((!within.ends && begin_us > window->end_us + slack_us) ||
            (!within.begins && end_us < window->begin_us - slack_us) ||
            reserved[i] > window->reserved_bytes || (i == 0 && end_us > window->end_us) ||
            (of.least != NULL && reserved[i] - of.least[i] > window->mapped_bytes))
            continue;
        if (best == UINT32_MAX || reserved[i] > reserved[best] ||
            (reserved[i] == reserved[best] &&
             from->run->track[i].allocated > from->run->track[best].allocated))
            best = i;
    }
    return best;
}

/* The clocks of processes may differ by this much. */
#define SLACK_US 50000

static uint32_t instant_of(const finder *from, const rvl_snapshot_window *window, reading of)
{
    uint32_t instant = peak_of(from, window, of, 0);
    if (instant != UINT32_MAX && of.reserved[instant] == window->reserved_bytes)
        return instant;
    uint32_t wider = peak_of(from, window, of, SLACK_US);
    bool better = wider != UINT32_MAX && of.reserved[wider] == window->reserved_bytes;
    return instant == UINT32_MAX || better ? wider : instant;
}

/* Reserved bytes by instant, for each set of released pools; NULL: not computed yet. */
typedef struct readings {
    uint64_t *of[1u << AWAY_MOST];
} readings;

static bool read_without(const finder *from, uint32_t gone, readings *all)
{
    if (all->of[gone] == NULL)
        all->of[gone] = reserved_by_instant(from, gone);
    return all->of[gone] != NULL;
}

/*
 * Engines release the memory of their own pools while they sleep, but PyTorch still counts it. If
 * every instant of a window has more reserved than there was, some pools must have been released.
 * This takes the set of pools that explains the most bytes. RVL_OK or RVL_ERR_HOST_OOM.
 */
static rvl_status find_instant(finder *from, const rvl_snapshot_window *window, readings *all,
                               uint32_t *instant_out)
{
    const uint32_t every = (1u << from->away_count) - 1;
    from->gone = 0;
    if (!read_without(from, 0, all))
        return RVL_ERR_HOST_OOM;
    uint32_t best = instant_of(from, window, (reading){.reserved = all->of[0]});
    bool all_there = best != UINT32_MAX;
    for (uint32_t gone = 1; gone <= every && !all_there; gone++) {
        if (!read_without(from, gone, all) || !read_without(from, every, all))
            return RVL_ERR_HOST_OOM;
        uint32_t found = instant_of(from, window, (reading){all->of[gone], all->of[every]});
        if (found == UINT32_MAX ||
            (best != UINT32_MAX && all->of[gone][found] <= all->of[from->gone][best]))
            continue;
        best = found;
        from->gone = gone;
    }
    *instant_out = best;
    return RVL_OK;
}

static rvl_status look_through(finder *from, const rvl_snapshot_window *window, readings *all,
                               rvli_snapshot_stage *stage)
{
    uint32_t instant;
    rvl_status status = find_instant(from, window, all, &instant);
    if (status != RVL_OK)
        return status;
    stage->name = strdup(window->name);
    if (stage->name == NULL)
        return RVL_ERR_HOST_OOM;
    if (instant == UINT32_MAX)
        return RVL_OK;
    stage->held = (rvli_held){from->run->track[instant], instant};
    stage->held.bytes.reserved = all->of[from->gone][instant];
    stage->at_peak = stage->held.bytes;
    stage->peak_allocated = stage->held.bytes.allocated;
    return find_stage(from, stage);
}

/* Replaces the stages of annotations by those of windows. */
static rvl_status look_through_all(finder *from, const rvl_snapshot_options *options,
                                   rvl_snapshot *result)
{
    readings all = {0};
    rvli_snapshot_stage *stages = calloc(options->window_count, sizeof *stages);
    rvl_status status = stages != NULL ? RVL_OK : RVL_ERR_HOST_OOM;
    if (status == RVL_OK) {
        for (uint32_t i = 0; i < result->facts.stage_count; i++)
            free(result->stages[i].name);
        free(result->stages);
        result->stages = stages;
        result->facts.stage_count = 0;
        stages = NULL;
    }
    for (size_t i = 0; i < options->window_count && status == RVL_OK; i++) {
        rvli_snapshot_stage *stage = &result->stages[result->facts.stage_count++];
        status = look_through(from, &options->windows[i], &all, stage);
    }
    for (uint32_t set = 0; set < 1u << AWAY_MOST; set++)
        free(all.of[set]);
    free(stages);
    return status;
}

rvl_status rvli_holdings_find(rvli_run *run, const rvl_snapshot_options *options)
{
    finder from = {.run = run,
                   .recording = &run->recording,
                   .pickle = &run->recording.pickle,
                   .all_frames = (options->flags & RVL_SNAPSHOT_ALL_FRAMES) != 0,
                   .goes_on = (options->flags & RVL_SNAPSHOT_GOES_ON) != 0};
    rvl_status status = begin(&from);
    for (uint32_t i = 0; i < from.tensors.count && status == RVL_OK; i++)
        look_at_tensor(&from, i);
    if (options->window_count > 0 && status == RVL_OK)
        status = look_through_all(&from, options, run->result);
    for (uint32_t i = 0;
         options->window_count == 0 && i < run->result->facts.stage_count && status == RVL_OK; i++)
        status = find_stage(&from, &run->result->stages[i]);
    free(from.kinds);
    free(from.stacks);
    free(from.facts);
    free(from.graphs);
    free(from.away);
    rvli_tensors_clear(&from.tensors);
    rvli_observed_clear(&from.observed);
    return status;
}

static void clear_lines(rvli_held_line *lines, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(lines[i].tag);
        free(lines[i].name);
        free(lines[i].file);
        free(lines[i].via_name);
        free(lines[i].via_file);
        free(lines[i].module);
    }
    free(lines);
}

void rvli_holdings_clear(rvli_holdings *holdings)
{
    for (uint32_t i = 0; i < holdings->part_count; i++) {
        free(holdings->parts[i].tag);
        free(holdings->parts[i].module);
    }
    clear_lines(holdings->lines, holdings->line_count);
    clear_lines(holdings->calls, holdings->call_count);
    free(holdings->parts);
    *holdings = (rvli_holdings){0};
}
