// Launches on a device: tables and launches in order, on a queue with random delays. The device is
// a stand-in, whose kernels are the emulator's.
#include "worker/kernel/cuda/device_launcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "tests/reference/from_spec.h"
#include "tests/worker/device/cuda_stand_in.h"
#include "tests/worker/kernel/cuda/emulator/emulated_hopper.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/cuda/emulator/emulated_run.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cuda/cuda_kernel.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

class EmulatedTable final : public KernelTable {
 public:
  EmulatedTable(CudaStandIn* api, GlobalMemory* memory) : api_(api), memory_(memory) {}

  CudaError Prepare(int64_t) override { return prepared; }
  CudaError EncodeMap(const TensorMapSpec& map, std::byte* to, int* refusal) override {
    ++encoded;
    ordinal = CudaStandIn::CurrentDevice();
    *refusal = encoded == refused_at ? refused : 0;
    if (encoded == refused_at) return CudaStandIn::kInvalidValue;
    EmulateMaps({&map, 1}, to);
    return kCudaSuccess;
  }
  CudaError Forward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                    CudaStream stream) override {
    if (kind.hopper) ++hoppers;
    if (kind.hopper) items_and_blocks.emplace_back(args.items, blocks);
    return api_->Launch(stream, [=] {
      Note(kind.hopper ? EmulateHopper(kind, args, blocks, memory_, /*seed=*/1)
                       : EmulateForward(kind, args, blocks, memory_));
    });
  }
  CudaError Gradients(const GradientKind& kind, const GradientArgs& args, int64_t blocks,
                      CudaStream stream) override {
    if (kind.forward.hopper) ++hopper_gradients;
    return api_->Launch(stream, [=] {
      Note(kind.forward.hopper ? EmulateHopperGradients(kind, args, blocks, memory_, /*seed=*/1)
                               : EmulateGradients(kind, args, blocks, memory_));
    });
  }
  CudaError Op(const OpArgs& args, int64_t blocks, CudaStream stream) override {
    return api_->Launch(stream, [=] { Note(EmulateOp(args, blocks, memory_)); });
  }
  std::string fault() {
    MutexLock lock(&mutex_);
    return fault_;
  }

  CudaError prepared = kCudaSuccess;
  // The number of the map that the driver refuses; the first is 1.
  int encoded = 0, refused_at = 0;
  int refused = 0;   // The driver's error. 0: CUDA fails.
  int ordinal = -1;  // The GPU of the thread that requested the last map.
  int hoppers = 0, hopper_gradients = 0;
  std::vector<std::pair<int64_t, int64_t>> items_and_blocks;  // One entry for each launch.

 private:
  void Note(const std::string& fault) {
    MutexLock lock(&mutex_);
    if (fault_.empty()) fault_ = fault;
  }

  CudaStandIn* const api_;
  GlobalMemory* const memory_;
  Mutex mutex_;
  std::string fault_ GUARDED_BY(mutex_);
};

constexpr int64_t kPartialBytes = 16 << 10;

class DeviceLauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    CudaContext::Options options;
    options.arena_bytes = 1 << 20;
    options.workspace_bytes = 1 << 20;
    options.bounce_bytes = 1 << 20;
    context_ = *CudaContext::Create(&api_, options);
    device_ = *CudaDevice::Create(context_);
  }

  std::unique_ptr<AttentionKernel> Kernel(int64_t table_bytes, bool hopper = false, int kept = 0) {
    auto launcher = DeviceLauncher::Create(device_.get(), &table_, {table_bytes, kPartialBytes},
                                           {hopper, hopper, kept});
    EXPECT_TRUE(launcher.ok()) << launcher.status();
    // Uploads go to the device's memory. The first one shows its address.
    auto probe = (*launcher)->Upload(std::vector<std::byte>(16));
    EXPECT_TRUE(probe.ok());
    tables_ = *probe;
    partials_ = (*launcher)->partials();
    CudaKernel::Options options;
    options.launcher = *std::move(launcher);
    auto kernel =
        std::make_unique<TablesToo>(*CudaKernel::Create(std::move(options)), this, table_bytes);
    return WithMemory(memory_, std::move(kernel), [this] {
      const absl::Status status = device_->Synchronize();
      if (!status.ok()) return status;
      const std::string fault = table_.fault();
      return fault.empty() ? absl::OkStatus() : absl::InternalError(fault);
    });
  }

  // Permits the kernels to read the tables' memory.
  class TablesToo : public AttentionKernel {
   public:
    TablesToo(std::unique_ptr<AttentionKernel> kernel, DeviceLauncherTest* test, int64_t bytes)
        : kernel_(std::move(kernel)), test_(test), bytes_(bytes) {}
    absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                            const KernelControl& control) override {
      test_->memory_->Add(test_->tables_, bytes_, false);
      test_->memory_->Add(test_->partials_, kPartialBytes, true);
      return kernel_->Accumulate(job, tasks, control);
    }
    absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
      test_->memory_->Add(test_->tables_, bytes_, false);
      test_->memory_->Add(test_->partials_, kPartialBytes, true);
      return kernel_->Apply(job, op);
    }
    std::string Description() const override { return kernel_->Description(); }

   private:
    const std::unique_ptr<AttentionKernel> kernel_;
    DeviceLauncherTest* const test_;
    const int64_t bytes_;
  };

  CudaStandIn api_{CudaStandIn::Options()};
  std::shared_ptr<GlobalMemory> memory_ = std::make_shared<GlobalMemory>();
  EmulatedTable table_{&api_, memory_.get()};
  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<CudaDevice> device_;
  const std::byte* tables_ = nullptr;
  const std::byte* partials_ = nullptr;
};

struct Job {
  AttentionSpec spec;
  reference::Input input;
};

Job MakeJob() {
  Job job;
  job.spec.dtype = DataType::kBf16;
  job.spec.q_heads = 4;
  job.spec.kv_heads = 2;
  job.spec.head_dim = 16;
  for (const int64_t rows : {70, 40}) {
    Sequence sequence;
    sequence.q_len = sequence.kv_len = rows;
    job.spec.sequences.push_back(sequence);
  }
  job.spec.masks.resize(1);
  job.spec.masks[0].causal = true;
  job.spec.modifiers.sinks = {1, 0, -1, 2};
  job.input = reference::InputOf(job.spec);
  FillNormal(/*seed=*/3, reference::Precision::kBf16, 1, &job.input);
  return job;
}

Cuts ManyTasks() {
  Cuts cuts;
  cuts.keys = {20, 55, 80};
  cuts.q_rows = {33};
  return cuts;
}

// Each launch finds its own tables, although the next tables are in transit while it waits.
TEST_F(DeviceLauncherTest, ManyLaunchesInFlightGiveTheBitsOfOne) {
  const Job job = MakeJob();
  KernelHarness one(job.spec, job.input, ManyTasks()), many(job.spec, job.input, ManyTasks());
  ASSERT_TRUE(one.Run(*Kernel(256 << 10)).ok());
  const absl::Status status = many.Run(*Kernel(5 << 10));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(one.state(), many.state());
  EXPECT_EQ(one.answer().out, many.answer().out);
  EXPECT_TRUE(reference::CheckWithinBudget(job.input, many.answer()));
}

// Its maps are sent with the tables. The kernel serves dimension 16 for keys and values.
TEST_F(DeviceLauncherTest, TheKernelForHopperIsLaunchedWhereItIsAskedFor) {
  const Job job = MakeJob();
  KernelHarness portable(job.spec, job.input, ManyTasks()), fast(job.spec, job.input, ManyTasks());
  ASSERT_TRUE(portable.Run(*Kernel(64 << 10)).ok());
  EXPECT_EQ(table_.hoppers, 0);
  const absl::Status status = fast.Run(*Kernel(16 << 10, /*hopper=*/true));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(table_.hoppers, 0);
  EXPECT_TRUE(reference::CheckWithinBudget(job.input, fast.answer()));
}

// The stand-in has four multiprocessors; one block on each processes items one after another.
TEST_F(DeviceLauncherTest, TheKernelForHopperHasABlockForEachMultiprocessorThatIsNotKept) {
  Job job = MakeJob();
  job.spec.sequences[0].q_len = job.spec.sequences[0].kv_len = 700;
  job.input = reference::InputOf(job.spec);
  struct Case {
    CudaPriority priority;
    int kept, blocks;
  };
  for (const Case& one : {Case{CudaPriority::kGroup, 0, 4}, Case{CudaPriority::kGroup, 1, 3},
                          Case{CudaPriority::kSolo, 1, 4}}) {
    table_.items_and_blocks.clear();
    device_ = *CudaDevice::Create(context_, one.priority);
    KernelHarness harness(job.spec, job.input, {});
    const absl::Status status = harness.Run(*Kernel(64 << 10, /*hopper=*/true, one.kept));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_FALSE(table_.items_and_blocks.empty());
    int64_t most = 0;
    for (const auto& [items, blocks] : table_.items_and_blocks) {
      EXPECT_EQ(blocks, std::min<int64_t>(items, one.blocks));
      most = std::max(most, items);
    }
    EXPECT_GT(most, 4);
  }
}

// The GPU is not faulty: the portable kernel executes the whole call once, and the next call uses
// the Hopper kernel again.
TEST_F(DeviceLauncherTest, ACallWhoseMapTheDriverRefusesIsThePortableKernels) {
  const Job job = MakeJob();
  KernelHarness portable(job.spec, job.input, ManyTasks()),
      refused(job.spec, job.input, ManyTasks()), again(job.spec, job.input, ManyTasks());
  ASSERT_TRUE(portable.Run(*Kernel(16 << 10)).ok());
  std::ostringstream log;
  LogOptions logging;
  logging.stream = &log;
  InitLogging(logging);
  const std::unique_ptr<AttentionKernel> kernel = Kernel(16 << 10, /*hopper=*/true);
  table_.refused = 1234;
  table_.refused_at = 4;
  const absl::Status status = refused.Run(*kernel);
  ASSERT_TRUE(status.ok()) << status;
  InitLogging(LogOptions());
  EXPECT_EQ(table_.hoppers, 0);
  EXPECT_EQ(refused.state(), portable.state());
  EXPECT_TRUE(reference::CheckWithinBudget(job.input, refused.answer()));
  EXPECT_NE(log.str().find("(CUresult 1234)"), std::string::npos) << log.str();
  EXPECT_TRUE(device_->MakeCurrent().ok());
  ASSERT_TRUE(again.Run(*kernel).ok());
  EXPECT_GT(table_.hoppers, 0);
}

TEST_F(DeviceLauncherTest, ARefusedMapIsNoFaultAndAnErrorOfCudasIs) {
  auto launcher = *DeviceLauncher::Create(device_.get(), &table_, {1000, 16},
                                          {/*on=*/true, /*gradients=*/true, 0});
  const TensorMapSpec map;
  std::byte to[kMapBytes];
  table_.refused = 801;
  table_.refused_at = 1;
  EXPECT_EQ(launcher->EncodeMaps({&map, 1}, to).code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(launcher->EncodeMaps({&map, 1}, to).ok());
  table_.refused = 0;
  table_.refused_at = 3;
  EXPECT_TRUE(IsDeviceFault(launcher->EncodeMaps({&map, 1}, to)));
}

// Like the lane's thread, whose first CUDA call this is.
TEST_F(DeviceLauncherTest, AThreadThatAskedCudaForNothingBeforeHasMapsOfItsGpu) {
  CudaContext::Options options;
  options.ordinal = 1;
  options.arena_bytes = options.workspace_bytes = options.bounce_bytes = 1 << 20;
  const std::unique_ptr<CudaDevice> second =
      *CudaDevice::Create(*CudaContext::Create(&api_, options));
  auto launcher = *DeviceLauncher::Create(second.get(), &table_, {1000, 16},
                                          {/*on=*/true, /*gradients=*/true, 0});
  const TensorMapSpec map;
  std::byte to[kMapBytes];
  absl::Status status;
  std::thread([&] { status = launcher->EncodeMaps({&map, 1}, to); }).join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(table_.ordinal, 1);
}

// Code for sm_90a runs on no earlier or later GPU.
TEST_F(DeviceLauncherTest, OnlyAHopperHasItsKernel) {
  const std::pair<int, int> capabilities[] = {{8, 0}, {8, 9}, {9, 0}, {10, 0}};
  for (const auto& [major, minor] : capabilities) {
    CudaStandIn::Options gpu;
    gpu.major = major;
    gpu.minor = minor;
    CudaStandIn api(gpu);
    CudaContext::Options options;
    options.arena_bytes = options.workspace_bytes = options.bounce_bytes = 1 << 20;
    const std::shared_ptr<CudaContext> context = *CudaContext::Create(&api, options);
    const std::unique_ptr<CudaDevice> device = *CudaDevice::Create(context);
    const auto launcher = DeviceLauncher::Create(device.get(), &table_, {1 << 10, 16},
                                                 {/*on=*/true, /*gradients=*/true, 0});
    ASSERT_TRUE(launcher.ok()) << launcher.status();
    EXPECT_EQ((*launcher)->has_hopper(), major == 9) << major << "." << minor;
    EXPECT_EQ((*launcher)->has_hopper_gradients(), major == 9) << major << "." << minor;
  }
}

TEST_F(DeviceLauncherTest, AFaultOfTheDeviceIsTyped) {
  const Job job = MakeJob();
  KernelHarness harness(job.spec, job.input, ManyTasks());
  const std::unique_ptr<AttentionKernel> kernel = Kernel(64 << 10);
  ASSERT_TRUE(harness.Run(*kernel).ok());
  api_.Break(CudaStandIn::kIllegalAddress);
  EXPECT_TRUE(IsDeviceFault(harness.Run(*kernel)));
}

TEST_F(DeviceLauncherTest, KernelsThatCannotBeLoadedAreAnErrorAtTheStart) {
  table_.prepared = 209;  // cudaErrorNoKernelImageForDevice
  EXPECT_FALSE(DeviceLauncher::Create(device_.get(), &table_).ok());
}

TEST_F(DeviceLauncherTest, MemoryThatIsNotThereIsAnErrorAtTheStart) {
  EXPECT_EQ(DeviceLauncher::Create(device_.get(), &table_, {int64_t{1} << 40, 16}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(DeviceLauncherTest, TablesThatDoNotFitAreRefused) {
  auto launcher = DeviceLauncher::Create(device_.get(), &table_, {1000, 16});
  ASSERT_TRUE(launcher.ok());
  EXPECT_EQ((*launcher)->Upload(std::vector<std::byte>(1001)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace annulus::cuda
