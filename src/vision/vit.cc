// SPDX-License-Identifier: Apache-2.0
#include "vision/vit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
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
    return Corrupt("{}: {} patches a picture", file.path(), out.n_pos - 1);
  }
  return out;
}

void GatherPatches(Backend& backend, const float* pixels, int64_t size, int64_t patch, float* to) {
  SquaresArgs args;
  args.x = pixels;
  args.n_planes = 3;
  args.height = args.width = size;
  args.side = patch;
  args.y = to;
  backend.Squares(args);
}

void EmbedAll(Backend& backend, const Matrix& table, int64_t n, float* out) {
  int32_t ids[256];
  for (int64_t done = 0; done < n; done += std::ssize(ids)) {
    const int64_t n_rows = std::min<int64_t>(std::ssize(ids), n - done);
    std::iota(ids, ids + n_rows, static_cast<int32_t>(done));
    backend.EmbedRows(table, ids, n_rows, out + done * table.n_in());
  }
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
  EmbedAll(backend, *positions, vit.n_pos, x);
  backend.Add({x, class_token.get(), x, vit.n_embd});
  GatherPatches(backend, pixels, vit.size, vit.patch, wide);
  const MatMulOut to = {patches.get(), x + vit.n_embd, vit.n_embd, patch_bias.get(), true};
  MatMulArgs mm;
  mm.x = wide;
  mm.x_stride = mm.n_in = vit.patch_values();
  mm.n_rows = vit.n_pos - 1;
  mm.outs = {&to, 1};
  mm.scratch = scratch;
  backend.MatMul(mm);
}

void GridAngles(Backend& backend, const RopeTable& table, GridAxis axis, int64_t n_x, int64_t n, float* cos,
                float* sin) {
  constexpr int64_t kPlaces = 256;
  const int64_t n_pairs = table.n_rot / 2;
  int64_t places[kPlaces];
  for (int64_t done = 0; done < n; done += kPlaces) {
    const int64_t n_here = std::min(kPlaces, n - done);
    for (int64_t i = 0; i < n_here; ++i) places[i] = axis == GridAxis::kLine ? (done + i) / n_x : (done + i) % n_x;
    backend.RopeAngles(table, {places, static_cast<size_t>(n_here)}, cos + done * n_pairs, sin + done * n_pairs);
  }
}

Status ReadNormalisation(const GgufFile& file, ImageTransform* transform) {
  for (const auto& [key, to] :
       {std::pair{"clip.vision.image_mean", transform->mean}, std::pair{"clip.vision.image_std", transform->std}}) {
    const std::vector<double>* values = file.FloatArray(key);
    if (values == nullptr || values->size() != 3) {
      return Corrupt("{}: {} must be three numbers", file.path(), key);
    }
    for (int c = 0; c < 3; ++c) {
      to[c] = static_cast<float>((*values)[c]);
      if (!std::isfinite(to[c]) || (to == transform->std && to[c] <= 0)) {
        return Corrupt("{}: {} holds {:g}", file.path(), key, (*values)[c]);
      }
    }
  }
  return Status();
}

}  // namespace weir
