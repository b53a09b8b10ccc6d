#!/usr/bin/env bash
# The main job (`make run`): finds the model (tools/recogniser.sh), renders real text lines, and runs `kiln job` on an embedded fleet.
# MODEL=path takes another recogniser, REQUESTS=n another length.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
work=build/run
./tools/install_packages.sh run
rm -rf "$work"; mkdir -p "$work"; chmod 700 "$work"

{ read -r model; read -r characters; } < <(./tools/recogniser.sh)
[ -f "$model" ] || { echo "no model at $model; give one with MODEL=path" >&2; exit 2; }

./tools/render_lines.sh tools/lines_first.txt "$work/first" >/dev/null
./tools/render_lines.sh tools/lines_joined.txt "$work/joined" >/dev/null
arguments=(--model "$model" --lines "$work/first" --lines-joined "$work/joined" --directory "$work/fleet" --json build/run.json)
[ -n "$characters" ] && arguments+=(--characters "$characters")
[ -n "${REQUESTS:-}" ] && arguments+=(--requests "$REQUESTS")
exec "$build/bin/kiln" job "${arguments[@]}"
