#include "client/cli/verify/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "attention/numerics/error_budget.h"
#include "attention/numerics/pair_error.h"
#include "attention/spec/tensor_table.h"
#include "base/cpu_list.h"
#include "base/error.h"
#include "client/cli/verify/all_threads.h"
#include "client/cli/verify/forward_batch.h"
#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/verify_rows.h"

namespace annulus {
namespace {

// With few outputs the naive error of a single order is random. Several orders of the keys stand
// for more outputs.
constexpr int64_t kSteadySample = 4096;
constexpr int64_t kMaxOrders = 32;
// Pairs of row and head that share the reading of keys, and the number of batches in memory at
// once.
constexpr size_t kCellsOfBatch = 16, kBatchesAtOnce = 64;
// The relative error of a product in bf16x3.
constexpr double kOfParts = 3 * 0x1p-18;

std::map<TensorId, const std::byte*> TensorsOf(const VerifyInput& input) {
  return {{TensorId::kQ, input.q},
          {TensorId::kK, input.k},
          {TensorId::kV, input.v},
          {TensorId::kOut, input.out},
          {TensorId::kLse, input.lse},
          {TensorId::kMaxLogit, input.max_logit},
          {TensorId::kBias, input.bias},
          {TensorId::kBitMask, input.bit_mask},
          {TensorId::kLseOffset, input.lse_offset}};
}

class Verifier {
 public:
  Verifier(const AttentionSpec& spec, const VerifyInput& input)
      : spec_(spec),
        bf16_partials_(input.bf16_partials),
        tensors_(TensorsOf(input)),
        job_(spec, tensors_),
        heads_(spec.q_heads) {}

  VerifyReport Run(std::vector<int64_t> rows) {
    VerifyReport report;
    report.rows = std::move(rows);
    const auto outputs = static_cast<int64_t>(report.rows.size()) * spec_.value_dim();
    orders_ = std::clamp<int64_t>(kSteadySample / std::max<int64_t>(outputs, 1), 1, kMaxOrders);
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      std::vector<RowCell> cells;
      for (const int64_t row : report.rows) {
        for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          cells.push_back({head, row});
          if (cells.size() == kCellsOfBatch) AddBatch(&cells);
        }
      }
      if (!cells.empty()) AddBatch(&cells);
    }
    JudgeBatches();
    Conclude(outputs, &report);
    return report;
  }

 private:
  struct Work {
    ForwardBatch* batch = nullptr;
    int64_t part = 0;
    std::vector<int64_t> orders;  // Empty: the exact part.
  };

  void AddBatch(std::vector<RowCell>* cells) {
    batches_.emplace_back(job_, *cells, orders_, bf16_partials_);
    cells->clear();
    if (batches_.size() == kBatchesAtOnce) JudgeBatches();
  }

  std::vector<Work> PartsOfBatches() {
    std::vector<Work> parts;
    for (ForwardBatch& batch : batches_) {
      for (int64_t part = 0; part < batch.parts(); ++part) parts.push_back({&batch, part, {}});
    }
    return parts;
  }

  // Naive sums first, because they take longest. The orders of a stream share the reading of keys;
  // they are distributed to several threads only if threads would be idle. The results are the
  // same.
  std::vector<Work> SumsOfBatches() {
    std::vector<Work> sums;
    const int64_t threads = AllowedCpuCount(), batches = static_cast<int64_t>(batches_.size());
    for (ForwardBatch& batch : batches_) {
      const int64_t streams = batch.streams();
      const int64_t takers = std::clamp<int64_t>(threads / (batches * streams), 1, orders_);
      for (int64_t first = 0; first < streams * takers && first < orders_; ++first) {
        Work work{&batch, 0, {}};
        for (int64_t n = first; n < orders_; n += streams * takers) work.orders.push_back(n);
        sums.push_back(std::move(work));
      }
    }
    for (Work& part : PartsOfBatches()) sums.push_back(std::move(part));
    return sums;
  }

  void JudgeBatches() {
    const std::vector<Work> parts = PartsOfBatches(), sums = SumsOfBatches();
    ForEachOnAllThreads(static_cast<int64_t>(parts.size()),
                        [&](int64_t n) { parts[n].batch->TakeMax(parts[n].part); });
    for (ForwardBatch& batch : batches_) batch.EndMax();
    ForEachOnAllThreads(static_cast<int64_t>(sums.size()), [&](int64_t n) {
      const Work& work = sums[n];
      if (work.orders.empty()) return work.batch->TakeExact(work.part);
      work.batch->TakeNaive(work.orders);
    });
    for (const ForwardBatch& batch : batches_) {
      for (int64_t n = 0; n < batch.size(); ++n) Judge(batch, n);
    }
    batches_.clear();
  }

  LseAllowance AllowanceOf(double unit, double product) const {
    const bool parts = spec_.arithmetic == Arithmetic::kBf16x3;
    const double of_product = parts ? kOfParts * product : ErrorOfLogit(spec_.head_dim, product);
    return {LseTolerance(spec_.dtype == DataType::kFp32, parts), 1 / unit, 2 * of_product / unit};
  }

  void Judge(const ForwardBatch& batch, int64_t n) {
    const auto [head, row] = batch.cell(n);
    HeadErrors& errors = heads_[head];
    const ExactRow exact = batch.Exact(n);
    errors.AddScale(exact.scale);
    for (const double each : exact.sizes) errors.Allow(kBf16PartialError * each);
    const HeadTensors& tensors = job_.tensors();
    const std::vector<float> out = tensors.Rows(TensorId::kOut, head, row, 1);
    const float lse = tensors.Rows(TensorId::kLse, head, row, 1)[0];
    const float max_logit =
        spec_.outputs.max_logit ? tensors.Rows(TensorId::kMaxLogit, head, row, 1)[0] : 0;
    const double base = spec_.outputs.lse_base == LseBase::k2 ? std::log(2.0) : 1;
    for (int64_t order = 0; order < orders_; ++order) {
      const NaiveRow naive = batch.Naive(n, order);
      for (size_t i = 0; i < out.size(); ++i) {
        errors.AddOutput(exact.out[i], RoundTo(spec_.output_dtype(), naive.out[i]), out[i]);
      }
      errors.AddLse(exact.lse / base, naive.lse / base, lse, AllowanceOf(base, exact.product));
      if (!spec_.outputs.max_logit) continue;
      errors.AddLse(exact.max_logit, naive.max_logit, max_logit,
                    AllowanceOf(1, exact.product_of_max));
    }
  }

  void Conclude(int64_t outputs, VerifyReport* report) const {
    const std::vector<double> budgets = OutputBudgets(heads_, outputs, UlpOf(spec_.output_dtype()));
    for (int32_t head = 0; head < spec_.q_heads; ++head) {
      report->lse_part = std::max(report->lse_part, heads_[head].lse());
      // Multiplied, because a budget may be 0.
      const bool worse =
          heads_[head].answer() * report->output_budget > report->output_error * budgets[head];
      if (head > 0 && !worse) continue;
      report->worst_head = head;
      report->output_error = heads_[head].answer();
      report->output_budget = budgets[head];
    }
  }

  const AttentionSpec& spec_;
  const bool bf16_partials_;
  const std::map<TensorId, const std::byte*> tensors_;
  const JobRows job_;
  std::vector<HeadErrors> heads_;
  std::vector<ForwardBatch> batches_;  // Not judged yet.
  int64_t orders_ = 1;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyRows(const AttentionSpec& spec, const VerifyInput& input,
                                        int64_t count, uint64_t seed) {
  if (spec.operation != Operation::kForward) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     "only forward attention can be verified by the client",
                     {"NOT_SERVED", {}, {}, {}});
  }
  return Verifier(spec, input).Run(PickRows(spec.q_rows(), count, seed));
}

}  // namespace annulus
