# SPDX-License-Identifier: MIT
# Long work with its output in a log, so that the terminal shows how far it is; sourced by the others.

progress_s=10

# What was said last: a line that overwrites itself as it stands now, none that is empty.
last_line() { # LOG
    tail -n 5 "$1" | tr '\r' '\n' | grep . | tail -n 1 | cut -c 1-90
}

# How far it is: the seconds, and the log's last line once there is one.
progress() { # SECONDS LOG
    local line
    line=$(last_line "$2")
    echo "  $1 s${line:+: $line}"
}

# logged LOG WHAT COMMAND...: runs it. On stderr: WHAT, and every progress_s how far it is.
# Where the command fails: the end of the log, and where all of it is. Answers the command's status.
logged() {
    local log=$1 what=$2 status=0 begin=$SECONDS watcher
    shift 2
    echo "$what" >&2
    mkdir -p "$(dirname "$log")"
    : >"$log"
    {
        while sleep "$progress_s" >/dev/null 2>&1; do # it outlives us: not with our stderr open
            progress $((SECONDS - begin)) "$log" >&2
        done
    } &
    watcher=$!
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    kill "$watcher"
    wait "$watcher" 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        tail -n 30 "$log" >&2
        echo "failed: $what (all of it: $log)" >&2
    fi
    return "$status"
}
