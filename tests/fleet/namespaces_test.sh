#!/usr/bin/env bash
# namespaces_test.sh BUILD: the fleet scenario with every process in a network namespace and address of its own, over tcp with CURVE.
# Exit status 77: skipped. Needs root and `ip`; leaves nothing behind.
set -uo pipefail
build=$(realpath "${1:?usage: namespaces_test.sh BUILD}")
source "$(dirname "$0")/scenario.sh"
[ "$(id -u)" -eq 0 ] || { echo "SKIPPED: network namespaces need root"; exit 77; }
command -v ip >/dev/null || { echo "SKIPPED: there is no ip command (package iproute2)"; exit 77; }
# What a run that was killed left behind; its processes ended with it.
for name in $(ip netns list | sed -nE 's/^(kiln[0-9]+-[a-z0-9]+).*/\1/p'); do
  left=${name#kiln}
  [ -d "/proc/${left%%-*}" ] || ip netns del "$name"
done
prefix=kiln$$
ip netns add "$prefix-switch" 2>/dev/null || { echo "SKIPPED: this system does not let us make network namespaces"; exit 77; }

work=$(mktemp -d); chmod 700 "$work"
declare -A pids=()       # name → process
namespaces=("$prefix-switch")
workers=0
cleanup() {
  local status=$? name
  trap - EXIT INT TERM
  [ $status -eq 0 ] || tail -n 5 "$work"/*.log
  for name in "${!pids[@]}"; do kill -9 "${pids[$name]}" 2>/dev/null; done
  wait 2>/dev/null
  for name in "${namespaces[@]}"; do ip netns del "$name"; done
  rm -rf "$work"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Names and addresses: cache .2, compile .3, tool .4, worker N .10+N
address() {
  case $1 in
    cache) echo 10.77.0.2 ;;
    compile) echo 10.77.0.3 ;;
    tool) echo 10.77.0.4 ;;
    worker*) echo "10.77.0.$((10 + ${1#worker}))" ;;
  esac
}
connect() {   # connect NAME: a namespace with one interface on the switch
  local space=$prefix-$1
  ip netns add "$space"
  namespaces+=("$space")
  ip -n "$prefix-switch" link add "$1" type veth peer name eth0 netns "$space"
  ip -n "$prefix-switch" link set "$1" master bridge up
  ip -n "$space" address add "$(address "$1")/24" dev eth0
  ip -n "$space" link set eth0 up
  ip -n "$space" link set lo up
}

store="tcp://$(address cache):7400"
start() {   # start NAME
  local name=$1 kind=${1%%[0-9]*} flags
  case $kind in
    cache) flags="--listen tcp://$(address cache):7400 --blob-listen tcp://$(address cache):7401 --hint-listen tcp://$(address cache):7402
                  --store rocksdb:$work/store" ;;
    compile) flags="--listen tcp://$(address compile):7411 --store $store --store-blobs ${store%0}1 --children 1 --replay-dir $work" ;;
    worker) flags="--listen tcp://$(address "$name"):7421 --store $store --store-blobs ${store%0}1 --store-hints ${store%0}2
                   --compile tcp://$(address compile):7411 --model m=$MODEL ${MAIN_JOB:+--model recogniser=$MAIN_JOB/recogniser.onnx} --hot-ms 0 --hot-runs 4 --shadow-share 1.0 --warm-wait-ms 5000" ;;
  esac
  ip netns exec "$prefix-$name" "$build/bin/kiln-$kind" $flags --keys "$work/keys/$kind" --die-with-parent >>"$work/$name.log" 2>&1 &
  pids[$name]=$!
}
ping_service() {   # ping_service NAME
  local kind=${1%%[0-9]*} port
  case $kind in cache) port=7400 ;; compile) port=7411 ;; worker) port=7421 ;; esac
  ip netns exec "$prefix-tool" "$build/bin/kiln" ping "$kind" "tcp://$(address "$1"):$port" --keys "$work/keys/tool" --deadline-ms 1000 >>"$work/ping.log" 2>&1
}
names_of() { if [ "$1" = worker ]; then for ((i = 0; i < workers; ++i)); do echo "worker$i"; done; else echo "$1"; fi; }

fleet_up() {
  local service name
  for service in "$@"; do
    [ "$service" = worker ] && [ $workers -eq 0 ] && { workers=2; connect worker0; connect worker1; }
    for name in $(names_of "$service"); do start "$name"; done
    wait_for "$service"
  done
}
fleet_scale() {
  for ((; workers < $1; ++workers)); do connect "worker$workers"; start "worker$workers"; done
  wait_for worker
}
fleet_down() {
  local service name
  for service in "$@"; do
    for name in $(names_of "$service"); do
      kill "${pids[$name]}"
      wait "${pids[$name]}" || fail "$name did not end in order: status $?"
      unset "pids[$name]"
    done
  done
}
fleet_crash() {   # and what a supervisor does
  local name=$1
  [ "$name" = worker ] && name=worker1
  kill -9 "${pids[$name]}"
  wait "${pids[$name]}" 2>/dev/null
  sleep 0.3
  start "$name"
}
fleet_answers() {
  local name
  for name in $(names_of "$1"); do ping_service "$name" || return 1; done
}
worker_flags() { for ((i = ${1:-0}; i < workers; ++i)); do echo "--worker tcp://$(address "worker$i"):7421"; done; }
tool() { ip netns exec "$prefix-tool" "$build/bin/kiln" "$@"; }
client() { tool run --json --keys "$work/keys/tool" "$@"; }
job() { tool job --keys "$work/keys/tool" --json "$work/run.json" "$@"; }

ip -n "$prefix-switch" link add bridge type bridge
ip -n "$prefix-switch" link set bridge up
for name in cache compile tool; do connect $name; done
"$build/bin/kiln" keys "$work/keys" >/dev/null || fail "no keys"
mkdir "$work/a" "$work/b"
MODEL=$("$build/test-bin/write_model" "$work/a" 24) && OTHER_MODEL=$("$build/test-bin/write_model" "$work/b" 40) || fail "no model"
# The compose test runs the main job always; here KILN_FLEET_JOB=1 does.
MAIN_JOB=
if [ "${KILN_FLEET_JOB:-0}" = 1 ]; then (cd "$(dirname "$0")/../.." && prepare_main_job "$work") && MAIN_JOB=$work || fail "no main job"; fi
run_scenario
echo "PASSED"
