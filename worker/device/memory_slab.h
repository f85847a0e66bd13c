#ifndef ANNULUS_WORKER_DEVICE_MEMORY_SLAB_H_
#define ANNULUS_WORKER_DEVICE_MEMORY_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace annulus {

// One allocation, divided into pieces on request. Never touches the memory itself. Pieces are
// multiples of 256 bytes with the same alignment, taken from the smallest gap that fits.
// Thread-safe.
class MemorySlab : public std::enable_shared_from_this<MemorySlab> {
 public:
  // `owner` keeps the memory alive. Its base must be aligned to 256 bytes.
  static std::shared_ptr<MemorySlab> Create(std::shared_ptr<std::byte> owner, int64_t bytes);

  // nullptr if no gap has `bytes` (>= 0). A piece keeps the slab alive. Its last reference returns
  // it, on any thread.
  std::shared_ptr<std::byte> Take(int64_t bytes);

  // True if all of [data, data + bytes) is in the slab.
  bool Holds(const std::byte* data, int64_t bytes) const;
  int64_t free_bytes() const;
  int64_t largest_gap() const;

 private:
  MemorySlab(std::shared_ptr<std::byte> owner, int64_t bytes);
  void Return(int64_t offset, int64_t bytes);

  const std::shared_ptr<std::byte> owner_;
  const int64_t bytes_;
  mutable Mutex mutex_;
  std::map<int64_t, int64_t> gaps_ GUARDED_BY(mutex_);  // Offset → size. No two gaps are adjacent.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_MEMORY_SLAB_H_
