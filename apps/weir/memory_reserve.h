// SPDX-License-Identifier: Apache-2.0
// Address space, 4 MiB in 16 parts, that is given up when memory runs out, so that what is under way can end in order:
// libraries allocate even where they free, and a program that cannot has to abort. No page of it is ever touched.
#pragma once

namespace weir::app {

// From now on an allocation that fails gives up a part and tries again; without any it throws std::bad_alloc as ever.
void HoldMemoryReserve();
// Takes again what was given up, if the system has it. Any thread.
void RenewMemoryReserve();

}  // namespace weir::app
