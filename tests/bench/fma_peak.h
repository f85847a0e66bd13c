#ifndef ANNULUS_TESTS_BENCH_FMA_PEAK_H_
#define ANNULUS_TESTS_BENCH_FMA_PEAK_H_

#include <string>

namespace annulus::bench {

// The roof of a kernel: the fp32 multiply-adds per second that `threads` threads reach together
// with the vectors of kernel path `path` ("amx", whose fp32 is that of "avx512", "avx2",
// "portable") in independent chains of registers, in GFLOP/s. Takes about `seconds`.
double FmaPeakGflops(const std::string& path, int threads, double seconds);

// The same of bf16 products by AMX, on random numbers that come from the first cache. Only after
// the system has been asked for AMX, as making a kernel of that path does.
double AmxPeakGflops(int threads, double seconds);

}  // namespace annulus::bench

#endif  // ANNULUS_TESTS_BENCH_FMA_PEAK_H_
