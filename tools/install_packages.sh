#!/usr/bin/env bash
# Installs the Debian 12 packages that a build needs, when one is missing. Needs root (or sudo) only then.
set -euo pipefail
packages=(g++ cmake ninja-build make pkg-config ccache mold git
  llvm-19-dev libzmq3-dev cppzmq-dev libflatbuffers-dev flatbuffers-compiler librocksdb-dev libboost-dev libsodium-dev
  libxxhash-dev libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libprotobuf-dev protobuf-compiler
  libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev libzstd-dev libxml2-dev libedit-dev libcurl4-openssl-dev prometheus-cpp-dev)
case "${1:-build}" in
  build) ;;
  run) packages=(imagemagick fonts-dejavu-core) ;;
  model) packages=(python3 python3-pip) ;;
  bench) packages=(python3-venv libdnnl-dev libopenblas-pthread-dev clang-19) ;;
  fuzz) packages=(clang-19 libclang-rt-19-dev) ;;
  lint) packages=(clang-19 clang-tidy-19 clang-format-19) ;;
  *) echo "usage: $0 [build|run|model|bench|fuzz|lint]" >&2; exit 2 ;;
esac
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
export DEBIAN_FRONTEND=noninteractive
"${root[@]}" apt-get update -qq
"${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
