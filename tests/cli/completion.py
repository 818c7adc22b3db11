#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Has a shell complete command lines, and compares what it offers.

    completion.py bash|zsh|fish REVEILLE
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

DEVICES = {"h200", "h100-80g", "h100-94g", "a100-80g", "a100-40g", "b200", "l40s", "l4", "a10",
           "rtx5090", "rtx4090", "h20", "gh200", "b300", "gb300", "a6000", "rtx3090", "t4", "v100"}
# What is typed, and what is offered: all of it, or (beginning with a "+") at least that.
CASES = [
    ("reveille rep", {"replay", "report"}),
    ("reveille sn", {"snapshot"}),
    ("reveille help sn", {"snapshot"}),
    ("reveille replay --w", {"--wake"}),
    ("reveille replay --wake ", {"staged", "together"}),
    ("reveille replay --wake t", {"together"}),
    ("reveille replay --device ", DEVICES),
    ("reveille replay --device h1", {"h100-80g", "h100-94g"}),
    ("reveille replay --snapshot-d", {"--snapshot-device"}),
    ("reveille model --weights-dtype i", {"int4", "int8"}),
    ("reveille plan --strategy ", {"v0", "v1", "v2", "v3"}),
    ("reveille report --sv", {"--svg"}),
    ("reveille check --ju", {"--junit"}),
    ("reveille completion ", {"bash", "zsh", "fish"}),
    ("reveille manual dev", {"devices"}),
    ("reveille replay run", {"run.rvt", "run.rvt.zst"}),
    ("reveille snapshot s", {"s p.pickle"}),
    ("reveille check m", {"memory.toml"}),
    ("reveille model c", {"config.json"}),
    ("reveille replay run.rvt --js", {"--json"}),
]
EQUALS = [  # the value in the word itself
    ("reveille replay --wake=t", {"together"}),
    ("reveille replay --color=n", {"never"}),
]
FILES = ["run.rvt", "run.rvt.zst", "run.txt", "s p.pickle", "s.txt", "memory.toml", "memory.txt",
         "config.json", "config.txt"]
ANY_FILE = {"fish"}  # does not choose files by their ending

BASH = r"""
set -u
source "$1"
line=$2
# As readline divides it: "=" is a word of its own.
read -ra COMP_WORDS <<< "${line//=/ = }"
[[ $line == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMPREPLY=()
_reveille
printf '%s\n' "${COMPREPLY[@]}"
"""

# Every match passes compadd: it is told by the side, in a file.
ZSH = r"""
zmodload zsh/zpty
cat > ./.setup <<'END'
PROMPT=''
autoload -Uz compinit
compinit -u -D
source $COMPLETION
setopt no_list_beep
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    typeset -a matches
    builtin compadd -A matches "$@"
    print -rl -- $matches >> ./.matches
    builtin compadd "$@"
}
print ready > ./.ready
END
export COMPLETION=$1
zpty shell zsh -f -i
zpty -w shell 'source ./.setup'
for i in {1..200}; do [[ -e .ready ]] && break; sleep 0.05; done
zpty -n -w shell "$2"$'\t'
sleep 0.3
zpty -n -w shell $'\C-a\C-kprint done > ./.done\n'
for i in {1..200}; do [[ -e .done ]] && break; sleep 0.05; done
zpty -d shell
[[ -e .matches ]] && cat .matches
exit 0
"""


def offered(shell, script, line, folder):
    if shell == "bash":
        words = ["bash", "--norc", "-c", BASH, "bash", script, line]
    elif shell == "zsh":
        for name in (".ready", ".done", ".matches"):
            (folder / name).unlink(missing_ok=True)
        words = ["zsh", "-f", "-c", ZSH, "zsh", script, line]
    else:
        words = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    if done.stderr and shell != "zsh":
        print(done.stderr)
    return {match.split("\t")[0].rstrip(" /") for match in done.stdout.splitlines() if match}


def main(shell, command):
    if not shutil.which(shell):
        print(f"SKIP: {shell} is not installed")
        return 77
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = folder / ".completion"
        with open(script, "w", encoding="utf-8") as out:
            subprocess.run([command, "completion", shell], stdout=out, check=True)
        for file in FILES:
            (folder / file).touch()
        for line, expected in CASES + EQUALS:
            found = {match.replace("--wake=", "").replace("--color=", "").rstrip("=").replace("\\", "")
                     for match in offered(shell, script, line, folder)}
            if shell in ANY_FILE and expected & set(FILES):
                found -= {file for file in FILES if file.endswith(".txt")}
            if found != expected:
                wrong += 1
                print(f"{shell}: {line!r}: {sorted(found)}, expected {sorted(expected)}")
    print(f"{shell}: {len(CASES + EQUALS)} lines, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1], sys.argv[2]))
