#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the tables of bench_gpu runs: every work, then each goal with what was measured and the limit.

    bench_gpu --peer LIB --disk DIR > run.jsonl; bench/gpu/table.py run.jsonl [costless.jsonl]

Works: first cycle apart, best later cycle, ratios to the bare driver calls or to the link. What was
not measured has no row.
"""
import json
import statistics
import sys

GRANULE = 2 << 20


def read(paths):
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file if line.startswith("{")]
    return lines


class Runs:
    """The lines of one or more files, by what they tell."""

    def __init__(self, lines):
        self.machines = [line for line in lines if "machine" in line]
        self.limits, self.works, self.overheads = {}, {}, []
        for line in lines:
            if "limit" in line:
                self.limits.setdefault(line["limit"], []).append(line)
            elif "work" in line:
                self.works.setdefault((line["work"], line["subject"]), []).append(line)
            elif "overhead" in line:
                self.overheads.append(line)

    def of(self, work, subject="reveille"):
        return self.works.get((work, subject))

    def limit_gb_s(self, limit, key):
        """The best of all times, 0 without any."""
        return max((line["bytes"] / line[key] / 1e9 for line in self.limits.get(limit, [])), default=0)


def best_s(cycles, key):
    """Of the cycles after the first; both: pause and resume of one cycle."""
    later = cycles[1:] or cycles
    if key == "both":
        return min(c["pause_s"] + c["resume_s"] for c in later)
    return min(c[key] for c in later)


def gb_s(cycles, key):
    return cycles[0]["bytes"] / best_s(cycles, key) / 1e9


# ---- Every work ----

def ratios(runs, work, subject, cycles):
    bare = runs.of(work, "bare")
    if bare and subject != "bare":
        shown = [best_s(cycles, key) / best_s(bare, key) for key in ("pause_s", "resume_s", "both")]
        return f"  to bare: pause {shown[0]:.2f}, resume {shown[1]:.2f}, both {shown[2]:.2f}"
    out, back = runs.limit_gb_s("link", "out_s"), runs.limit_gb_s("link", "in_s")
    if cycles[0]["content"] == "none" or out == 0:
        return ""
    return f"  to link: pause {gb_s(cycles, 'pause_s') / out:.2f}, resume {gb_s(cycles, 'resume_s') / back:.2f}"


def print_works(runs):
    print(f"{'work':27} {'subject':9} {'first pause':>20} {'later pause':>20} {'later resume':>20} content")
    for (work, subject), cycles in runs.works.items():
        size = cycles[0]["bytes"]
        times = (cycles[0]["pause_s"], best_s(cycles, "pause_s"), best_s(cycles, "resume_s"))
        shown = [f"{s * 1e3:9.2f} ms {size / s / 1e9:6.1f}" for s in times]
        content = "/".join(sorted({c["content"] for c in cycles}))
        print(f"{work:27} {subject:9} {shown[0]:>20} {shown[1]:>20} {shown[2]:>20} {content}"
              + ratios(runs, work, subject, cycles))


# ---- Goals ----

class Goals:
    def __init__(self):
        self.rows = []

    def at_most(self, what, goal, value, limit, form="{:.2f}"):
        self.rows.append((what, "<= " + form.format(goal), form.format(value), limit, value <= goal))

    def at_least(self, what, goal, value, limit, form="{:.2f}"):
        self.rows.append((what, ">= " + form.format(goal), form.format(value), limit, value >= goal))

    def beside(self, what, value, limit, form="{:.2f}"):
        """Without a goal, to be seen beside those that have one."""
        self.rows.append((what, "", form.format(value), limit, None))

    def show(self):
        names = {True: "yes", False: "NO", None: ""}
        print("\n| what | goal | measured | limit | reached |\n| --- | --- | --- | --- | --- |")
        for what, goal, value, limit, reached in self.rows:
            print(f"| {what} | {goal} | {value} | {limit} | {names[reached]} |")


def ms(seconds):
    return f"{seconds * 1e3:.1f} ms"


def to_bare(runs, goals):
    for work, keys, goal in (("plain_256x160MiB", ["both"], 1.1), ("plain_8192x2MiB", ["both"], 1.1),
                             ("coalesced_8192x2MiB", ["pause_s", "resume_s"], 0.2),
                             ("hand_over_256x160MiB", ["both"], 1.2)):
        ours, bare, peer = runs.of(work), runs.of(work, "bare"), runs.of(work, "peer")
        for key in keys if ours and bare else []:
            name = {"both": "pause + resume"}.get(key, key[:-2])
            goals.at_most(f"{work}: {name}, of bare", goal, best_s(ours, key) / best_s(bare, key),
                          f"bare {ms(best_s(bare, key))}")
            if peer and work == "plain_256x160MiB":
                goals.at_most(f"{work}: {name}, of the peer", 1.0, best_s(ours, key) / best_s(peer, key),
                              f"peer {ms(best_s(peer, key))}")
            elif peer:
                goals.beside(f"{work}: {name}, of the peer", best_s(ours, key) / best_s(peer, key),
                             f"peer {ms(best_s(peer, key))}")


def to_link(runs, goals):
    out, back = runs.limit_gb_s("link", "out_s"), runs.limit_gb_s("link", "in_s")
    if out == 0:
        return
    link_out, link_in = f"link {out:.1f} GB/s", f"link {back:.1f} GB/s"
    kept, given = runs.of("kept_102x160MiB"), runs.of("given_back_102x160MiB")
    if kept:
        first = kept[0]["bytes"] / kept[0]["pause_s"] / 1e9
        goals.at_least("host backup, first pause, GB/s", 28, first, link_out, "{:.1f}")
        goals.at_least("host backup, later pause, of the link", 0.96, gb_s(kept, "pause_s") / out, link_out)
        goals.at_least("host backup, later resume, of the link", 0.96, gb_s(kept, "resume_s") / back, link_in)
    if given:
        goals.at_least("memory given back: pause, GB/s", 18, gb_s(given, "pause_s"), link_out, "{:.1f}")
        goals.at_least("memory given back: resume, of the link", 0.9, gb_s(given, "resume_s") / back, link_in)
    small, plain, one = runs.of("kept_2000x2MiB"), runs.of("plain_2000x2MiB"), runs.of("kept_1x4GiB")
    if small and plain and one:
        goals.at_least("2000 x 2 MiB: resume, of the speed of 1 x 4 GiB", 0.9,
                       gb_s(small, "resume_s") / gb_s(one, "resume_s"), f"{gb_s(one, 'resume_s'):.1f} GB/s")
        shared = runs.of("coalesced_kept_2000x2MiB")
        if shared:
            goals.at_least("the same, coalesced in blocks of 128 MiB", 0.9,
                           gb_s(shared, "resume_s") / gb_s(one, "resume_s"), f"{gb_s(one, 'resume_s'):.1f} GB/s")
        copying = best_s(small, "pause_s") - best_s(plain, "pause_s")
        goals.at_least("2000 x 2 MiB: pause less that without backup, of the speed of 1 x 4 GiB", 0.9,
                       small[0]["bytes"] / copying / 1e9 / gb_s(one, "pause_s"),
                       f"{gb_s(one, 'pause_s'):.1f} GB/s")


def changed(runs, goals):
    out, digest = runs.limit_gb_s("link", "out_s"), runs.limit_gb_s("digest", "digest_s")
    none, some = runs.of("changed_none_102x160MiB"), runs.of("changed_granule_102x160MiB")
    everything = runs.of("changed_all_102x160MiB")
    if none:
        goals.at_least("retained, nothing changed: pause, GB/s", 1000, gb_s(none, "pause_s"),
                       f"digests {digest:.0f} GB/s" if digest else "no digests", "{:.0f}")
    if some and digest and out:
        best = some[0]["bytes"] / digest / 1e9 + some[0]["count"] * GRANULE / out / 1e9
        goals.beside("retained, a granule of each changed: pause, GB/s", gb_s(some, "pause_s"),
                     f"digests and copies {some[0]['bytes'] / best / 1e9:.0f} GB/s", "{:.0f}")
    if everything and out:
        goals.beside("retained, everything changed: pause, GB/s", gb_s(everything, "pause_s"),
                     f"link {out:.1f} GB/s", "{:.1f}")


def verified(runs, goals):
    with_digests, without = runs.of("verified_102x160MiB"), runs.of("verified_not_102x160MiB")
    if not with_digests or not without:
        return

    def median_s(cycles, keys):
        return statistics.median(sum(c[key] for key in keys) for c in cycles if c["cycle"] > 0)

    def added_percent(keys):
        return (median_s(with_digests, keys) / median_s(without, keys) - 1) * 100

    goals.at_most("digests: added to pause + resume, %", 2.0, added_percent(["pause_s", "resume_s"]),
                  f"without {ms(median_s(without, ['pause_s', 'resume_s']))}")
    for name, key in (("pause", "pause_s"), ("resume", "resume_s")):
        goals.beside(f"digests: added to {name} alone, %", added_percent([key]),
                     f"without {ms(median_s(without, [key]))}")


def disk(runs, goals):
    ours, limits = runs.of("disk"), runs.limits.get("disk", [])
    if not ours or not limits:
        return
    for name, key, limit_key in (("pause", "pause_s", "write_s"), ("resume", "resume_s", "read_s")):
        rate = statistics.median(c["bytes"] / c[key] / 1e9 for c in ours)
        plain = {}
        for line in limits:
            plain.setdefault(line["threads"], []).append(line["bytes"] / line[limit_key] / 1e9)
        threads, best = max(((t, statistics.median(r)) for t, r in plain.items()), key=lambda pair: pair[1])
        goals.at_least(f"disk backup: {name}, of the disk ({rate:.2f} GB/s)", 0.9, rate / best,
                       f"{limit_key[:-2]}s by {threads} thread{'s' * (threads > 1)} {best:.2f} GB/s")


def overhead(runs, goals):
    for line in runs.overheads:
        if line["overhead"] == "host_memory":
            taken = max(line["heap_bytes"], line["resident_bytes"])
            what = f"host memory of a live allocation, bytes ({line['device']})"
            if "NVIDIA" in line["device"]:  # what the driver holds for it is not the library's
                goals.beside(what, taken, "with the driver's", "{:.0f}")
            else:
                goals.at_most(what, 256, taken, "", "{:.0f}")
        else:
            low, high = line["added_quartiles_ns"]
            goals.at_most(f"added to {line['overhead']}, ns for each allocation ({line['device']})", 2000,
                          line["added_ns"], f"bare {line['bare_ns']:.0f}; quartiles {low:.0f} to {high:.0f}",
                          "{:.0f}")


def content(runs, goals):
    wrong = sum(c["content"] == "DIFFERENT" for cycles in runs.works.values() for c in cycles)
    checked = sum(c["content"] != "none" for cycles in runs.works.values() for c in cycles)
    if checked:
        goals.at_most(f"resumes with wrong content, of {checked}", 0, wrong, "", "{:d}")


def main():
    runs = Runs(read(sys.argv[1:]))
    for machine in runs.machines:
        print(machine)
    if "link" in runs.limits:
        print(f"link: out {runs.limit_gb_s('link', 'out_s'):.1f} GB/s, in {runs.limit_gb_s('link', 'in_s'):.1f} GB/s")
    if "digest" in runs.limits:
        print(f"digests: {runs.limit_gb_s('digest', 'digest_s'):.0f} GB/s")
    print_works(runs)
    goals = Goals()
    for part in (to_bare, to_link, changed, verified, disk, overhead, content):
        part(runs, goals)
    goals.show()


if len(sys.argv) < 2:
    sys.exit(__doc__)
main()
