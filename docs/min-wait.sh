#!/usr/bin/env bash
# What drover serve --min-wait saves and costs:
#
#   docs/min-wait.sh [ROUNDS] [SECONDS]
#
# In each round one worker, by uring and by epoll-et, with each time in turn, is asked 1,000, 10,000 and 50,000 times a second by 64
# kept connections for 4 KiB. Prints the worker's CPU time per response (/proc/PID/task/*/schedstat) and as a multiple of that
# without the flag in the same round, its voluntary context switches per response, and the response time from the moment at which
# a request should have been sent: medians, with the least and the most. DROVER names the binary. Needs python3.
set -euo pipefail
export LC_ALL=C
rounds=${1:-5} seconds=${2:-2}
drover=${DROVER:-drover}
out=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait; rm -r "$out"' EXIT
mkdir "$out/www"
head -c 4096 /dev/zero >"$out/www/a"
declare -A process url
for mechanism in uring epoll-et; do
    for time in 0 50us 200us 1ms; do
        name=$mechanism-$time
        : >"$out/$name"
        "$drover" serve "$out/www" --listen 127.0.0.1:0 --workers 1 --dispatch "$mechanism" --min-wait "$time" >"$out/$name" 2>"$out/log" &
        process[$name]=$!
        servers+=($!)
        until grep -q listening "$out/$name"; do sleep 0.05; done
        url[$name]=$(sed -n 's/listening on //p' "$out/$name")/a
    done
done
cpu() { cat /proc/"$1"/task/*/schedstat | awk '{ s += $1 } END { printf "%.0f", s }'; }
switches() { cat /proc/"$1"/task/*/status | awk '/^voluntary/ { s += $2 } END { printf "%.0f", s }'; }
for round in $(seq "$rounds"); do
    for rate in 1000 10000 50000; do
        for name in "${!process[@]}"; do
            before=$(cpu "${process[$name]}") waited=$(switches "${process[$name]}")
            "$drover" load "${url[$name]}" -c 64 --rate "$rate" -d "${seconds}s" --json "$out/json" >/dev/null 2>&1
            echo "$rate $name $(($(cpu "${process[$name]}") - before)) $(($(switches "${process[$name]}") - waited))" \
                "$(python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); print(j["responses"], j["latency_us"]["p50"], j["latency_us"]["p99"])' "$out/json")"
        done
    done
done >"$out/runs"
python3 - "$out/runs" <<'END'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    rate, name, cpu, switches, count, p50, p99 = line.split()
    mechanism, time = name.rsplit("-", 1)
    count = int(count)
    runs[int(rate), mechanism, time].append((int(cpu) / 1000 / count, int(switches) / count, float(p50), float(p99)))
def spread(values, form="%.2f"):
    values = sorted(values)
    return f"{form % statistics.median(values)} ({form % values[0]} … {form % values[-1]})"
for (rate, mechanism, time), all in sorted(runs.items()):
    ratios = [it[0] / base[0] for it, base in zip(all, runs[rate, mechanism, "0"])]
    column = lambda at, form="%.2f": spread([it[at] for it in all], form)
    print(f"{rate:6}/s {mechanism:8} {time:5}  {column(0)} us, {spread(ratios)} of that without, {column(1)} switches, "
          f"p50 {column(2, '%.0f')} us, p99 {column(3, '%.0f')} us")
END
