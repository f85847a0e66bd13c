#include "worker/backend/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/device/host.h"
#include "worker/executor/executor.h"
#include "worker/executor/program.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Two blocks of keys, the first visible as a whole to all rows. An odd number of rows of odd size.
AttentionSpec FixedSpec(DataType dtype) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 40;
  spec.head_dim_v = 72;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = 41;
  spec.sequences[0].kv_len = 301;
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

// All modifiers of scores and weights at once, because plain jobs do not use their loops. The scale
// makes the soft cap matter.
AttentionSpec ModifiedSpec(DataType dtype) {
  AttentionSpec spec = FixedSpec(dtype);
  spec.sequences[0].q_len = 13;
  spec.sequences[0].kv_len = 281;
  spec.masks[0].bit_mask = true;
  spec.scale = 1;
  spec.modifiers.soft_cap = 2;
  spec.modifiers.alibi_slopes = {0.02f, -0.01f};
  spec.modifiers.sinks = {0.5f, -1};
  spec.modifiers.bias.emplace();
  spec.modifiers.lse_offset = true;
  spec.dropout = Dropout{0.25, 7};
  spec.gradients.d_bias = true;
  return spec;
}

// The bytes of a job's tensors, indexed like TensorTable(spec).
using Tensors = std::vector<std::vector<std::byte>>;

int64_t NumbersOf(const TensorInfo& tensor, const AttentionSpec& spec) {
  return RowsOf(tensor, spec) * tensor.heads * tensor.dim;
}

// Numbers in [−1, 1), or arbitrary bits, from a 32-bit generator.
std::vector<std::byte> Numbers(const TensorInfo& tensor, const AttentionSpec& spec) {
  std::vector<std::byte> bytes(RowsOf(tensor, spec) * tensor.row_bytes());
  uint32_t state = 12345u + static_cast<uint32_t>(tensor.id);
  const auto next = [&state] { return state = state * 1664525u + 1013904223u; };
  if (tensor.dtype == DataType::kBits8) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(next() >> 24);
    return bytes;
  }
  std::vector<float> numbers(NumbersOf(tensor, spec));
  for (float& number : numbers) number = static_cast<float>(next() >> 8) * 0x1p-23f - 1.0f;
  ConvertFromFp32(tensor.dtype, numbers.data(), numbers.size(), bytes.data());
  return bytes;
}

Tensors InputsOf(const AttentionSpec& spec) {
  Tensors tensors;
  for (const TensorInfo& tensor : TensorTable(spec)) tensors.push_back(Numbers(tensor, spec));
  return tensors;
}

// Runs the job on one rank, in place.
absl::Status RunJob(const AttentionSpec& spec, AttentionKernel& kernel, Device& device,
                    Tensors* tensors) {
  ProgramRequest request;
  request.spec = spec;
  request.execution.strategy = Strategy::kRingPassKv;
  request.execution.layout = request.plan_options.layout = Layout::kContiguous;
  request.execution.world_size = 1;
  request.reads_staging = device.reads_staging();
  request.ends_rows = kernel.ends_rows();
  ASSIGN_OR_RETURN(std::shared_ptr<const RankProgram> program, MakeProgram(request));
  Executor::Options options;
  options.program = program;
  ASSIGN_OR_RETURN(options.memory, device.Allocate(program->memory_bytes()));
  options.device = &device;
  options.kernel = &kernel;
  Executor executor(std::move(options));
  StagedTensors staged;
  for (std::vector<std::byte>& tensor : *tensors) staged.data.push_back(tensor.data());
  RETURN_IF_ERROR(executor.CopyIn(staged));
  RETURN_IF_ERROR(executor.Run({0, static_cast<int32_t>(program->schedule.steps.size())}));
  return executor.CopyOut(staged);
}

// Tolerance, as a fraction of a tensor's largest number: above the differences between paths, and
// far below real errors. Weights in fp16 arithmetic have at least fp16 precision, so a forward
// result may differ by one fp16 step, at most 2⁻¹⁰ of the largest number. Gradients are rounded
// more often.
double AllowedOf(const AttentionSpec& spec) {
  if (spec.dtype == DataType::kFp32) return 1e-4;
  if (spec.dtype == DataType::kBf16) return 0.03;
  return spec.operation == Operation::kGradients ? 0.005 : 0.0012;
}

absl::Status Failed(absl::string_view why) {
  return MakeError(absl::StatusCode::kInternal, why, {"KERNEL_SELF_CHECK_FAILED", {}, {}, {}});
}

absl::Status Compare(const AttentionSpec& spec, const TensorInfo& tensor,
                     const std::vector<std::byte>& ours, const std::vector<std::byte>& yardstick,
                     bool nonfinite) {
  std::vector<float> a(NumbersOf(tensor, spec)), b(a.size());
  ConvertToFp32(tensor.dtype, ours.data(), a.size(), a.data());
  ConvertToFp32(tensor.dtype, yardstick.data(), b.size(), b.data());
  float largest = 0, apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(b[i])) largest = std::max(largest, std::fabs(b[i]));
    if (nonfinite && std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (nonfinite && a[i] == b[i]) continue;  // Equal infinities.
    const float difference = std::fabs(a[i] - b[i]);
    apart = std::isnan(difference) ? kInfinity : std::max(apart, difference);
  }
  if (apart <= AllowedOf(spec) * largest) return absl::OkStatus();
  return Failed(absl::StrCat(DataTypeName(spec.dtype), " ", TensorName(tensor.id), " is off by ",
                             apart, ", of ", largest));
}

// With `nonfinite`, NaN equals NaN and infinities equal themselves.
absl::Status CompareOutputs(const AttentionSpec& spec, const Tensors& ours,
                            const Tensors& yardstick, bool nonfinite = false) {
  const std::vector<TensorInfo> table = TensorTable(spec);
  for (size_t t = 0; t < table.size(); ++t) {
    if (table[t].direction != Direction::kOutput) continue;
    RETURN_IF_ERROR(Compare(spec, table[t], ours[t], yardstick[t], nonfinite));
  }
  return absl::OkStatus();
}

// Runs `spec` on both kernels. `tensors` has the inputs, and afterwards the yardstick's outputs.
absl::Status CheckJob(const AttentionSpec& spec, AttentionKernel& kernel, Device* device,
                      AttentionKernel& yardstick, Tensors* tensors, bool nonfinite = false) {
  Tensors ours = *tensors;
  const std::unique_ptr<Device> host = MakeHostDevice();
  RETURN_IF_ERROR(RunJob(spec, kernel, device == nullptr ? *host : *device, &ours));
  RETURN_IF_ERROR(RunJob(spec, yardstick, *host, tensors));
  return CompareOutputs(spec, ours, *tensors, nonfinite);
}

constexpr DataType kTypes[] = {DataType::kFp32, DataType::kFp16, DataType::kBf16};

// Checks a forward job, and then its gradients.
absl::Status CheckBothWays(AttentionSpec spec, AttentionKernel& kernel, Device* device,
                           AttentionKernel& yardstick, Tensors forward, bool nonfinite = false) {
  RETURN_IF_ERROR(CheckJob(spec, kernel, device, yardstick, &forward, nonfinite));
  // Copies the forward job's tensors: q, k, v, the output and LSE come first in both tables,
  // followed by inputs that change scores.
  const size_t shared = TensorTable(spec).size();
  spec.operation = Operation::kGradients;
  Tensors tensors = InputsOf(spec);
  std::move(forward.begin(), forward.begin() + shared, tensors.begin());
  return CheckJob(spec, kernel, device, yardstick, &tensors, nonfinite);
}

absl::Status CheckBothWays(const AttentionSpec& spec, AttentionKernel& kernel, Device* device,
                           AttentionKernel& yardstick) {
  return CheckBothWays(spec, kernel, device, yardstick, InputsOf(spec));
}

// NaN in a key that the bit mask hides from all rows, and in a second sequence that shares tiles
// and blocks with the first. Kernels have separate code for non-finite blocks.
absl::Status CheckHiddenNan(AttentionKernel& kernel, AttentionKernel& yardstick) {
  constexpr int kQueries = 0, kKeys = 1, kValues = 2, kHidden = 3;
  constexpr int64_t kRows = 11, kOwnKeys = 70;
  for (const DataType dtype : kTypes) {
    AttentionSpec spec = ModifiedSpec(dtype);
    spec.sequences = {{kRows, kOwnKeys, "", 0, 0}, {5, 40, "", 0, 0}};
    const std::vector<TensorInfo> table = TensorTable(spec);
    Tensors tensors = InputsOf(spec);
    const auto spoil = [&](int tensor, int64_t row) {
      ConvertFromFp32(dtype, &kNan, 1, tensors[tensor].data() + row * table[tensor].row_bytes());
    };
    spoil(kQueries, kRows + 1);
    for (const int64_t key : {int64_t{kHidden}, kOwnKeys + 9}) {
      spoil(kKeys, key);
      spoil(kValues, key);
    }
    const auto bits = FindTensor(table, TensorId::kBitMask) - table.data();
    for (int64_t row = 0; row < spec.q_rows(); ++row)
      tensors[bits][row * table[bits].row_bytes()] &= ~(std::byte{1} << kHidden);
    RETURN_IF_ERROR(
        CheckBothWays(spec, kernel, nullptr, yardstick, std::move(tensors), /*nonfinite=*/true));
  }
  return absl::OkStatus();
}

// Few rows over many keys, so that the kernel reads unpacked keys: eight, four, two and one slots
// at a time, with partial vectors at the end.
absl::Status CheckFewRows(AttentionKernel& kernel, AttentionKernel& yardstick) {
  for (const DataType dtype : kTypes) {
    // Some paths take at most eight slots.
    for (const int32_t slots : {4 + 2 + 1, 8 + 4 + 2 + 1}) {
      AttentionSpec spec = FixedSpec(dtype);
      spec.q_heads = slots;
      spec.sequences[0].q_len = 1;
      spec.sequences[0].kv_len = 33 * kKeyBlock - 11;
      Tensors tensors = InputsOf(spec);
      RETURN_IF_ERROR(CheckJob(spec, kernel, nullptr, yardstick, &tensors));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CpuKernel>> KernelOf(const TileIsa& isa, int threads = 1) {
  CpuKernel::Options options;
  options.isa = &isa;
  options.threads = threads;
  return CpuKernel::Create(options);
}

// Whole blocks of keys, in dimensions for which AMX computes weights while it multiplies. In other
// jobs only the first block's code runs. With two threads, tiles share keys that are packed first,
// so a tile gets all blocks at once.
absl::Status CheckWholeBlocks(const TileIsa& isa, AttentionKernel& yardstick) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> kernel, KernelOf(isa, /*threads=*/2));
  for (const int32_t dim : {64, 128}) {
    AttentionSpec spec = FixedSpec(DataType::kBf16);
    spec.q_heads = 1;
    spec.head_dim = spec.head_dim_v = dim;
    spec.sequences[0].q_len = kTileRows + 17;
    spec.sequences[0].kv_len = 3 * kKeyBlock + 45;
    spec.masks[0].causal = false;
    RETURN_IF_ERROR(CheckForward(spec, *kernel, yardstick));
  }
  return absl::OkStatus();
}

// One query whose scores are −infinity with more than the first half of its keys, and ordinary with
// the others. The first keys must not affect the result. Only bf16 has such large products.
absl::Status CheckLostKeys(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device) {
  constexpr int64_t kRow = 20, kLostKeys = 192;
  constexpr float kFar = 1e38f;
  const AttentionSpec spec = FixedSpec(DataType::kBf16);
  Tensors tensors = InputsOf(spec);
  const auto set_first = [&](int tensor, int64_t row, float number) {
    const TensorInfo info = TensorTable(spec)[tensor];
    const int64_t head_bytes = info.row_bytes() / info.heads;
    for (int32_t head = 0; head < info.heads; ++head) {
      ConvertFromFp32(info.dtype, &number, 1,
                      tensors[tensor].data() + row * info.row_bytes() + head * head_bytes);
    }
  };
  for (int64_t row = 0; row < spec.q_rows(); ++row) set_first(0, row, row == kRow ? kFar : 0);
  for (int64_t key = 0; key < spec.kv_rows(); ++key) set_first(1, key, key < kLostKeys ? -kFar : 0);
  return CheckJob(spec, kernel, device, yardstick, &tensors, /*nonfinite=*/true);
}

}  // namespace

absl::Status CheckKernel(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device) {
  for (const DataType dtype : kTypes) {
    RETURN_IF_ERROR(CheckBothWays(FixedSpec(dtype), kernel, device, yardstick));
    RETURN_IF_ERROR(CheckBothWays(ModifiedSpec(dtype), kernel, device, yardstick));
  }
  return absl::OkStatus();
}

absl::Status CheckForward(const AttentionSpec& spec, AttentionKernel& kernel,
                          AttentionKernel& yardstick, Device* device) {
  Tensors tensors = InputsOf(spec);
  return CheckJob(spec, kernel, device, yardstick, &tensors);
}

absl::Status CheckGradients(const AttentionSpec& spec, AttentionKernel& kernel,
                            AttentionKernel& yardstick, Device* device) {
  return CheckBothWays(spec, kernel, device, yardstick);
}

absl::Status CheckKernelsByShape(AttentionKernel& kernel, AttentionKernel& yardstick,
                                 Device* device) {
  for (const DataType dtype : kTypes) {
    int compared = 0;
    for (const int32_t dim : {64, 128, 256}) {
      for (const double cap : {0.0, 2.0}) {
        AttentionSpec spec = FixedSpec(dtype);
        spec.q_heads = 4;
        spec.kv_heads = 2;
        spec.head_dim = spec.head_dim_v = dim;
        spec.sequences[0].q_len = 9;
        spec.sequences[0].kv_len = 141;
        if (cap > 0) spec.modifiers.soft_cap = cap;
        const absl::Status status = CheckBothWays(spec, kernel, device, yardstick);
        if (!status.ok() && !absl::IsUnimplemented(status)) return status;
        compared += status.ok() ? 1 : 0;
      }
    }
    if (compared == 0) {
      return Failed(
          absl::StrCat("no shape of ", DataTypeName(dtype), " is supported by both kernels"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNonfinite(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device) {
  RETURN_IF_ERROR(CheckLostKeys(kernel, yardstick, device));
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    AttentionSpec spec = FixedSpec(dtype);
    Tensors tensors = InputsOf(spec);
    const auto set = [&](int tensor, int64_t row, std::initializer_list<float> numbers) {
      const int64_t row_bytes = TensorTable(spec)[tensor].row_bytes();
      std::byte* to = tensors[tensor].data() + row * row_bytes;
      for (const float number : numbers) {
        ConvertFromFp32(dtype, &number, 1, to);
        to += BytesPerElement(dtype);
      }
    };
    constexpr int kQueries = 0, kKeys = 1, kValues = 2;
    const float largest = dtype == DataType::kFp16 ? 65504.0f : 1e38f;
    // NaN in one query; a query and a key whose product overflows; NaN and infinities in a key and
    // a value that only the last row sees.
    set(kQueries, 3, {kNan});
    set(kQueries, 9, {-largest});
    set(kKeys, 7, {largest});
    set(kKeys, 300, {kNan});
    set(kValues, 299, {kInfinity, -kInfinity, kNan});
    RETURN_IF_ERROR(CheckJob(spec, kernel, device, yardstick, &tensors, /*nonfinite=*/true));
  }
  return absl::OkStatus();
}

absl::Status CheckBf16x3(AttentionKernel& kernel, AttentionKernel& yardstick) {
  AttentionSpec spec = FixedSpec(DataType::kFp32);
  Tensors ours = InputsOf(spec), tensors = ours;
  const std::unique_ptr<Device> host = MakeHostDevice();
  RETURN_IF_ERROR(RunJob(spec, yardstick, *host, &tensors));
  spec.arithmetic = Arithmetic::kBf16x3;
  RETURN_IF_ERROR(RunJob(spec, kernel, *host, &ours));
  return CompareOutputs(spec, ours, tensors);
}

absl::StatusOr<CheckedPath> FirstSoundPath(absl::Span<const TileIsa* const> candidates) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> portable, KernelOf(kPortableIsa));
  CheckedPath path;
  absl::Status failure;
  for (const TileIsa* isa : candidates) {
    ASSIGN_OR_RETURN(const std::unique_ptr<CpuKernel> kernel, KernelOf(*isa));
    failure = CheckKernel(*kernel, *portable);
    if (failure.ok()) failure = CheckHiddenNan(*kernel, *portable);
    if (failure.ok()) failure = CheckFewRows(*kernel, *portable);
    if (failure.ok()) failure = CheckWholeBlocks(*isa, *portable);
    if (failure.ok() && kernel->serves_bf16x3()) failure = CheckBf16x3(*kernel, *portable);
    if (failure.ok()) {
      path.isa = isa;
      return path;
    }
    LogWarning(kNoJob, "kernel path ", isa->name, " failed its check: ", failure.message());
    path.passed_over.push_back(absl::StrCat(isa->name, " failed its check"));
  }
  return failure;
}

}  // namespace annulus
