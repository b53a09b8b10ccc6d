#!/usr/bin/env bash
# tools/fuzz.sh BUILD SECONDS [TARGET…]: runs the fuzz targets of a build with KILN_FUZZ, FUZZ_JOBS (2) at a time, from
# tests/fuzz/corpus, each for SECONDS of processor time, so that a busy machine counts no less. New inputs stay in BUILD/fuzz/TARGET
# and serve the next run (FUZZ_SEED repeats one: 0, the default, is another each time); what fails is kept in BUILD/fuzz/found, and the exit status is 1. A line per target says how many inputs it ran.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2
shift 2
table=tests/fuzz/fuzz_targets.def
[ $# -gt 0 ] || set -- $(sed -nE 's/^KILN_FUZZ_TARGET\(([a-z_]+),.*/\1/p' $table)
export ASAN_OPTIONS="allocator_may_return_null=1:detect_leaks=1:handle_abort=1" UBSAN_OPTIONS="print_stacktrace=1"
found=$build/fuzz/found
ticks=$(getconf CLK_TCK)
mkdir -p "$found"

cpu_seconds() {   # of process $1, with its children that ended
  awk -v ticks="$ticks" '{ sub(/.*\) /, ""); print int(($12 + $13 + $14 + $15) / ticks) }' "/proc/$1/stat" 2>/dev/null
}

fuzz() {   # fuzz TARGET MAX_BYTES
  local target=$1 max=$2 corpus=$build/fuzz/$1 log=$build/fuzz/$1.log status=0 spent=0 now
  mkdir -p "$corpus"
  "$build/bin/fuzz_$target" -max_len="$max" -timeout=60 -seed="${FUZZ_SEED:-0}" -rss_limit_mb=3000 -malloc_limit_mb=1000 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$found/$target-" "$corpus" "tests/fuzz/corpus/$target" >"$log" 2>&1 &
  local pid=$!
  trap 'kill "$pid" 2>/dev/null' EXIT
  while now=$(cpu_seconds "$pid") && [ -n "$now" ]; do
    spent=$now
    [ "$spent" -lt "$seconds" ] || { kill -USR1 "$pid" 2>/dev/null; break; }   # ends after this input
    sleep 1
  done
  wait "$pid" || status=$?
  trap - EXIT
  local inputs; inputs=$(sed -nE 's/^stat::number_of_executed_units: ([0-9]+)/\1/p' "$log")
  if [ $status -eq 0 ]; then
    printf '%-16s ok      %s inputs in %d CPU seconds\n' "$target" "$inputs" "$spent"
  else
    printf '%-16s FAILED  after %d CPU seconds, see %s\n' "$target" "$spent" "$log"
    grep -E "ERROR|runtime error|CHECK|SUMMARY|^    #[0-9] |Test unit written" "$log" | head -20
    return 1
  fi
}

pids=() failed=0
for target in "$@"; do
  max=$(sed -nE "s/^KILN_FUZZ_TARGET\($target, [A-Za-z]+, ([0-9]+),.*/\1/p" $table)
  [ -n "$max" ] || { echo "no fuzz target $target in $table"; exit 2; }
  while [ "$(jobs -rp | wc -l)" -ge "${FUZZ_JOBS:-2}" ]; do sleep 0.2; done
  fuzz "$target" "$max" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
exit $failed
