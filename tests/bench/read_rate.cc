#include "tests/bench/read_rate.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace annulus::bench {
namespace {

constexpr size_t kLine = 64;

// A sum that cannot be left out, of independent chains.
uint64_t Read(const std::byte* memory, size_t bytes) {
  uint64_t sums[kLine / 8] = {};
  for (size_t at = 0; at + kLine <= bytes; at += kLine) {
    uint64_t line[kLine / 8];
    std::memcpy(line, memory + at, kLine);
    for (size_t i = 0; i < kLine / 8; ++i) sums[i] ^= line[i];
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

}  // namespace

double ReadBytesPerSecond(absl::Span<const std::byte> memory, int threads) {
  std::vector<std::thread> readers;
  std::vector<uint64_t> results(threads);
  const size_t part = memory.size() / threads;
  const auto begin = std::chrono::steady_clock::now();
  for (int t = 0; t < threads; ++t) {
    readers.emplace_back([&, t] { results[t] = Read(memory.data() + t * part, part); });
  }
  for (std::thread& reader : readers) reader.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  asm volatile("" ::"m"(*results.data()));
  return static_cast<double>(part * threads) / seconds;
}

}  // namespace annulus::bench
