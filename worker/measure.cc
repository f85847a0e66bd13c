#include "worker/measure.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/status_macros.h"
#include "base/steady_time.h"
#include "worker/executor/executor.h"
#include "worker/executor/program.h"

namespace annulus {
namespace {

constexpr int64_t kRows = 512;
constexpr int32_t kHeads = 4;
constexpr int32_t kHeadDim = 128;
constexpr int64_t kMessageBytes = int64_t{8} << 20;
constexpr int64_t kSmallMessageBytes = 1024;

constexpr std::byte kZeros[4096] = {};

struct Numbers {
  DataType dtype;
  Arithmetic arithmetic;
};

// A forward job of one rank, to be run again and again.
struct Runner {
  std::shared_ptr<const RankProgram> program;
  std::shared_ptr<Device> device;
  std::shared_ptr<AttentionKernel> kernel;

  absl::StatusOr<absl::Duration> Run() const {
    ASSIGN_OR_RETURN(DeviceMemory memory, device->Allocate(program->placement.arena_bytes));
    Executor::Options options;
    options.program = program;
    options.memory = memory;
    options.device = device.get();
    options.kernel = kernel.get();
    Executor executor(options);
    RETURN_IF_ERROR(Clear(memory.get(), program->placement.arena_bytes));
    RETURN_IF_ERROR(executor.Run({0, static_cast<int32_t>(program->schedule.steps.size())}, false));
    return executor.stats().running;
  }

  absl::Status Clear(std::byte* memory, int64_t bytes) const {
    constexpr int64_t kRow = sizeof(kZeros);
    const int64_t rows = bytes / kRow;
    RETURN_IF_ERROR(device->CopyIn({memory, kRow, kZeros, 0, kRow, rows}));
    RETURN_IF_ERROR(device->CopyIn({memory + rows * kRow, kRow, kZeros, 0, bytes % kRow, 1}));
    return device->Synchronize();
  }
};

absl::StatusOr<Runner> MakeRunner(const Engine& engine, const Numbers& numbers, int32_t head_dim,
                                  bool full) {
  ProgramRequest request;
  request.spec.dtype = numbers.dtype;
  request.spec.arithmetic = numbers.arithmetic;
  request.spec.q_heads = kHeads;
  request.spec.kv_heads = request.spec.q_heads;
  request.spec.head_dim = head_dim;
  request.spec.sequences.resize(1);
  request.spec.sequences[0].q_len = kRows;
  request.spec.sequences[0].kv_len = kRows;
  if (!full) {
    request.spec.masks.resize(1);
    request.spec.masks[0].window_left = request.spec.masks[0].window_right = 0;
  }
  request.execution.strategy = Strategy::kRingPassKv;
  request.execution.layout = request.plan_options.layout = Layout::kContiguous;
  request.execution.world_size = 1;
  Runner runner;
  ASSIGN_OR_RETURN(runner.program, MakeProgram(request));
  ASSIGN_OR_RETURN(runner.device, engine.make_device());
  ASSIGN_OR_RETURN(runner.kernel, engine.make_kernel(runner.device.get()));
  return runner;
}

// Of all pairs of kRows rows, or of each row's own key only: the best of several runs.
absl::StatusOr<double> BestSeconds(const Engine& engine, const Numbers& numbers, int32_t head_dim,
                                   bool full, absl::Duration budget) {
  ASSIGN_OR_RETURN(const Runner runner, MakeRunner(engine, numbers, head_dim, full));
  const absl::Time end = SteadyNow() + budget;
  absl::Duration best = absl::InfiniteDuration();
  do {
    ASSIGN_OR_RETURN(const absl::Duration took, runner.Run());
    best = std::min(best, took);
  } while (SteadyNow() < end);
  return std::max(1e-6, absl::ToDoubleSeconds(best));
}

// As one of two ranks, sends and receives `messages` messages after a first one, which pays for
// what a new connection costs; the time that each took.
absl::StatusOr<std::vector<absl::Duration>> Exchange(Communicator* communicator,
                                                     const std::vector<std::string>& bootstraps,
                                                     int messages, int64_t bytes,
                                                     const std::function<absl::Time()>& now) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  RETURN_IF_ERROR(communicator->Connect(bootstraps, deadline));
  std::vector<std::byte> out(bytes), in(bytes);
  const int32_t peer = 1 - communicator->rank();
  std::vector<absl::Duration> took;
  absl::Time began = now();
  for (int i = 0; i <= messages; ++i) {
    const SendMessage send{peer, out.data(), bytes};
    const ReceiveMessage receive{peer, in.data(), bytes};
    RETURN_IF_ERROR(communicator->Start({&send, 1}, {&receive, 1}));
    RETURN_IF_ERROR(communicator->Join(deadline));
    const absl::Time ended = now();
    if (i > 0) took.push_back(ended - began);
    began = ended;
  }
  return took;
}

absl::StatusOr<std::vector<absl::Duration>> TimeExchange(const Engine& engine, int messages,
                                                         int64_t bytes,
                                                         const std::function<absl::Time()>& now) {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::vector<std::string> bootstraps;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<Device> device, engine.make_device());
    ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                     engine.make_communicator(device.get(), rank, 2));
    devices.push_back(std::move(device));
    ASSIGN_OR_RETURN(std::string bootstrap, communicator->Bootstrap());
    ranks.push_back(std::move(communicator));
    bootstraps.push_back(std::move(bootstrap));
  }
  absl::Status other;
  std::thread thread(
      [&] { other = Exchange(ranks[1].get(), bootstraps, messages, bytes, SteadyNow).status(); });
  auto own = Exchange(ranks[0].get(), bootstraps, messages, bytes, now);
  thread.join();
  RETURN_IF_ERROR(own.status());
  RETURN_IF_ERROR(other);
  return own;
}

absl::StatusOr<absl::Duration> TotalExchange(const Engine& engine, int messages, int64_t bytes,
                                             const std::function<absl::Time()>& now) {
  ASSIGN_OR_RETURN(const auto each, TimeExchange(engine, messages, bytes, now));
  return std::accumulate(each.begin(), each.end(), absl::ZeroDuration());
}

}  // namespace

absl::StatusOr<KernelRate> MeasureKernel(const Engine& engine, DataType dtype,
                                         Arithmetic arithmetic, absl::Duration budget) {
  const Numbers numbers{dtype, arithmetic};
  ASSIGN_OR_RETURN(const double large, BestSeconds(engine, numbers, kHeadDim, true, budget / 3));
  ASSIGN_OR_RETURN(const double small,
                   BestSeconds(engine, numbers, kHeadDim / 2, true, budget / 3));
  ASSIGN_OR_RETURN(const double rows,
                   BestSeconds(engine, numbers, kHeadDim / 2, false, budget / 3));
  const double pairs = static_cast<double>(kHeads * kRows * kRows);
  KernelRate rate;
  // Rows that see one key have a tile's worth of pairs computed, so theirs is not taken off.
  rate.flops_per_second = 4.0 * kHeadDim * pairs / large;
  rate.pair_seconds = std::clamp(2 * small - large, 0.0, large / 2) / pairs;
  rate.row_seconds = rows / static_cast<double>(kHeads * kRows);
  return rate;
}

absl::StatusOr<double> MeasureStep(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now) {
  constexpr int kMessages = 32, kLeastRuns = 3;
  const absl::Time end = SteadyNow() + budget;
  std::vector<absl::Duration> all;
  for (int runs = 0; runs < kLeastRuns || SteadyNow() < end; ++runs) {
    ASSIGN_OR_RETURN(const std::vector<absl::Duration> took,
                     TimeExchange(engine, kMessages, kSmallMessageBytes, now));
    all.insert(all.end(), took.begin(), took.end());
  }
  // Workers of one machine measure side by side, so that many a message waits for a CPU.
  const auto quarter = all.begin() + static_cast<int64_t>(all.size() / 4);
  std::nth_element(all.begin(), quarter, all.end());
  return absl::ToDoubleSeconds(*quarter);
}

absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now) {
  int messages = 1;
  ASSIGN_OR_RETURN(absl::Duration took, TotalExchange(engine, messages, kMessageBytes, now));
  while (took < budget && messages < 64) {
    messages *= 2;
    ASSIGN_OR_RETURN(took, TotalExchange(engine, messages, kMessageBytes, now));
  }
  return static_cast<double>(kMessageBytes) * messages /
         std::max(1e-9, absl::ToDoubleSeconds(took));
}

}  // namespace annulus
