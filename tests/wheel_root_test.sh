#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel_root_test.sh SOURCE [PROCESSOR]: installs the wheel in a Debian 12 that has python3-venv and no compiler, made by
# debootstrap, with `pip install`, and lets a program of two lines answer there. PROCESSOR: x86_64 (default), or aarch64, whose
# programs then run under qemu. WEIR_WHEEL names a wheel that is there already, WEIR_WHEEL_ROOT a root. Skipped (77) without
# root, debootstrap, a network or, for aarch64, a kernel that runs its programs (Debian's qemu-user-static registers them).
set -euo pipefail
source=$1 processor=${2:-x86_64}
skip() { echo "skipped: $*"; exit 77; }
case $processor in
  x86_64) debian=amd64 ;;
  aarch64) debian=arm64 ;;
  *) echo "no processor $processor" >&2; exit 2 ;;
esac
[ "$(id -u)" -eq 0 ] || skip "chroot and debootstrap need root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
curl -sfI -m 20 https://pypi.org/simple/numpy/ >/dev/null || skip "PyPI is not reachable"
if [ "$(uname -m)" != "$processor" ]; then
  grep -qs '^enabled' "/proc/sys/fs/binfmt_misc/qemu-$processor" || skip "the kernel runs no programs for $processor"
fi
wheel=${WEIR_WHEEL:-}
[ -n "$wheel" ] || wheel=$("$source/scripts/build-wheel" "$processor" | tail -n 1)
case $wheel in *_"$processor".whl) ;; *) echo "this is no wheel for $processor: $wheel" >&2; exit 1 ;; esac

root=${WEIR_WHEEL_ROOT:-}
if [ -z "$root" ]; then
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
  debootstrap --arch="$debian" --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log"; exit 1; }
  rm -f "$root.log"
fi
# The machine's network settings and certificates.
for path in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs "${SSL_CERT_FILE:-}" "${PIP_CERT:-}"; do
  case $path in
    /*) [ ! -e "$path" ] || { mkdir -p "$root$(dirname "$path")"; cp -aL --no-target-directory "$path" "$root$path" 2>/dev/null || true; } ;;
  esac
done
mapfile -d '' -t network < <(env -0 | grep -zE '^(https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|PIP_(CERT|INDEX_URL|DEFAULT_TIMEOUT)|SSL_CERT_FILE)=')
inside() { chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 "${network[@]}" "$@"; }

for tool in cc gcc g++ clang make cmake; do
  if inside sh -c "command -v $tool" >/dev/null; then echo "the root has $tool" >&2; exit 1; fi
done
rm -rf "$root/root/try"
mkdir -p "$root/root/try"
cp "$wheel" "$source/tests/golden/models/llama.gguf" "$root/root/try/"
cat >"$root/root/try/two.py" <<'PY'
import weir
print(repr(weir.Model("/root/try/llama.gguf").session(pot=64).ask("who?", max_tokens=8, temperature=0).read()))
PY
inside uname -m
inside python3 -m venv /root/try/venv
inside /root/try/venv/bin/pip install -q --only-binary=:all: "/root/try/$(basename "$wheel")"
answer=$(inside /root/try/venv/bin/python /root/try/two.py)
echo "$answer"
[ ${#answer} -gt 2 ] || { echo "no answer" >&2; exit 1; }
inside /root/try/venv/bin/weir --version
said=$(inside /root/try/venv/bin/python -m weir run -m /root/try/llama.gguf -p "the man" -n 8 --temp 0)
[ -n "$said" ] || { echo "the program says nothing" >&2; exit 1; }
