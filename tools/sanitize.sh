#!/usr/bin/env bash
# tools/sanitize.sh address|fuzz|thread: builds test programs with sanitizers and runs them; reports of the services they start count too.
#   address: address and undefined behaviour, with clang in build/fuzz, which holds the fuzz targets too: the tests of .ci/asan_tests
#   fuzz:    the same build, only the fuzz targets, none of which it runs
#   thread:  build/tsan: the tests of .ci/tsan_tests
set -uo pipefail
cd "$(dirname "$0")/.."
flags=(-DCMAKE_BUILD_TYPE=Release)
case ${1:-} in
  address | fuzz)
    build=build/fuzz list=.ci/asan_tests
    flags+=(-DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DKILN_SANITIZE=address,undefined -DKILN_FUZZ=ON)
    ./tools/install_packages.sh fuzz || exit 1 ;;
  thread)
    build=build/tsan list=.ci/tsan_tests
    flags+=(-DKILN_SANITIZE=thread) ;;
  *) echo "usage: $0 address|fuzz|thread" >&2; exit 2 ;;
esac
mkdir -p $build
cmake -S . -B $build -G Ninja "${flags[@]}" >$build.log 2>&1 || { tail -20 $build.log; exit 1; }
[ "$1" != fuzz ] || exec ninja -C $build -j"${JOBS:-$(nproc)}" fuzz
mapfile -t tests < <(sed -E '/^#/d; s/[[:space:]].*//' "$list")
ninja -C $build -j"${JOBS:-$(nproc)}" "${tests[@]}" || exit 1

reports=$PWD/$build/reports
rm -rf "$reports" && mkdir -p "$reports"
export ASAN_SYMBOLIZER_PATH=/usr/lib/llvm-19/bin/llvm-symbolizer
export ASAN_OPTIONS="log_path=$reports/address" UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/undefined"
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/tests/tsan.supp:log_path=$reports/thread"
failed=0
pattern=$(IFS='|'; echo "^(${tests[*]})\$")
ctest --test-dir $build --output-on-failure --no-tests=error -j"${JOBS:-$(nproc)}" --timeout 600 -R "$pattern" || failed=1
# Faults that a death test makes on purpose are reported too.
for report in "$reports"/*; do
  if [ -f "$report" ] && ! grep -q "DeathTest_" "$report"; then
    failed=1
    echo "--- $report"
    head -n 80 "$report"
  fi
done
exit $failed
