#include "tests/worker/kernel/reference_kernel_gradients.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "attention/numerics/dropout.h"
#include "attention/sharding/task_rows.h"
#include "tests/worker/kernel/block_numbers.h"
#include "tests/worker/kernel/pair_numbers.h"

namespace annulus {
namespace {

// The contribution of a task to one row and head of an accumulator, by section.
using Sums = std::map<std::pair<int64_t, int32_t>, std::vector<std::vector<double>>>;

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void AddTo(Sums* sums, std::pair<int64_t, int32_t> cell, size_t section, double factor,
           const std::vector<double>& values) {
  std::vector<std::vector<double>>& sections = (*sums)[cell];
  if (sections.size() <= section) sections.resize(section + 1);
  if (sections[section].empty()) sections[section].resize(values.size(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) sections[section][i] += factor * values[i];
}

void Store(const KernelJob& job, const BlockView& view, const Sums& sums) {
  if (view.data == nullptr) return;
  const BlockNumbers into(*job.layout, view);
  for (const auto& [cell, sections] : sums) {
    for (size_t s = 0; s < sections.size(); ++s) {
      std::vector<double> values = into.Read(cell.first, cell.second, s);
      for (size_t i = 0; i < values.size(); ++i) values[i] += sections[s][i];
      into.Write(cell.first, cell.second, s, values);
    }
  }
}

struct TaskSums {
  Sums dq, dkv, d_bias;
};

struct Score {
  double value, slope;  // slope: derivative of the value by the scaled product.
};
struct Pair {
  int64_t row;
  int32_t head;
  int64_t key;
};

// Offset, soft cap, then ALiBi.
Score ScoreOf(const KernelJob& job, const KernelTask& bound, const Pair& at, double product) {
  const ScoreModifiers& modifiers = job.spec->modifiers;
  product += OffsetOf(job, bound, at.row, at.head);
  Score score{product, 1};
  if (modifiers.soft_cap) {
    const double t = std::tanh(product / *modifiers.soft_cap);
    score = {*modifiers.soft_cap * t, 1 - t * t};
  }
  if (modifiers.alibi_slopes.empty()) return score;
  const int64_t position = job.mask->Position(at.head, bound.q_rows->Global(at.row));
  const auto apart = static_cast<double>(std::abs(position - bound.k_rows->Global(at.key)));
  score.value -= modifiers.alibi_slopes[at.head] * apart;
  return score;
}

// The weight after dropout.
double KeptOf(const KernelJob& job, const KernelTask& bound, const Pair& at) {
  if (!job.spec->dropout) return 1;
  const int64_t row = bound.q_rows->Global(at.row), key = bound.k_rows->Global(at.key);
  const int64_t sequence = job.mask->SequenceOfQuery(row);
  const bool kept = DropoutRule(*job.spec->dropout)
                        .Keeps(sequence, at.head, row - job.mask->QueryBegin(sequence),
                               key - job.mask->KeyBegin(sequence));
  return kept ? 1 / (1 - job.spec->dropout->rate) : 0;
}

void AddRow(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head,
            absl::Span<const Interval> spans, TaskSums* sums) {
  const BlockNumbers queries(*job.layout, bound.q), keys(*job.layout, bound.kv);
  const int32_t kv_head = head / job.layout->group();
  const std::vector<double> q = queries.Read(row, head, 0), d_out = queries.Read(row, head, 1);
  const LseNumbers lse = LseOf(job, queries, row, head);
  const double delta = queries.Read(row, head, 3)[0];
  if (lse.lse == -std::numeric_limits<double>::infinity()) return;
  for (const Interval& span : spans) {
    for (int64_t key = span.begin; key < span.end; ++key) {
      const double bias = BiasOf(job, bound, row, head, key);
      if (bias == -std::numeric_limits<double>::infinity()) continue;
      const std::vector<double> k = keys.Read(key, kv_head, 0), v = keys.Read(key, kv_head, 1);
      const Score score = ScoreOf(job, bound, {row, head, key}, job.scale * Dot(q, k));
      const double weight = std::exp((score.value + bias - lse.lse) - lse.rest);
      const double kept = KeptOf(job, bound, {row, head, key});
      const double d_score = job.scale * score.slope * weight * (kept * Dot(d_out, v) - delta);
      if (bound.out_bias.data != nullptr) {
        const BiasAndMaskInputs& pairs = job.layout->pairs();
        const int64_t sequence = job.mask->SequenceOfQuery(bound.q_rows->Global(row));
        std::vector<std::vector<double>>& columns =
            sums->d_bias[{row, pairs.bias_heads == 1 ? 0 : head}];
        if (columns.empty()) columns.emplace_back(pairs.width, 0.0);
        columns[0][bound.k_rows->Global(key) - job.mask->KeyBegin(sequence)] +=
            weight * (kept * Dot(d_out, v) - delta);
      }
      AddTo(&sums->dq, {row, head}, 0, d_score, k);
      AddTo(&sums->dkv, {key, kv_head}, 0, d_score, q);
      AddTo(&sums->dkv, {key, kv_head}, 1, kept * weight, d_out);
    }
  }
}

}  // namespace

bool AccumulateGradients(const KernelJob& job, const KernelTask& bound,
                         const KernelControl& control) {
  const Task& task = bound.task;
  TaskSums sums;
  for (int32_t head = task.head_begin; head < task.head_end; ++head) {
    const TaskRows rows =
        VisibleInTask(*job.mask, *bound.q_rows, *bound.k_rows, {task.q_begin, task.q_end},
                      {task.k_begin, task.k_end}, head);
    for (int64_t row = task.q_begin; row < task.q_end; ++row) {
      if (control.stop != nullptr && control.stop->load()) return false;
      const int64_t i = row - task.q_begin;
      AddRow(
          job, bound, row, head,
          absl::MakeConstSpan(rows.spans).subspan(rows.first[i], rows.first[i + 1] - rows.first[i]),
          &sums);
      if (control.progress != nullptr) control.progress->fetch_add(1);
    }
  }
  Store(job, bound.out_q, sums.dq);
  Store(job, bound.out_kv, sums.dkv);
  Store(job, bound.out_bias, sums.d_bias);
  return true;
}

}  // namespace annulus
