#!/bin/sh
# collect_nvrtc.sh OUT FOLDER: NVIDIA's run-time compiler, which no Debian package has, from where the user placed it to where the compile
# service looks for it. Without a folder there is none, and no kernels for GPUs are made.
set -eu
out=$1
folder=$2
[ -n "$folder" ] || exit 0
for name in libnvrtc.so libnvrtc-builtins.so; do
  ls "$folder/$name"* >/dev/null 2>&1 || { echo "NVRTC=$folder holds no $name*: put both libraries of one CUDA release there" >&2; exit 1; }
done
mkdir -p "$out/usr/local/cuda/lib64"
cp -L "$folder"/libnvrtc*.so* "$out/usr/local/cuda/lib64/"
