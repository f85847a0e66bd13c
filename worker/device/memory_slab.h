#ifndef ANNULUS_WORKER_DEVICE_MEMORY_SLAB_H_
#define ANNULUS_WORKER_DEVICE_MEMORY_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace annulus {

// One piece of memory, taken once, from which pieces are lent; it never touches the memory itself.
// Pieces are multiples of 256 bytes, aligned to as much; each is cut from the smallest gap that
// holds it. Thread-safe.
class MemorySlab : public std::enable_shared_from_this<MemorySlab> {
 public:
  // `owner` keeps the memory; its base is aligned to 256 bytes.
  static std::shared_ptr<MemorySlab> Create(std::shared_ptr<std::byte> owner, int64_t bytes);

  // nullptr where no gap holds `bytes` (>= 0). What is lent keeps the slab alive, and goes back
  // when its last reference goes, on any thread.
  std::shared_ptr<std::byte> Take(int64_t bytes);

  // Whether all of [data, data + bytes) lies in it.
  bool Holds(const std::byte* data, int64_t bytes) const;
  int64_t free_bytes() const;
  int64_t largest_gap() const;

 private:
  MemorySlab(std::shared_ptr<std::byte> owner, int64_t bytes);
  void Return(int64_t offset, int64_t bytes);

  const std::shared_ptr<std::byte> owner_;
  const int64_t bytes_;
  mutable Mutex mutex_;
  std::map<int64_t, int64_t> gaps_ GUARDED_BY(mutex_);  // Offset → bytes; no two adjoin.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_MEMORY_SLAB_H_
