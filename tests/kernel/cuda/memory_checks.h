#ifndef ANNULUS_TESTS_KERNEL_CUDA_MEMORY_CHECKS_H_
#define ANNULUS_TESTS_KERNEL_CUDA_MEMORY_CHECKS_H_

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
};

// Whether memory may be used so. A fault's text; empty: it may.
//
// The shared memory of a block, four bytes at a time. A read needs a write before it, and a barrier
// between them unless both are one thread's; so does a write after a read or a write of another.
class SharedMemory {
 public:
  explicit SharedMemory(uint32_t bytes);

  std::byte* data() { return bytes_.data(); }
  std::string Read(uint32_t at, uint32_t size, const Moment& moment);
  std::string Write(uint32_t at, uint32_t size, const Moment& moment);
  // A write that is done at some time between now and Land. What it does not yet hold is NaN.
  std::string BeginCopy(uint32_t at, uint32_t size, const Moment& moment);
  std::string Land(uint32_t at, uint32_t size, const Moment& moment);

 private:
  struct Cell {
    Moment write{-1, 0, 0}, read{-1, 0, 0};
    bool read_by_many = false;   // Since `read`'s barrier, in read's warp …
    bool read_by_warps = false;  // … or in several.
    bool coming = false;
  };
  std::string Range(uint32_t at, uint32_t size) const;
  std::string Check(uint32_t at, const Cell& cell, const Moment& moment) const;

  std::vector<std::byte> bytes_;
  std::vector<Cell> cells_;
};

// The memory of a device: ranges that a launch may use. What one block writes no other may touch in
// the same launch.
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

#endif  // ANNULUS_TESTS_KERNEL_CUDA_MEMORY_CHECKS_H_
