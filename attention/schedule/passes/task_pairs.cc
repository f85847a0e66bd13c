#include "attention/schedule/passes/task_pairs.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "attention/sharding/visible_pairs.h"

namespace annulus {
namespace {

// Products of gradients per pair: scores and dO·v, one for queries, two for keys.
constexpr int64_t kProducts = 5;

int64_t Scaled(int64_t value, int64_t part, int64_t whole) {
  return static_cast<int64_t>(absl::int128(value) * part / std::max<int64_t>(1, whole));
}

}  // namespace

int64_t TaskPairs::ProductsOf(const Task& task) const {
  if (schedule_.buffers[task.q].kind != BlockKind::kQGrad) return kProducts;
  return 2 + (task.out_q >= 0 ? 1 : 0) + (task.out_kv >= 0 ? 2 : 0);
}

int64_t TaskPairs::OfClass(const Task& task, int32_t head) const {
  const Interval q{task.q_begin, task.q_end}, k{task.k_begin, task.k_end};
  const auto count = [&] {
    return EstimateVisiblePairs(*request_.mask, {&q_rows(task), &k_rows(task), q, k, head});
  };
  if (memo_ == nullptr) return count();
  int64_t& known =
      memo_->PairsOf(schedule_.buffers[task.q].shard, q, schedule_.buffers[task.kv].shard,
                     k)[request_.mask->ClassOf(head)];
  if (known < 0) known = count();
  return known;
}

int64_t TaskPairs::Visible(const Task& task) const {
  if (task.coverage == Coverage::kFull) {
    return (task.q_end - task.q_begin) * (task.k_end - task.k_begin) *
           (task.head_end - task.head_begin);
  }
  int64_t pairs = 0;
  request_.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t count) {
    pairs += OfClass(task, head) * count;
  });
  return pairs;
}

int64_t TaskPairs::Of(const Task& task) const {
  return Scaled(Visible(task), ProductsOf(task), kProducts);
}

int64_t TaskPairs::KeysOfClass(const Task& task, int32_t head) const {
  const Interval q{task.q_begin, task.q_end}, k{task.k_begin, task.k_end};
  const auto count = [&] {
    int64_t keys = 0;
    for (const Interval& seen : request_.mask->VisibleToAny(head, q_rows(task).Hull(q)))
      keys += Intersect(k_rows(task).Local(seen), k).length();
    return keys;
  };
  if (memo_ == nullptr) return count();
  int64_t& known = memo_->KeysOf(schedule_.buffers[task.q].shard, q,
                                 schedule_.buffers[task.kv].shard, k)[request_.mask->ClassOf(head)];
  if (known < 0) known = count();
  return known;
}

int64_t TaskPairs::Keys(const Task& task) const {
  const int32_t group = request_.spec->q_heads / request_.spec->kv_heads;
  const int32_t heads = task.head_end - task.head_begin;
  const int64_t kv_heads = (task.head_end - 1) / group - task.head_begin / group + 1;
  if (task.coverage == Coverage::kFull) return (task.k_end - task.k_begin) * kv_heads;
  int64_t keys = 0;  // Key rows × query heads.
  request_.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t count) {
    keys += KeysOfClass(task, head) * count;
  });
  return Scaled(keys, kv_heads, heads);
}

int64_t TaskPairs::RowsWith(const Task& task, int64_t pairs, int64_t all) const {
  // More bisection costs more than it balances. The rest is divided in proportion.
  constexpr int kHalvings = 5;
  Interval rows{0, task.q_end - task.q_begin};
  int64_t before = 0, until = all;  // Pairs of the first rows.begin and rows.end rows.
  if (task.coverage == Coverage::kFull) return Scaled(rows.end, pairs, all);
  for (int i = 0; i < kHalvings && rows.length() > 1; ++i) {
    Task first = task;
    const int64_t middle = (rows.begin + rows.end) / 2;
    first.q_end = task.q_begin + middle;
    const int64_t here = Of(first);
    if (here > pairs) {
      rows.end = middle;
      until = here;
    } else {
      rows.begin = middle;
      before = here;
    }
  }
  return rows.begin + Scaled(rows.length(), std::clamp<int64_t>(pairs - before, 0, until - before),
                             until - before);
}

}  // namespace annulus
