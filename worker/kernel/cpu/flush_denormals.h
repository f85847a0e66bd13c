#ifndef ANNULUS_WORKER_KERNEL_CPU_FLUSH_DENORMALS_H_
#define ANNULUS_WORKER_KERNEL_CPU_FLUSH_DENORMALS_H_

#include <xmmintrin.h>

namespace annulus {

// During its lifetime, this thread's vector arithmetic takes subnormal fp32 numbers as zero and
// makes none. Each costs a hundred cycles, and large logits make many. The destructor restores the
// earlier mode.
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

// During its lifetime, subnormal numbers keep their values. The destructor restores the earlier
// mode.
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
