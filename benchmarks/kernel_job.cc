#include "benchmarks/kernel_job.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "attention/schedule/passes/row_ends.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/dtype.h"

namespace annulus::bench {
namespace {

RowMap AllRows(int64_t rows) { return RowMap({RowRange{0, rows, rows, 1}}); }

Block WholeBlock(BlockKind kind, int64_t rows, int32_t heads) {
  Block block;
  block.kind = kind;
  block.row_end = rows;
  block.head_end = heads;
  return block;
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

}  // namespace

KernelJobData::KernelJobData(const AttentionSpec& spec, uint64_t seed)
    : spec_(spec),
      mask_(spec_),
      layout_(spec_),
      q_rows_(AllRows(spec.q_rows())),
      k_rows_(AllRows(spec.kv_rows())) {
  const Interval q{0, spec.q_rows()}, k{0, spec.kv_rows()};
  const bool gradients = spec.operation == Operation::kGradients;
  task_.q.block = WholeBlock(gradients ? BlockKind::kQGrad : BlockKind::kQ, q.end, spec.q_heads);
  task_.kv.block = WholeBlock(BlockKind::kKv, k.end, spec.kv_heads);
  task_.out_q.block =
      WholeBlock(gradients ? BlockKind::kDq : BlockKind::kPartial, q.end, spec.q_heads);
  q_.resize(layout_.BlockBytes(task_.q.block));
  kv_.resize(layout_.BlockBytes(task_.kv.block));
  partial_.resize(layout_.BlockBytes(task_.out_q.block));
  task_.out.block = WholeBlock(BlockKind::kOut, q.end, spec.q_heads);
  out_.resize(layout_.BlockBytes(task_.out.block));
  task_.out.data = out_.data();
  Fill(q_, spec_.dtype, seed);
  Fill(kv_, spec_.dtype, seed + 1);
  task_.q.data = q_.data();
  task_.kv.data = kv_.data();
  task_.out_q.data = partial_.data();
  if (gradients) MakeGradientBlocks();
  if (layout_.pairs().any()) MakePairs();
  task_.q_rows = &q_rows_;
  task_.k_rows = &k_rows_;
  job_.spec = &spec_;
  job_.mask = &mask_;
  job_.layout = &layout_;
  job_.scale = spec_.scale_or_default();
  const double of_pair =
      gradients ? 3.0 * spec.head_dim + 2.0 * spec.value_dim() : spec.head_dim + spec.value_dim();
  for (int32_t head = 0; head < spec.q_heads; ++head)
    flops_ += 2.0 * static_cast<double>(mask_.Area(head, q, k)) * of_pair;
  PlanOptions options;
  options.layout = Layout::kContiguous;
  options.granule = GranuleOf(spec_);
  const absl::StatusOr<ShardPlan> plan = MakeShardPlan(spec_, options);
  Check(plan.status());
  Execution execution;
  execution.strategy = Strategy::kRotateKv;
  absl::StatusOr<RankSchedule> schedule =
      MakeSchedule({&spec_, &mask_, &*plan, execution}, /*rank=*/0);
  Check(schedule.status());
  schedule = WithRowEnds(*schedule, std::vector<bool>(schedule->buffers.size(), true));
  for (const Task& task : schedule->steps[gradients ? 1 : 0].tasks) {
    tasks_.push_back(task_);
    tasks_.back().task = task;
    ends_rows_ = task.out >= 0;
  }
}

void KernelJobData::MakeGradientBlocks() {
  const Block& q = task_.q.block;
  const int64_t row_bytes = layout_.RowBytes(BlockKind::kQGrad, q.head_end);
  const std::vector<float> lse(q.head_end, 12.0f), delta(q.head_end, 0.0f);
  for (int64_t row = 0; row < q.row_end; ++row) {
    std::byte* at = q_.data() + row * row_bytes;
    std::memcpy(at + layout_.ThirdOffset(BlockKind::kQGrad, q.head_end), lse.data(),
                lse.size() * sizeof(float));
    std::memcpy(at + layout_.FourthOffset(BlockKind::kQGrad, q.head_end), delta.data(),
                delta.size() * sizeof(float));
  }
  task_.out_kv.block = WholeBlock(BlockKind::kDkv, task_.kv.block.row_end, task_.kv.block.head_end);
  dkv_.resize(layout_.BlockBytes(task_.out_kv.block));
  task_.out_kv.data = dkv_.data();
}

void KernelJobData::MakePairs() {
  const BiasAndMaskInputs& pairs = layout_.pairs();
  const int32_t heads = pairs.per_head() ? spec_.q_heads : 1;
  task_.pairs.block = WholeBlock(BlockKind::kPairs, spec_.q_rows(), heads);
  pairs_.resize(layout_.BlockBytes(task_.pairs.block));
  if (pairs.has_bias) Fill(pairs_, pairs.bias_dtype, /*seed=*/3);
  const int64_t row_bytes = layout_.RowBytes(BlockKind::kPairs, heads);
  const int64_t bits = layout_.SecondOffset(BlockKind::kPairs, heads);
  const int64_t offsets = layout_.ThirdOffset(BlockKind::kPairs, heads);
  std::mt19937_64 random(4);
  for (int64_t row = 0; row < spec_.q_rows(); ++row) {
    std::byte* const begin = pairs_.data() + row * row_bytes;
    std::generate(begin + bits, begin + offsets, [&] { return static_cast<std::byte>(random()); });
    std::fill(begin + offsets, begin + row_bytes, std::byte{0});
  }
  task_.pairs.data = pairs_.data();
}

// Requires: `bytes` has elements of one type only, apart from padding.
void KernelJobData::Fill(std::vector<std::byte>& bytes, DataType dtype, uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const int element = BytesPerElement(dtype);
  for (size_t at = 0; at + element <= bytes.size(); at += element) {
    const float value = normal(random);
    ConvertFromFp32(dtype, &value, 1, bytes.data() + at);
  }
}

double KernelJobData::Run(AttentionKernel& kernel) {
  KernelOp identity;
  identity.target = task_.out_q;
  const auto begin = std::chrono::steady_clock::now();
  if (!ends_rows_) Check(kernel.Apply(job_, identity));
  if (task_.out_kv.data != nullptr) {
    identity.target = task_.out_kv;
    Check(kernel.Apply(job_, identity));
  }
  Check(kernel.Accumulate(job_, tasks_, {}));
  if (!ends_rows_ && task_.out_q.block.kind == BlockKind::kPartial)
    Check(kernel.Apply(job_, {KernelOp::Kind::kFinish, task_.out_q, task_.out}));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace annulus::bench
