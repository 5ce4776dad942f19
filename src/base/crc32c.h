// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, RFC 3720), for damage in files. It is no protection against anyone who wants to deceive.
#pragma once

#include <cstdint>
#include <span>

namespace weir {

// The checksum of the bytes that `before` is the checksum of (0: none) with these after them. Uses the processor's
// instruction where there is one.
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t before = 0);
// The same by tables, eight bytes a step.
uint32_t Crc32cByTables(std::span<const uint8_t> bytes, uint32_t before = 0);

}  // namespace weir
