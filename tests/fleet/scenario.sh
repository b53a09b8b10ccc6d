# What a fleet must live through; sourced by a driver, which defines:
#   fleet_up SERVICES…       starts the named services (cache, compile, worker) and waits until they answer
#   fleet_scale N            makes it N workers and waits until they answer
#   fleet_down SERVICES…     stops them in order
#   fleet_crash SERVICE      kill -9 of one process of the kind; the driver's supervisor brings it back
#   fleet_answers SERVICE    whether all processes of the kind answer
#   worker_flags [FIRST]     "--worker ENDPOINT" for each worker from that index on (0)
#   client ARGS…             `kiln run --json --keys …` on the fleet's network; prints one line of JSON
#   job ARGS…                `kiln job --keys …` there
#   MODEL, OTHER_MODEL       paths as workers and client see them; workers load MODEL as "m"
#   MAIN_JOB                 directory, as they see it, of recogniser.onnx, first/ and joined/ (prepare_main_job); workers load the
#                            recogniser as "recogniser". Empty: the scenario runs without the main job.
# Prints a line per step; ends with the status of the first step that fails.

say() { printf '%6.1f s  %s\n' "$(awk "BEGIN { print $(date +%s%N) / 1e9 - $scenario_start }")" "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
field() { sed -nE "s/.*\"$1\":([0-9.]+).*/\1/p" <<<"$2"; }   # field NAME JSON

# ask MODEL NAME RUNS FLAGS…: leaves the JSON in $answer; every answer must be there and right.
ask() {
  local model=$1 name=$2 runs=$3
  shift 3
  answer=$(client "$model" --name "$name" --repeat "$runs" --dim x.0=1..40 --check "$@") || fail "a request failed: $answer"
  [ "$(field failed "$answer")" = 0 ] && [ "$(field wrong "$answer")" = 0 ] || fail "requests failed or answered wrongly: $answer"
}

# Asks until plans answer everything.
ask_until_compiled() {
  local model=$1 name=$2 tries
  shift 2
  for tries in $(seq 40); do
    ask "$model" "$name" 16 "$@"
    [ "$(field by_plan "$answer")" = 16 ] && return
    sleep 0.3
  done
  fail "no plans arrived: $answer"
}

# The first requests are answered by plans alone.
ask_warm() {
  ask "$MODEL" m 16 "$@"
  [ "$(field by_plan "$answer")" = 16 ] || fail "not warm: $answer"
}

# prepare_main_job DIRECTORY: the recogniser and rendered text lines, below the repository root. Fails when they cannot be had.
prepare_main_job() {
  local model
  model=$(./tools/recogniser.sh | sed -n 1p) && ./tools/install_packages.sh run && cp "$model" "$1/recogniser.onnx" &&
    ./tools/render_lines.sh tools/lines_first.txt "$1/first" >/dev/null && ./tools/render_lines.sh tools/lines_joined.txt "$1/joined" >/dev/null
}

# main_job --lines|--lines-joined FOLDER WORKER-FLAGS…: half of the main job; every answer is compared with the interpreter's.
main_job() {
  local phase=$1 folder=$2 report
  shift 2
  [ -n "$MAIN_JOB" ] || return 0
  report=$(job --model "$MAIN_JOB/recogniser.onnx" --requests 120 --quiet "$phase" "$MAIN_JOB/$folder" "$@" 2>&1) || fail "the main job: $report"
  say "main job, $folder lines: $(awk '$1 ~ /^(steady|joined)$/ {print $2 " requests by plans, " $5 " of the time in kernels, p50 " $3 " ms"}' <<<"$report"); $(grep 'compared with' <<<"$report")"
}

wait_for() {   # wait_for SERVICE
  local tries
  for tries in $(seq 600); do
    fleet_answers "$1" && return
    sleep 0.2
  done
  fail "$1 does not answer"
}

run_scenario() {
  local service pid load
  scenario_start=$(date +%s.%N)
  fleet_up cache compile worker
  say "cache store, compile service and 2 workers answer over CURVE"
  ask_until_compiled "$MODEL" m $(worker_flags)
  say "plans arrived: $answer"
  main_job --lines first $(worker_flags)

  fleet_down compile
  fleet_scale 4
  ask_warm $(worker_flags 2)
  say "2 more workers, compile service stopped: all first requests by plans: $answer"
  main_job --lines-joined joined $(worker_flags 2)
  fleet_up compile

  load=$(mktemp)
  client "$MODEL" --name m --seconds 8 --dim x.0=1..40 --check $(worker_flags) >"$load" 2>&1 &
  pid=$!
  sleep 1.5
  for service in worker cache compile; do
    fleet_crash $service
    say "killed: $service"
    sleep 1.5
  done
  wait $pid || fail "a request failed while processes were killed: $(cat "$load")"
  answer=$(cat "$load"); rm -f "$load"
  [ "$(field runs "$answer")" -ge 50 ] || fail "hardly any load: $answer"
  say "no request failed: $answer"
  for service in cache compile worker; do wait_for $service; done
  ask_warm $(worker_flags)
  ask_until_compiled "$OTHER_MODEL" other $(worker_flags)
  say "all are back: a model never seen is compiled: $answer"

  fleet_down worker compile cache
  fleet_up cache worker
  ask_warm $(worker_flags)
  main_job --lines-joined joined $(worker_flags)
  say "whole fleet restarted on the same store, without the compile service: all by plans: $answer"
}
