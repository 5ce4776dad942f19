#include "vision/vit.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace weir {

Result<ClassVitShape> ReadClassVitShape(const GgufFile& file) {
  const std::string v = "clip.vision.";
  ClassVitShape out;
  WEIR_ASSIGN_OR_RETURN(out.size, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(out.patch, BoundedInt(file, v + "patch_size", 1, out.size));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &out));
  out.n_side = out.size / out.patch;
  out.n_pos = out.n_side * out.n_side + 1;
  if (out.n_pos > (1 << 16)) {
    return Corrupt("%s: %lld patches a picture", file.path().c_str(), static_cast<long long>(out.n_pos - 1));
  }
  return out;
}

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

void EmbedAll(Backend& backend, const Matrix& table, int64_t n, void* ids, float* out) {
  int32_t* const rows = static_cast<int32_t*>(ids);
  std::iota(rows, rows + n, 0);
  backend.EmbedRows(table, rows, n, out);
}

Status PatchEmbedding::Load(WeightLoader& loader, const ClassVitShape& vit) {
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", vit.n_embd, {3, vit.patch, vit.patch}, &patches));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", vit.n_embd, &patch_bias));
  WEIR_RETURN_IF_ERROR(loader.Load("v.class_embd", vit.n_embd, &class_token));
  return loader.Load("v.position_embd.weight", vit.n_pos, vit.n_embd, &positions);
}

void PatchEmbedding::Embed(Backend& backend, const ClassVitShape& vit, const float* pixels, float* wide, void* scratch,
                           float* x) const {
  // Positions first; the class token and the patches are added to them.
  EmbedAll(backend, *positions, vit.n_pos, wide, x);
  for (int64_t i = 0; i < vit.n_embd; ++i) x[i] += class_token.data[i];
  GatherPatches(pixels, vit.size, vit.patch, wide);
  const MatMulOut to = {patches.get(), x + vit.n_embd, vit.n_embd, patch_bias.get(), true};
  MatMulArgs mm;
  mm.x = wide;
  mm.x_stride = mm.n_in = vit.patch_values();
  mm.n_rows = vit.n_pos - 1;
  mm.outs = {&to, 1};
  mm.scratch = scratch;
  backend.MatMul(mm);
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
