#include "worker/backend/measured_job.h"

#include <time.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/time.h"
#include "attention/spec/dtype.h"
#include "attention/spec/tensor_table.h"
#include "base/status_macros.h"
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

}  // namespace annulus
