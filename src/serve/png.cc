// SPDX-License-Identifier: Apache-2.0
#include "serve/png.h"

#include <png.h>

namespace weir {

Result<std::string> EncodePng(const RgbView& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  png_alloc_size_t n_bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string out(n_bytes, '\0');
  if (png_image_write_to_memory(&image, out.data(), &n_bytes, 0, picture.rgb, 0, nullptr) == 0) {
    return Internal("cannot write a picture of {} by {} pixels: {}", picture.width, picture.height, image.message);
  }
  out.resize(n_bytes);
  return out;
}

int64_t PngBytes(int64_t n_pixels) {
  constexpr int64_t kOfLibrary = 512 << 10;  // deflate's window and tables, and a row
  return 3 * n_pixels + n_pixels / 8 + kOfLibrary;
}

}  // namespace weir
