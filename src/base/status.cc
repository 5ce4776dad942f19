#include "base/status.h"

#include <cstdio>

namespace weir {
namespace {

std::string Format(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int n = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  std::string out(n > 0 ? n : 0, '\0');
  if (n > 0) std::vsnprintf(out.data(), out.size() + 1, format, args);
  return out;
}

// What is repeated of a file or a request may hold line feeds and worse.
void OneLine(std::string* message) {
  for (char& c : *message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = c == '\n' ? ' ' : '?';
  }
}

}  // namespace

#define WEIR_DEFINE_STATUS(Function, Code)               \
  Status Function(const char* format, ...) {             \
    va_list args;                                        \
    va_start(args, format);                              \
    std::string message = Format(format, args);          \
    va_end(args);                                        \
    OneLine(&message);                                   \
    return Status(StatusCode::Code, std::move(message)); \
  }

WEIR_DEFINE_STATUS(InvalidArgument, kInvalidArgument)
WEIR_DEFINE_STATUS(NotFound, kNotFound)
WEIR_DEFINE_STATUS(Corrupt, kCorrupt)
WEIR_DEFINE_STATUS(Unsupported, kUnsupported)
WEIR_DEFINE_STATUS(OverBudget, kOverBudget)
WEIR_DEFINE_STATUS(IoError, kIo)
WEIR_DEFINE_STATUS(Cancelled, kCancelled)
WEIR_DEFINE_STATUS(Internal, kInternal)

std::string StrFormat(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string out = Format(format, args);
  va_end(args);
  return out;
}

}  // namespace weir
