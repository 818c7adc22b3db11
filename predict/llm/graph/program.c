/* SPDX-License-Identifier: MIT */
/*
 * Reads texts of modules line by line. Indentation makes blocks, as in Python.
 *
 * The texts are part of the library, and a test reads all of them. So a fault is only stored with
 * its line, for the author of a text.
 */
#include "predict/llm/graph/program.h"

#include <ctype.h>
#include <stdio.h>

typedef struct reader {
    rvli_program *program;
    const rvli_training *t;
    const char *at;
    unsigned line;
    rvli_function *function; /* being read */
    rvli_text_word slot[RVLI_SLOTS_MAX];
} reader;

static void fail(reader *r, const char *what)
{
    if (r->program->fault[0] == '\0')
        snprintf(r->program->fault, sizeof r->program->fault, "line %u: %s", r->line, what);
}

static bool failed(const reader *r)
{
    return r->program->fault[0] != '\0';
}

/* ---- Words ---- */

static void skip_blanks(reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

static bool take(reader *r, const char *sign)
{
    size_t length = strlen(sign);
    skip_blanks(r);
    if (strncmp(r->at, sign, length) != 0)
        return false;
    r->at += length;
    return true;
}

static void expect(reader *r, const char *sign)
{
    if (!take(r, sign))
        fail(r, sign);
}

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Empty: no name. */
static rvli_text_word take_name(reader *r)
{
    skip_blanks(r);
    rvli_text_word word = {.text = r->at};
    while (is_of_name(*r->at) && (word.length > 0 || !isdigit((unsigned char)*r->at))) {
        r->at++;
        word.length++;
    }
    return word;
}

static bool same(rvli_text_word a, rvli_text_word b)
{
    return a.length == b.length && strncmp(a.text, b.text, a.length) == 0;
}

/* ---- Names of a function ---- */

static int find_slot(const reader *r, rvli_text_word name)
{
    for (int i = 0; i < r->function->slot_count; i++) {
        if (same(r->slot[i], name))
            return i;
    }
    return -1;
}

static uint16_t slot_of(reader *r, rvli_text_word name)
{
    int found = find_slot(r, name);
    if (found >= 0)
        return (uint16_t)found;
    if (r->function->slot_count == RVLI_SLOTS_MAX || name.length == 0) {
        fail(r, "a name is missing, or there are too many");
        return 0;
    }
    r->slot[r->function->slot_count] = name;
    return r->function->slot_count++;
}

/* ---- Expressions ---- */

static uint16_t read_sum(reader *r);

static uint16_t new_expression(reader *r, rvli_expression expression)
{
    rvli_program *p = r->program;
    if (p->expression_count == RVLI_EXPRESSIONS_MAX) {
        fail(r, "too many expressions");
        return 0;
    }
    p->expression[p->expression_count] = expression;
    return p->expression_count++;
}

static void add_argument(reader *r, rvli_expression *call, uint16_t argument)
{
    if (call->argument_count == RVLI_ARGUMENTS_MAX)
        fail(r, "too many arguments");
    else
        call->argument[call->argument_count++] = argument;
}

/* Reads up to the closing bracket. */
static void read_arguments(reader *r, rvli_expression *call)
{
    if (take(r, ")"))
        return;
    do
        add_argument(r, call, read_sum(r));
    while (!failed(r) && take(r, ","));
    expect(r, ")");
}

/* A number, or one of the config. Its value does not matter. */
static bool take_number(reader *r)
{
    skip_blanks(r);
    if (strncmp(r->at, "config.", 7) == 0) {
        r->at += 7;
        return take_name(r).length > 0;
    }
    const char *begin = r->at;
    while (isdigit((unsigned char)*r->at) || (*r->at == '.' && r->at > begin))
        r->at++;
    return r->at > begin;
}

/* -1: not an input of the layer. */
static int find_held(rvli_text_word name)
{
    static const struct {
        const char *name;
        int held;
    } all[] = {{"cos", RVLI_HELD_COSINE},
               {"sin", RVLI_HELD_SINE},
               {"freqs_cis", RVLI_HELD_COSINE},
               {"attention_mask", RVLI_HELD_MASK},
               {"per_layer_input", RVLI_HELD_EMBEDDING}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (rvli_word_is(name, all[i].name))
            return all[i].held;
    }
    return -1;
}

static uint16_t read_name(reader *r)
{
    rvli_text_word name = take_name(r);
    if (name.length == 0)
        fail(r, "an expression");
    if (take(r, "(")) {
        rvli_expression call = {.kind = RVLI_CALL, .name = name};
        read_arguments(r, &call);
        return new_expression(r, call);
    }
    int slot = find_slot(r, name);
    if (slot >= 0)
        return new_expression(r, (rvli_expression){.kind = RVLI_SLOT, .index = (uint16_t)slot});
    int held = find_held(name);
    if (held >= 0)
        return new_expression(r, (rvli_expression){.kind = RVLI_HELD, .index = (uint16_t)held});
    return new_expression(r, (rvli_expression){.kind = RVLI_WEIGHT, .name = name});
}

static uint16_t read_primary(reader *r)
{
    if (take(r, "(")) {
        uint16_t inside = read_sum(r);
        expect(r, ")");
        return inside;
    }
    if (take_number(r))
        return new_expression(r, (rvli_expression){.kind = RVLI_NUMBER});
    return read_name(r);
}

/* x.name(more) is name(x, more). */
static uint16_t read_methods(reader *r)
{
    uint16_t value = read_primary(r);
    while (!failed(r) && *r->at == '.') {
        r->at++;
        rvli_expression call = {.kind = RVLI_CALL, .name = take_name(r)};
        add_argument(r, &call, value);
        expect(r, "(");
        read_arguments(r, &call);
        value = new_expression(r, call);
    }
    return value;
}

static uint16_t read_factor(reader *r)
{
    if (!take(r, "-"))
        return read_methods(r);
    rvli_expression negative = {.kind = RVLI_NEGATIVE};
    add_argument(r, &negative, read_factor(r));
    return new_expression(r, negative);
}

static uint16_t both(reader *r, rvli_expression_kind kind, uint16_t left, uint16_t right)
{
    rvli_expression expression = {.kind = kind};
    add_argument(r, &expression, left);
    add_argument(r, &expression, right);
    return new_expression(r, expression);
}

/* a @ b is matmul(a, b). */
static uint16_t read_matmul(reader *r, uint16_t left)
{
    static const char name[] = "matmul";
    rvli_expression call = {.kind = RVLI_CALL, .name = {.text = name, .length = sizeof name - 1}};
    add_argument(r, &call, left);
    add_argument(r, &call, read_factor(r));
    return new_expression(r, call);
}

static uint16_t read_product(reader *r)
{
    uint16_t left = read_factor(r);
    while (!failed(r)) {
        if (take(r, "*"))
            left = both(r, RVLI_PRODUCT, left, read_factor(r));
        else if (take(r, "@"))
            left = read_matmul(r, left);
        else
            break;
    }
    return left;
}

static uint16_t read_sum(reader *r)
{
    uint16_t left = read_product(r);
    while (!failed(r)) {
        bool plus = take(r, "+");
        if (!plus && !take(r, "-"))
            break;
        left = both(r, plus ? RVLI_SUM : RVLI_DIFFERENCE, left, read_product(r));
    }
    return left;
}

/* ---- Lines ---- */

/* Moves to the next line with content, without reading it. Returns its indentation; -1: end of the
 * text. */
static int next_line(reader *r)
{
    for (;;) {
        const char *line = r->at;
        while (*line == ' ')
            line++;
        if (*line == '\0')
            return -1;
        if (*line != '\n' && *line != '#')
            return (int)(line - r->at);
        line += strcspn(line, "\n");
        r->at = *line == '\n' ? line + 1 : line;
        r->line++;
    }
}

static void end_line(reader *r)
{
    skip_blanks(r);
    if (*r->at != '\n' && *r->at != '#' && *r->at != '\0')
        fail(r, "the line goes on");
    r->at += strcspn(r->at, "\n");
    if (*r->at == '\n') {
        r->at++;
        r->line++;
    }
}

static bool take_word(reader *r, const char *word)
{
    const char *before = r->at;
    if (take(r, word) && !is_of_name(*r->at))
        return true;
    r->at = before;
    return false;
}

static uint16_t read_block(reader *r, int above);

static void read_results(reader *r, rvli_statement *statement)
{
    do {
        if (statement->count == RVLI_ARGUMENTS_MAX) {
            fail(r, "too many results");
            return;
        }
        statement->expression[statement->count++] = read_sum(r);
    } while (!failed(r) && take(r, ","));
}

static void read_assignment(reader *r, rvli_statement *statement)
{
    rvli_text_word names[RVLI_ARGUMENTS_MAX];
    do {
        if (statement->count == RVLI_ARGUMENTS_MAX) {
            fail(r, "too many names");
            return;
        }
        names[statement->count++] = take_name(r);
    } while (take(r, ","));
    expect(r, "=");
    do /* they may use the names' former values */
        statement->expression[statement->source_count++] = read_sum(r);
    while (!failed(r) && statement->source_count < statement->count && take(r, ","));
    bool is_call = r->program->expression[statement->expression[0]].kind == RVLI_CALL;
    if (statement->source_count != statement->count && (statement->source_count > 1 || !is_call))
        fail(r, "several names take the results of one call, or a value each");
    for (uint16_t i = 0; i < statement->count && !failed(r); i++)
        statement->target[i] = slot_of(r, names[i]);
}

static void read_if(reader *r, rvli_statement *statement, int indentation)
{
    statement->holds = rvli_condition_find(take_name(r));
    if (statement->holds == NULL)
        fail(r, "a condition");
    expect(r, ":");
    end_line(r);
    statement->then = read_block(r, indentation);
    if (next_line(r) == indentation && take_word(r, "else")) {
        expect(r, ":");
        end_line(r);
        statement->otherwise = read_block(r, indentation);
    }
}

static void read_for(reader *r, rvli_statement *statement, int indentation)
{
    static const struct {
        rvli_statement_kind kind;
        const char *one, *all;
    } loops[] = {{RVLI_CHUNKS, "chunk", "chunks"},
                 {RVLI_STREAMS, "stream", "streams"},
                 {RVLI_FOR, "layer", "layers"}};
    size_t i = 0;
    while (i < sizeof loops / sizeof loops[0] - 1 && !take_word(r, loops[i].one))
        i++;
    if (i == sizeof loops / sizeof loops[0] - 1)
        expect(r, loops[i].one);
    statement->kind = loops[i].kind;
    expect(r, "in");
    expect(r, loops[i].all);
    expect(r, ":");
    end_line(r);
    statement->then = read_block(r, indentation);
}

static rvli_statement read_statement(reader *r, int indentation)
{
    rvli_statement statement = {
        .then = RVLI_NO_STATEMENT, .otherwise = RVLI_NO_STATEMENT, .next = RVLI_NO_STATEMENT};
    if (take_word(r, "if")) {
        statement.kind = RVLI_IF;
        read_if(r, &statement, indentation);
        return statement;
    }
    if (take_word(r, "for")) {
        read_for(r, &statement, indentation);
        return statement;
    }
    if (take_word(r, "return")) {
        statement.kind = RVLI_RETURN;
        read_results(r, &statement);
    } else {
        statement.kind = RVLI_ASSIGN;
        read_assignment(r, &statement);
    }
    end_line(r);
    return statement;
}

/* Reads statements that are indented further than the line above. Returns the first. */
static uint16_t read_block(reader *r, int above)
{
    rvli_program *p = r->program;
    uint16_t first = RVLI_NO_STATEMENT, last = RVLI_NO_STATEMENT;
    int indentation = next_line(r);
    while (!failed(r) && indentation > above && next_line(r) == indentation) {
        if (p->statement_count == RVLI_STATEMENTS_MAX) {
            fail(r, "too many statements");
            break;
        }
        uint16_t at = p->statement_count++;
        p->statement[at] = read_statement(r, indentation);
        if (last == RVLI_NO_STATEMENT)
            first = at;
        else
            p->statement[last].next = at;
        last = at;
    }
    return first;
}

/* ---- Functions ---- */

static rvli_function *find_function(rvli_program *p, rvli_text_word name)
{
    for (uint16_t i = 0; i < p->function_count; i++) {
        if (same(p->function[i].name, name))
            return &p->function[i];
    }
    return NULL;
}

static rvli_function *new_function(reader *r, rvli_text_word name)
{
    rvli_program *p = r->program;
    rvli_function *function = find_function(p, name);
    if (function == NULL && p->function_count == RVLI_FUNCTIONS_MAX) {
        fail(r, "too many functions");
        return &p->function[0];
    }
    if (function == NULL)
        function = &p->function[p->function_count++];
    *function = (rvli_function){.name = name};
    return function;
}

static void read_function(reader *r)
{
    bool is_module = take_word(r, "module");
    if (!is_module && !take_word(r, "def"))
        fail(r, "def or module");
    r->function = new_function(r, take_name(r));
    r->function->is_module = is_module;
    expect(r, "(");
    while (!failed(r) && !take(r, ")")) {
        slot_of(r, take_name(r));
        take(r, ",");
    }
    r->function->argument_count = r->function->slot_count;
    expect(r, ":");
    end_line(r);
    r->function->first = read_block(r, 0);
}

/* ---- Resolving names, after all is read ---- */

static bool is_norm(rvli_text_word name)
{
    static const char part[] = "norm";
    for (size_t i = 0; i + sizeof part - 1 <= name.length; i++) {
        if (strncmp(name.text + i, part, sizeof part - 1) == 0)
            return true;
    }
    return false;
}

/* The role of a parameter. Texts use other names than checkpoints for these. */
static rvli_role role_of(const reader *r, rvli_text_word name)
{
    static const struct {
        const char *name;
        rvli_role role;
    } others[] = {{"router", RVLI_ROLE_ROUTER},
                  {"shared_gate", RVLI_ROLE_SHARED_GATE},
                  {"shared_up", RVLI_ROLE_SHARED_UP},
                  {"shared_down", RVLI_ROLE_SHARED_DOWN},
                  {"conv_in", RVLI_ROLE_CONV_IN},
                  {"conv_weight", RVLI_ROLE_CONV},
                  {"conv_out_proj", RVLI_ROLE_CONV_OUT},
                  {"mamba_conv", RVLI_ROLE_MAMBA_CONV},
                  {"mamba_norm", RVLI_ROLE_MAMBA_NORM},
                  {"delta_conv", RVLI_ROLE_DELTA_CONV},
                  {"delta_bias", RVLI_ROLE_DELTA_BIAS},
                  {"delta_rate", RVLI_ROLE_DELTA_RATE},
                  {"delta_norm", RVLI_ROLE_DELTA_NORM},
                  {"delta_out", RVLI_ROLE_DELTA_OUT},
                  {"shared_expert_gate", RVLI_ROLE_SHARED_OPEN}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (rvli_word_is(name, others[i].name))
            return others[i].role;
    }
    return rvli_role_named(r->t, name.text, name.length);
}

static void resolve(reader *r, rvli_expression *e)
{
    const rvli_function *function = find_function(r->program, e->name);
    if (function != NULL) {
        e->kind = RVLI_CALL_FUNCTION;
        e->index = (uint16_t)(function - r->program->function);
        if (function->argument_count != e->argument_count)
            fail(r, "a function is called with more or fewer arguments than it has");
        return;
    }
    e->operation = rvli_operator_find(e->name.text, e->name.length);
    if (e->operation != NULL) {
        e->kind = RVLI_CALL_OPERATOR;
        if (e->operation->arguments != e->argument_count)
            fail(r, "an operator is called with more or fewer arguments than it has");
        return;
    }
    e->role = role_of(r, e->name);
    e->kind = is_norm(e->name) ? RVLI_CALL_NORM : RVLI_CALL_LINEAR;
    if (e->role == RVLI_ROLE_OTHER || e->argument_count != 1)
        fail(r, "this is neither an operator nor a function, nor a layer with one argument");
}

static void resolve_all(reader *r)
{
    rvli_program *p = r->program;
    for (uint16_t i = 0; i < p->expression_count && !failed(r); i++) {
        rvli_expression *e = &p->expression[i];
        if (e->kind == RVLI_CALL)
            resolve(r, e);
        if (e->kind != RVLI_WEIGHT)
            continue;
        e->role = role_of(r, e->name);
        if (e->role == RVLI_ROLE_OTHER)
            fail(r, "a name has no value");
    }
}

/* Finds the functions that are called from outside of texts. */
static void find_entries(rvli_program *p)
{
    static const char *const names[] = {[RVLI_ENTRY_MODEL] = "model",
                                        [RVLI_ENTRY_DECODER_LAYER] = "decoder_layer",
                                        [RVLI_ENTRY_NORM] = "norm",
                                        [RVLI_ENTRY_LOGITS] = "logits",
                                        [RVLI_ENTRY_LORA] = "lora",
                                        [RVLI_ENTRY_LORA_4BIT] = "lora_4bit",
                                        [RVLI_ENTRY_LINEAR_4BIT] = "Linear4bit",
                                        [RVLI_ENTRY_MATH] = "math_attention"};
    for (int i = 0; i < RVLI_ENTRY_POINT_COUNT; i++) {
        const rvli_function *function =
            find_function(p, (rvli_text_word){.text = names[i], .length = strlen(names[i])});
        p->entry[i] = function != NULL ? (uint16_t)(function - p->function) : 0;
    }
}

void rvli_program_read(rvli_program *program, const rvli_training *t, const char *const *texts,
                       size_t text_count)
{
    reader r = {.program = program, .t = t};
    for (size_t i = 0; i < text_count; i++) {
        r.at = texts[i];
        r.line = 1;
        while (!failed(&r) && next_line(&r) == 0)
            read_function(&r);
        if (!failed(&r) && *r.at != '\0' && next_line(&r) >= 0)
            fail(&r, "a line is indented, but there is no line that it belongs to");
    }
    resolve_all(&r);
    find_entries(program);
}
