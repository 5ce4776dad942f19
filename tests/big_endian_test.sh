#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A build for a big-endian processor is refused in one line, before anything is compiled: big_endian_test.sh SOURCE CMAKE
set -eu
command -v clang++ >/dev/null || { echo "no clang++, which compiles for any processor"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Nothing is linked: there need not be a C library of that processor.
if COLUMNS=1000 "$2" -S "$1" -B "$folder" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=s390x -DCMAKE_C_COMPILER=clang \
  -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER_TARGET=s390x-linux-gnu -DCMAKE_CXX_COMPILER_TARGET=s390x-linux-gnu \
  -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY >"$folder/log" 2>&1; then
  echo "it was not refused"
  exit 1
fi
if [ "$(grep -c 'CMake Error' "$folder/log")" != 1 ] || ! tr -s ' \n' ' ' <"$folder/log" | grep -q 'not for big-endian processors such as s390x'; then
  cat "$folder/log"
  exit 1
fi
