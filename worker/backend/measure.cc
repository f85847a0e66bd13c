#include "worker/backend/measure.h"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "attention/spec/dtype.h"
#include "attention/spec/tensor_table.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker/executor/executor.h"

namespace annulus {
namespace {

// Random numbers, because CPUs multiply zeros faster than real data.
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

// Fills memory with copies of the numbers.
void Repeat(const std::vector<std::byte>& numbers, std::vector<std::byte>* memory) {
  for (size_t at = 0; at < memory->size(); at += numbers.size()) {
    const size_t bytes = std::min(numbers.size(), memory->size() - at);
    std::copy_n(numbers.begin(), bytes, memory->begin() + static_cast<int64_t>(at));
  }
}

double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

ProgramRequest RequestOf(const Machine& machine, const KernelRates& of,
                         const MeasuredShape& shape) {
  ProgramRequest request;
  request.spec.operation = of.operation;
  request.spec.dtype = of.dtype;
  request.spec.arithmetic = of.arithmetic;
  request.spec.q_heads = request.spec.kv_heads = shape.heads;
  request.spec.head_dim = shape.head_dim;
  request.spec.sequences.resize(1);
  request.spec.sequences[0].q_len = shape.q_len;
  request.spec.sequences[0].kv_len = shape.kv_len;
  if (shape.window > 0) {
    request.spec.masks.resize(1);
    request.spec.masks[0].causal = true;
    request.spec.masks[0].window_left = shape.window - 1;
  }
  request.execution.strategy = Strategy::kRingPassKv;
  request.execution.layout = request.plan_options.layout = Layout::kContiguous;
  request.execution.world_size = 1;
  request.reads_staging = machine.device->reads_staging();
  request.ends_rows = machine.kernel->ends_rows();
  return request;
}

}  // namespace

absl::StatusOr<Machine> Machine::Create(const Engine& engine) {
  Machine machine;
  ASSIGN_OR_RETURN(machine.device, engine.make_device());
  ASSIGN_OR_RETURN(machine.kernel, engine.make_kernel(machine.device.get()));
  return machine;
}

absl::StatusOr<ColdNumbers> ColdNumbers::Create() {
  ColdNumbers cold;
  RETURN_IF_ERROR(cold.memory_.Reserve(kBytes, "the memory that is measured"));
  // Two adjacent bf16 numbers form a valid fp32 number, and each is a valid fp16 number.
  const std::vector<std::byte> numbers = SomeNumbers(DataType::kBf16);
  for (int64_t at = 0; at < kBytes; at += static_cast<int64_t>(numbers.size()))
    std::copy(numbers.begin(), numbers.end(), cold.data() + at);
  return cold;
}

std::byte* ColdNumbers::Take(int64_t bytes) {
  if (at_ + bytes > kBytes) at_ = 0;
  return data() + std::exchange(at_, at_ + bytes);
}

absl::StatusOr<MeasuredJob> MeasuredJob::Create(const Machine& machine, const KernelRates& of,
                                                const MeasuredShape& shape, ColdNumbers* cold) {
  const ProgramRequest request = RequestOf(machine, of, shape);
  MeasuredJob job;
  job.device_ = machine.device.get();
  job.kernel_ = machine.kernel.get();
  job.cold_ = cold;
  job.numbers_ = SomeNumbers(of.dtype);
  for (const TensorInfo& info : TensorTable(request.spec)) {
    Tensor& tensor = job.tensors_.emplace_back();
    const int64_t bytes = RowsOf(info, request.spec) * info.row_bytes();
    const bool is_cold = info.rows == RowSpace::kKey && info.direction == Direction::kInput;
    if (cold != nullptr && is_cold) {
      tensor.cold_bytes = bytes;
      continue;
    }
    tensor.own.resize(bytes);
    Repeat(SomeNumbers(info.dtype), &tensor.own);
  }
  ASSIGN_OR_RETURN(job.program_, MakeProgram(request));
  return job;
}

StagedTensors MeasuredJob::Staged() {
  StagedTensors staged;
  for (Tensor& tensor : tensors_) {
    staged.data.push_back(tensor.cold_bytes > 0 ? cold_->Take(tensor.cold_bytes)
                                                : tensor.own.data());
  }
  return staged;
}

absl::StatusOr<MeasuredJob::Took> MeasuredJob::Run() {
  ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(program_->memory_bytes()));
  Executor::Options options;
  options.program = program_;
  options.memory = memory;
  options.device = device_;
  options.kernel = kernel_;
  Executor executor(options);
  RETURN_IF_ERROR(Fill(memory.get(), program_->placement.arena_bytes));
  RETURN_IF_ERROR(executor.CopyIn(Staged()));
  RETURN_IF_ERROR(device_->Synchronize());
  const double before = CpuSeconds();
  RETURN_IF_ERROR(executor.Run({0, static_cast<int32_t>(program_->schedule.steps.size())}));
  const double seconds = absl::ToDoubleSeconds(executor.stats().running);
  return Took{std::max(1e-6, seconds), CpuSeconds() - before};
}

// The first touch of memory would cost more than the measured work.
absl::Status MeasuredJob::Fill(std::byte* memory, int64_t bytes) const {
  const auto size = static_cast<int64_t>(numbers_.size());
  const int64_t times = bytes / size;
  RETURN_IF_ERROR(device_->CopyIn({memory, size, numbers_.data(), 0, size, times}));
  RETURN_IF_ERROR(
      device_->CopyIn({memory + times * size, size, numbers_.data(), 0, bytes % size, 1}));
  return device_->Synchronize();
}

namespace {

constexpr int64_t kLeastRows = 128, kMostRows = 4096;
constexpr int32_t kHeads = 4;
constexpr int64_t kWindow = 256;
// For one row over many keys and values, each time in other memory. Many short runs: short runs are
// disturbed least.
constexpr int64_t kLeastKeys = 512, kMostKeyBytes = ColdNumbers::kBytes / 2;
constexpr int kShortRuns = 4;
// A disturbed run may take a hundred times as long, so the best of several counts.
constexpr int kRunsOfRound = 3;
constexpr int32_t kMeasuredDims[] = {32, 64, 128, 256};
constexpr int64_t kMessageBytes = int64_t{8} << 20;
constexpr int64_t kSmallMessageBytes = 1024;

MeasuredShape FullShape(int32_t dim) { return {kHeads, dim, kLeastRows, kLeastRows, 0}; }
MeasuredShape WindowShape(int32_t dim) { return {kHeads, dim, kLeastRows, kLeastRows, kWindow}; }
MeasuredShape FewRowsShape(int32_t dim) { return {kHeads, dim, 1, kLeastKeys, 0}; }

// Repeats a job and doubles its length while a run takes at most `target`. Short jobs run in
// caches, which is not typical.
class Course {
 public:
  Course(const Machine& machine, const KernelRates& of, const MeasuredShape& shape,
         absl::Duration target, ColdNumbers* cold = nullptr)
      : machine_(machine), of_(of), shape_(shape), target_(target), cold_(cold) {}

  absl::Status Run() {
    while (true) {
      if (!job_.has_value()) {
        ASSIGN_OR_RETURN(job_, MeasuredJob::Create(machine_, of_, shape_, cold_));
      }
      for (int i = 0; i < (few_rows() ? kShortRuns : 1) * kRunsOfRound; ++i) {
        ASSIGN_OR_RETURN(const MeasuredJob::Took took, job_->Run());
        if (took.seconds < best_.seconds) best_ = took;
      }
      if (IsLongest() || absl::Seconds(best_.seconds * Growth()) > target_) return absl::OkStatus();
      shorter_ = Best();
      shape_.kv_len *= 2;
      if (!few_rows()) shape_.q_len *= 2;
      best_ = kNever;
      job_.reset();
    }
  }

  int32_t head_dim() const { return shape_.head_dim; }
  // The best run of half the length. Without rows if there was none.
  TimedRun Shorter() const { return shorter_; }
  TimedRun Best() const {
    TimedRun run;
    run.rows = shape_.heads * shape_.q_len;
    run.keys = shape_.heads * shape_.kv_len;
    const bool full = shape_.window == 0;
    const int64_t sees = full ? shape_.kv_len : std::min(shape_.kv_len, shape_.window);
    // Pairs missing at the beginning, before the window is full.
    const int64_t triangle = full ? 0 : sees * (sees - 1) / 2;
    run.pairs = run.rows * sees - shape_.heads * triangle;
    run.seconds = best_.seconds;
    run.cpu_seconds = best_.cpu_seconds;
    return run;
  }

 private:
  bool few_rows() const { return shape_.q_len == 1; }
  bool IsLongest() const {
    const int64_t bytes = 2 * shape_.heads * shape_.head_dim * BytesPerElement(of_.dtype);
    return few_rows() ? 2 * shape_.kv_len * bytes > kMostKeyBytes : shape_.q_len == kMostRows;
  }
  // The factor of the time if the length doubles.
  double Growth() const { return few_rows() || shape_.window > 0 ? 2 : 4; }

  const Machine& machine_;
  const KernelRates& of_;
  MeasuredShape shape_;
  absl::Duration target_;
  ColdNumbers* cold_;
  std::optional<MeasuredJob> job_;
  TimedRun shorter_;
  static constexpr MeasuredJob::Took kNever{std::numeric_limits<double>::infinity(), 0};
  MeasuredJob::Took best_ = kNever;
};

// Runs one of two ranks: sends and receives `messages` messages after a first one, which includes
// connection costs. Returns the time of each.
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
                      const TimedRun& windows, const TimedRun& few_rows) {
  const auto pairs = static_cast<double>(full.pairs), few = static_cast<double>(windows.pairs);
  const auto many = static_cast<double>(windows.rows);
  // Solves seconds = pairs · pair_seconds + rows · row_seconds for two runs.
  const TimedRun& other = shorter.rows > 0 ? shorter : windows;
  const auto rows = static_cast<double>(full.rows), others = static_cast<double>(other.rows);
  const double of_pair = (full.seconds * others - other.seconds * rows) /
                         (pairs * others - static_cast<double>(other.pairs) * rows);
  KernelRate rate;
  rate.head_dim = head_dim;
  rate.pair_seconds = std::clamp(of_pair, full.seconds / 2 / pairs, full.seconds / pairs);
  const double of_keys = few_rows.seconds - static_cast<double>(few_rows.pairs) * rate.pair_seconds;
  rate.key_seconds =
      std::max(0.0, of_keys) / static_cast<double>(std::max<int64_t>(1, few_rows.keys));
  const double of_rows = windows.seconds - few * rate.pair_seconds -
                         static_cast<double>(windows.keys) * rate.key_seconds;
  rate.row_seconds = std::max(0.0, of_rows) / many;
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
                                             int threads, absl::Duration budget,
                                             ColdNumbers* cold) {
  constexpr int kRounds = 2 * kRunsOfRound, kKinds = 3;
  constexpr int kCourses = kKinds * std::size(kMeasuredDims);
  ASSIGN_OR_RETURN(const Machine machine, Machine::Create(engine));
  const absl::Time end = SteadyNow() + budget;
  std::vector<Course> courses;
  for (const int32_t dim : kMeasuredDims) {
    const absl::Duration target = budget / (kRounds * kCourses);
    courses.emplace_back(machine, of, FullShape(dim), target);
    courses.emplace_back(machine, of, WindowShape(dim), target);
    courses.emplace_back(machine, of, FewRowsShape(dim), target / kShortRuns, cold);
  }
  // In rounds, so that a disturbance affects one run of each job instead of all runs of one.
  do {
    for (Course& course : courses) RETURN_IF_ERROR(course.Run());
  } while (SteadyNow() < end);
  MeasuredKernel measured;
  std::vector<TimedRun> runs;  // Runs with work for all threads.
  for (size_t i = 0; i < courses.size(); i += kKinds) {
    const TimedRun full = courses[i].Best(), windows = courses[i + 1].Best();
    measured.rates.push_back(RateOfRuns(courses[i].head_dim(), full, courses[i].Shorter(), windows,
                                        courses[i + 2].Best()));
    runs.insert(runs.end(), {full, windows});
  }
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
  // Workers on one machine measure at the same time, so many messages wait for a CPU. The lower
  // quartile excludes these waits.
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
