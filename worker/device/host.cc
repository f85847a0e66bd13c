#include "worker/device/host.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/mutex.h"

namespace annulus {
namespace {

constexpr int64_t kAlignment = 128;
// Blocks of two huge pages or more are aligned to huge pages and request them, because kernels
// stream through them.
constexpr int64_t kHugePage = 2 << 20;

// Below kSharedBytes, waking a thread takes too long. kBytesAtOnce is the size of one work item.
constexpr int64_t kSharedBytes = 2 << 20;
constexpr int64_t kBytesAtOnce = 512 << 10;

// Copies rows [begin, end).
void CopyRows(const Copy2d& copy, int64_t begin, int64_t end) {
  std::byte* const target = copy.target + begin * copy.target_stride;
  const std::byte* const source = copy.source + begin * copy.source_stride;
  if (copy.width == copy.target_stride && copy.width == copy.source_stride) {
    std::memcpy(target, source, copy.width * (end - begin));
    return;
  }
  for (int64_t row = 0; row < end - begin; ++row)
    std::memcpy(target + row * copy.target_stride, source + row * copy.source_stride, copy.width);
}

std::byte* NewBlock(int64_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes > 0 ? bytes : 1) != 0) {
    return nullptr;
  }
  // Only a hint: small pages work too.
  if (huge) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

class HostMemory {
 public:
  explicit HostMemory(int64_t kept_bytes) : limit_(kept_bytes) {}
  ~HostMemory() { Free(Shrink(0)); }

  // A block of at least `bytes`; its size is *size. nullptr if the machine has no memory.
  std::byte* Take(int64_t bytes, int64_t* size) EXCLUDES(mutex_) {
    if (std::byte* kept = TakeKept(bytes, size); kept != nullptr) return kept;
    *size = bytes;
    std::byte* block = NewBlock(bytes);
    if (block != nullptr) return block;
    Free(Shrink(0));  // Frees kept blocks before it fails.
    block = NewBlock(bytes);
    if (block == nullptr) Forget(bytes);
    return block;
  }
  void Give(std::byte* block, int64_t size) EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      used_bytes_ -= size;
      kept_bytes_ += size;
      kept_.emplace(size, block);
    }
    Free(Shrink(limit_));
  }
  int64_t kept_bytes() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return kept_bytes_;
  }

 private:
  static bool Fits(const std::pair<const int64_t, std::byte*>& kept, int64_t bytes) {
    return kept.first - bytes <= bytes / 8;
  }
  // nullptr if no kept block fits. Counts the memory as used in both cases.
  std::byte* TakeKept(int64_t bytes, int64_t* size) EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (const auto kept = kept_.lower_bound(bytes); kept != kept_.end() && Fits(*kept, bytes)) {
        std::byte* block = kept->second;
        *size = kept->first;
        kept_bytes_ -= *size;
        used_bytes_ += *size;
        kept_.erase(kept);
        return block;
      }
      used_bytes_ += bytes;
    }
    Free(Shrink(limit_));
    return nullptr;
  }
  void Forget(int64_t bytes) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    used_bytes_ -= bytes;
  }
  // Removes the largest blocks until kept and used memory are within `limit`. The caller frees them
  // without the lock, because that takes long.
  std::vector<std::byte*> Shrink(int64_t limit) EXCLUDES(mutex_) {
    std::vector<std::byte*> out;
    MutexLock lock(&mutex_);
    while (!kept_.empty() && kept_bytes_ + used_bytes_ > limit) {
      const auto largest = std::prev(kept_.end());
      kept_bytes_ -= largest->first;
      out.push_back(largest->second);
      kept_.erase(largest);
    }
    return out;
  }
  static void Free(const std::vector<std::byte*>& blocks) {
    for (std::byte* block : blocks) std::free(block);
  }

  const int64_t limit_;
  Mutex mutex_;
  std::multimap<int64_t, std::byte*> kept_ GUARDED_BY(mutex_);  // Key: size.
  int64_t kept_bytes_ GUARDED_BY(mutex_) = 0;
  int64_t used_bytes_ GUARDED_BY(mutex_) = 0;
};

HostDevice::HostDevice(std::shared_ptr<HostMemory> memory, std::shared_ptr<ComputePool> pool)
    : memory_(std::move(memory)), pool_(std::move(pool)) {}

absl::StatusOr<DeviceMemory> HostDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes));
  int64_t size = 0;
  std::byte* block = bytes > kMostHostBytes ? nullptr : memory_->Take(bytes, &size);
  if (block == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("no host memory for ", bytes, " bytes"),
                     {"OUT_OF_MEMORY", {{"requested_bytes", absl::StrCat(bytes)}}, {}, {}});
  }
  return DeviceMemory(block, [memory = memory_, size](std::byte* p) { memory->Give(p, size); });
}

absl::Status HostDevice::Copy(const Copy2d& copy) {
  if (copy.rows <= 0 || copy.width <= 0) return absl::OkStatus();
  if (pool_ == nullptr || copy.width * copy.rows < kSharedBytes) {
    CopyRows(copy, 0, copy.rows);
    return absl::OkStatus();
  }
  const int64_t rows = std::max<int64_t>(1, kBytesAtOnce / copy.width);
  pool_->ParallelFor((copy.rows + rows - 1) / rows, [&](int64_t index, int) {
    CopyRows(copy, index * rows, std::min(copy.rows, (index + 1) * rows));
  });
  return absl::OkStatus();
}

std::shared_ptr<HostMemory> MakeHostMemory(int64_t kept_bytes) {
  return std::make_shared<HostMemory>(kept_bytes);
}

int64_t KeptBytes(HostMemory* memory) { return memory->kept_bytes(); }

std::unique_ptr<Device> MakeHostDevice(std::shared_ptr<HostMemory> memory) {
  return std::make_unique<HostDevice>(std::move(memory), nullptr);
}

}  // namespace annulus
