#!/usr/bin/env bash
# What further workers cost, by accept strategy:
#
#   docs/workers.sh [ROUNDS] [SECONDS] [DISPATCH…]
#
# In each round a server with 1, 2 and 4 workers is asked 20,000 times a second by 64 kept connections, and 2,000 times a second
# by connections of one request each, by each strategy in turn. Prints the server's CPU time per response
# (/proc/PID/task/*/schedstat) and as a multiple of one worker's in the same round, its voluntary context switches and events
# per response, and the waits that were for a connection that another worker had taken: medians, with the least and the most.
# DROVER names the binary. Needs python3.
set -euo pipefail
export LC_ALL=C
rounds=${1:-5} seconds=${2:-2}
shift $(($# < 2 ? $# : 2))
mechanisms=("${@:-epoll-et}")
drover=${DROVER:-drover}
out=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || true; wait; rm -r "$out"' EXIT
mkdir "$out/www"
head -c 4096 /dev/zero >"$out/www/a"

cpu() { cat /proc/"$server"/task/*/schedstat | awk '{ s += $1 } END { printf "%.0f", s }'; }
switches() { cat /proc/"$server"/task/*/status | awk '/^voluntary/ { s += $2 } END { printf "%.0f", s }'; }
for round in $(seq "$rounds"); do
    for mechanism in "${mechanisms[@]}"; do
        for strategy in shared exclusive blocking lock reuseport handoff; do
            for workers in 1 2 4; do
                : >"$out/drover"
                # A strategy that does not go with the mechanism is left out.
                "$drover" serve "$out/www" --listen 127.0.0.1:0 --workers "$workers" --accept "$strategy" \
                    --dispatch "$mechanism" --counters "$out/counters" >"$out/drover" 2>"$out/drover.log" &
                server=$!
                until grep -q listening "$out/drover" || ! kill -0 "$server" 2>/dev/null; do sleep 0.05; done
                url=$(sed -n 's/listening on //p' "$out/drover")/a
                [ "$url" != /a ] || continue
                for load in kept connections; do
                    flags=(-c 64 --rate 20000)
                    [ "$load" = kept ] || flags=(-c 64 --connection-rate 2000 --calls-per-connection 1)
                    before=$(cpu) waited=$(switches)
                    count=$("$drover" load "$url" -d "${seconds}s" "${flags[@]}" --json - | awk -F'[:,]' '/"responses"/ && !n++ { print $2 + 0 }')
                    echo "$load $mechanism $strategy $workers $count $(($(cpu) - before)) $(($(switches) - waited))"
                done
                kill "$server" && wait "$server" || true
            done
        done
    done
done >"$out/runs"
python3 - "$out/runs" <<'END'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    load, mechanism, strategy, workers, count, cpu, switches = line.split()
    runs[load, mechanism, strategy, int(workers)].append((int(cpu) / 1000 / int(count), int(switches) / int(count)))
def spread(values):
    values = sorted(values)
    return f"{statistics.median(values):.2f} ({values[0]:.2f} … {values[-1]:.2f})"
for (load, mechanism, strategy, workers), all in sorted(runs.items()):
    ratios = [it[0] / one[0] for it, one in zip(all, runs[load, mechanism, strategy, 1])]
    print(f"{load:11} {mechanism:9} {strategy:9} {workers}  {spread([it[0] for it in all])} us, "
          f"{spread(ratios)} of one worker, {spread([it[1] for it in all])} switches")
END
