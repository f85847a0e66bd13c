#include "worker/backend/hopper_check.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "worker/backend/self_check.h"

namespace annulus {
namespace {

struct Dims {
  int32_t keys, values;
};
constexpr Dims kDims[] = {{64, 64}, {72, 72}, {128, 128}, {256, 256}};
constexpr int32_t kMostOfGradients = 128;

// A product of vectors with elements in [−1, 1) is about √dim / 3.
double PeakedScale(int32_t dim) { return 9 / std::sqrt(static_cast<double>(dim)); }

AttentionSpec Spec(DataType dtype, const Dims& dims, int32_t q_heads, int32_t kv_heads) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = dims.keys;
  spec.head_dim_v = dims.values;
  spec.scale = PeakedScale(dims.keys);
  return spec;
}

void AddSequence(int64_t q_len, int64_t kv_len, AttentionSpec* spec) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  spec->sequences.push_back(sequence);
}

// Odd lengths: several tiles of slots, more tiles of keys than the ring has stages, and partial
// last tiles.
std::vector<AttentionSpec> Masked(const AttentionSpec& plain) {
  constexpr int64_t kRows = 71, kKeys = 613;
  AttentionSpec full = plain;
  AddSequence(kRows, kKeys, &full);
  AttentionSpec causal = full;
  causal.masks.resize(1);
  causal.masks[0].causal = true;
  AttentionSpec window = causal;
  window.masks[0].window_left = 37;
  window.masks[0].always_visible = 3;
  AttentionSpec several = plain;
  AddSequence(31, 31, &several);
  AddSequence(kRows, 212, &several);
  AddSequence(1, 100, &several);
  several.masks = causal.masks;
  return {full, causal, window, several};
}

// Splits the keys of each call into two calls, not at a tile boundary.
class InTwoCalls final : public AttentionKernel {
 public:
  explicit InTwoCalls(AttentionKernel* kernel) : kernel_(kernel) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    for (const bool second : {false, true}) {
      std::vector<KernelTask> part(tasks.begin(), tasks.end());
      for (KernelTask& bound : part) {
        Task& task = bound.task;
        const int64_t cut = task.k_begin + (task.k_end - task.k_begin + 1) / 2;
        (second ? task.k_begin : task.k_end) = cut;
      }
      RETURN_IF_ERROR(kernel_->Accumulate(job, part, control));
    }
    return absl::OkStatus();
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return kernel_->Apply(job, op);
  }
  std::string Description() const override { return kernel_->Description(); }

 private:
  AttentionKernel* const kernel_;
};

std::string NameOf(const AttentionSpec& spec, bool in_two) {
  const bool masked = !spec.masks.empty();
  return absl::StrCat(DataTypeName(spec.dtype), ", dimension ", spec.head_dim, "/",
                      spec.value_dim(), ", ", spec.q_heads, "/", spec.kv_heads, " heads, ",
                      spec.q_rows(), " rows, ", spec.kv_rows(), " keys",
                      !masked                                 ? ""
                      : spec.masks[0].window_left.has_value() ? ", window"
                                                              : ", causal",
                      spec.operation == Operation::kGradients ? ", gradients" : "",
                      in_two ? ", in two calls" : "");
}

}  // namespace

std::vector<AttentionSpec> HopperCheckSpecs(Operation operation) {
  const bool gradients = operation == Operation::kGradients;
  std::vector<AttentionSpec> specs;
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    for (const Dims& dims : kDims) {
      if (gradients && dims.keys > kMostOfGradients) continue;
      for (const bool shared : {false, true}) {
        // With six heads, rows do not fill tiles of slots.
        const int32_t kv_heads = shared ? 1 : 2, q_heads = !shared ? 2 : gradients ? 6 : 4;
        for (AttentionSpec& spec : Masked(Spec(dtype, dims, q_heads, kv_heads)))
          specs.push_back(std::move(spec));
      }
    }
    AttentionSpec items = Spec(dtype, kDims[0], 8, 8);
    AddSequence(2600, 2600, &items);
    items.masks.resize(1);
    items.masks[0].causal = true;
    items.masks[0].window_left = 20;
    specs.push_back(std::move(items));
    AttentionSpec decoding = Spec(dtype, kDims[2], 4, 1);
    AddSequence(3, 4201, &decoding);
    specs.push_back(std::move(decoding));
  }
  for (AttentionSpec& spec : specs) spec.operation = operation;
  return specs;
}

absl::Status CheckHopper(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device,
                         absl::Span<const AttentionSpec> specs,
                         const std::function<int64_t()>& launches) {
  InTwoCalls in_two(&kernel);
  for (const AttentionSpec& spec : specs) {
    for (AttentionKernel* const form : {&kernel, static_cast<AttentionKernel*>(&in_two)}) {
      const int64_t before = launches();
      AttentionSpec forward = spec;
      forward.operation = Operation::kForward;
      const auto check = spec.operation == Operation::kGradients ? CheckGradients : CheckForward;
      absl::Status status = check(forward, *form, yardstick, device);
      if (status.ok() && launches() == before)
        status = absl::InternalError("the kernel for Hopper was not launched");
      if (status.ok()) continue;
      return MakeError(status.code(),
                       absl::StrCat(NameOf(spec, form == &in_two), ": ", status.message()),
                       DetailOf(status));
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus
