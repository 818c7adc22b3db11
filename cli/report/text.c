/* SPDX-License-Identifier: MIT */
/* Writes names of a trace in the formats of reports. */
#include "cli/report/report.h"

bool write_json_text(FILE *out, const char *text)
{
    putc('"', out);
    bool ok = write_shown(out, RVLI_SHOWN_JSON, text);
    putc('"', out);
    return ok;
}

bool write_xml_text(FILE *out, const char *text)
{
    return write_shown(out, RVLI_SHOWN_XML, text);
}
