// SPDX-License-Identifier: Apache-2.0
// A disk that fails, for programs that a test starts (support/disk_faults.cc).
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace weir::testing {

struct DiskFault {
  std::string call;  // as WEIR_FAULT_CALL
  int nth = 1;       // each so many-th fails
  int number = 0;    // with this errno; 0: it comes short
};

// While it lives, programs that are started have such a disk under `dir`. `log` gets a byte for each call that failed.
// With `on`, only while there is a file of that name.
class FailingDisk {
 public:
  FailingDisk(const std::string& dir, const std::string& log, const DiskFault& fault, const std::string& on = "") {
    Set("WEIR_FAULT_DIR", dir);
    Set("WEIR_FAULT_LOG", log);
    Set("WEIR_FAULT_CALL", fault.call);
    Set("WEIR_FAULT_NTH", std::to_string(fault.nth));
    Set("WEIR_FAULT_ERRNO", std::to_string(fault.number));
    Set("WEIR_FAULT_WHILE", on);
    Set("LD_PRELOAD", WEIR_DISK_FAULTS);
  }
  ~FailingDisk() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

 private:
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  std::vector<std::string> names_;
};

}  // namespace weir::testing
