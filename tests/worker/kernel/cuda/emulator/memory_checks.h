#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_MEMORY_CHECKS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_MEMORY_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace annulus::cuda {

// Which thread of a block does something, and how often it and its warp had met others before.
struct Moment {
  int32_t thread = 0;
  uint32_t barriers = 0;  // Of the block.
  uint32_t warp_barriers = 0;

  friend bool operator==(const Moment& a, const Moment& b) {
    return a.thread == b.thread && a.barriers == b.barriers && a.warp_barriers == b.warp_barriers;
  }
};

// The shared memory of a block, four bytes at a time. A read needs a write before it, and a barrier
// between them unless both are one thread's; so does a write after a read or a write of another.
class SharedMemory {
 public:
  explicit SharedMemory(uint32_t bytes);

  std::byte* data() { return bytes_.data(); }
  // Whether it may be used so; `size` is a power of two.
  bool Read(uint32_t at, uint32_t size, const Moment& moment) {
    if (!IsInside(at, size)) return RefuseRange(at, size);
    for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
      // Nothing has been done with it since it was read last.
      const bool again = cells_[i].read == moment;
      if (!again && !ReadCell(at, cells_[i], moment)) return false;
    }
    return true;
  }
  bool Write(uint32_t at, uint32_t size, const Moment& moment);
  // A write that is done at some time between now and Land. What it does not yet hold is NaN.
  bool BeginCopy(uint32_t at, uint32_t size, const Moment& moment);
  void Land(uint32_t at, uint32_t size, const Moment& moment);
  // Why the last that was asked may not be.
  const std::string& fault() const { return fault_; }

 private:
  static constexpr uint32_t kCell = 4;
  struct Cell {
    Moment write{-1, 0, 0}, read{-1, 0, 0};
    bool read_by_many = false;   // Since `read`'s barrier, in read's warp …
    bool read_by_warps = false;  // … or in several.
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

// The memory of a device: ranges that a launch may use. What one block writes no other may touch in
// the same launch. A fault's text; empty: it may be used so.
class GlobalMemory {
 public:
  // Ranges of one launch do not overlap, or are the same.
  void Add(const std::byte* begin, int64_t bytes, bool writable);
  void Clear() { ranges_.clear(); }
  // Forgets who touched what.
  void NewLaunch();

  std::string Read(const void* at, int64_t size, int64_t block);
  std::string Write(const void* at, int64_t size, int64_t block);

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    std::vector<int32_t> reader, writer;  // Of two bytes each, a block's number plus 1; writable.
  };
  Range* Find(const void* at, int64_t size);

  std::vector<Range> ranges_;
  size_t last_ = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_MEMORY_CHECKS_H_
