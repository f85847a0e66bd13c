#include "tests/worker/kernel/mirrored_kernel.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// Memory on both sides of a block that must not change. Its size keeps the alignment.
constexpr int64_t kFence = 256;
constexpr std::byte kUntouched{0xa5};

class MirroredKernel final : public AttentionKernel {
 public:
  MirroredKernel(std::unique_ptr<Device> device, std::unique_ptr<AttentionKernel> kernel)
      : device_(std::move(device)), kernel_(std::move(kernel)) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    std::vector<KernelTask> there(tasks.begin(), tasks.end());
    for (KernelTask& task : there) {
      for (BlockView* view : {&task.q, &task.kv, &task.pairs}) {
        RETURN_IF_ERROR(Mirror(*job.layout, view, false));
      }
      for (BlockView* view : {&task.out_q, &task.out_kv, &task.out_bias}) {
        RETURN_IF_ERROR(Mirror(*job.layout, view, true));
      }
    }
    return Finish(kernel_->Accumulate(job, there, control));
  }

  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    KernelOp there = op;
    RETURN_IF_ERROR(Mirror(*job.layout, &there.source, false));
    RETURN_IF_ERROR(Mirror(*job.layout, &there.target, true));
    return Finish(kernel_->Apply(job, there));
  }

  std::string Description() const override { return kernel_->Description(); }

 private:
  struct Copy {
    std::vector<std::byte> image;  // The uploaded bytes, including the fences.
    DeviceMemory memory;
    bool written = false;
  };

  // Replaces the block's address by its address on the device.
  absl::Status Mirror(const BlockLayout& layout, BlockView* view, bool written) {
    if (view->data == nullptr) return absl::OkStatus();
    const int64_t bytes = layout.BlockBytes(view->block), all = bytes + 2 * kFence;
    auto [at, is_new] = copies_.try_emplace(view->data);
    Copy& copy = at->second;
    if (is_new) {
      copy.image.assign(all, kUntouched);
      std::copy_n(view->data, bytes, copy.image.begin() + kFence);
      ASSIGN_OR_RETURN(copy.memory, device_->Allocate(all));
      RETURN_IF_ERROR(device_->CopyIn({copy.memory.get(), all, copy.image.data(), all, all, 1}));
    } else if (static_cast<int64_t>(copy.image.size()) != all) {
      return absl::InternalError("two blocks of different sizes at one address");
    }
    copy.written |= written;
    view->data = copy.memory.get() + kFence;
    return absl::OkStatus();
  }

  // Waits, and copies written blocks back. Returns the call's error, if any.
  absl::Status Finish(absl::Status status) {
    std::map<std::byte*, Copy> copies = std::exchange(copies_, {});
    for (auto& [home, copy] : copies) {
      const auto all = static_cast<int64_t>(copy.image.size());
      status.Update(device_->CopyOut({copy.image.data(), all, copy.memory.get(), all, all, 1}));
    }
    status.Update(device_->Synchronize());
    RETURN_IF_ERROR(status);
    for (auto& [home, copy] : copies) {
      const auto begin = copy.image.begin() + kFence, end = copy.image.end() - kFence;
      const auto untouched = [](std::byte byte) { return byte == kUntouched; };
      if (!std::all_of(copy.image.begin(), begin, untouched) ||
          !std::all_of(end, copy.image.end(), untouched)) {
        return absl::InternalError(absl::StrCat(Description(), " wrote beside a block"));
      }
      if (copy.written) {
        std::copy(begin, end, home);
      } else if (!std::equal(begin, end, home)) {
        return absl::InternalError(absl::StrCat(Description(), " wrote to a block that it reads"));
      }
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<Device> device_;
  // May borrow the device, so it is destroyed first.
  const std::unique_ptr<AttentionKernel> kernel_;
  std::map<std::byte*, Copy> copies_;  // Copies of the call, by the block's own address.
};

}  // namespace

std::unique_ptr<AttentionKernel> MakeMirroredKernel(std::unique_ptr<Device> device,
                                                    std::unique_ptr<AttentionKernel> kernel) {
  return std::make_unique<MirroredKernel>(std::move(device), std::move(kernel));
}

}  // namespace annulus
