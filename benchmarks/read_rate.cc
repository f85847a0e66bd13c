#include "benchmarks/read_rate.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace annulus::bench {
namespace {

constexpr size_t kLine = 64;

// Sums one word of each cache line, in independent chains. The result depends on every load, so the
// compiler keeps them. Summing all words would take longer than loading the lines.
uint64_t Read(const std::byte* memory, size_t bytes) {
  constexpr size_t kLines = 8;
  uint64_t sums[kLines] = {};
  for (size_t at = 0; at + kLines * kLine <= bytes; at += kLines * kLine) {
    for (size_t i = 0; i < kLines; ++i) {
      uint64_t word;
      std::memcpy(&word, memory + at + i * kLine, sizeof(word));
      sums[i] ^= word;
    }
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

// Binds the calling thread to the CPU of its number. Linux may leave two threads that run for
// milliseconds on one CPU while another idles, which would halve the rate.
void TakeCpu(int number) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  number %= std::max(1, CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || number-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

}  // namespace

double ReadBytesPerSecond(absl::Span<const std::byte> memory, int threads) {
  std::vector<std::thread> readers;
  std::vector<uint64_t> results(threads);
  const size_t part = memory.size() / threads;
  const auto begin = std::chrono::steady_clock::now();
  for (int t = 0; t < threads; ++t) {
    readers.emplace_back([&, t] {
      TakeCpu(t);
      results[t] = Read(memory.data() + t * part, part);
    });
  }
  for (std::thread& reader : readers) reader.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  asm volatile("" ::"m"(*results.data()));
  return static_cast<double>(part * threads) / seconds;
}

}  // namespace annulus::bench
