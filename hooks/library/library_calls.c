/* SPDX-License-Identifier: MIT */
#include "hooks/library/library_calls.h"

#include <string.h>

#include "hooks/library/hooks.h"
#include "reveille/version.h"

const rvli_library_calls *rvl_private_attach_hooks(const char *mode, const char *version)
{
    static const rvli_library_calls calls = {.version = RVL_VERSION_STRING,
#define LIBRARY_CALL(type, name, parameters, arguments) .name = rvli_##name,
#define LIBRARY_CALL_VOID(name, parameters, arguments) .name = rvli_##name,
                                             RVLI_LIBRARY_CALLS_MAP(LIBRARY_CALL, LIBRARY_CALL_VOID)
#undef LIBRARY_CALL
#undef LIBRARY_CALL_VOID
    };
    if (strcmp(version, RVL_VERSION_STRING) != 0)
        return NULL;
    rvli_hooks_attach(mode);
    return &calls;
}
