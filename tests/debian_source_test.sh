#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# debian_source_test.sh SOURCE: packaging/wheel/debian_source takes what the sums name, and nothing else. Without a network.
set -euo pipefail
fetch=$1/packaging/wheel/debian_source
for tool in curl dpkg-source; do command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }; done
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cd "$root"

# A source of one file, as Debian keeps it.
mkdir -p pool/d/demo demo-1/debian/source
echo '3.0 (native)' >demo-1/debian/source/format
echo 'int main(void) { return 0; }' >demo-1/main.c
printf 'demo (1) unstable; urgency=low\n\n  * Made.\n\n -- A B <a@b.c>  Thu, 01 Jan 2026 00:00:00 +0000\n' >demo-1/debian/changelog
printf 'Source: demo\nMaintainer: A B <a@b.c>\n\nPackage: demo\nArchitecture: any\nDescription: d\n' >demo-1/debian/control
dpkg-source -b demo-1 >/dev/null 2>&1
mv demo_1.dsc demo_1.tar.* pool/d/demo/
sum=$(sha256sum pool/d/demo/demo_1.dsc | cut -d' ' -f1)
try() { (cd "$root" && "$fetch" "file://$root/pool" demo 1 "${1:-$sum}") 2>err; }
refused() {
  if try "$@"; then echo "taken, though $why" >&2; exit 1; fi
  grep -q '^debian_source: error: ' err && [ ! -e demo ] && [ -z "$(ls -d fetch.* 2>/dev/null)" ] || { cat err; echo "not clean, where $why" >&2; exit 1; }
}

try || { cat err >&2; exit 1; }
grep -q main demo/main.c
rm -r demo
why="the .dsc is another one" refused "$(printf '0%.0s' {1..64})"
archive=$(ls pool/d/demo/demo_1.tar.*)
cp "$archive" good
printf x >>"$archive"
why="the archive was changed" refused
rm "$archive"
why="the archive is missing" refused
cp good "$archive"
sed -i 's/^ [0-9a-f]\{64\} .*/ x/' pool/d/demo/demo_1.dsc
why="the .dsc lists no sums" refused "$(sha256sum pool/d/demo/demo_1.dsc | cut -d' ' -f1)"
