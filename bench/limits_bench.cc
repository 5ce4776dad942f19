// SPDX-License-Identifier: Apache-2.0
// The machine's limits: the figures that other benchmarks' rates are compared with. Bytes read per second from working
// sets of several sizes and in picked pieces, and multiply-adds per second of float, bfloat16 and int8: pairs of bytes,
// signed bytes, and VNNI, this one from registers alone and with both factors loaded from the first-level cache, as the
// inner loop of a matrix product does.
//
//   limits_bench --benchmark_repetitions=7 --benchmark_report_aggregates_only=true
//
// Every case runs on one thread and on all threads; a multiply-add counts as two operations.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "backend/cpu/unroll.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// A working set of its own for every thread; the size is of all threads together.
void Read(benchmark::State& state) {
  const int64_t n = (state.range(0) << 10) / state.threads() / 8;
  std::vector<uint64_t> data(static_cast<size_t>(n), 1);
  for (auto _ : state) {
    // Four streams, so that more than one line is on its way.
    uint64_t sum[4] = {};
    const int64_t quarter = n / 4;
    const uint64_t* p = data.data();
    for (int64_t i = 0; i < quarter; ++i) {
      sum[0] ^= p[i];
      sum[1] ^= p[i + quarter];
      sum[2] ^= p[i + 2 * quarter];
      sum[3] ^= p[i + 3 * quarter];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * n * 8);
}

// Pieces of a size each picked at random from 256 MiB, 30 % of them, in ascending order: what attention over a list of
// slots reads. Coming pieces are prefetched, as there.
void ReadPieces(benchmark::State& state) {
  const int64_t bytes = state.range(0), n = (int64_t{256} << 20) / bytes / state.threads();
  const std::vector<uint64_t> data(static_cast<size_t>(n * bytes / 8), 1);
  std::vector<int64_t> list;
  std::mt19937 rng(1);
  for (int64_t i = 0; i < n; ++i) {
    if (rng() % 10 < 3) list.push_back(i * bytes / 8);
  }
  constexpr size_t kAhead = 32;
  for (auto _ : state) {
    uint64_t sum = 0;
    for (size_t i = 0; i + kAhead < list.size(); ++i) {
      for (int64_t b = 0; b < bytes / 8; b += 8) __builtin_prefetch(&data[static_cast<size_t>(list[i + kAhead] + b)]);
      for (int64_t b = 0; b < bytes / 8; ++b) sum ^= data[static_cast<size_t>(list[i] + b)];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * (std::ssize(list) - static_cast<int64_t>(kAhead)) * bytes);
}

#if defined(__x86_64__)

constexpr int kSteps = 1024;

#define WEIR_BENCH_AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni")))

WEIR_BENCH_AVX512 void FloatFma(benchmark::State& state) {
  __m512 sum[16];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(1.0001f), b = _mm512_set1_ps(0.9999f);
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step) {
      WEIR_UNROLL
      for (int i = 0; i < 16; ++i) sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * 16 * 16 * kSteps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

__attribute__((target("avx512f,avx512bf16"))) void Bf16Registers(benchmark::State& state) {
  __m512 sum[16];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80)), b = a;  // ones
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step) {
      WEIR_UNROLL
      for (int i = 0; i < 16; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * 32 * 16 * kSteps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

WEIR_BENCH_AVX512 void VnniRegisters(benchmark::State& state) {
  __m512i sum[16];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step) {
      WEIR_UNROLL
      for (int i = 0; i < 16; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * 64 * 16 * kSteps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// The instruction itself: compilers spill the sums of a tile this large when they see the intrinsic.
WEIR_BENCH_AVX512 inline void DotAdd(__m512i& sum, __m512i u8, __m512i s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u8), "v"(s8));
}

// Six rows of activations times four columns of sixteen: 4 loads of weights and 6 broadcasts for 24 products. Both
// factors together are 9 KiB.
constexpr int kRows = 6, kCols = 4, kDepth = 32;

WEIR_BENCH_AVX512 __m512i VnniTile(const uint8_t* weights, const int8_t* rows) {
  __m512i sum[kRows][kCols];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int c = 0; c < kCols; ++c) sum[r][c] = _mm512_setzero_si512();
  }
  for (int step = 0; step < kSteps; step += kDepth) {
    for (int k = 0; k < kDepth; ++k) {
      __m512i w[kCols];
      WEIR_UNROLL
      for (int c = 0; c < kCols; ++c) w[c] = _mm512_loadu_si512(weights + (k * kCols + c) * 64);
      WEIR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        __builtin_memcpy(&four, rows + (r * kDepth + k) * 4, 4);
        const __m512i a = _mm512_set1_epi32(four);
        WEIR_UNROLL
        for (int c = 0; c < kCols; ++c) DotAdd(sum[r][c], w[c], a);
      }
    }
  }
  __m512i all = _mm512_setzero_si512();
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    WEIR_UNROLL
    for (int c = 0; c < kCols; ++c) all = _mm512_add_epi32(all, sum[r][c]);
  }
  return all;
}

WEIR_BENCH_AVX512 void VnniFromL1(benchmark::State& state) {
  const std::vector<uint8_t> weights(kDepth * kCols * 64, 3);
  const std::vector<int8_t> rows(kRows * kDepth * 4, 5);
  for (auto _ : state) {
    __m512i all = VnniTile(weights.data(), rows.data());
    benchmark::DoNotOptimize(all);
  }
  state.counters["ops"] = benchmark::Counter(
      2.0 * 64 * kRows * kCols * kSteps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

#define WEIR_BENCH_AVX2 __attribute__((target("avx2,fma")))

WEIR_BENCH_AVX2 void FloatFmaAvx2(benchmark::State& state) {
  __m256 sum[12];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(1.0001f), b = _mm256_set1_ps(0.9999f);
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step) {
      WEIR_UNROLL
      for (int i = 0; i < 12; ++i) sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * 8 * 12 * kSteps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// sum += u8 * s8 in pairs of 16 bits: what an int8 product takes without VNNI, as long as sums fit 16 bits. The
// instructions themselves: compilers copy sums or compute equal products once.
WEIR_BENCH_AVX2 inline void PairsAdd(__m256i& sum, __m256i u8, __m256i s8, __m256i) {
  __m256i pairs;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(pairs) : "x"(u8), "x"(s8));
}

// sum += s8 * s8 in 32 bits: what it takes where only two products fit 16 bits. One factor's signs move to the other.
WEIR_BENCH_AVX2 inline void SignedAdd(__m256i& sum, __m256i magnitude, __m256i s8, __m256i ones) {
  __m256i pairs;
  asm("vpsignb %2, %3, %1\n\tvpmaddubsw %1, %2, %1\n\tvpmaddwd %1, %4, %1\n\tvpaddd %1, %0, %0"
      : "+x"(sum), "=&x"(pairs)
      : "x"(magnitude), "x"(s8), "x"(ones));
}

// The same of bytes that were made words before: as many products of pairs, which need no sums of their own.
WEIR_BENCH_AVX2 void WordsAdd(__m256i& sum, __m256i low, __m256i high, __m256i factor) {
  __m256i pairs;
  asm("vpmaddwd %2, %4, %1\n\tvpaddd %1, %0, %0\n\tvpmaddwd %3, %4, %1\n\tvpaddd %1, %0, %0"
      : "+x"(sum), "=&x"(pairs)
      : "x"(low), "x"(high), "x"(factor));
}

template <void (*kAdd)(__m256i&, __m256i, __m256i, __m256i)>
WEIR_BENCH_AVX2 __m256i Int8Steps(__m256i u8, __m256i s8) {
  // Not an array: compilers keep its loop, and the sums in memory.
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (int step = 0; step < kSteps; ++step) {
    kAdd(a, u8, s8, ones);
    kAdd(b, u8, s8, ones);
    kAdd(c, u8, s8, ones);
    kAdd(d, u8, s8, ones);
    kAdd(e, u8, s8, ones);
    kAdd(f, u8, s8, ones);
    kAdd(g, u8, s8, ones);
    kAdd(h, u8, s8, ones);
  }
  const __m256i first = _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
  return _mm256_add_epi16(first, _mm256_add_epi16(_mm256_add_epi16(e, f), _mm256_add_epi16(g, h)));
}

template <void (*kAdd)(__m256i&, __m256i, __m256i, __m256i)>
WEIR_BENCH_AVX2 void Int8Registers(benchmark::State& state) {
  for (auto _ : state) {
    __m256i all = Int8Steps<kAdd>(_mm256_set1_epi8(3), _mm256_set1_epi8(5));
    benchmark::DoNotOptimize(all);
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * 32 * 8 * kSteps * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

#endif  // __x86_64__

void OnOneAndAll(benchmark::internal::Benchmark* benchmark) {
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  benchmark->UseRealTime()->Threads(1);
  if (all > 1) benchmark->Threads(all);
}

}  // namespace

int main(int argc, char** argv) {
  OnOneAndAll(benchmark::RegisterBenchmark("read/KiB", Read)
                  ->Arg(16)
                  ->Arg(512)
                  ->Arg(8 << 10)
                  ->Arg(32 << 10)
                  ->Arg(128 << 10)
                  ->Arg(1 << 20));
  OnOneAndAll(benchmark::RegisterBenchmark("read_pieces/bytes", ReadPieces)->Arg(128)->Arg(256));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    OnOneAndAll(benchmark::RegisterBenchmark("fma_f32_avx2/registers", FloatFmaAvx2));
    OnOneAndAll(benchmark::RegisterBenchmark("int8_avx2/registers", Int8Registers<PairsAdd>));
    OnOneAndAll(benchmark::RegisterBenchmark("int8_avx2_signed/registers", Int8Registers<SignedAdd>));
    OnOneAndAll(benchmark::RegisterBenchmark("int8_avx2_words/registers", Int8Registers<WordsAdd>));
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) {
    OnOneAndAll(benchmark::RegisterBenchmark("fma_f32/registers", FloatFma));
    if (__builtin_cpu_supports("avx512bf16")) {
      OnOneAndAll(benchmark::RegisterBenchmark("bf16/registers", Bf16Registers));
    }
    OnOneAndAll(benchmark::RegisterBenchmark("vnni_int8/registers", VnniRegisters));
    OnOneAndAll(benchmark::RegisterBenchmark("vnni_int8/from_L1", VnniFromL1));
  }
#endif
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
