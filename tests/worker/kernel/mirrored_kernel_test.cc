#include "tests/worker/kernel/mirrored_kernel.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "tests/worker/kernel/reference_kernel.h"
#include "worker/device/host.h"

namespace annulus {
namespace {

// The reference kernel, which writes one byte too many if configured to.
class Careless final : public AttentionKernel {
 public:
  explicit Careless(int64_t beside) : beside_(beside) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    const BlockView& q = tasks.front().q;
    if (beside_ != 0) q.data[beside_ > 0 ? job.layout->BlockBytes(q.block) : -1] ^= std::byte{1};
    return inner_.Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return inner_.Apply(job, op);
  }
  std::string Description() const override { return "careless"; }

 private:
  const int64_t beside_;
  ReferenceKernel inner_;
};

std::unique_ptr<AttentionKernel> Mirrored(int64_t beside) {
  return MakeMirroredKernel(MakeHostDevice(), std::make_unique<Careless>(beside));
}

AttentionSpec SmallSpec() {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 8;
  Sequence sequence;
  sequence.q_len = sequence.kv_len = 20;
  spec.sequences = {sequence};
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

Cuts SomeCuts() {
  Cuts cuts;
  cuts.q_rows = {7};
  cuts.keys = {5, 11};
  cuts.call_per_task = true;
  return cuts;
}

reference::Input Normal(const AttentionSpec& spec) {
  reference::Input input = reference::InputOf(spec);
  FillNormal(/*seed=*/3, reference::PrecisionOf(spec.dtype), 1, &input);
  return input;
}

TEST(MirroredKernel, AnswersAsTheKernelInIt) {
  const AttentionSpec spec = SmallSpec();
  EXPECT_TRUE(WithinBudget(*Mirrored(0), spec, Normal(spec), SomeCuts()));
}

TEST(MirroredKernel, BringsGradientsBack) {
  AttentionSpec spec = SmallSpec();
  const reference::Input input = Normal(spec);
  const reference::Upstream upstream = reference::MakeUpstream(
      input, reference::PrecisionOf(spec.dtype), reference::PrecisionOf(spec.dtype), true, 5);
  EXPECT_TRUE(GradientsWithinBudget(*Mirrored(0), spec, input, upstream, SomeCuts()));
}

TEST(MirroredKernel, SeesWhatIsWrittenBesideABlock) {
  const AttentionSpec spec = SmallSpec();
  for (const int64_t beside : {-1, 1}) {
    KernelHarness harness(spec, Normal(spec), SomeCuts());
    const absl::Status status = harness.Run(*Mirrored(beside));
    EXPECT_EQ(status.message(), "careless wrote beside a block");
  }
}

}  // namespace
}  // namespace annulus
