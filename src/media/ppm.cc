#include "media/ppm.h"

namespace weir {
namespace {

// Fills all of [to, to + n); false when the stream ends before its first byte.
Result<bool> ReadAll(Child& child, uint8_t* to, int64_t n, const std::atomic<bool>* stop) {
  for (int64_t done = 0; done < n;) {
    WEIR_ASSIGN_OR_RETURN(const int64_t got, child.Read(to + done, n - done, stop));
    if (got == 0 && done == 0) return false;
    if (got == 0) return Corrupt("the decoder stopped in the middle of a picture");
    done += got;
  }
  return true;
}

// A number and the one white space behind it.
Result<int64_t> ReadNumber(Child& child, const std::atomic<bool>* stop) {
  int64_t value = 0;
  for (int digits = 0;; ++digits) {
    uint8_t c = 0;
    WEIR_ASSIGN_OR_RETURN(const bool more, ReadAll(child, &c, 1, stop));
    if (!more) return Corrupt("the decoder stopped in the middle of a picture");
    if ((c == ' ' || c == '\n') && digits > 0) return value;
    if (c < '0' || c > '9' || digits == 9) return Corrupt("the decoder gave something that is no picture");
    value = value * 10 + (c - '0');
  }
}

}  // namespace

Result<bool> ReadPpm(Child& child, const PpmAllocate& allocate, const std::atomic<bool>* stop) {
  uint8_t magic[3];
  WEIR_ASSIGN_OR_RETURN(const bool more, ReadAll(child, magic, 3, stop));
  if (!more) return false;
  if (magic[0] != 'P' || magic[1] != '6' || magic[2] != '\n')
    return Corrupt("the decoder gave something that is no picture");
  WEIR_ASSIGN_OR_RETURN(const int64_t width, ReadNumber(child, stop));
  WEIR_ASSIGN_OR_RETURN(const int64_t height, ReadNumber(child, stop));
  WEIR_ASSIGN_OR_RETURN(const int64_t largest, ReadNumber(child, stop));
  if (width < 1 || height < 1 || width > kMaxPictureSide || height > kMaxPictureSide || largest != 255) {
    return Corrupt("the decoder gave a picture of %lld x %lld, largest value %lld", static_cast<long long>(width),
                   static_cast<long long>(height), static_cast<long long>(largest));
  }
  WEIR_ASSIGN_OR_RETURN(uint8_t* const to, allocate(width, height));
  WEIR_ASSIGN_OR_RETURN(const bool whole, ReadAll(child, to, 3 * width * height, stop));
  if (!whole) return Corrupt("the decoder stopped in the middle of a picture");
  return true;
}

}  // namespace weir
