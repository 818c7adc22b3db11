/* SPDX-License-Identifier: MIT */
/* Finds outputs that would replace an input or each other. */
#include <sys/stat.h>

#include "command.h"
#include "output.h"

/* Writing to a special file replaces nothing. A terminal or a socket is often input and output. */
static bool is_special(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISREG(facts.st_mode);
}

int outputs_check_input(const output_name *outputs, size_t count, const char *input)
{
    if (input == NULL || is_special(input))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (outputs[i].path != NULL && rvli_output_is_same(outputs[i].path, input))
            return complain(EXIT_BAD_INPUT,
                            "%s %s: would replace %s, which is read: name another "
                            "file",
                            outputs[i].option, outputs[i].path, input);
    return 0;
}

int outputs_check_each_other(const output_name *outputs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (outputs[i].path != NULL && outputs[k].path != NULL &&
                rvli_output_is_same(outputs[i].path, outputs[k].path))
                return complain(EXIT_BAD_INPUT,
                                "%s %s: would replace what %s %s writes: name "
                                "another file",
                                outputs[i].option, outputs[i].path, outputs[k].option,
                                outputs[k].path);
    return 0;
}
