// Measures a kernel, and virtual ranks with it, on the first GPU of this machine:
//
//   gpu_bench portable|hopper|cudnn FILE.json
//
// Each kernel needs its own process, because a failed one may leave the GPU unusable. Writes
// figures as a JSON array to the file, which is replaced after each figure. tests/gpu/peers.py
// measures the comparisons. Exits with 77 and the reason if the machine lacks what the kernel
// needs.

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/dtype.h"
#include "attention/spec/tensor_table.h"
#include "base/status_macros.h"
#include "benchmarks/bench_report.h"
#include "tests/gpu/device_job.h"
#include "tests/gpu/figure_file.h"
#include "tests/gpu/real_gpu.h"
#include "tests/worker/executor/gpu_group.h"
#include "worker/device/cuda_runtime.h"

namespace annulus {
namespace {

using bench::Entry;
using bench::Summarize;
using bench::Summary;

constexpr int kUsage = 2, kNoGpu = 3, kSkipped = 77;  // Exit codes.
constexpr int64_t kArenaBytes = int64_t{6} << 30;
constexpr int kRepeats = 20;
// Repeats of jobs with 16k rows and more, whose times differ by at most a fiftieth and dominate the
// run.
constexpr int kLongRepeats = 7;
constexpr int kRingRepeats = 5;
// Consecutive jobs, as peers.py has calls between two events. Plans are made in parallel.
constexpr int kTimes = 5, kShortTimes = 20;

AttentionSpec Forward(int64_t length, int32_t dim, int32_t heads, bool causal) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = heads;
  spec.head_dim = dim;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = length;
  if (causal) {
    spec.masks.resize(1);
    spec.masks[0].causal = true;
  }
  return spec;
}

// The names of peers.py.
std::string NameOf(int64_t length, int32_t dim, bool causal, bool forward = true) {
  return absl::StrCat(forward ? "forward" : "backward", " bf16 S", length, " D", dim,
                      causal ? " causal" : " full");
}

Entry EntryOf(const std::string& name, const Summary& summary, const std::string& unit,
              int repeats) {
  Entry entry;
  entry.name = name;
  entry.value = summary.median;
  entry.unit = unit;
  entry.repeats = repeats;
  entry.spread = summary.spread;
  return entry;
}

// The measured kernel. An empty prefix of figures' names means the portable kernel.
struct Measured {
  std::string prefix;
  GpuGroup::MakeKernel make_kernel;
};

class GpuBench {
 public:
  // `figures` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuBench>> Create(const Measured& measured,
                                                          FigureFile* figures) {
    ASSIGN_OR_RETURN(auto context, RealGpu(kArenaBytes));
    ASSIGN_OR_RETURN(auto device, CudaDevice::Create(context));
    ASSIGN_OR_RETURN(auto kernel, measured.make_kernel(device.get()));
    return std::unique_ptr<GpuBench>(
        new GpuBench(measured, figures, std::move(context), std::move(device), std::move(kernel)));
  }

  absl::Status Shapes() {
    for (const int64_t length : {8192, 16384, 32768}) {
      for (const bool causal : {false, true}) RETURN_IF_ERROR(Kernel(length, 128, causal));
    }
    for (const int32_t dim : {64, 256}) RETURN_IF_ERROR(Kernel(16384, dim, false));
    return absl::OkStatus();
  }

  absl::Status Decoding();
  absl::Status CarriedState();
  absl::Status Gradients(bool causal);
  absl::Status VirtualRanks(int32_t ranks, bool causal);
  absl::Status MemoryTaken(int64_t free_before);

 private:
  absl::Status Add(Entry entry) {
    entry.name = measured_.prefix + entry.name;
    return figures_->Add(std::move(entry));
  }

  GpuBench(Measured measured, FigureFile* figures, std::shared_ptr<CudaContext> context,
           std::unique_ptr<CudaDevice> device, std::unique_ptr<AttentionKernel> kernel)
      : measured_(std::move(measured)),
        figures_(figures),
        context_(std::move(context)),
        device_(std::move(device)),
        kernel_(std::move(kernel)) {}

  absl::Status Kernel(int64_t length, int32_t dim, bool causal) {
    ASSIGN_OR_RETURN(const auto job,
                     DeviceJob::Create(Forward(length, dim, 16, causal), device_.get()));
    const int repeats = length < 16384 ? kRepeats : kLongRepeats;
    std::vector<double> rates;
    for (int n = 0; n < repeats + 2; ++n) {
      ASSIGN_OR_RETURN(const double seconds, job->Run(*kernel_, 1, kTimes));
      if (n >= 2) rates.push_back(job->flops() / seconds / 1e12);
    }
    return Add(EntryOf(NameOf(length, dim, causal), Summarize(rates), "TFLOP/s", repeats));
  }

  const Measured measured_;
  FigureFile* const figures_;
  const std::shared_ptr<CudaContext> context_;
  const std::unique_ptr<CudaDevice> device_;
  const std::unique_ptr<AttentionKernel> kernel_;
};

// One query row of each head over many keys.
absl::Status GpuBench::Decoding() {
  constexpr int64_t kKeys = 131072;
  constexpr int32_t kHeads = 8, kDim = 128;
  AttentionSpec spec = Forward(kKeys, kDim, kHeads, false);
  spec.sequences[0].q_len = 1;
  ASSIGN_OR_RETURN(const auto job, DeviceJob::Create(spec, device_.get()));
  const double bytes = 2.0 * kKeys * kHeads * kDim * BytesPerElement(spec.dtype);
  std::vector<double> rates;
  for (int n = 0; n < kRepeats + 2; ++n) {
    ASSIGN_OR_RETURN(const double seconds, job->Run(*kernel_, 1, kShortTimes));
    if (n >= 2) rates.push_back(bytes / seconds / 1e9);
  }
  return Add(EntryOf(absl::StrCat("decode bf16 S", kKeys, " D", kDim), Summarize(rates), "GB/s",
                     kRepeats));
}

// The cost of storing the partial and continuing it.
absl::Status GpuBench::CarriedState() {
  ASSIGN_OR_RETURN(const auto job, DeviceJob::Create(Forward(8192, 128, 16, false), device_.get()));
  std::vector<double> ratios;
  for (int n = 0; n < kRepeats + 2; ++n) {
    ASSIGN_OR_RETURN(const double whole, job->Run(*kernel_, 1, kTimes));
    ASSIGN_OR_RETURN(const double halves, job->Run(*kernel_, 2, kTimes));
    if (n >= 2) ratios.push_back(halves / whole);
  }
  Entry entry = EntryOf("carried state: 8k keys in two calls", Summarize(ratios), "x", kRepeats);
  entry.compared_to = "the same keys in one call";
  entry.ratio = entry.value;
  entry.higher_is_better = false;
  entry.bar = 1.10;
  return Add(std::move(entry));
}

// The ranks of a job, with their tensors in staging.
class RingJob {
 public:
  static absl::StatusOr<std::unique_ptr<RingJob>> Create(const AttentionSpec& spec, int32_t ranks,
                                                         const GpuGroup::MakeKernel& make_kernel,
                                                         std::shared_ptr<CudaContext> context) {
    auto job = std::make_unique<RingJob>();
    ASSIGN_OR_RETURN(job->group_,
                     GpuGroup::Create(std::move(context), ranks, make_kernel, GpuGroup::Copying));
    ProgramRequest request;
    request.spec = spec;
    request.plan_options.world_size = ranks;
    request.plan_options.layout = ranks == 1 ? Layout::kContiguous : Layout::kZigzag;
    request.plan_options.granule = GranuleOf(spec);
    request.execution.strategy = ranks == 1 ? Strategy::kRotateKv : Strategy::kRingPassKv;
    for (request.rank = 0; request.rank < ranks; ++request.rank) {
      ASSIGN_OR_RETURN(std::shared_ptr<const RankProgram> program, MakeProgram(request));
      job->Stage(*program);
      ASSIGN_OR_RETURN(DeviceMemory memory,
                       job->group_->device(request.rank)->Allocate(program->memory_bytes()));
      job->memory_.push_back(std::move(memory));
      job->programs_.push_back(std::move(program));
    }
    return job;
  }

  // Seconds from the first rank's first step to the end of the last rank's last.
  absl::StatusOr<double> Run() {
    const auto ranks = static_cast<int32_t>(programs_.size());
    std::vector<std::unique_ptr<Executor>> executors;
    for (int32_t r = 0; r < ranks; ++r) {
      Executor::Options options;
      options.program = programs_[r];
      options.memory = memory_[r];
      options.device = group_->device(r);
      options.kernel = group_->kernel(r);
      options.communicator = group_->communicator(r);
      executors.push_back(std::make_unique<Executor>(std::move(options)));
      RETURN_IF_ERROR(executors[r]->CopyIn(staged_[r]));
      RETURN_IF_ERROR(group_->device(r)->Synchronize());
    }
    const auto began = absl::Now();
    const auto statuses = RunRanks(ranks, [&](int32_t r) {
      const auto steps = static_cast<int32_t>(programs_[r]->schedule.steps.size());
      return executors[r]->Run({0, steps});
    });
    const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
    RETURN_IF_ERROR(FirstError(statuses));
    return seconds;
  }

 private:
  void Stage(const RankProgram& program) {
    StagedTensors staged;
    for (const TensorInfo& tensor : TensorTable(program.spec)) {
      const int64_t rows = program.plan.shards[program.rank].rows(tensor.rows).rows();
      const int64_t bytes = rows * tensor.row_bytes();
      tensors_.push_back(
          tensor.direction == Direction::kInput
              ? RepeatedNormals(tensor.dtype, rows * tensor.heads * tensor.dim, tensors_.size() + 1)
              : std::vector<std::byte>(bytes));
      staged.data.push_back(tensors_.back().data());
    }
    staged_.push_back(std::move(staged));
  }

  std::unique_ptr<GpuGroup> group_;
  std::vector<std::shared_ptr<const RankProgram>> programs_;
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<StagedTensors> staged_;
  std::vector<DeviceMemory> memory_;
};

// Deterministic jobs, which always use the portable kernel, alternate with others.
absl::Status GpuBench::Gradients(bool causal) {
  AttentionSpec spec = Forward(8192, 128, 16, causal);
  spec.operation = Operation::kGradients;
  ASSIGN_OR_RETURN(const auto any, RingJob::Create(spec, 1, measured_.make_kernel, context_));
  spec.deterministic = true;
  ASSIGN_OR_RETURN(const auto same, RingJob::Create(spec, 1, measured_.make_kernel, context_));
  // Five products of visible pairs, instead of a forward pass' two.
  const MaskMap mask(spec);
  const auto pairs = static_cast<double>(mask.Area(0, {0, spec.q_rows()}, {0, spec.kv_rows()}));
  const double flops = 5 * 2.0 * pairs * spec.q_heads * spec.head_dim;
  std::vector<double> rates, ratios;
  for (int n = 0; n < kRepeats + 2; ++n) {
    ASSIGN_OR_RETURN(const double seconds, any->Run());
    ASSIGN_OR_RETURN(const double deterministic, same->Run());
    if (n < 2) continue;
    rates.push_back(flops / seconds / 1e12);
    ratios.push_back(seconds / deterministic);
  }
  const std::string name = NameOf(8192, 128, causal, /*forward=*/false);
  RETURN_IF_ERROR(Add(EntryOf(name, Summarize(rates), "TFLOP/s", kRepeats)));
  Entry entry = EntryOf(name + ", deterministic", Summarize(ratios), "x", kRepeats);
  entry.compared_to = "the same, which need not be";
  entry.ratio = entry.value;
  entry.bar = 0.85;
  return Add(std::move(entry));
}

absl::Status GpuBench::VirtualRanks(int32_t ranks, bool causal) {
  const AttentionSpec spec = Forward(65536, 128, 8, causal);
  ASSIGN_OR_RETURN(const auto one, RingJob::Create(spec, 1, measured_.make_kernel, context_));
  ASSIGN_OR_RETURN(const auto ring, RingJob::Create(spec, ranks, measured_.make_kernel, context_));
  std::vector<double> ratios;
  for (int n = 0; n < kRingRepeats + 1; ++n) {
    ASSIGN_OR_RETURN(const double alone, one->Run());
    ASSIGN_OR_RETURN(const double together, ring->Run());
    if (n >= 1) ratios.push_back(alone / together);
  }
  const std::string mask = causal ? "causal" : "full";
  Entry entry = EntryOf(absl::StrCat("virtual ranks W=", ranks, ", 64k tokens, ", mask),
                        Summarize(ratios), "x", kRingRepeats);
  entry.compared_to = "one kernel over the whole sequence";
  entry.ratio = entry.value;
  entry.bar = 0.8;
  return Add(std::move(entry));
}

// Compares the free memory that the GPU reports: all memory that jobs need was allocated before the
// first job.
absl::Status GpuBench::MemoryTaken(int64_t free_before) {
  int64_t free = 0;
  RETURN_IF_ERROR(CudaStatus(context_->api(), context_->api()->MemoryFree(&free), "free memory"));
  const auto taken = static_cast<double>(free_before - free);
  Entry entry = EntryOf("GPU memory that jobs took beside what was taken at start",
                        {taken / 1048576, 0}, "MiB", 1);
  entry.higher_is_better = false;
  return Add(std::move(entry));
}

absl::Status Measure(const std::string& kernel, GpuBench* bench) {
  RETURN_IF_ERROR(bench->Shapes());
  if (kernel == "cudnn") return absl::OkStatus();
  CudaApi* const api = CudaRuntime();
  int64_t free = 0;
  RETURN_IF_ERROR(CudaStatus(api, api->MemoryFree(&free), "free memory"));
  RETURN_IF_ERROR(bench->Decoding());
  RETURN_IF_ERROR(bench->CarriedState());
  for (const bool causal : {false, true}) RETURN_IF_ERROR(bench->Gradients(causal));
  for (const int32_t ranks : {4, 8}) {
    for (const bool causal : {false, true}) RETURN_IF_ERROR(bench->VirtualRanks(ranks, causal));
  }
  return bench->MemoryTaken(free);
}

int Skip(const absl::Status& why) {
  std::cerr << why.message() << "\n";
  return kSkipped;
}

int Main(const std::string& kernel, const std::string& path) {
  const std::map<std::string, Measured> known = {{"portable", {"", KernelOn}},
                                                 {"hopper", {"hopper ", HopperKernelOn}},
                                                 {"cudnn", {"with-cudnn ", [](CudaDevice* device) {
                                                              return CudnnKernelOn(
                                                                  device, cuda::CudnnRule());
                                                            }}}};
  const auto measured = known.find(kernel);
  if (measured == known.end() || path.empty()) {
    std::cerr << "usage: gpu_bench portable|hopper|cudnn FILE.json\n";
    return kUsage;
  }
  if (const auto gpus = CountGpus(CudaRuntime()); !gpus.ok()) {
    std::cerr << gpus.status().message() << "\n";
    return kNoGpu;
  }
  FigureFile figures(path);
  const auto made = GpuBench::Create(measured->second, &figures);
  // For the portable kernel it means that the GPU cannot be used.
  if (kernel != "portable" && absl::IsFailedPrecondition(made.status())) return Skip(made.status());
  const absl::Status status = made.ok() ? Measure(kernel, made->get()) : made.status();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  return argc == 3 ? annulus::Main(argv[1], argv[2]) : annulus::Main("", "");
}
