#!/usr/bin/env bash
# The main job (`make run`): finds the model, renders real text lines, and runs `kiln job` on an embedded fleet.
# MODEL=path takes another recogniser, REQUESTS=n another length.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
work=build/run
./tools/install_packages.sh run
rm -rf "$work"; mkdir -p "$work"; chmod 700 "$work"

name=ch_PP-OCRv4_rec_infer.onnx
model=${MODEL:-}
keys=${KEYS:-}
if [ -z "$model" ] && [ -f "../shared/models/ppocr/$name" ]; then
  model=../shared/models/ppocr/$name
  keys=../shared/models/ppocr/ppocr_keys_v1.txt
fi
if [ -z "$model" ]; then
  # The package that carries the model; nothing of it is run.
  download=build/model
  if [ ! -f "$download/$name" ]; then
    echo "fetching the recogniser from the Python package rapidocr-onnxruntime"
    mkdir -p "$download"
    python3 -m pip download --quiet --no-deps --dest "$download" rapidocr-onnxruntime
    python3 - "$download" "$name" <<'PYTHON'
import glob, os, sys, zipfile
folder, name = sys.argv[1:]
wheel = sorted(glob.glob(os.path.join(folder, "*.whl")))[-1]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        if os.path.basename(member) == name:
            with open(os.path.join(folder, name), "wb") as out:
                out.write(archive.read(member))
PYTHON
  fi
  model=$download/$name
fi
[ -f "$model" ] || { echo "no model at $model; give one with MODEL=path" >&2; exit 2; }

./tools/render_lines.sh tools/lines_first.txt "$work/first" >/dev/null
./tools/render_lines.sh tools/lines_joined.txt "$work/joined" >/dev/null
arguments=(--model "$model" --lines "$work/first" --lines-joined "$work/joined" --directory "$work/fleet" --json build/run.json)
[ -n "$keys" ] && arguments+=(--keys "$keys")
[ -n "${REQUESTS:-}" ] && arguments+=(--requests "$REQUESTS")
exec "$build/bin/kiln" job "${arguments[@]}"
