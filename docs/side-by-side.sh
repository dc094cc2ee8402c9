#!/usr/bin/env bash
# Requests per CPU-second of load generators, side by side against one server:
#
#   docs/side-by-side.sh URL [ROUNDS] [SECONDS] [CONNECTIONS] [CPU]
#
# Each generator runs with one thread on processor CPU, all of them in turn in each round; keep the
# server on another (taskset -c 0 …). The processor time is that of the whole process, its start
# included. Prints the median of the rounds, and each as a multiple of wrk in the same round.
# DROVER names the binary; generators that are not installed are left out.
set -euo pipefail
export LC_ALL=C
url=${1:?usage: docs/side-by-side.sh URL [ROUNDS] [SECONDS] [CONNECTIONS] [CPU]}
rounds=${2:-7} seconds=${3:-2} connections=${4:-64} cpu=${5:-1}
drover=${DROVER:-drover}
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT

# Each prints how many responses it got.
wrk() { command wrk -t1 -c"$connections" -d"${seconds}s" "$url" | awk '/requests in/ { print $1 }'; }
h2load() {
    command h2load --h1 -t1 -c"$connections" -D"$seconds" "$url" |
        awk '/^requests:/ { for (i = 1; i < NF; i++) if ($(i + 1) == "succeeded,") print $i }'
}
oha() {
    command oha --no-tui --worker-threads 1 -c"$connections" -z"${seconds}s" "$url" \
        --output-format json 2>/dev/null | tr '{,}' '\n\n\n' | awk -F: '/"200"/ { print $2; exit }'
}
closed() {
    "$drover" load "$url" -c"$connections" -d"${seconds}s" --json - |
        awk -F'[:,]' '/"responses"/ { print $2 + 0; exit }'
}
verified() {
    "$drover" load "$url" -c"$connections" -d"${seconds}s" --verify --json - |
        awk -F'[:,]' '/"responses"/ { print $2 + 0; exit }'
}
open() {
    "$drover" load "$url" -c"$connections" -d"${seconds}s" --rate "${RATE:-200000}" --json - |
        awk -F'[:,]' '/"responses"/ { print $2 + 0; exit }'
}

generators=()
for name in wrk h2load oha; do
    if type -P "$name" >/dev/null; then generators+=("$name"); else echo "no $name here" >&2; fi
done
generators+=(closed verified open)
taskset -pc "$cpu" $$ >/dev/null
TIMEFORMAT='%U %S'
for ((round = 1; round <= rounds; round++)); do
    for name in "${generators[@]}"; do
        { time "$name" >"$out/responses" 2>"$out/errors"; } 2>"$out/time"
        awk -v name="$name" -v round="$round" 'FNR == NR { n = $1; next }
            { printf "%d %s %.0f %.2f\n", round, name, n / ($1 + $2), $1 + $2 }' \
            "$out/responses" "$out/time" | tee -a "$out/all" >&2
    done
done
median() { sort -g | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }
printf '%-10s %20s %8s\n' '' requests/CPU-second 'x wrk'
for name in "${generators[@]}"; do
    each=$(awk -v name="$name" '$2 == name { print $3 }' "$out/all" | median)
    times=$(awk -v name="$name" '$2 == "wrk" { wrk[$1] = $3 } $2 == name { own[$1] = $3 }
        END { for (round in own) if (round in wrk) print own[round] / wrk[round] }' "$out/all")
    printf '%-10s %20.0f %8.2f\n' "$name" "$each" "$([ -z "$times" ] && echo nan || median <<<"$times")"
done
