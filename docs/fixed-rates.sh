#!/usr/bin/env bash
# What a response of 4 KiB costs at fixed rates, and pipelined, beside nginx and h2o, in turn:
#
#   docs/fixed-rates.sh [ROUNDS] [SECONDS]
#
# In each round, each server (one worker) is asked by 64 connections 1,000, 10,000 and 50,000 times a second, at 90 % of what it
# has served at most, and 16 requests ahead. Prints the share of the scheduled responses, the CPU time of the worker per
# response (/proc/PID/task/*/schedstat), and that as a multiple of nginx' in the same round: medians, with the least and the
# most. DROVER names the binary. Needs nginx, h2o and python3.
set -euo pipefail
export LC_ALL=C
rounds=${1:-5} seconds=${2:-2}
drover=${DROVER:-drover}
out=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait; rm -r "$out"' EXIT
mkdir "$out/www"
head -c 4096 /dev/zero >"$out/www/a"
chmod 755 "$out" "$out/www"
# Below the ports that clients have.
port=$((20000 + RANDOM % 10000))
declare -A url=([nginx]=http://127.0.0.1:$port/a [h2o]=http://127.0.0.1:$((port + 1))/a) worker peak
cat >"$out/nginx.conf" <<END
daemon off; pid $out/pid; error_log $out/nginx.log; worker_processes 1;
events { worker_connections 4096; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=1000;
    server { listen 127.0.0.1:$port; root $out/www; }
}
END
cat >"$out/h2o.conf" <<END
num-threads: 1
listen: {host: 127.0.0.1, port: $((port + 1))}
user: $(id -un)
hosts: {default: {paths: {/: {file.dir: $out/www}}}}
END
nginx -c "$out/nginx.conf" 2>>"$out/nginx.err" &
servers+=($!)
h2o -c "$out/h2o.conf" >"$out/h2o.log" 2>&1 &
servers+=($!)
worker[h2o]=$!
"$drover" serve "$out/www" --listen 127.0.0.1:0 --workers 1 >"$out/drover" 2>"$out/drover.log" &
servers+=($!)
worker[drover]=$!
until grep -q listening "$out/drover"; do sleep 0.1; done
url[drover]=$(sed -n 's/listening on //p' "$out/drover")/a
for server in nginx h2o; do until curl -so /dev/null "${url[$server]}"; do sleep 0.1; done; done
worker[nginx]=$(pgrep -P "${servers[0]}")

cpu() { cat /proc/"$1"/task/*/schedstat | awk '{ s += $1 } END { printf "%.0f", s }'; }
# How many responses a run of drover load with these flags gets.
responses() { "$drover" load -c 64 -d "${seconds}s" "$@" --json - | awk -F'[:,]' '/"responses"/ && !n++ { print $2 + 0 }'; }

for server in nginx h2o drover; do peak[$server]=$(($(responses "${url[$server]}") / seconds)); done
for round in $(seq "$rounds"); do
    for load in 1000 10000 50000 '90 %' pipelined; do
        for server in nginx h2o drover; do
            case $load in
                pipelined) rate=0 flags=(--pipeline 16) ;;
                '90 %') rate=$((peak[$server] * 9 / 10)) flags=(--rate "$rate") ;;
                *) rate=$load flags=(--rate "$load") ;;
            esac
            before=$(cpu "${worker[$server]}")
            count=$(responses "${url[$server]}" "${flags[@]}")
            echo "${load// /_} $server $count $((rate * seconds)) $(($(cpu "${worker[$server]}") - before))"
        done
    done
done >"$out/runs"
python3 - "$out/runs" "$seconds" <<'END'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    load, server, count, scheduled, cpu = line.split()
    runs[load, server].append((int(count), int(scheduled), int(cpu) / 1000 / int(count)))
def spread(values, form):
    values = sorted(values)
    return f"{form % statistics.median(values)} ({form % values[0]} … {form % values[-1]})"
for (load, server), all in runs.items():
    share = statistics.median(it[0] / it[1] if it[1] else 1 for it in all)
    ratios = [it[2] / base[2] for it, base in zip(all, runs[load, "nginx"])]
    per_second = statistics.median(it[0] for it in all) / int(sys.argv[2])
    print(f"{load:10} {server:7} {per_second:8.0f}/s, {share:.3f} of what was scheduled, "
          f"{spread([it[2] for it in all], '%.2f')} us, {spread(ratios, '%.2f')} of nginx")
END
