// SPDX-License-Identifier: Apache-2.0
#include "media/ppm.h"

namespace weir {
namespace {

// Fills all of [to, to + n); false when the stream ends before its first byte.
Result<bool> ReadAll(const PpmRead& read, uint8_t* to, int64_t n) {
  for (int64_t done = 0; done < n;) {
    WEIR_ASSIGN_OR_RETURN(const int64_t got, read(to + done, n - done));
    if (got == 0 && done == 0) return false;
    if (got == 0) return Corrupt("the decoder stopped in the middle of a picture");
    done += got;
  }
  return true;
}

// A number and the single white-space character after it.
Result<int64_t> ReadNumber(const PpmRead& read) {
  int64_t value = 0;
  for (int digits = 0;; ++digits) {
    uint8_t c = 0;
    WEIR_ASSIGN_OR_RETURN(const bool more, ReadAll(read, &c, 1));
    if (!more) return Corrupt("the decoder stopped in the middle of a picture");
    if ((c == ' ' || c == '\n') && digits > 0) return value;
    if (c < '0' || c > '9' || digits == 9) return Corrupt("the decoder gave something that is no picture");
    value = value * 10 + (c - '0');
  }
}

}  // namespace

Result<bool> ReadPpm(const PpmRead& read, const PpmAllocate& allocate) {
  uint8_t magic[3];
  WEIR_ASSIGN_OR_RETURN(const bool more, ReadAll(read, magic, 3));
  if (!more) return false;
  if (magic[0] != 'P' || magic[1] != '6' || magic[2] != '\n')
    return Corrupt("the decoder gave something that is no picture");
  WEIR_ASSIGN_OR_RETURN(const int64_t width, ReadNumber(read));
  WEIR_ASSIGN_OR_RETURN(const int64_t height, ReadNumber(read));
  WEIR_ASSIGN_OR_RETURN(const int64_t largest, ReadNumber(read));
  if (width < 1 || height < 1 || width > kMaxPictureSide || height > kMaxPictureSide || largest != 255) {
    return Corrupt("the decoder gave a picture of {} x {}, largest value {}", width, height, largest);
  }
  WEIR_ASSIGN_OR_RETURN(uint8_t* const to, allocate(width, height));
  WEIR_ASSIGN_OR_RETURN(const bool whole, ReadAll(read, to, 3 * width * height));
  if (!whole) return Corrupt("the decoder stopped in the middle of a picture");
  return true;
}

}  // namespace weir
