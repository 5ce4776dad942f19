#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package_test.sh BUILD SOURCE: makes the Debian package of a build and looks at what is in it, then runs it from there.
set -euo pipefail
build=$1
source=$2
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is not installed"
    exit 77
  fi
done
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

(cd "$root" && cpack --config "$build/CPackConfig.cmake" -B "$root/made" >"$root/cpack.log" 2>&1) || {
  cat "$root/cpack.log" >&2
  exit 1
}
packages=("$root"/made/weir_*.deb)
[ "${#packages[@]}" -eq 1 ]
package=${packages[0]}

field() { dpkg-deb -f "$package" "$1"; }
[ "$(field Package)" = weir ]
[ "$(field Architecture)" = "$(dpkg --print-architecture)" ]
[ "$(field Recommends)" = ffmpeg ]
for library in libc6 libhwy1 libpcre2-8-0 libpng16-16 libedit2 libfmt9; do
  field Depends | grep -q "$library"
done

dpkg-deb -c "$package" | awk '{print $6}' >"$root/names"
for name in ./usr/bin/weir ./usr/include/weir/weir.h ./usr/include/weir/weir.hpp ./usr/lib/systemd/system/weir.service \
  ./usr/share/doc/weir/copyright ./usr/share/doc/weir/server.md; do
  grep -qx "$name" "$root/names" || {
    echo "the package lacks $name" >&2
    exit 1
  }
done
for pattern in 'libweir\.so$' 'libweir\.so\.[0-9]*$' 'weirConfig\.cmake$' 'weir\.pc$'; do
  grep -q "$pattern" "$root/names"
done
# Nothing outside /usr, nothing of others, nobody else's to write.
if grep -vE '^\./(usr/)?' "$root/names" || dpkg-deb -c "$package" | awk '$2 != "root/root" || $1 ~ /^-.......w/' | grep .; then
  echo "files that do not belong into a package" >&2
  exit 1
fi

dpkg-deb -x "$package" "$root/installed"
"$root/installed/usr/bin/weir" --version
"$root/installed/usr/bin/weir" run -m "$source/tests/golden/models/llama.gguf" -p "the man" -n 4 --temp 0 >/dev/null
echo "$(basename "$package"): $(wc -l <"$root/names") entries"
