/* SPDX-License-Identifier: MIT */
#include "core/log_ops.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"

typedef struct log_decorator {
    rvli_backend_ops inner;
    void *self;
    rvl_log_fn log;
    void *user;
} log_decorator;

static rvl_status say(const log_decorator *decorator, rvli_op op, rvl_status status)
{
    char line[96];
    rvli_text text = rvli_text_begin(line, sizeof line);
    rvli_text_add(&text, decorator->inner.name);
    rvli_text_add(&text, " ");
    rvli_text_add(&text, rvli_op_name(op));
    rvli_text_add(&text, ": ");
    rvli_text_add(&text, rvl_status_text(status));
    decorator->log(decorator->user, RVL_LOG_DEBUG, line);
    return status;
}

#define FORWARD(op, parameters, arguments)                                                         \
    static rvl_status log_##op parameters                                                          \
    {                                                                                              \
        const log_decorator *decorator = self;                                                     \
        self = decorator->self;                                                                    \
        return say(decorator, RVLI_OP_##op, decorator->inner.op arguments);                        \
    }
RVLI_BACKEND_ALL_OPS_MAP(FORWARD)
#undef FORWARD

static rvl_status log_device_facts(void *self, int device, rvli_device_facts *facts_out)
{
    const log_decorator *decorator = self;
    return decorator->inner.device_facts(decorator->self, device, facts_out);
}

static void log_close(void *self)
{
    log_decorator *decorator = self;
    decorator->inner.close(decorator->self);
    free(decorator);
}

rvl_status rvli_log_wrap(const rvli_backend_ops *ops, void *self, rvl_log_fn log, void *log_user,
                         rvli_backend_ops *ops_out, void **self_out)
{
    log_decorator *decorator = malloc(sizeof *decorator);
    if (decorator == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a decorator");
    *decorator = (log_decorator){.inner = *ops, .self = self, .log = log, .user = log_user};
    *ops_out = *ops;
    ops_out->close = log_close;
    ops_out->device_facts = log_device_facts;
#define WRAP(name, parameters, arguments) ops_out->name = log_##name;
    RVLI_BACKEND_ALL_OPS_MAP(WRAP)
#undef WRAP
    *self_out = decorator;
    return RVL_OK;
}
