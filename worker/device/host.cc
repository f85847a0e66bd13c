#include "worker/device/host.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr int64_t kAlignment = 128;
// Large blocks are aligned to huge pages and ask for them: a kernel streams through them.
constexpr int64_t kHugePage = 2 << 20;
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

class HostDevice final : public Device {
 public:
  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override {
    if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes));
    const bool huge = bytes >= 2 * kHugePage;
    void* memory = nullptr;
    if (bytes > kMostBytes ||
        posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes > 0 ? bytes : 1) != 0) {
      return absl::ResourceExhaustedError(absl::StrCat("no host memory for ", bytes, " bytes"));
    }
    // Advice: small pages work too.
    if (huge) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return DeviceMemory(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); });
  }

  absl::Status CopyIn(const Copy2d& copy) override { return Copy(copy); }
  absl::Status CopyOut(const Copy2d& copy) override { return Copy(copy); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  std::string Description() const override { return "host"; }
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace annulus
