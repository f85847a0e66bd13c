#include "worker/measure.h"

#include <algorithm>
#include <memory>
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

absl::StatusOr<absl::Duration> RunOnce(std::shared_ptr<const RankProgram> program, Device* device,
                                       AttentionKernel* kernel) {
  ASSIGN_OR_RETURN(DeviceMemory memory, device->Allocate(program->placement.arena_bytes));
  std::fill_n(memory.get(), program->placement.arena_bytes, std::byte{0});
  Executor::Options options;
  options.program = program;
  options.memory = memory;
  options.device = device;
  options.kernel = kernel;
  Executor executor(options);
  RETURN_IF_ERROR(executor.Run({0, static_cast<int32_t>(program->schedule.steps.size())}, false));
  return executor.stats().running;
}

// As one of two ranks, sends and receives `messages` messages after a first one, which pays for
// what a new connection costs; the time that they took.
absl::StatusOr<absl::Duration> Exchange(Communicator* communicator,
                                        const std::vector<std::string>& bootstraps, int messages,
                                        const std::function<absl::Time()>& now) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  RETURN_IF_ERROR(communicator->Connect(bootstraps, deadline));
  std::vector<std::byte> out(kMessageBytes), in(kMessageBytes);
  const int32_t peer = 1 - communicator->rank();
  absl::Time began;
  for (int i = 0; i <= messages; ++i) {
    if (i == 1) began = now();
    const SendMessage send{peer, out.data(), kMessageBytes};
    const ReceiveMessage receive{peer, in.data(), kMessageBytes};
    RETURN_IF_ERROR(communicator->Start({&send, 1}, {&receive, 1}));
    RETURN_IF_ERROR(communicator->Join(deadline));
  }
  return now() - began;
}

absl::StatusOr<absl::Duration> TimeExchange(const Engine& engine, int messages,
                                            const std::function<absl::Time()>& now) {
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::vector<std::string> bootstraps;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, engine.make_communicator(rank, 2));
    ASSIGN_OR_RETURN(std::string bootstrap, communicator->Bootstrap());
    ranks.push_back(std::move(communicator));
    bootstraps.push_back(std::move(bootstrap));
  }
  absl::Status other;
  std::thread thread(
      [&] { other = Exchange(ranks[1].get(), bootstraps, messages, SteadyNow).status(); });
  absl::StatusOr<absl::Duration> own = Exchange(ranks[0].get(), bootstraps, messages, now);
  thread.join();
  RETURN_IF_ERROR(own.status());
  RETURN_IF_ERROR(other);
  return own;
}

}  // namespace

absl::StatusOr<double> MeasureFlops(const Engine& engine, DataType dtype, absl::Duration budget) {
  ProgramRequest request;
  request.spec.dtype = dtype;
  request.spec.q_heads = kHeads;
  request.spec.kv_heads = kHeads;
  request.spec.head_dim = kHeadDim;
  request.spec.sequences.resize(1);
  request.spec.sequences[0].q_len = kRows;
  request.spec.sequences[0].kv_len = kRows;
  request.execution.strategy = Strategy::kRingPassKv;
  request.execution.layout = request.plan_options.layout = Layout::kContiguous;
  request.execution.world_size = 1;
  ASSIGN_OR_RETURN(const std::shared_ptr<const RankProgram> program, MakeProgram(request));
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, engine.make_device());
  ASSIGN_OR_RETURN(const std::unique_ptr<AttentionKernel> kernel, engine.make_kernel());
  const absl::Time end = SteadyNow() + budget;
  absl::Duration best = absl::InfiniteDuration();
  do {
    ASSIGN_OR_RETURN(const absl::Duration took, RunOnce(program, device.get(), kernel.get()));
    best = std::min(best, took);
  } while (SteadyNow() < end);
  const double flops = 4.0 * kHeadDim * kHeads * kRows * kRows;
  return flops / std::max(1e-6, absl::ToDoubleSeconds(best));
}

absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now) {
  int messages = 1;
  ASSIGN_OR_RETURN(absl::Duration took, TimeExchange(engine, messages, now));
  while (took < budget && messages < 64) {
    messages *= 2;
    ASSIGN_OR_RETURN(took, TimeExchange(engine, messages, now));
  }
  return static_cast<double>(kMessageBytes) * messages /
         std::max(1e-9, absl::ToDoubleSeconds(took));
}

}  // namespace annulus
