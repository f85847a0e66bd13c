#ifndef ANNULUS_BENCHMARKS_FMA_PEAK_H_
#define ANNULUS_BENCHMARKS_FMA_PEAK_H_

#include <string>

namespace annulus::bench {

// The roof of a kernel: the fp32 multiply-adds per second that `threads` threads reach together
// with the vectors of kernel path `path` ("amx" and "avx512bf16", whose fp32 is that of
// "avx512", "avx2", "portable") in independent chains of registers, in GFLOP/s. Takes about
// `seconds`.
double FmaPeakGflops(const std::string& path, int threads, double seconds);

// What the peak of a path's bf16 products is called; "" where they are those of fp32.
std::string Bf16PeakName(const std::string& path);

// That peak: of AMX on random numbers that come from the first cache, or of pairs in registers.
// Only after the system has been asked for AMX, as making a kernel of that path does.
double Bf16PeakGflops(const std::string& path, int threads, double seconds);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_FMA_PEAK_H_
