# Shared by the scripts of this folder: `. "$(dirname "$0")/lib.sh"`. Sets ROOT and changes to it.
# shellcheck shell=bash
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# Progress goes to standard error: a script's standard output is its result.
say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# as_root COMMAND...: runs it directly as root, otherwise through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root or sudo to run: $*"
  fi
}

# need_packages NAME...: installs the Debian packages that are missing; calls apt only then.
need_packages() {
  command -v dpkg-query >/dev/null || die "this is not a Debian-like system; install by hand: $*"
  local missing=() name
  for name in "$@"; do
    # One line for each architecture that the machine has it for.
    dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -x installed >/dev/null || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || die "these packages are missing, and installing needs root or sudo:
  apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  # Package lists are empty in a fresh container and stale in an old one: update first, but only when something is missing.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 || die "apt-get update failed; is there a network?"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
    die "could not install: ${missing[*]}"
}

# Python is called by absolute path: the first one in PATH may be pyenv's or conda's, which do not see Debian's packages.
# WEIR_PYTHON names another interpreter, which must then have the modules.
PYTHON=${WEIR_PYTHON:-/usr/bin/python3}
# Variables set for another Python would affect Debian's.
[ -n "${WEIR_PYTHON:-}" ] || unset PYTHONHOME PYTHONPATH

# need_python [MODULE...]: ensures that $PYTHON runs and imports the modules (numpy, pip); installs Debian's.
need_python() {
  local module
  if [ -z "${WEIR_PYTHON:-}" ]; then
    need_packages python3 "${@/#/python3-}"
  fi
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || die "$PYTHON is not Python 3.9 or newer"
  for module in "$@"; do
    "$PYTHON" -c "import $module" 2>/dev/null || die "$PYTHON has no module $module"
  done
}

# need_build_packages: the compiler, CMake and the libraries of CMakeLists.txt. A compiler, CMake or Ninja installed
# without a package counts too.
need_build_packages() {
  local want=(pkg-config libhwy-dev libpcre2-dev nlohmann-json3-dev libcli11-dev libcpp-httplib-dev libpng-dev
    libedit-dev libfmt-dev libmosquitto-dev libboost-dev libcurl4-openssl-dev libhiredis-dev
    libgtest-dev libbenchmark-dev)
  command -v "${CXX:-g++}" >/dev/null || want+=(g++)
  command -v cmake >/dev/null || want+=(cmake)
  command -v ninja >/dev/null || want+=(ninja-build)
  need_packages "${want[@]}"
}

# n_jobs: parallel compiler processes: one per core, limited by available memory (1 GiB each).
n_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo "$cores")
  [ "${memory:-0}" -ge 1 ] || memory=1
  [ "$memory" -lt "$cores" ] && echo "$memory" || echo "$cores"
}

# sha256_of FILE
sha256_of() { sha256sum -- "$1" | cut -d ' ' -f 1; }

# cache_dir NAME: a folder of the user's cache, created.
cache_dir() {
  local base=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}
  mkdir -p "$base/weir/$1" || die "cannot create $base/weir/$1"
  printf '%s\n' "$base/weir/$1"
}
