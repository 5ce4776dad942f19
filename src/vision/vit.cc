#include "vision/vit.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace weir {

void GatherPatches(const float* pixels, int64_t size, int64_t patch, float* to) {
  const int64_t n_side = size / patch;
  for (int64_t y = 0; y < n_side; ++y) {
    for (int64_t x = 0; x < n_side; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        for (int64_t row = 0; row < patch; ++row, to += patch) {
          std::memcpy(to, pixels + (c * size + y * patch + row) * size + x * patch, static_cast<size_t>(patch) * 4);
        }
      }
    }
  }
}

Status ReadNormalisation(const GgufFile& file, ImageTransform* transform) {
  for (const auto& [key, to] :
       {std::pair{"clip.vision.image_mean", transform->mean}, std::pair{"clip.vision.image_std", transform->std}}) {
    const std::vector<double>* values = file.FloatArray(key);
    if (values == nullptr || values->size() != 3) {
      return Corrupt("%s: %s must be three numbers", file.path().c_str(), key);
    }
    for (int c = 0; c < 3; ++c) {
      to[c] = static_cast<float>((*values)[c]);
      if (!std::isfinite(to[c]) || (to == transform->std && to[c] <= 0)) {
        return Corrupt("%s: %s holds %g", file.path().c_str(), key, (*values)[c]);
      }
    }
  }
  return Status();
}

}  // namespace weir
