#include "worker/measure.h"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/dtype.h"
#include "attention/status_macros.h"
#include "attention/tensor_table.h"
#include "base/steady_time.h"
#include "worker/executor/executor.h"
#include "worker/executor/program.h"
#include "worker/executor/staging_copies.h"

namespace annulus {
namespace {

constexpr int64_t kLeastRows = 128, kMostRows = 4096;
constexpr int32_t kHeads = 4;
constexpr int64_t kWindow = 256;
// One that others hold up makes a job look a hundred times as long as it is.
constexpr int kRunsOfRound = 3;
constexpr int32_t kMeasuredDims[] = {32, 64, 128, 256};
constexpr int64_t kMessageBytes = int64_t{8} << 20;
constexpr int64_t kSmallMessageBytes = 1024;

// Random numbers: a processor that multiplies zeros is faster than with any job's.
std::vector<std::byte> SomeNumbers(DataType dtype) {
  constexpr int kCount = 16384;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(kCount);
  for (float& number : numbers) number = normal(random);
  std::vector<std::byte> bytes(kCount * BytesPerElement(dtype));
  ConvertFromFp32(dtype, numbers.data(), kCount, bytes.data());
  return bytes;
}

double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What all jobs of a measurement share: a kernel may take longer to make than to measure.
struct Machine {
  std::unique_ptr<Device> device;
  std::unique_ptr<AttentionKernel> kernel;
};

// A job of one rank, to be run again and again.
struct Runner {
  std::shared_ptr<const RankProgram> program;
  Device* device = nullptr;
  AttentionKernel* kernel = nullptr;
  std::vector<std::byte> numbers;
  std::vector<std::vector<std::byte>> tensors;

  struct Took {
    double seconds = 0, cpu_seconds = 0;
  };
  absl::StatusOr<Took> Run() {
    ASSIGN_OR_RETURN(DeviceMemory memory, device->Allocate(program->memory_bytes()));
    Executor::Options options;
    options.program = program;
    options.memory = memory;
    options.device = device;
    options.kernel = kernel;
    Executor executor(options);
    RETURN_IF_ERROR(Fill(memory.get(), program->placement.arena_bytes));
    StagedTensors staged;
    for (std::vector<std::byte>& tensor : tensors) staged.data.push_back(tensor.data());
    RETURN_IF_ERROR(executor.CopyIn(staged));
    RETURN_IF_ERROR(device->Synchronize());
    const double before = CpuSeconds();
    RETURN_IF_ERROR(executor.Run({0, static_cast<int32_t>(program->schedule.steps.size())}));
    const double seconds = absl::ToDoubleSeconds(executor.stats().running);
    return Took{std::max(1e-6, seconds), CpuSeconds() - before};
  }

  // Memory that was never touched would cost more than what is done there.
  absl::Status Fill(std::byte* memory, int64_t bytes) const {
    const auto size = static_cast<int64_t>(numbers.size());
    const int64_t times = bytes / size;
    RETURN_IF_ERROR(device->CopyIn({memory, size, numbers.data(), 0, size, times}));
    RETURN_IF_ERROR(
        device->CopyIn({memory + times * size, size, numbers.data(), 0, bytes % size, 1}));
    return device->Synchronize();
  }
};

struct Shape {
  int32_t head_dim = 0;
  bool full = false;  // Or each row sees kWindow keys.
  int64_t length = 0;
};

absl::StatusOr<Runner> MakeRunner(const Machine& machine, const KernelRates& of,
                                  const Shape& shape) {
  ProgramRequest request;
  request.spec.operation = of.operation;
  request.spec.dtype = of.dtype;
  request.spec.arithmetic = of.arithmetic;
  request.spec.q_heads = kHeads;
  request.spec.kv_heads = request.spec.q_heads;
  request.spec.head_dim = shape.head_dim;
  request.spec.sequences.resize(1);
  request.spec.sequences[0].q_len = shape.length;
  request.spec.sequences[0].kv_len = shape.length;
  if (!shape.full) {
    request.spec.masks.resize(1);
    request.spec.masks[0].causal = true;
    request.spec.masks[0].window_left = kWindow - 1;
  }
  request.execution.strategy = Strategy::kRingPassKv;
  request.execution.layout = request.plan_options.layout = Layout::kContiguous;
  request.execution.world_size = 1;
  request.reads_staging = machine.device->reads_staging();
  request.ends_rows = machine.kernel->ends_rows();
  Runner runner;
  runner.numbers = SomeNumbers(of.dtype);
  for (const TensorInfo& info : TensorTable(request.spec)) {
    const std::vector<std::byte> numbers = SomeNumbers(info.dtype);
    std::vector<std::byte>& tensor = runner.tensors.emplace_back(shape.length * info.row_bytes());
    for (size_t at = 0; at < tensor.size(); at += numbers.size()) {
      const size_t bytes = std::min(numbers.size(), tensor.size() - at);
      std::copy_n(numbers.begin(), bytes, tensor.begin() + static_cast<int64_t>(at));
    }
  }
  ASSIGN_OR_RETURN(runner.program, MakeProgram(request));
  runner.device = machine.device.get();
  runner.kernel = machine.kernel.get();
  return runner;
}

// A job that is run again and again, and made longer as long as a run of it takes `target` at most:
// short ones run in caches, as few jobs do.
class Course {
 public:
  Course(const Machine& machine, const KernelRates& of, int32_t head_dim, bool full,
         absl::Duration target)
      : machine_(machine), of_(of), shape_{head_dim, full, kLeastRows}, target_(target) {}

  absl::Status Run() {
    while (true) {
      if (runner_.program == nullptr) {
        ASSIGN_OR_RETURN(runner_, MakeRunner(machine_, of_, shape_));
      }
      for (int i = 0; i < kRunsOfRound; ++i) {
        ASSIGN_OR_RETURN(const Runner::Took took, runner_.Run());
        if (took.seconds < best_.seconds) best_ = took;
      }
      const double next = best_.seconds * (shape_.full ? 4 : 2);
      if (shape_.length == kMostRows || absl::Seconds(next) > target_) return absl::OkStatus();
      shorter_ = Best();
      shape_.length *= 2;
      best_ = kNever;
      runner_ = Runner();
    }
  }

  int32_t head_dim() const { return shape_.head_dim; }
  // Of half the length; no rows where there was none.
  TimedRun Shorter() const { return shorter_; }
  TimedRun Best() const {
    TimedRun run;
    run.rows = kHeads * shape_.length;
    const int64_t sees = shape_.full ? shape_.length : std::min(shape_.length, kWindow);
    const int64_t triangle = shape_.full ? 0 : sees * (sees - 1) / 2;  // Before the first row.
    run.pairs = run.rows * sees - kHeads * triangle;
    run.seconds = best_.seconds;
    run.cpu_seconds = best_.cpu_seconds;
    return run;
  }

 private:
  const Machine& machine_;
  const KernelRates& of_;
  Shape shape_;
  absl::Duration target_;
  Runner runner_;
  TimedRun shorter_;
  static constexpr Runner::Took kNever{std::numeric_limits<double>::infinity(), 0};
  Runner::Took best_ = kNever;
};

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

KernelRate RateOfRuns(int32_t head_dim, const TimedRun& full, const TimedRun& shorter,
                      const TimedRun& windows) {
  const auto pairs = static_cast<double>(full.pairs), few = static_cast<double>(windows.pairs);
  const auto many = static_cast<double>(windows.rows);
  // seconds = pairs · pair_seconds + rows · row_seconds, of two runs.
  const TimedRun& other = shorter.rows > 0 ? shorter : windows;
  const auto rows = static_cast<double>(full.rows), others = static_cast<double>(other.rows);
  const double of_pair = (full.seconds * others - other.seconds * rows) /
                         (pairs * others - static_cast<double>(other.pairs) * rows);
  KernelRate rate;
  rate.head_dim = head_dim;
  rate.pair_seconds = std::clamp(of_pair, full.seconds / 2 / pairs, full.seconds / pairs);
  rate.row_seconds = std::max(0.0, windows.seconds - few * rate.pair_seconds) / many;
  return rate;
}

double CpuShareOf(const std::vector<TimedRun>& runs, int threads) {
  double seconds = 0, cpu_seconds = 0;
  for (const TimedRun& run : runs) {
    seconds += run.seconds * threads;
    cpu_seconds += run.cpu_seconds;
  }
  return seconds > 0 ? std::clamp(cpu_seconds / seconds, 1e-3, 1.0) : 1;
}

absl::StatusOr<MeasuredKernel> MeasureKernel(const Engine& engine, const KernelRates& of,
                                             int threads, absl::Duration budget) {
  constexpr int kRounds = 2 * kRunsOfRound, kCourses = 2 * std::size(kMeasuredDims);
  Machine machine;
  ASSIGN_OR_RETURN(machine.device, engine.make_device());
  ASSIGN_OR_RETURN(machine.kernel, engine.make_kernel(machine.device.get()));
  const absl::Time end = SteadyNow() + budget;
  std::vector<Course> courses;
  for (const int32_t head_dim : kMeasuredDims) {
    for (const bool full : {true, false}) {
      courses.emplace_back(machine, of, head_dim, full, budget / (kRounds * kCourses));
    }
  }
  // Round after round, so that what disturbs one disturbs a run of each and not all runs of one.
  do {
    for (Course& course : courses) RETURN_IF_ERROR(course.Run());
  } while (SteadyNow() < end);
  MeasuredKernel measured;
  std::vector<TimedRun> runs;
  for (const Course& course : courses) runs.push_back(course.Best());
  for (size_t i = 0; i < courses.size(); i += 2)
    measured.rates.push_back(
        RateOfRuns(courses[i].head_dim(), runs[i], courses[i].Shorter(), runs[i + 1]));
  measured.cpu_share = CpuShareOf(runs, threads);
  return measured;
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
