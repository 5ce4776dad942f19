// SPDX-License-Identifier: Apache-2.0
// Attention of one new token over a list of slots, against all slots with the same kernels: what A-VL's decode steps
// cost.
//
//   rows 30 %   a list of 30 % of the slots, spread at random, over every slot's time: the price of gathering
//   A-VL        a pot that stores 45 % of the image's slots; every third step reads all of them, the others 30 %
//
// Processor time of one thread, the sides alternating call by call, the fastest quarter's edge of each compared: other
// work on the machine shifts all of them. One line per head shape, form of keys and length.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/kv_slots.h"
#include "base/memory.h"

namespace weir {
namespace {

// A pool of one thread works in the caller.
double ThreadMicros() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Heads of a layer over pots of the same contents, as many layers as leave the caches between two visits.
class Layers {
 public:
  Layers(int64_t n_heads, int64_t n_kv_heads, int64_t head_dim, int64_t n_slots, bool rotated)
      : n_kv_heads_(n_kv_heads),
        array_bytes_(n_slots * SlotBytes(DType::kF16, head_dim)),
        n_slots_(n_kv_heads, static_cast<int32_t>(n_slots)) {
    n_layers_ = std::max<int64_t>(1, (int64_t{96} << 20) / (2 * n_kv_heads * array_bytes_));
    RopeConfig config;
    config.n_rot = static_cast<int>(head_dim);
    rope_ = std::move(RopeTable::Make(config, n_slots)).value();
    const int64_t scratch = cpu::AttentionScratchBytes({n_heads, n_kv_heads, head_dim, 1, n_slots}, 1);
    slots_ = std::move(HostBuffer::Allocate(ledger_, MemTag::kKv, n_layers_ * 2 * n_kv_heads * array_bytes_)).value();
    scratch_ = std::move(HostBuffer::Allocate(ledger_, MemTag::kWorkspace, scratch)).value();
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    q_.resize(static_cast<size_t>(n_heads * head_dim));
    out_.resize(q_.size());
    std::vector<float> x(static_cast<size_t>(n_slots * head_dim));
    for (float& v : q_) v = normal(rng);
    for (float& v : x) v = normal(rng);
    std::vector<StoreSlotsArgs> store(static_cast<size_t>(n_layers_ * 2 * n_kv_heads));
    for (size_t i = 0; i < store.size(); ++i) {
      store[i].x = x.data();
      store[i].x_stride = store[i].head_dim = head_dim;
      store[i].n_rows = n_slots;
      store[i].type = DType::kF16;
      store[i].slots = slots_.data() + static_cast<int64_t>(i) * array_bytes_;
    }
    cpu::StoreSlots(store, pool_);
    cos_.assign(static_cast<size_t>(head_dim / 2), 1.0f);
    sin_.assign(cos_.size(), 0.0f);
    args_.n_heads = n_heads;
    args_.n_kv_heads = n_kv_heads;
    args_.head_dim = head_dim;
    args_.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    args_.q = q_.data();
    args_.out = out_.data();
    args_.q_stride = args_.out_stride = n_heads * head_dim;
    args_.k_type = args_.v_type = DType::kF16;
    args_.rope = &rope_;
    args_.keys_rotated = rotated;
    args_.row_cos = cos_.data();
    args_.row_sin = sin_.data();
    args_.scratch = scratch_.data();
    k_.resize(static_cast<size_t>(n_kv_heads));
    v_.resize(k_.size());
  }

  // Microseconds of one layer's attention over `list`, or over everything where it is empty. Layers take turns.
  double Time(const std::vector<int32_t>& list) {
    for (int64_t h = 0; h < n_kv_heads_; ++h) {
      k_[h] = slots_.data() + (layer_ * 2 * n_kv_heads_ + 2 * h) * array_bytes_;
      v_[h] = k_[h] + array_bytes_;
    }
    layer_ = (layer_ + 1) % n_layers_;
    const std::vector<const int32_t*> lists(static_cast<size_t>(n_kv_heads_), list.data());
    const std::vector<int32_t> sizes(static_cast<size_t>(n_kv_heads_), static_cast<int32_t>(list.size()));
    AttentionSegment segment = {0, 1, k_.data(), v_.data(), n_slots_.data()};
    if (!list.empty()) {
      segment.selected = lists.data();
      segment.n_selected = sizes.data();
    }
    args_.segments = {&segment, 1};
    const double begin = ThreadMicros();
    cpu::Attention(args_, pool_);
    return ThreadMicros() - begin;
  }

 private:
  int64_t n_kv_heads_, array_bytes_, n_layers_ = 1, layer_ = 0;
  ThreadPool pool_{1};
  Ledger ledger_;
  RopeTable rope_;
  HostBuffer slots_, scratch_;
  std::vector<float> q_, out_, cos_, sin_;
  std::vector<int32_t> n_slots_;
  std::vector<const uint8_t*> k_, v_;
  AttentionArgs args_;
};

// n of the slots below n_slots, the last one among them.
std::vector<int32_t> RandomList(int64_t n_slots, int64_t n) {
  std::vector<int32_t> all(static_cast<size_t>(n_slots - 1));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(7));
  all.resize(static_cast<size_t>(n - 1));
  all.push_back(static_cast<int32_t>(n_slots - 1));
  std::sort(all.begin(), all.end());
  return all;
}

double Quartile(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 4), x.end());
  return x[x.size() / 4];
}

void Compare(const char* name, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim, int64_t n_image, bool rotated) {
  const int64_t n_stored = n_image * 45 / 100, n_core = n_image * 30 / 100;
  Layers full(n_heads, n_kv_heads, head_dim, n_image, rotated),
      stored(n_heads, n_kv_heads, head_dim, n_stored, rotated);
  const std::vector<int32_t> spread = RandomList(n_image, n_core), core = RandomList(n_stored, n_core);
  const int n_calls = static_cast<int>(std::clamp<int64_t>(4000000 / n_image / n_heads, 60, 2000));
  std::vector<double> t_full, t_spread, t_stored, t_core;
  for (int i = 0; i < n_calls; ++i) {
    t_full.push_back(full.Time({}));
    t_spread.push_back(full.Time(spread));
    t_stored.push_back(stored.Time({}));
    t_core.push_back(stored.Time(core));
  }
  const double f = Quartile(t_full), s = Quartile(t_spread), a = Quartile(t_stored), c = Quartile(t_core);
  std::printf(
      "%-5s %-9s %6lld slots  full %8.1f us  rows 30 %%: %8.1f us = %5.1f %% (%.2f x 30 %%)  A-VL: %5.1f %% "
      "(stored %.1f %%, core %.1f %%)\n",
      name, rotated ? "rotated" : "unrotated", static_cast<long long>(n_image), f, s, 100 * s / f, s / f / 0.3,
      100 * (a + 2 * c) / 3 / f, 100 * a / f, 100 * c / f);
}

}  // namespace
}  // namespace weir

int main() {
  for (const bool rotated : {true, false}) {
    for (const int64_t n_image : {600, 2900, 16384}) {
      weir::Compare("135M", 9, 3, 64, n_image, rotated);
      weir::Compare("8B", 32, 8, 128, n_image, rotated);
      weir::Compare("7B", 32, 32, 128, n_image, rotated);
    }
  }
  return 0;
}
