#ifndef ANNULUS_BENCHMARKS_FMA_PEAK_H_
#define ANNULUS_BENCHMARKS_FMA_PEAK_H_

#include <string>

namespace annulus::bench {

// The roof of a kernel in GFLOP/s: the fp32 multiply-adds that `threads` threads execute with the
// vectors of kernel path `path`, in independent chains of registers. Paths: "amx" and "avx512bf16"
// (measured as "avx512"), "avx512", "avx2", "portable". Takes about `seconds`.
double FmaPeakGflops(const std::string& path, int threads, double seconds);

// The name of the path's peak for bf16 products. Empty if it is the fp32 peak.
std::string Bf16PeakName(const std::string& path);

// The peak for bf16 products in GFLOP/s: AMX on random numbers from the L1 cache, or products of
// pairs in registers. Call only after the process has requested AMX from the system, as the
// creation of a kernel of that path does.
double Bf16PeakGflops(const std::string& path, int threads, double seconds);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_FMA_PEAK_H_
