/* SPDX-License-Identifier: MIT */
/*
 * Texts of modules, as trees.
 *
 * The language is what modules of transformers need of Python: functions, assignments, `if` by a
 * name, `for` over layers, and calls. A `module` holds what it is given until it returns, as
 * torch.nn.Module's call does; a `def` does not. docs/model.md has its rules.
 */
#ifndef RVL_PREDICT_LLM_GRAPH_PROGRAM_H
#define RVL_PREDICT_LLM_GRAPH_PROGRAM_H

#include <string.h>

#include "predict/llm/graph/graph.h"

#define RVLI_ARGUMENTS_MAX 6
#define RVLI_SLOTS_MAX 24
#define RVLI_FUNCTIONS_MAX 64
#define RVLI_STATEMENTS_MAX 512
#define RVLI_EXPRESSIONS_MAX 1024

typedef struct rvli_text_word {
    const char *text;
    size_t length;
} rvli_text_word;

typedef enum rvli_expression_kind {
    RVLI_SLOT,   /* what a name of the function has */
    RVLI_HELD,   /* angles */
    RVLI_WEIGHT, /* a parameter of the layer */
    RVLI_NUMBER, /* which number does not matter */
    RVLI_NEGATIVE,
    RVLI_SUM,
    RVLI_DIFFERENCE,
    RVLI_PRODUCT,
    RVLI_CALL, /* by its name: before all is read; then one of the others */
    RVLI_CALL_FUNCTION,
    RVLI_CALL_OPERATOR,
    RVLI_CALL_LINEAR,
    RVLI_CALL_NORM, /* the text's `norm`, of the parameter and what it is given */
} rvli_expression_kind;

typedef struct rvli_expression {
    rvli_expression_kind kind;
    uint16_t argument_count;
    uint16_t argument[RVLI_ARGUMENTS_MAX]; /* expressions */
    uint16_t index;                        /* of a slot, of what is held, of a function */
    rvli_role role;
    const rvli_operator *operation;
    rvli_text_word name;
} rvli_expression;

typedef enum rvli_statement_kind {
    RVLI_ASSIGN,
    RVLI_RETURN,
    RVLI_IF,
    RVLI_FOR,    /* all layers */
    RVLI_CHUNKS, /* all chunks of a sequence */
    RVLI_STREAMS /* all streams but the first */
} rvli_statement_kind;

#define RVLI_NO_STATEMENT UINT16_MAX

typedef struct rvli_statement {
    rvli_statement_kind kind;
    uint16_t count;                      /* of targets, or of results */
    uint16_t source_count;               /* ASSIGN: of expressions */
    uint16_t target[RVLI_ARGUMENTS_MAX]; /* slots */
    uint16_t expression[RVLI_ARGUMENTS_MAX];
    bool (*holds)(const rvli_graph *g); /* IF */
    uint16_t then, otherwise;
    uint16_t next;
} rvli_statement;

typedef struct rvli_function {
    rvli_text_word name;
    bool is_module;
    uint16_t argument_count;
    uint16_t slot_count;
    uint16_t first; /* statement */
} rvli_function;

struct rvli_program {
    rvli_function function[RVLI_FUNCTIONS_MAX];
    rvli_statement statement[RVLI_STATEMENTS_MAX];
    rvli_expression expression[RVLI_EXPRESSIONS_MAX];
    uint16_t entry[RVLI_ENTRY_POINT_COUNT]; /* functions */
    uint16_t function_count, statement_count, expression_count;
    char fault[128]; /* in which line of which text; empty: none */
};

/* Reads texts, of which a later one may define a function again. Names that no function, operator
 * or condition has are parameters of the model. A fault is left in the program. */
void rvli_program_read(rvli_program *program, const rvli_training *t, const char *const *texts,
                       size_t text_count);

/* The texts of a family; their number. */
size_t rvli_texts_of(const char *type, const char **texts_out);
#define RVLI_TEXTS_MAX 6

/* NULL: there is no such condition. */
bool (*rvli_condition_find(rvli_text_word name))(const rvli_graph *g);

static inline bool rvli_word_is(rvli_text_word word, const char *text)
{
    return strncmp(text, word.text, word.length) == 0 && text[word.length] == '\0';
}

#endif
