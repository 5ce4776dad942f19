# SPDX-License-Identifier: Apache-2.0
# Cross-compilation for Arm: the preset "arm". Programs run under qemu's user-mode emulation, with every instruction that
# qemu supports, over the Arm libc that Debian installs beside the machine's own. (Over the one that comes with the
# compiler, in /usr/aarch64-linux-gnu, threads do not start.)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-cpu;max,pauth-impdef=on")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Debian's multiarch libraries for Arm are installed beside the machine's own.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
