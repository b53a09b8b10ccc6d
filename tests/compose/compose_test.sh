#!/usr/bin/env bash
# compose_test.sh BUILD: the fleet scenario against docker-compose.yml, as containers. Builds the images from BUILD's binaries; needs root,
# `docker`, `docker-compose` and an engine (DOCKER_HOST). Exit status 77: skipped. Leaves the images, nothing else.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
source tests/fleet/scenario.sh
[ "$build" = build/release ] || { echo "SKIPPED: the images take build/release/bin, not $build"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "SKIPPED: crashing a container's process from outside needs root"; exit 77; }
docker info >/dev/null 2>&1 && command -v docker-compose >/dev/null || { echo "SKIPPED: no Docker engine answers, or there is no docker-compose"; exit 77; }

started=$SECONDS
work=$(mktemp -d)
chmod 755 "$work"
export COMPOSE_PROJECT_NAME=kilntest$$ BINARIES=prebuilt KILN_MODELS=$work
export KILN_COMPILE_FLAGS="--children 1"
export KILN_WORKER_FLAGS="--model m=/models/a/model.onnx --model recogniser=/models/recogniser.onnx --hot-ms 0 --hot-runs 4 --shadow-share 1.0 --warm-wait-ms 5000"
workers=0
compose() { docker-compose "$@" >>"$work/compose.log" 2>&1; }
cleanup() {
  local status=$?
  trap - EXIT INT TERM
  [ $status -eq 0 ] || { tail -n 20 "$work/compose.log"; docker-compose logs --no-color --tail 8 2>/dev/null | tail -n 80; }
  compose down --volumes --timeout 2
  rm -rf "$work"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

compose --profile gpu config -q || { echo "docker-compose.yml: its profile of workers with a GPU is not accepted"; exit 1; }

containers() { docker ps -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter "label=com.docker.compose.service=$1" --filter label=com.docker.compose.oneoff=False; }
address() { docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"; }
# The workers that were there when `fleet_scale` was called come first.
all_workers() { { for id in "${known[@]:-}"; do containers worker | grep -x "$id"; done; containers worker | grep -vxF "$(printf '%s\n' "${known[@]:-none}")"; } 2>/dev/null; }

fleet_up() {
  local service
  for service in "$@"; do
    [ "$service" != worker ] || [ $workers -ne 0 ] || workers=2
    compose up -d --no-deps --no-recreate --scale worker=$workers "$service" || fail "docker-compose up $service"
    wait_for "$service"
  done
}
fleet_scale() {
  mapfile -t known < <(containers worker)
  workers=$1
  compose up -d --no-deps --no-recreate --scale worker=$workers worker || fail "docker-compose up --scale worker=$workers"
  wait_for worker
}
fleet_down() { compose stop --timeout 10 "$@" || fail "docker-compose stop $*"; }
fleet_crash() {   # the restart policy is the supervisor
  local id
  id=$(containers "$1" | head -1)
  kill -9 "$(docker inspect -f '{{.State.Pid}}' "$id")"
}
fleet_answers() {
  local id count=0
  for id in $(containers "$1"); do
    docker exec "$id" /usr/bin/kiln ping "$1" --keys "/keys/$1" --deadline-ms 1000 >>"$work/compose.log" 2>&1 || return 1
    count=$((count + 1))
  done
  [ "$1" = worker ] && [ $count -ne $workers ] && return 1
  [ $count -gt 0 ]
}
worker_flags() {
  local id
  [ "${1:-0}" -ne 0 ] || { echo "--worker tcp://worker:7421"; return; }   # the name stands for all of them
  for id in $(all_workers | tail -n +$(($1 + 1))); do echo "--worker tcp://$(address "$id"):7421"; done
}
tool() {
  docker run --rm --read-only --tmpfs /tmp --cap-drop ALL --network "${COMPOSE_PROJECT_NAME}_fleet" -v "${COMPOSE_PROJECT_NAME}_tool-keys:/keys/tool:ro" \
    -v "$work:/models:ro" kiln-tool "$@"
}
client() { tool run --json --keys /keys/tool "$@"; }
job() { tool job --keys /keys/tool --json /tmp/run.json "$@"; }

mkdir "$work/a" "$work/b"
"$build/test-bin/write_model" "$work/a" 24 >/dev/null && "$build/test-bin/write_model" "$work/b" 40 >/dev/null || fail "no model"
MODEL=/models/a/model.onnx OTHER_MODEL=/models/b/model.onnx
prepare_main_job "$work" || fail "the main job's model and lines are not to be had"
MAIN_JOB=/models
compose build || fail "the images do not build"
echo "images built in $((SECONDS - started)) s"
for image in cache worker; do
  size=$(($(docker image inspect -f '{{.Size}}' kiln-$image) / 1000000))
  docker run --rm --entrypoint /usr/bin/kiln-$image kiln-$image --help >/dev/null || fail "kiln-$image does not run"
  id=$(docker create kiln-$image)
  llvm=$(docker export "$id" | tar -t | grep -ci llvm)
  docker rm -v "$id" >/dev/null
  [ "$size" -lt 150 ] && [ "$llvm" -eq 0 ] || fail "image kiln-$image: $size MB (below 150 is allowed), $llvm files of LLVM (none are)"
  echo "image kiln-$image: $size MB, no LLVM"
done
compose up keys || fail "no keys"
run_scenario
for service in cache worker; do
  id=$(containers $service | head -1)
  [ "$(docker inspect -f '{{.HostConfig.ReadonlyRootfs}} {{.Config.User}}' "$id")" = "true 10001:10001" ] || fail "$service: writable root file system, or root"
done
echo "PASSED in $((SECONDS - started)) s"
