#!/usr/bin/env bash
# Renders the lines of a text file as 48 pixel high grey PGM pictures, one per line: render_lines.sh LINES.txt DIRECTORY
# Widths follow from the words, the font and the size, as in scanned pages.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 LINES.txt DIRECTORY" >&2; exit 2; }
lines=$1 out=$2
mkdir -p "$out"
convert=$(command -v convert-im6.q16 || command -v convert)
fonts=(DejaVu-Sans DejaVu-Serif DejaVu-Sans-Mono DejaVu-Sans-Bold DejaVu-Serif-Bold)
number=0
while IFS= read -r text; do
  [ -n "$text" ] || continue
  font=${fonts[$((number % ${#fonts[@]}))]}
  "$convert" -background white -fill black -font "$font" -pointsize $((26 + number % 5)) "label:$text" \
    -bordercolor white -border 6x4 -resize x48 -gravity center -extent x48 -colorspace Gray -depth 8 \
    "pgm:$out/$(printf '%03d' "$number").pgm"
  number=$((number + 1))
done <"$lines"
echo "$number pictures in $out"
