#!/bin/sh
# build.sh source|prebuilt: leaves the programs in build/release/bin of the current directory.
set -eu
programs="kiln kiln-cache kiln-compile kiln-compile-child kiln-validate-child kiln-worker"
case $1 in
  source)
    rm -rf build
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bash
    tools/install_packages.sh build
    cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release
    ninja -C build/release $programs
    ;;
  prebuilt)
    for program in $programs; do
      [ -x "build/release/bin/$program" ] || { echo "build/release/bin/$program is not in the context: run make build first" >&2; exit 1; }
    done
    ;;
  *)
    echo "BINARIES is source or prebuilt, not '$1'" >&2
    exit 2
    ;;
esac
