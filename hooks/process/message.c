/* SPDX-License-Identifier: MIT */
#include "hooks/process/message.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/shown.h"
#include "base/text.h"
#include "hooks/process/disk_names.h"
#include "reveille/version.h"

/* One write, so that lines of several processes do not mix. */
void rvli_say(const char *text)
{
    static const char who[] = "reveille: ";
    char line[1024];
    size_t length = sizeof who - 1;
    memcpy(line, who, sizeof who);
    rvli_shown(RVLI_SHOWN_PLAIN, text, line + length, sizeof line - 1 - length);
    length = strlen(line);
    line[length] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length + 1);
    (void)written; /* nowhere else to report it */
}

static void add_field(rvli_text *text, const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    rvli_text_add(text, ", ");
    rvli_text_add(text, name);
    rvli_text_add(text, " ");
    rvli_text_add(text, value);
}

static void add_native(rvli_text *text, const rvl_error *error)
{
    if (error->native_code == 0)
        return;
    rvli_text_add(text, error->native_code < 0 ? ", code -" : ", code ");
    rvli_text_add_u64(text, (uint64_t)llabs((long long)error->native_code));
    rvli_text_add(text, error->native_name[0] != '\0' ? " " : "");
    rvli_text_add(text, error->native_name);
}

void rvli_say_error(const char *what)
{
    const rvl_error *error = rvli_error_get();
    char line[896];
    rvli_text text = rvli_text_begin(line, sizeof line);
    rvli_text_add(&text, what);
    rvli_text_add(&text, " failed: ");
    rvli_text_add(&text, error->message);
    rvli_text_add(&text, " (");
    rvli_text_add(&text, rvl_status_name(error->status));
    add_field(&text, "step", error->op);
    add_field(&text, "tag", error->tag);
    if (error->requested_bytes != 0) {
        rvli_text_add(&text, ", asked for ");
        rvli_text_add_u64(&text, error->requested_bytes);
        rvli_text_add(&text, " bytes, free ");
        rvli_text_add_u64(&text, error->free_bytes);
        rvli_text_add(&text, " bytes");
    }
    add_native(&text, error);
    rvli_text_add(&text, ", Reveille ");
    rvli_text_add(&text, rvl_version());
    rvli_text_add(&text, ")");
    rvli_say(line);
}

void rvli_end_process(void)
{
    rvli_disk_names_remove_all();
    abort();
}
