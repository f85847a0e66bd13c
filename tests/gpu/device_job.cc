#include "tests/gpu/device_job.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "attention/spec/dtype.h"
#include "base/status_macros.h"

namespace annulus {

std::vector<std::byte> RepeatedNormals(DataType dtype, int64_t elements, uint64_t seed) {
  constexpr int64_t kDrawn = (1 << 20) + 7;  // Not a multiple of any tile's size.
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> drawn(std::min(kDrawn, elements));
  for (float& value : drawn) value = normal(random);
  const int64_t element = BytesPerElement(dtype);
  std::vector<std::byte> bytes(elements * element);
  for (int64_t at = 0; at < elements; at += kDrawn) {
    ConvertFromFp32(dtype, drawn.data(), std::min(kDrawn, elements - at),
                    bytes.data() + at * element);
  }
  return bytes;
}

DeviceJob::DeviceJob(const AttentionSpec& spec, Device* device)
    : spec_(spec),
      device_(device),
      mask_(spec_),
      layout_(spec_),
      q_rows_({RowRange{0, spec.q_rows(), spec.q_rows(), 1}}),
      k_rows_({RowRange{0, spec.kv_rows(), spec.kv_rows(), 1}}) {
  job_.spec = &spec_;
  job_.mask = &mask_;
  job_.layout = &layout_;
  job_.scale = spec_.scale_or_default();
}

absl::StatusOr<BlockView> DeviceJob::Make(BlockKind kind, int64_t rows, int32_t heads,
                                          uint64_t seed) {
  BlockView view;
  view.block.kind = kind;
  view.block.row_end = rows;
  view.block.head_end = heads;
  const int64_t bytes = layout_.BlockBytes(view.block);
  ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes));
  view.data = memory.get();
  memory_.push_back(std::move(memory));
  if (seed == 0) return view;
  const std::vector<std::byte> numbers =
      RepeatedNormals(spec_.dtype, bytes / BytesPerElement(spec_.dtype), seed);
  RETURN_IF_ERROR(device_->CopyIn({view.data, bytes, numbers.data(), bytes, bytes, 1}));
  RETURN_IF_ERROR(device_->Synchronize());
  return view;
}

absl::StatusOr<std::unique_ptr<DeviceJob>> DeviceJob::Create(const AttentionSpec& spec,
                                                             Device* device) {
  std::unique_ptr<DeviceJob> job(new DeviceJob(spec, device));
  KernelTask& task = job->task_;
  ASSIGN_OR_RETURN(task.q, job->Make(BlockKind::kQ, spec.q_rows(), spec.q_heads, 1));
  ASSIGN_OR_RETURN(task.kv, job->Make(BlockKind::kKv, spec.kv_rows(), spec.kv_heads, 2));
  ASSIGN_OR_RETURN(task.out_q, job->Make(BlockKind::kPartial, spec.q_rows(), spec.q_heads, 0));
  ASSIGN_OR_RETURN(job->out_, job->Make(BlockKind::kOut, spec.q_rows(), spec.q_heads, 0));
  task.q_rows = &job->q_rows_;
  task.k_rows = &job->k_rows_;
  task.task.q_end = spec.q_rows();
  task.task.head_end = spec.q_heads;
  task.task.coverage = spec.masks.empty() ? Coverage::kFull : Coverage::kPartial;
  return job;
}

absl::StatusOr<double> DeviceJob::Run(AttentionKernel& kernel, int calls, int times) {
  RETURN_IF_ERROR(device_->Synchronize());
  const auto began = std::chrono::steady_clock::now();
  for (int n = 0; n < times; ++n) {
    RETURN_IF_ERROR(kernel.Apply(job_, {KernelOp::Kind::kIdentity, {}, task_.out_q}));
    for (int call = 0; call < calls; ++call) {
      KernelTask part = task_;
      part.task.k_begin = spec_.kv_rows() * call / calls;
      part.task.k_end = spec_.kv_rows() * (call + 1) / calls;
      RETURN_IF_ERROR(kernel.Accumulate(job_, {&part, 1}, {}));
    }
    RETURN_IF_ERROR(kernel.Apply(job_, {KernelOp::Kind::kFinish, task_.out_q, out_}));
  }
  RETURN_IF_ERROR(device_->Synchronize());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return took.count() / times;
}

double DeviceJob::flops() const {
  const double pairs =
      static_cast<double>(mask_.Area(0, {0, spec_.q_rows()}, {0, spec_.kv_rows()}));
  return 2.0 * pairs * spec_.q_heads * (spec_.head_dim + spec_.value_dim());
}

}  // namespace annulus
