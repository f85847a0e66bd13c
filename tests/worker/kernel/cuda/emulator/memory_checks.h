#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_MEMORY_CHECKS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_MEMORY_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace annulus::cuda {

// A thread of a block, and how often it and its warp have met others before.
struct Moment {
  int32_t thread = 0;
  uint32_t barriers = 0;  // Barriers of the block.
  uint32_t warp_barriers = 0;

  friend bool operator==(const Moment& a, const Moment& b) {
    return a.thread == b.thread && a.barriers == b.barriers && a.warp_barriers == b.warp_barriers;
  }
};

// The shared memory of a block, checked four bytes at a time. A read needs an earlier write, and a
// barrier in between unless both are by one thread. The same applies to a write after a read or a
// write of another thread.
class SharedMemory {
 public:
  explicit SharedMemory(uint32_t bytes);

  std::byte* data() { return bytes_.data(); }
  // True if the access is valid. `size` must be a power of two.
  bool Read(uint32_t at, uint32_t size, const Moment& moment) {
    if (!IsInside(at, size)) return RefuseRange(at, size);
    for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
      // Unchanged since the last read.
      const bool again = cells_[i].read == moment;
      if (!again && !ReadCell(at, cells_[i], moment)) return false;
    }
    return true;
  }
  bool Write(uint32_t at, uint32_t size, const Moment& moment);
  // A write that happens at some time between now and Land. Until then the memory is NaN.
  bool BeginCopy(uint32_t at, uint32_t size, const Moment& moment);
  void Land(uint32_t at, uint32_t size, const Moment& moment);
  // The reason why the last access was invalid.
  const std::string& fault() const { return fault_; }

 private:
  static constexpr uint32_t kCell = 4;
  struct Cell {
    Moment write{-1, 0, 0}, read{-1, 0, 0};
    bool read_by_many = false;   // Since the barrier of `read`, in its warp …
    bool read_by_warps = false;  // … or in several warps.
    bool coming = false;
  };
  bool Refuse(std::string fault);
  bool RefuseRange(uint32_t at, uint32_t size);
  bool IsInside(uint32_t at, uint32_t size) const {
    return (at & (size - 1)) == 0 && uint64_t{at} + size <= bytes_.size();
  }
  bool ReadCell(uint32_t at, Cell& cell, const Moment& moment);
  bool MayWrite(uint32_t at, const Cell& cell, const Moment& moment);

  std::vector<std::byte> bytes_;
  std::vector<Cell> cells_;
  std::string fault_;
};

// The memory of a device: ranges that a launch may access. In one launch, no block may touch memory
// that another one writes. Functions return a fault's text, or "".
class GlobalMemory {
 public:
  // Ranges of one launch do not overlap, or are equal.
  void Add(const std::byte* begin, int64_t bytes, bool writable);
  void Clear() { ranges_.clear(); }
  // Forgets earlier accesses.
  void NewLaunch();

  std::string Read(const void* at, int64_t size, int64_t block);
  std::string Write(const void* at, int64_t size, int64_t block);

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    // For each two bytes: a block's number plus 1. `writer` only for writable ranges.
    std::vector<int32_t> reader, writer;
  };
  Range* Find(const void* at, int64_t size);

  std::vector<Range> ranges_;
  size_t last_ = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_MEMORY_CHECKS_H_
