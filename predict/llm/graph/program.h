/* SPDX-License-Identifier: MIT */
/*
 * Texts of modules, as trees.
 *
 * The language is the part of Python that transformers' modules need: functions, assignments, `if`
 * with a named condition, `for` over layers, and calls. A `module` holds its arguments until it
 * returns, like a call of torch.nn.Module. A `def` does not. docs/model.md has the rules.
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
    RVLI_SLOT,   /* a name in the function */
    RVLI_HELD,   /* an input of the layer, such as angles */
    RVLI_WEIGHT, /* a parameter of the layer */
    RVLI_NUMBER, /* of any value: it does not matter */
    RVLI_NEGATIVE,
    RVLI_SUM,
    RVLI_DIFFERENCE,
    RVLI_PRODUCT,
    RVLI_CALL, /* by name, until all texts are read; then one of the following */
    RVLI_CALL_FUNCTION,
    RVLI_CALL_OPERATOR,
    RVLI_CALL_LINEAR,
    RVLI_CALL_NORM, /* the text's `norm`, with a parameter and an argument */
} rvli_expression_kind;

typedef struct rvli_expression {
    rvli_expression_kind kind;
    uint16_t argument_count;
    uint16_t argument[RVLI_ARGUMENTS_MAX]; /* expressions */
    uint16_t index;                        /* of a slot, an input of the layer, or a function */
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
    RVLI_STREAMS /* all streams except the first */
} rvli_statement_kind;

#define RVLI_NO_STATEMENT UINT16_MAX

typedef struct rvli_statement {
    rvli_statement_kind kind;
    uint16_t count;                      /* of targets, or of results */
    uint16_t source_count;               /* ASSIGN: number of expressions */
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
    uint16_t first; /* index of its first statement */
} rvli_function;

struct rvli_program {
    rvli_function function[RVLI_FUNCTIONS_MAX];
    rvli_statement statement[RVLI_STATEMENTS_MAX];
    rvli_expression expression[RVLI_EXPRESSIONS_MAX];
    uint16_t entry[RVLI_ENTRY_POINT_COUNT]; /* indices of functions */
    uint16_t function_count, statement_count, expression_count;
    char fault[128]; /* a line number and what is wrong; empty: nothing */
};

/* Reads the texts. A later text may redefine a function. A name that is not a function, an operator
 * or a condition is a parameter of the model. A fault is stored in the program. */
void rvli_program_read(rvli_program *program, const rvli_training *t, const char *const *texts,
                       size_t text_count);

/* Finds the texts of a family. Returns their number. */
size_t rvli_texts_of(const char *type, const char **texts_out);
#define RVLI_TEXTS_MAX 6

/* NULL: no such condition. */
bool (*rvli_condition_find(rvli_text_word name))(const rvli_graph *g);

static inline bool rvli_word_is(rvli_text_word word, const char *text)
{
    return strncmp(text, word.text, word.length) == 0 && text[word.length] == '\0';
}

#endif
