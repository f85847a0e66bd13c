#include "worker/device/host.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "base/mutex.h"

namespace annulus {
namespace {

constexpr int64_t kAlignment = 128;
// Large blocks are aligned to huge pages and ask for them: a kernel streams through them.
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kMostKeptBytes = int64_t{256} << 20;
// More than any machine has; some allocators end the process on such a request.
constexpr int64_t kMostBytes = int64_t{1} << 39;

absl::Status Copy(const Copy2d& copy) {
  if (copy.width == copy.target_stride && copy.width == copy.source_stride) {
    if (copy.rows > 0) std::memcpy(copy.target, copy.source, copy.width * copy.rows);
    return absl::OkStatus();
  }
  for (int64_t row = 0; row < copy.rows; ++row) {
    std::memcpy(copy.target + row * copy.target_stride, copy.source + row * copy.source_stride,
                copy.width);
  }
  return absl::OkStatus();
}

std::byte* NewBlock(int64_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  void* memory = nullptr;
  if (bytes > kMostBytes ||
      posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes > 0 ? bytes : 1) != 0) {
    return nullptr;
  }
  // Advice: small pages work too.
  if (huge) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

// The block that was freed last, for the next job: the kernel clears every fresh page, which takes
// a small job as long as its attention.
class KeptBlock {
 public:
  ~KeptBlock() { std::free(block_); }

  // A block of at least `bytes`, of `*size`; null when none is kept that is not far too large.
  std::byte* Take(int64_t bytes, int64_t* size) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (block_ == nullptr || size_ < bytes || size_ / 2 > bytes) return nullptr;
    *size = size_;
    return std::exchange(block_, nullptr);
  }
  void Give(std::byte* block, int64_t size) EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (size <= kMostKeptBytes) {
        std::swap(block_, block);
        size_ = size;
      }
    }
    std::free(block);
  }

 private:
  Mutex mutex_;
  std::byte* block_ GUARDED_BY(mutex_) = nullptr;
  int64_t size_ GUARDED_BY(mutex_) = 0;
};

class HostDevice final : public Device {
 public:
  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override {
    if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes));
    int64_t size = bytes;
    std::byte* memory = kept_->Take(bytes, &size);
    if (memory == nullptr) memory = NewBlock(bytes);
    if (memory == nullptr) {
      return MakeError(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("no host memory for ", bytes, " bytes"),
                       {"OUT_OF_MEMORY", {{"requested_bytes", absl::StrCat(bytes)}}, {}, {}});
    }
    return DeviceMemory(memory, [kept = kept_, size](std::byte* p) { kept->Give(p, size); });
  }

  absl::Status CopyIn(const Copy2d& copy) override { return Copy(copy); }
  absl::Status CopyOut(const Copy2d& copy) override { return Copy(copy); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  std::string Description() const override { return "host"; }

 private:
  const std::shared_ptr<KeptBlock> kept_ = std::make_shared<KeptBlock>();
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace annulus
