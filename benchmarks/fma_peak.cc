#include "benchmarks/fma_peak.h"

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

constexpr int kChains = 12;  // More than the latency (4 to 5 cycles) × 2 multiply-adds a cycle.

// Each loop executes kChains multiply-adds a round and returns a value that depends on them, so
// that the compiler keeps them.

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

// Products of pairs of bf16 numbers.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) double PairsLoop(int64_t rounds) {
  __m512 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm512_set1_ps(1.0f + static_cast<float>(c));
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.7f), _mm512_set1_ps(-0.7f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.3f), _mm512_set1_ps(1.1f));
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_dpbf16_ps(acc[c], a, b);
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

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four products a round, each with one operand from the L1 cache. The numbers are random: zeros
// would need less power and run faster.
__attribute__((target("amx-tile,amx-bf16"))) double AmxLoop(int64_t rounds) {
  constexpr int kTileNumbers = 512, kTiles = 16;
  static const TileConfig config;
  alignas(64) uint16_t data[kTiles * kTileNumbers];
  uint32_t random = 1;
  for (uint16_t& number : data) {  // ±0.0078 to ±2
    random = random * 1664525 + 1013904223;
    number = static_cast<uint16_t>(0x3c00 + (random >> 16) % 0x400 + (random >> 31 << 15));
  }
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < rounds; ++i) {
    const uint16_t* at = data + i % (kTiles / 4) * 4 * kTileNumbers;
    _tile_loadd(4, at, 64);
    _tile_loadd(6, at + kTileNumbers, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, at + 2 * kTileNumbers, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, at + 3 * kTileNumbers, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float out[16 * 16];
  _tile_stored(0, out, 64);
  _tile_release();
  asm volatile("" ::: "memory");
  return out[0];
}

struct Path {
  Loop loop;
  double flops;  // Operations of one round.
};

Path PathOf(const std::string& name) {
  if (name == "avx512" || name == "avx512bf16" || name == "amx")
    return {Avx512Loop, 2.0 * kChains * 16};
  if (name == "avx2") return {Avx2Loop, 2.0 * kChains * 8};
  return {PortableLoop, 2.0 * kChains * 4};
}

double PeakGflops(const Path& p, int threads, double seconds) {
  constexpr int64_t kRounds = 1 << 16;
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
  return p.flops * kRounds * static_cast<double>(calls.load()) / elapsed / 1e9;
}

}  // namespace

double FmaPeakGflops(const std::string& path, int threads, double seconds) {
  return PeakGflops(PathOf(path), threads, seconds);
}

std::string Bf16PeakName(const std::string& path) {
  if (path == "amx") return "AMX peak";
  return path == "avx512bf16" ? "vdpbf16ps peak" : "";
}

double Bf16PeakGflops(const std::string& path, int threads, double seconds) {
  constexpr double kOfAmx = 4 * 2.0 * 16 * 16 * 32, kOfPairs = 4.0 * kChains * 16;
  return PeakGflops(path == "amx" ? Path{AmxLoop, kOfAmx} : Path{PairsLoop, kOfPairs}, threads,
                    seconds);
}

}  // namespace annulus::bench
