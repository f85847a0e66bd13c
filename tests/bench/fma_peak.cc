#include "tests/bench/fma_peak.h"

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace annulus::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Loop = double (*)(int64_t rounds);

constexpr int kChains = 12;  // More than latency (4–5) × 2 multiply-adds a cycle.

// Each loop does kChains multiply-adds a round and returns something of them, so that they stay.

__attribute__((target("avx2,fma"))) double Avx2Loop(int64_t rounds) {
  __m256 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_set1_ps(1.0f + static_cast<float>(c));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) acc[c] = _mm256_fmadd_ps(acc[c], a, b);
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += _mm256_cvtss_f32(acc[c]);
  return sum;
}

__attribute__((target("avx512f"))) double Avx512Loop(int64_t rounds) {
  __m512 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_set1_ps(1.0f + static_cast<float>(c));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_fmadd_ps(acc[c], a, b);
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += _mm512_cvtss_f32(acc[c]);
  return sum;
}

double PortableLoop(int64_t rounds) {
  __m128 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm_set1_ps(1.0f + static_cast<float>(c));
  const __m128 a = _mm_set1_ps(0.999f), b = _mm_set1_ps(0.001f);
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) acc[c] = _mm_add_ps(_mm_mul_ps(acc[c], a), b);
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += _mm_cvtss_f32(acc[c]);
  return sum;
}

struct Path {
  Loop loop;
  int lanes;
};

Path PathOf(const std::string& name) {
  if (name == "avx512" || name == "amx") return {Avx512Loop, 16};
  if (name == "avx2") return {Avx2Loop, 8};
  return {PortableLoop, 4};
}

}  // namespace

double FmaPeakGflops(const std::string& path, int threads, double seconds) {
  constexpr int64_t kRounds = 1 << 16;
  const Path p = PathOf(path);
  std::atomic<int64_t> calls{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  const auto begin = Clock::now();
  const auto work = [&] {
    volatile double sink = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      sink = p.loop(kRounds);
      calls.fetch_add(1, std::memory_order_relaxed);
      if (Clock::now() - begin > std::chrono::duration<double>(seconds)) stop = true;
    }
    (void)sink;
  };
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  return 2.0 * p.lanes * kChains * kRounds * static_cast<double>(calls.load()) / elapsed / 1e9;
}

}  // namespace annulus::bench
