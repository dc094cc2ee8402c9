#!/usr/bin/env bash
# How long other clients wait while hostile ones attack, drover and nginx in turn:
#
#   docs/hostile-clients.sh [ROUNDS] [SECONDS]
#
# In each round, each server is asked 500 times a second by 50 connections, first alone, then while it is attacked: by
# slowhttptest in its four modes (4,000 connections, 1,000 a second), by 2,000 connections a second that ask once, and by
# 12,000 that say nothing, which is more than either may have (8,192 each). Both have two workers and otherwise the time-outs
# that they have by default. Prints, of the rounds' medians, the 99th percentile of the response time, and that of the quiet
# run as 1; failed requests, of all rounds; and in how many of the seconds the probe of slowhttptest was answered.
# DROVER names the binary. Needs nginx and slowhttptest, and 20,000 descriptors (ulimit -n).
set -euo pipefail
export LC_ALL=C
rounds=${1:-5} seconds=${2:-8}
drover=${DROVER:-drover}
out=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait; rm -r "$out"' EXIT

mkdir "$out/www"
head -c 1000 /dev/zero >"$out/www/small"
head -c 1000000 /dev/zero >"$out/www/large"
chmod 755 "$out" "$out/www"
"$drover" serve "$out/www" --listen 127.0.0.1:0 --workers 2 --max-connections 8192 >"$out/drover" 2>"$out/drover.log" &
servers+=($!)
until grep -q listening "$out/drover"; do sleep 0.1; done
# Below the ports that clients have.
port=$((20000 + RANDOM % 10000))
cat >"$out/nginx.conf" <<END
daemon off; pid $out/pid; error_log $out/nginx.log; worker_processes 2; worker_rlimit_nofile 20000;
events { worker_connections 4096; }
http {
    access_log off; sendfile on; tcp_nopush on;
    server { listen 127.0.0.1:$port backlog=4096 reuseport; root $out/www; }
}
END
nginx -c "$out/nginx.conf" 2>>"$out/nginx.err" &
servers+=($!)
declare -A url=([drover]=$(sed -n 's/listening on //p' "$out/drover") [nginx]=http://127.0.0.1:$port)

slow() { # URL, flags
    local at=$1
    shift
    slowhttptest -c 4000 -r 1000 -l $((seconds + 6)) -p 3 -v 0 -g -o "$out/slow" -u "$at" "$@" >/dev/null 2>&1 || true
    # Which seconds had an answer to the probe; the header is the first line, and the last second is the end.
    awk -F, 'NR > 1 { n++; up += $NF > 0 } END { print up + 0, n }' "$out/slow.csv" >>"$out/probes.$name.$attack"
}
attack() { # URL
    case $attack in
        quiet) ;;
        headers) slow "$1/small" -H -i 2 -x 24 ;;
        body) slow "$1/small" -B -i 2 -s 8192 -x 10 ;;
        ranges) slow "$1/large" -R -t GET -a 10 -b 3000 ;;
        read) slow "$1/large" -X -w 512 -y 1024 -n 2 -z 32 -k 3 ;;
        connections) "$drover" load "$1/small" --connections 2000 --connection-rate 2000 --duration $((seconds + 6))s >/dev/null 2>&1 || true ;;
        silent) "$drover" idle "$1/" --connections 12000 --reopen --hold $((seconds + 6))s >/dev/null 2>&1 || true ;;
    esac
}
attacks=(quiet headers body ranges read connections silent)
for ((round = 1; round <= rounds; round++)); do
    for attack in "${attacks[@]}"; do
        for name in drover nginx; do
            attack "${url[$name]}" &
            attacker=$!
            # Until all of its connections are there.
            test "$attack" = quiet || sleep 4
            "$drover" load "${url[$name]}/small" --connections 50 --rate 500 --duration "${seconds}s" --json "$out/result" >/dev/null 2>&1 || true
            wait "$attacker"
            python3 -c 'import json, sys
it = json.load(open(sys.argv[1]))
print(it["latency_us"]["p50"], it["latency_us"]["p99"], it["requests"] - it["responses"] + it["connections"]["failed"], it["requests"])' \
                "$out/result" | tee -a "$out/$name.$attack" | sed "s/^/$round $name $attack: /" >&2
        done
    done
done
python3 - "$out" "${attacks[@]}" <<'END'
import os, statistics, sys
out, attacks = sys.argv[1], sys.argv[2:]
def rows(path): return [[float(it) for it in line.split()] for line in open(path)]
print("| attack | drover p99 | nginx p99 | drover fails | nginx fails | drover probe | nginx probe |")
print("|---|---|---|---|---|---|---|")
for attack in attacks:
    p99, fails, probes = [], [], []
    for name in ("drover", "nginx"):
        own, quiet = rows(f"{out}/{name}.{attack}"), rows(f"{out}/{name}.quiet")
        middle = lambda them: statistics.median(row[1] for row in them)
        p99.append(f"{middle(own):.0f} µs ({middle(own) / middle(quiet):.2f})")
        fails.append(f"{sum(row[2] for row in own):.0f} of {sum(row[3] for row in own):.0f}")
        path = f"{out}/probes.{name}.{attack}"
        seen = rows(path) if os.path.exists(path) else []
        probes.append(f"{100 * sum(row[0] for row in seen) / sum(row[1] for row in seen):.0f} %" if seen else "–")
    print("|", attack, "|", " | ".join(p99 + fails + probes), "|")
END
