#include "tests/worker/kernel/reference_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/numerics/dropout.h"
#include "attention/sharding/task_rows.h"
#include "tests/worker/kernel/block_numbers.h"
#include "tests/worker/kernel/pair_numbers.h"
#include "tests/worker/kernel/reference_kernel_gradients.h"

namespace annulus {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct State {
  std::vector<double> sum;
  double max = -kInfinity, weight = 0;
};

State ReadState(const BlockNumbers& numbers, int64_t row, int32_t head) {
  return {numbers.Read(row, head, 0), numbers.Read(row, head, 1)[0], numbers.Read(row, head, 2)[0]};
}

// The lowest maximum of visible keys, even if that is −∞: a lower one means "nothing seen".
constexpr double kLowest = std::numeric_limits<float>::lowest();

void WriteState(const BlockNumbers& numbers, int64_t row, int32_t head, const State& state) {
  numbers.Write(row, head, 0, state.sum);
  // Rounding the maximum scales all weights of the row equally, which does not change the output.
  numbers.Write(row, head, 1, {state.max});
  numbers.Write(row, head, 2, {state.weight});
}

void Rescale(State& state, double max) {
  const double factor = state.max == -kInfinity ? 0 : std::exp(state.max - max);
  for (double& value : state.sum) value *= factor;
  state.weight *= factor;
  state.max = max;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Offset, soft cap, then ALiBi.
double Capped(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head, int64_t key,
              double score) {
  const ScoreModifiers& modifiers = job.spec->modifiers;
  score += OffsetOf(job, bound, row, head);
  if (modifiers.soft_cap) score = *modifiers.soft_cap * std::tanh(score / *modifiers.soft_cap);
  if (modifiers.alibi_slopes.empty()) return score;
  const int64_t position = job.mask->Position(head, bound.q_rows->Global(row));
  const auto apart = static_cast<double>(std::abs(position - bound.k_rows->Global(key)));
  return score - modifiers.alibi_slopes[head] * apart;
}

bool Keeps(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head, int64_t key) {
  if (!job.spec->dropout) return true;
  const int64_t q_row = bound.q_rows->Global(row), k_row = bound.k_rows->Global(key);
  const int64_t sequence = job.mask->SequenceOfQuery(q_row);
  return DropoutRule(*job.spec->dropout)
      .Keeps(sequence, head, q_row - job.mask->QueryBegin(sequence),
             k_row - job.mask->KeyBegin(sequence));
}

void AttendRow(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head,
               absl::Span<const Interval> spans) {
  const BlockNumbers queries(*job.layout, bound.q), keys(*job.layout, bound.kv);
  const BlockNumbers out(*job.layout, bound.out_q);
  const int32_t kv_head = head / job.layout->group();
  const std::vector<double> q = queries.Read(row, head, 0);
  std::vector<double> scores;
  std::vector<int64_t> seen;
  double max = -kInfinity;
  for (const Interval& span : spans) {
    for (int64_t key = span.begin; key < span.end; ++key) {
      const double bias = BiasOf(job, bound, row, head, key);
      if (bias == -kInfinity) continue;
      const double score = job.scale * Dot(q, keys.Read(key, kv_head, 0));
      scores.push_back(Capped(job, bound, row, head, key, score) + bias);
      seen.push_back(key);
      max = std::isnan(scores.back()) ? scores.back() : std::max(scores.back(), max);
    }
  }
  if (scores.empty()) return;
  State state = ReadState(out, row, head);
  Rescale(state, std::isnan(max) ? max : std::max({max, state.max, kLowest}));
  for (size_t n = 0; n < seen.size(); ++n) {
    const double weight = std::exp(scores[n] - state.max);
    const std::vector<double> value = keys.Read(seen[n], kv_head, 1);
    const double kept = Keeps(job, bound, row, head, seen[n]) ? weight : 0;
    for (size_t d = 0; d < value.size(); ++d) state.sum[d] += kept * value[d];
    state.weight += weight;
  }
  WriteState(out, row, head, state);
}

void FinishAt(const KernelJob& job, const BlockNumbers& source, const BlockNumbers& target,
              int64_t row, int32_t head) {
  State state = ReadState(source, row, head);
  const bool empty = state.max == -kInfinity;
  if (job.layout->max_logit()) target.Write(row, head, 2, {state.max + 0 * state.weight});
  const std::vector<float>& sinks = job.spec->modifiers.sinks;
  if (!sinks.empty()) {
    Rescale(state, std::max(state.max, double{sinks[head]}));
    state.weight += std::exp(sinks[head] - state.max);
  }
  const double kept = job.spec->dropout ? 1 - job.spec->dropout->rate : 1;
  for (double& value : state.sum) value = empty ? 0.0 : value / state.weight / kept + 0.0;
  const bool nothing = state.max == -kInfinity;
  if (!nothing && state.weight == 0) state.weight = std::nan("");
  target.Write(row, head, 0, state.sum);
  const double base = job.spec->outputs.lse_base == LseBase::k2 ? std::log(2.0) : 1;
  const double lse = nothing ? -kInfinity : (state.max + std::log(state.weight)) / base;
  target.Write(row, head, 1, {lse});
  if (!job.layout->lse_rest(BlockKind::kOut)) return;
  const double rest =
      ((state.max - target.Read(row, head, 1)[0] * base) + std::log(state.weight)) / base;
  target.Write(row, head, 3, {std::isfinite(rest) ? rest : 0.0});
}

void ApplyAt(const KernelJob& job, const KernelOp& op, const BlockNumbers& source,
             const BlockNumbers& target, int64_t row, int32_t head) {
  switch (op.kind) {
    case KernelOp::Kind::kIdentity:
      for (int s = 0; s < target.sections(); ++s) {
        const bool is_max = target.block().kind == BlockKind::kPartial && s == 1;
        const size_t count = target.Read(row, head, s).size();
        target.Write(row, head, s, std::vector<double>(count, is_max ? -kInfinity : 0.0));
      }
      return;
    case KernelOp::Kind::kMerge: {
      State into = ReadState(target, row, head), from = ReadState(source, row, head);
      if (from.max == -kInfinity) return;
      const double max = std::max(into.max, from.max);
      Rescale(into, max);
      Rescale(from, max);
      for (size_t d = 0; d < into.sum.size(); ++d) into.sum[d] += from.sum[d];
      into.weight += from.weight;
      WriteState(target, row, head, into);
      return;
    }
    case KernelOp::Kind::kDelta: {
      if (job.layout->rounds_d_out()) target.Write(row, head, 1, source.Read(row, head, 4));
      const std::vector<double> out = source.Read(row, head, 0), d_out = target.Read(row, head, 1);
      target.Write(row, head, 3, {Dot(out, d_out) - target.Read(row, head, 3)[0]});
      return;
    }
    case KernelOp::Kind::kSink: {
      const LseNumbers lse = LseOf(job, source, row, head);
      const double delta = source.Read(row, head, 3)[0];
      const double share = std::exp((job.spec->modifiers.sinks[head] - lse.lse) - lse.rest);
      target.Write(row, head, 0, {lse.lse == -kInfinity ? 0.0 : -share * delta});
      return;
    }
    case KernelOp::Kind::kFinish: {
      if (source.block().kind != BlockKind::kPartial) {
        for (int s = 0; s < target.sections(); ++s)
          target.Write(row, head, s, source.Read(row, head, s));
        return;
      }
      return FinishAt(job, source, target, row, head);
    }
    case KernelOp::Kind::kAdd:
    case KernelOp::Kind::kRound:
      for (int s = 0; s < target.sections(); ++s) {
        std::vector<double> values = source.Read(row, head, s);
        if (op.kind == KernelOp::Kind::kAdd) {
          const std::vector<double> before = target.Read(row, head, s);
          for (size_t i = 0; i < values.size(); ++i) values[i] += before[i];
        }
        target.Write(row, head, s, values);
      }
      return;
  }
}

}  // namespace

absl::Status ReferenceKernel::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                         const KernelControl& control) {
  for (const KernelTask& bound : tasks) {
    const Task& task = bound.task;
    if (bound.q.block.kind == BlockKind::kQGrad) {
      if (!AccumulateGradients(job, bound, control))
        return absl::CancelledError("the kernel was stopped");
      continue;
    }
    for (int32_t head = task.head_begin; head < task.head_end; ++head) {
      const TaskRows rows =
          VisibleInTask(*job.mask, *bound.q_rows, *bound.k_rows, {task.q_begin, task.q_end},
                        {task.k_begin, task.k_end}, head);
      for (int64_t row = task.q_begin; row < task.q_end; ++row) {
        if (control.stop != nullptr && control.stop->load())
          return absl::CancelledError("the kernel was stopped");
        const int64_t i = row - task.q_begin;
        AttendRow(job, bound, row, head,
                  absl::MakeConstSpan(rows.spans)
                      .subspan(rows.first[i], rows.first[i + 1] - rows.first[i]));
        if (control.progress != nullptr) control.progress->fetch_add(1);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceKernel::Apply(const KernelJob& job, const KernelOp& op) {
  const BlockView& other = op.kind == KernelOp::Kind::kIdentity ? op.target : op.source;
  const BlockNumbers source(*job.layout, other), target(*job.layout, op.target);
  const Block &a = source.block(), &b = target.block();
  for (int64_t row = std::max(a.row_begin, b.row_begin); row < std::min(a.row_end, b.row_end);
       ++row)
    for (int32_t head = std::max(a.head_begin, b.head_begin);
         head < std::min(a.head_end, b.head_end); ++head)
      ApplyAt(job, op, source, target, row, head);
  return absl::OkStatus();
}

}  // namespace annulus
