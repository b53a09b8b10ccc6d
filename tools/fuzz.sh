#!/usr/bin/env bash
# tools/fuzz.sh BUILD SECONDS [TARGET…]: runs the fuzz targets of a build with KILN_FUZZ one after the other, SECONDS each, from
# tests/fuzz/corpus. New inputs stay in BUILD/fuzz/TARGET and serve the next run; what fails is kept in BUILD/fuzz/found, and the
# exit status is 1. A line per target says how many inputs it ran.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2
shift 2
table=tests/fuzz/fuzz_targets.def
[ $# -gt 0 ] || set -- $(sed -nE 's/^KILN_FUZZ_TARGET\(([a-z_]+),.*/\1/p' $table)
export ASAN_OPTIONS="allocator_may_return_null=1:detect_leaks=1:handle_abort=1" UBSAN_OPTIONS="print_stacktrace=1"
found=$build/fuzz/found
mkdir -p "$found"
failed=0
for target in "$@"; do
  corpus=$build/fuzz/$target log=$build/fuzz/$target.log
  max=$(sed -nE "s/^KILN_FUZZ_TARGET\($target, [A-Za-z]+, ([0-9]+),.*/\1/p" $table)
  [ -n "$max" ] || { echo "no fuzz target $target in $table"; exit 2; }
  mkdir -p "$corpus"
  if "$build/bin/fuzz_$target" -max_total_time="$seconds" -max_len="$max" -timeout=20 -rss_limit_mb=3000 -malloc_limit_mb=1000 \
      -print_final_stats=1 -verbosity=0 -artifact_prefix="$found/$target-" "$corpus" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    printf '%-16s ok      %s inputs\n' "$target" "$(sed -nE 's/^stat::number_of_executed_units: ([0-9]+)/\1/p' "$log")"
  else
    printf '%-16s FAILED  see %s\n' "$target" "$log"
    grep -E "ERROR|runtime error|CHECK|SUMMARY|^    #[0-9] " "$log" | head -20
    failed=1
  fi
done
exit $failed
