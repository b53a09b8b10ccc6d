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
    ./tools/install_packages.sh model
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$download" rapidocr-onnxruntime
    python3 - "$download" "$name" <<'PYTHON'
import glob, os, sys, zipfile
folder, name = sys.argv[1:]
wheel = sorted(glob.glob(os.path.join(folder, "*.whl")))[-1]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        if os.path.basename(member) == name:
            model = archive.read(member)
            with open(os.path.join(folder, name), "wb") as out:
                out.write(model)
# The recogniser's characters are the value of its metadata entry "character": key length, key, field 2, value length, value.
start = model.find(b"\x0a\x09character\x12")
if start >= 0:
    at, size, shift = start + 12, 0, 0
    while True:
        byte = model[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    with open(os.path.join(folder, "keys.txt"), "wb") as out:
        out.write(model[at:at + size] + b"\n")
PYTHON
  fi
  model=$download/$name
  [ -f "$download/keys.txt" ] && keys=$download/keys.txt
fi
[ -f "$model" ] || { echo "no model at $model; give one with MODEL=path" >&2; exit 2; }

./tools/render_lines.sh tools/lines_first.txt "$work/first" >/dev/null
./tools/render_lines.sh tools/lines_joined.txt "$work/joined" >/dev/null
arguments=(--model "$model" --lines "$work/first" --lines-joined "$work/joined" --directory "$work/fleet" --json build/run.json)
[ -n "$keys" ] && arguments+=(--keys "$keys")
[ -n "${REQUESTS:-}" ] && arguments+=(--requests "$REQUESTS")
exec "$build/bin/kiln" job "${arguments[@]}"
