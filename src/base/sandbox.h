// SPDX-License-Identifier: Apache-2.0
// Takes rights away from a thread, and from every program and thread that it starts from then on: for decoders of
// strangers' files, which must not reach anything but the file, whatever takes them over.
//
// Linux's Landlock (5.13) says which files; a filter of system calls (seccomp) refuses the network, other processes'
// memory, mounts, namespaces, kernel modules and the like. Both need no privileges and cannot be undone.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace weir {

// What stays allowed. A folder stands for all below it; what does not exist is passed over. Descriptors that are open
// already can be used as before.
struct Sandbox {
  std::vector<std::string> readable;  // files that can be read, and run
  std::vector<std::string> writable;  // files that can be read, run, written, made and removed; devices
  int readable_fd = -1;               // an open file that can be opened again by its descriptor (/dev/fd/0)
  bool network = false;               // sockets beside those between processes of this machine
};

// Confines the calling thread. kUnsupported where the kernel lacks Landlock or seccomp, or forbids them: what it has is
// then in force all the same. kIo when the system refuses otherwise.
Status EnterSandbox(const Sandbox& sandbox);

}  // namespace weir
