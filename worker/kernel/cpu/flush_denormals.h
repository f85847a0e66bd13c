#ifndef ANNULUS_WORKER_KERNEL_CPU_FLUSH_DENORMALS_H_
#define ANNULUS_WORKER_KERNEL_CPU_FLUSH_DENORMALS_H_

#include <xmmintrin.h>

namespace annulus {

// While it lives, this thread's vector arithmetic takes subnormal fp32 numbers as zero and makes
// none (they cost a hundred cycles each, and large logits make many). Restores what was set before.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushed); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  friend class KeepDenormals;
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  static constexpr unsigned kFlushed = kFlushToZero | kDenormalsAreZero;
  const unsigned saved_;
};

// While it lives, subnormal numbers are again what they are.
class KeepDenormals {
 public:
  KeepDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~FlushDenormals::kFlushed); }
  ~KeepDenormals() { _mm_setcsr(saved_); }
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
  const unsigned saved_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_FLUSH_DENORMALS_H_
