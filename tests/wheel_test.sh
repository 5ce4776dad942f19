#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel_test.sh SOURCE: makes the wheel and tries it as its users do: in an environment without a compiler in PATH, with NumPy alone
# beside it. Then the package's own tests run with what was installed. Skipped where there is no network. WEIR_WHEEL names a wheel
# that is there already.
set -euo pipefail
source=$1
python=${WEIR_PYTHON:-/usr/bin/python3}
skip() { echo "skipped: $*"; exit 77; }
[ "$(uname -m)" = x86_64 ] || skip "wheels are made on x86-64"
for tool in curl dpkg-source; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
"$python" -c 'import ensurepip, venv' 2>/dev/null || skip "python3-venv is not installed"
curl -sfI -m 20 https://pypi.org/simple/numpy/ >/dev/null || skip "PyPI is not reachable"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

wheel=${WEIR_WHEEL:-}
[ -n "$wheel" ] || wheel=$("$source/scripts/build-wheel" | tail -n 1)
case $wheel in *-py3-none-manylinux_2_2[0-8]_x86_64.whl) ;; *) echo "this is no wheel for every Python and system: $wheel" >&2; exit 1 ;; esac
"$python" -m venv "$root/venv"
"$root/venv/bin/pip" install -q "$wheel"

model=$source/tests/golden/models/llama.gguf
alone() { env -i HOME="$root" PATH="$root/venv/bin" "$@"; }
alone weir --version
alone "$root/venv/bin/python" -m weir run -m "$model" -p "the man" -n 4 --temp 0 >/dev/null
alone "$root/venv/bin/python" -c "import weir
print(repr(weir.Model('$model').session(pot=64).ask('who?', max_tokens=4, temperature=0).read()))"

# Nothing newer than glibc 2.28, nothing that a system might lack.
for file in "$root"/venv/lib/python3*/site-packages/weir/_lib/libweir.so "$root"/venv/lib/python3*/site-packages/weir/_bin/weir; do
  if objdump -T "$file" | grep -oE 'GLIBC_2\.[0-9]+' | sort -u | awk -F. '$2 > 28' | grep .; then
    echo "$file needs a newer C library" >&2
    exit 1
  fi
  if readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(lib(c|m|pthread|dl|rt|gcc_s)\.so\.[0-9]|ld-linux-x86-64\.so\.2)$'; then
    echo "$file needs a library that not every system has" >&2
    exit 1
  fi
done

cd "$source"
for test in header package rules reference_policies docs eval notebook; do alone "$root/venv/bin/python" -B -m unittest -q "tests.python.${test}_test"; done
