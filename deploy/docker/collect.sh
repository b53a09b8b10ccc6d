#!/bin/sh
# collect.sh OUT PROGRAM…: a root file system of these programs, the libraries they load, and the folders that they may write to.
set -eu
out=$1
shift
for program in "$@"; do
  install -D "build/release/bin/$program" "$out/usr/bin/$program"
  missing=$(ldd "$out/usr/bin/$program" | grep 'not found' || true)
  [ -z "$missing" ] || { echo "$program: $missing" >&2; exit 1; }
  # "name => /path (address)", and the loader as "/path (address)"
  for library in $(ldd "$out/usr/bin/$program" | sed -nE 's/^.*(=> |\t)(\/[^ ]+) .*$/\2/p'); do
    [ -e "$out$library" ] || install -D "$(realpath "$library")" "$out$library"
  done
done
# What drivers and compilers that are opened at run time load of the C library, apart from what the programs do: empty shells of old names.
for library in libdl.so.2 librt.so.1 libpthread.so.0; do
  path=$(ldconfig -p | sed -nE "s|^\s*$library .* => (.*)$|\1|p" | head -1)
  [ -z "$path" ] || [ -e "$out$path" ] || install -D "$(realpath "$path")" "$out$path"
done
mkdir -p "$out/etc" "$out/proc" "$out/sys" "$out/dev" "$out/models"
echo 'hosts: files dns' >"$out/etc/nsswitch.conf"
echo 'kiln:x:10001:10001::/:/none' >"$out/etc/passwd"
echo 'kiln:x:10001:' >"$out/etc/group"
install -d -m 1777 "$out/tmp"
install -d -o 10001 -g 10001 -m 700 "$out/data" "$out/keys"
# A volume that is mounted on one of these takes over its owner.
for holder in cache compile worker tool admin; do install -d -o 10001 -g 10001 -m 700 "$out/keys/$holder"; done
