#include "worker/backend/cudnn_check.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/data_plane/copy_probe.h"
#include "tests/worker/kernel/cuda/cudnn/emulated_cudnn.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

using testing::HasSubstr;

std::unique_ptr<CpuKernel> Portable() {
  CpuKernel::Options options;
  options.isa = &kPortableIsa;
  return *CpuKernel::Create(options);
}

// A kernel that serves everything and reports how much of it cuDNN did.
class SaysWhoDidIt final : public AttentionKernel {
 public:
  explicit SaysWhoDidIt(std::function<bool(const KernelJob&, const Task&)> is_cudnns)
      : is_cudnns_(std::move(is_cudnns)) {}

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    KernelJob done = job;
    for (const KernelTask& task : tasks) {
      if (!is_cudnns_(job, task.task)) continue;
      ++rectangles;
      if (wrong_from_keys <= task.task.k_end) done.scale *= 1.05;
    }
    return kernel_->Accumulate(done, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return kernel_->Apply(job, op);
  }
  std::string Description() const override { return "says who did it"; }

  int64_t rectangles = 0;
  int64_t wrong_from_keys = int64_t{1} << 40;

 private:
  const std::function<bool(const KernelJob&, const Task&)> is_cudnns_;
  const std::unique_ptr<CpuKernel> kernel_ = *CpuKernel::Create({});
};

absl::Status Check(SaysWhoDidIt& kernel) {
  const std::unique_ptr<CpuKernel> yardstick = Portable();
  return CheckCudnn(kernel, *yardstick, nullptr, [&] { return kernel.rectangles; });
}

bool All(const KernelJob&, const Task&) { return true; }
bool Small(const KernelJob&, const Task& task) { return task.k_end < 2000; }
bool NoLongFp16(const KernelJob& job, const Task& task) {
  return Small(job, task) || job.spec->dtype != DataType::kFp16;
}

TEST(CudnnCheck, ItsJobsAreAsLargeAsServedOnesAndOfEachType) {
  std::vector<DataType> types;
  const cuda::CudnnRule served;
  for (const AttentionSpec& spec : CudnnCheckSpecs()) {
    EXPECT_GE(spec.q_rows(), served.least_rows);
    EXPECT_GE(spec.kv_rows(), served.least_keys);
    types.push_back(spec.dtype);
  }
  EXPECT_THAT(types, testing::ElementsAre(DataType::kFp16, DataType::kBf16));
}

TEST(CudnnCheck, ASoundOnePasses) {
  SaysWhoDidIt kernel(All);
  EXPECT_TRUE(Check(kernel).ok()) << Check(kernel);
}

TEST(CudnnCheck, OneOfWhichCudnnDidNothingFails) {
  SaysWhoDidIt none([](const KernelJob&, const Task&) { return false; });
  SaysWhoDidIt small(Small), no_long_fp16(NoLongFp16);
  for (const auto& [kernel, what] : {std::pair<SaysWhoDidIt*, std::string>(&none, "small jobs: "),
                                     {&small, "fp16, 300 rows, 2500 keys: "},
                                     {&no_long_fp16, "fp16, 300 rows, 2500 keys: "}}) {
    const absl::Status status = Check(*kernel);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(DetailOf(status).reason, "KERNEL_SELF_CHECK_FAILED");
    EXPECT_EQ(status.message(), what + "cuDNN computed none of it");
  }
}

TEST(CudnnCheck, OneThatIsWrongInServedSizesAloneFails) {
  SaysWhoDidIt kernel(All);
  kernel.wrong_from_keys = 2000;
  const absl::Status status = Check(kernel);
  EXPECT_EQ(DetailOf(status).reason, "KERNEL_SELF_CHECK_FAILED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("fp16, 300 rows, 2500 keys: fp16 o"));
}

absl::Status CheckStandIn(const std::shared_ptr<cuda::CudnnStandIn>& cudnn) {
  cuda::CudnnRule rule = cuda::SmallCudnnRule();
  rule.scratch_bytes = int64_t{1} << 20;
  const auto kernel = cuda::MakeEmulatedCudnnKernel(cudnn, rule);
  const std::unique_ptr<CpuKernel> yardstick = Portable();
  CopyProbe device([] {});  // Like a GPU, it does not read tensors in staging.
  return CheckCudnn(*kernel, *yardstick, &device, [&] { return cudnn->runs(); });
}

TEST(CudnnCheck, CudnnIsGivenWholeRectanglesOfServedSizes) {
  const auto cudnn = std::make_shared<cuda::CudnnStandIn>();
  std::vector<std::pair<int64_t, int64_t>> served;
  cudnn->set_serves([&](int64_t rows, int64_t keys) {
    if (keys > 2000) served.emplace_back(rows, keys);
    return true;
  });
  const absl::Status status = CheckStandIn(cudnn);
  EXPECT_TRUE(status.ok()) << status;
  const std::pair<int64_t, int64_t> compiled(4096, 4096), checked(300, 2500);
  EXPECT_THAT(served, testing::ElementsAre(compiled, compiled, checked, checked));
}

TEST(CudnnCheck, ACudnnThatLosesRowsToInfinitiesFails) {
  const auto cudnn = std::make_shared<cuda::CudnnStandIn>();
  cudnn->MakeNanOfLostRows();
  const absl::Status status = CheckStandIn(cudnn);
  EXPECT_EQ(DetailOf(status).reason, "KERNEL_SELF_CHECK_FAILED") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("NaN and infinities: bf16 o"));
}

}  // namespace
}  // namespace annulus
