#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD SOURCE: installs a build into an empty folder, builds the examples against what is there, once through
# find_package and once through pkg-config, and compares what they print.
set -euo pipefail
build=$1
source=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

cmake --install "$build" --prefix "$root/usr" >/dev/null
"$root/usr/bin/weir" --version

cmake -S "$source/examples" -B "$root/examples" -Dweir_ROOT="$root/usr" >/dev/null
cmake --build "$root/examples" >/dev/null
for example in endless fork recall; do
  "$root/examples/$example" "$source/tests/golden/models/llama.gguf" | diff - "$source/examples/$example.out"
done

PKG_CONFIG_PATH=$(dirname "$(find "$root/usr" -name weir.pc)")
export PKG_CONFIG_PATH
# The prefix was chosen at installation; weir.pc follows it.
read -r -a flags <<<"$(pkg-config --cflags --libs weir)"
cc -std=c99 -Wall -Wextra -pedantic -Werror "$source/examples/endless.c" -o "$root/endless" "${flags[@]}"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") "$root/endless" "$source/tests/golden/models/llama.gguf" |
  diff - "$source/examples/endless.out"

# Nothing but the interface can be seen.
library=$(find "$root/usr" -name 'libweir.so')
if nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^weir_'; then
  echo "libweir.so shows more than weir.h declares" >&2
  exit 1
fi
echo "installed, found and used"
