#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the table of a bench_gpu run: best later cycle of each, first cycle apart, and ratios.

    bench_gpu --peer LIB > run.jsonl; bench/gpu/table.py run.jsonl
"""
import json
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def main():
    lines = read(sys.argv[1])
    link = next(line for line in lines if line.get("limit") == "link")
    link_out = link["bytes"] / link["out_s"] / 1e9
    link_in = link["bytes"] / link["in_s"] / 1e9
    print(next(line for line in lines if "machine" in line))
    print(f"link: out {link_out:.1f} GB/s, in {link_in:.1f} GB/s")
    for line in lines:
        if line.get("limit") == "digest":
            print(f"digests: {line['bytes'] / line['digest_s'] / 1e9:.0f} GB/s")
    runs = {}
    for line in lines:
        if "work" in line:
            runs.setdefault((line["work"], line["subject"]), []).append(line)
    print(f"{'work':24} {'subject':9} {'first pause':>20} {'later pause':>20} {'later resume':>20} content")
    for (work, subject), cycles in runs.items():
        size = cycles[0]["bytes"]
        first = cycles[0]["pause_s"]
        pause = min(c["pause_s"] for c in cycles[1:])
        resume = min(c["resume_s"] for c in cycles[1:])
        both = min(c["pause_s"] + c["resume_s"] for c in cycles[1:])
        shown = [f"{s * 1e3:9.2f} ms {size / s / 1e9:6.1f}" for s in (first, pause, resume)]
        content = "/".join(sorted({c["content"] for c in cycles}))
        bare = runs.get((work, "bare"))
        ratio = ""
        if bare and subject != "bare":
            bare_both = min(c["pause_s"] + c["resume_s"] for c in bare[1:])
            bare_pause = min(c["pause_s"] for c in bare[1:])
            bare_resume = min(c["resume_s"] for c in bare[1:])
            ratio = (f"  to bare: pause {pause / bare_pause:.2f}, resume {resume / bare_resume:.2f},"
                     f" both {both / bare_both:.2f}")
        elif content == "same":
            ratio = (f"  to link: pause {size / pause / 1e9 / link_out:.2f},"
                     f" resume {size / resume / 1e9 / link_in:.2f}")
        print(f"{work:24} {subject:9} {shown[0]:>20} {shown[1]:>20} {shown[2]:>20} {content}{ratio}")


main()
