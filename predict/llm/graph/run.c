/* SPDX-License-Identifier: MIT */
/*
 * Runs functions of a text like Python: the order of evaluation, the values of names, and when
 * these are freed.
 *
 * An unnamed value is freed when the operator that takes it is done. A function owns its arguments,
 * and frees them when their names get other values. The call of a module holds its arguments until
 * it returns.
 */
#include "predict/llm/graph/program.h"

#include <stdlib.h>

/* The names and results of a running function. */
typedef struct scope {
    rvli_graph *g;
    rvli_value *slot[RVLI_SLOTS_MAX];
    rvli_value *result[RVLI_ARGUMENTS_MAX];
    uint16_t result_count;
    bool returned;
} scope;

static rvli_value *evaluate(scope *s, uint16_t index);
static void run_block(scope *s, uint16_t first);

/* Takes over the arguments, and leaves the results in the scope. */
static void call(scope *callee, const rvli_function *function, rvli_value **arguments)
{
    rvli_graph *g = callee->g;
    for (int i = 0; i < function->argument_count; i++)
        callee->slot[i] = function->is_module ? rvli_value_retain(arguments[i]) : arguments[i];
    run_block(callee, function->first);
    for (int i = 0; i < function->slot_count; i++)
        rvli_value_release(g, callee->slot[i]);
    for (int i = 0; function->is_module && i < function->argument_count; i++)
        rvli_value_release(g, arguments[i]);
}

/* Returns the first result and releases the others. */
static rvli_value *first_result(scope *callee)
{
    for (int i = 1; i < callee->result_count; i++)
        rvli_value_release(callee->g, callee->result[i]);
    return callee->result_count > 0 ? callee->result[0] : NULL;
}

static void evaluate_arguments(scope *s, const rvli_expression *e, rvli_value **arguments_out)
{
    for (int i = 0; i < e->argument_count; i++)
        arguments_out[i] = evaluate(s, e->argument[i]);
}

static void call_function(scope *s, const rvli_expression *e, scope *callee)
{
    rvli_value *arguments[RVLI_ARGUMENTS_MAX] = {NULL};
    evaluate_arguments(s, e, arguments);
    call(callee, &s->g->program->function[e->index], arguments);
}

static rvli_value *first_of_function(scope *s, const rvli_expression *e)
{
    scope callee = {.g = s->g};
    call_function(s, e, &callee);
    return first_result(&callee);
}

rvli_value *rvli_program_norm(rvli_graph *g, rvli_role role, rvli_value *x)
{
    rvli_value *weight = rvli_value_parameter(g, role);
    rvli_value *const arguments[] = {weight, x};
    rvli_value *y = rvli_program_call(g, RVLI_ENTRY_NORM, arguments, 2);
    rvli_value_release(g, weight);
    return y;
}

static rvli_value *call_norm(scope *s, const rvli_expression *e)
{
    rvli_value *x = evaluate(s, e->argument[0]);
    rvli_value *y = rvli_program_norm(s->g, e->role, x);
    rvli_value_release(s->g, x);
    return y;
}

static rvli_value *call_linear(scope *s, const rvli_expression *e)
{
    rvli_value *x = evaluate(s, e->argument[0]);
    rvli_value *weight = rvli_value_parameter(s->g, e->role);
    rvli_value *y = rvli_linear(s->g, weight, x);
    rvli_value_release(s->g, weight);
    rvli_value_release(s->g, x);
    return y;
}

/* If a value is missing, the operator does not run: a head of one element has no angles. */
static bool are_there(rvli_value *const *values, uint16_t count)
{
    for (uint16_t i = 0; i < count; i++) {
        if (values[i] == NULL)
            return false;
    }
    return true;
}

static void call_operator(scope *s, const rvli_expression *e, rvli_value **results_out)
{
    rvli_value *arguments[RVLI_ARGUMENTS_MAX] = {NULL};
    const rvli_operator *operation = e->operation;
    evaluate_arguments(s, e, arguments);
    bool runs = !s->g->stopped && are_there(arguments, e->argument_count);
    if (runs && operation->run_several != NULL)
        operation->run_several(s->g, arguments, results_out);
    else if (runs)
        results_out[0] = operation->run(s->g, arguments);
    for (int i = 0; i < e->argument_count; i++)
        rvli_value_release(s->g, arguments[i]);
}

/* Returns the first of several results. */
static rvli_value *first_of(scope *s, const rvli_expression *e)
{
    rvli_value *results[RVLI_ARGUMENTS_MAX] = {NULL};
    call_operator(s, e, results);
    for (int i = 1; i < RVLI_ARGUMENTS_MAX; i++)
        rvli_value_release(s->g, results[i]);
    return results[0];
}

static bool is_number(const scope *s, uint16_t index)
{
    return s->g->program->expression[index].kind == RVLI_NUMBER;
}

/* Two values, or a value and a number. */
static rvli_value *combine(scope *s, const rvli_expression *e)
{
    rvli_graph *g = s->g;
    bool multiplies = e->kind == RVLI_PRODUCT;
    rvli_value *part[2] = {NULL, NULL}, *y;
    for (int i = 0; i < 2; i++)
        part[i] = is_number(s, e->argument[i]) ? NULL : evaluate(s, e->argument[i]);
    if (is_number(s, e->argument[0]) || is_number(s, e->argument[1]))
        y = rvli_op_elementwise(g, multiplies ? RVLI_OP_SCALE : RVLI_OP_SHIFT,
                                part[0] != NULL ? part[0] : part[1]);
    else if (multiplies)
        y = rvli_op_multiply(g, part[0], part[1]);
    else
        y = (e->kind == RVLI_SUM ? rvli_op_add : rvli_op_subtract)(g, part[0], part[1]);
    rvli_value_release(g, part[0]);
    rvli_value_release(g, part[1]);
    return y;
}

static rvli_value *negative(scope *s, const rvli_expression *e)
{
    rvli_value *x = evaluate(s, e->argument[0]);
    rvli_value *y = rvli_op_elementwise(s->g, RVLI_OP_NEGATE, x);
    rvli_value_release(s->g, x);
    return y;
}

/* The caller owns the result. NULL: no value, or the run has stopped. */
static rvli_value *evaluate(scope *s, uint16_t index)
{
    const rvli_expression *e = &s->g->program->expression[index];
    if (s->g->stopped)
        return NULL;
    switch (e->kind) {
    case RVLI_SLOT:
        return rvli_value_retain(s->slot[e->index]);
    case RVLI_HELD:
        return rvli_value_retain(s->g->held[e->index]);
    case RVLI_WEIGHT:
        return rvli_value_parameter(s->g, e->role);
    case RVLI_NEGATIVE:
        return negative(s, e);
    case RVLI_SUM:
    case RVLI_DIFFERENCE:
    case RVLI_PRODUCT:
        return combine(s, e);
    case RVLI_CALL_FUNCTION:
        return first_of_function(s, e);
    case RVLI_CALL_OPERATOR:
        return first_of(s, e);
    case RVLI_CALL_LINEAR:
        return call_linear(s, e);
    case RVLI_CALL_NORM:
        return call_norm(s, e);
    case RVLI_NUMBER:
    case RVLI_CALL:
        break;
    }
    return NULL;
}

static void assign(scope *s, const rvli_statement *statement)
{
    if (statement->source_count == statement->count) {
        rvli_value *values[RVLI_ARGUMENTS_MAX] = {NULL};
        for (int i = 0; i < statement->count; i++)
            values[i] = evaluate(s, statement->expression[i]);
        for (int i = 0; i < statement->count; i++)
            rvli_value_assign(s->g, &s->slot[statement->target[i]], values[i]);
        return;
    }
    const rvli_expression *e = &s->g->program->expression[statement->expression[0]];
    scope callee = {.g = s->g};
    if (e->kind == RVLI_CALL_FUNCTION)
        call_function(s, e, &callee);
    else
        call_operator(s, e, callee.result);
    for (int i = 0; i < statement->count; i++)
        rvli_value_assign(s->g, &s->slot[statement->target[i]], callee.result[i]);
}

static void run_chunks(scope *s, const rvli_statement *statement)
{
    uint64_t count = rvli_chunks_of(s->g);
    for (uint64_t i = 0; i < count && !s->g->stopped; i++)
        run_block(s, statement->then);
}

static void run_streams(scope *s, const rvli_statement *statement)
{
    uint64_t count = s->g->t->model->dim[RVLI_DIM_ALTUP_COUNT];
    for (uint32_t i = 1; i < count && !s->g->stopped; i++) {
        s->g->stream = i;
        run_block(s, statement->then);
    }
}

static void run_statement(scope *s, const rvli_statement *statement)
{
    switch (statement->kind) {
    case RVLI_ASSIGN:
        assign(s, statement);
        break;
    case RVLI_RETURN:
        for (uint16_t i = 0; i < statement->count; i++)
            s->result[i] = evaluate(s, statement->expression[i]);
        s->result_count = statement->count;
        s->returned = true;
        break;
    case RVLI_IF:
        run_block(s, statement->holds(s->g) ? statement->then : statement->otherwise);
        break;
    case RVLI_FOR:
        for (uint32_t i = 0; i < s->g->t->model->layers; i++) {
            s->g->layer = i;
            run_block(s, statement->then);
            rvli_tape_between(&s->g->t->tape);
        }
        break;
    case RVLI_CHUNKS:
        run_chunks(s, statement);
        break;
    case RVLI_STREAMS:
        run_streams(s, statement);
        break;
    }
}

static void run_block(scope *s, uint16_t first)
{
    const rvli_statement *statements = s->g->program->statement;
    for (uint16_t at = first; at != RVLI_NO_STATEMENT; at = statements[at].next) {
        if (s->returned || s->g->stopped)
            return;
        run_statement(s, &statements[at]);
    }
}

rvli_value *rvli_program_call(rvli_graph *g, rvli_entry_point entry, rvli_value *const *arguments,
                              uint32_t count)
{
    rvli_value *own[RVLI_ARGUMENTS_MAX] = {NULL};
    scope callee = {.g = g};
    if (g->stopped)
        return NULL;
    for (uint32_t n = 0; n < count; n++)
        own[n] = rvli_value_retain(arguments[n]);
    call(&callee, &g->program->function[g->program->entry[entry]], own);
    return first_result(&callee);
}

/* ---- Programs ---- */

rvli_program *rvli_program_make(const rvli_training *t)
{
    const char *texts[RVLI_TEXTS_MAX];
    size_t count = rvli_texts_of(t->model->type, texts);
    rvli_program *program = calloc(1, sizeof *program);
    if (program != NULL)
        rvli_program_read(program, t, texts, count);
    return program;
}

void rvli_program_free(rvli_program *program)
{
    free(program);
}
