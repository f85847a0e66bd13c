#include "worker/kernel/cpu/row_loop.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/spec/dtype.h"
#include "worker/kernel/block_sections.h"

namespace annulus {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// The distance from a read to its prefetch, in calls: one call per head and group of keys.
constexpr int kCallsAhead = 3;

int64_t Lines(int64_t floats) { return (floats + kUnpackedKeys - 1) / kUnpackedKeys; }
// Lines of a group of slots: two pairs of dimensions per slot and line.
int64_t PairLines(int64_t dim) { return (dim + 3) / 4; }

bool ChangesWeights(const KernelJob& job) {
  const ScoreModifiers& modifiers = job.spec->modifiers;
  return modifiers.soft_cap.has_value() || !modifiers.alibi_slopes.empty() ||
         job.layout->pairs().any() || job.spec->dropout.has_value();
}

int64_t Pairs(const RowCall& call, int32_t number) {
  const Task& task = call.tasks[number].task;
  int64_t pairs = 0;
  call.visible->mask().ForEachClass(
      task.head_begin, task.head_end, [&](int32_t q_head, int32_t heads) {
        for (int64_t row = task.q_begin; row < task.q_end; ++row)
          for (const Interval& span : call.visible->Of(number, q_head, row))
            pairs += span.length() * heads;
      });
  return pairs;
}

int32_t FirstKvHead(const Task& task, int group) { return task.head_begin / group; }
int32_t EndKvHead(const Task& task, int group) { return (task.head_end + group - 1) / group; }

// The bits of the keys [first, first + kUnpackedKeys) that lie in `spans`.
uint16_t SeenBits(absl::Span<const Interval> spans, int64_t first) {
  uint32_t bits = 0;
  for (const Interval& span : spans) {
    const Interval seen = Intersect(span, {first, first + kUnpackedKeys});
    if (seen.length() == 0) continue;
    bits |= ((1u << seen.length()) - 1) << (seen.begin - first);
  }
  return static_cast<uint16_t>(bits);
}

// The addresses of a task's keys and values.
struct KeyPlaces {
  UnpackedRows first;  // For the buffer's first row and the task's first key/value head.
  int64_t row_begin = 0;
  int64_t key_bytes = 0, value_bytes = 0;  // Bytes of one head's row.

  KeyPlaces(const BlockLayout& layout, const KernelTask& task) {
    const Block& block = task.kv.block;
    const int64_t head = FirstKvHead(task.task, layout.group()) - block.head_begin;
    const int64_t element = BytesPerElement(layout.dtype());
    row_begin = block.row_begin;
    key_bytes = layout.head_dim() * element;
    value_bytes = layout.value_dim() * element;
    first.dtype = layout.dtype();
    first.head_dim = layout.head_dim();
    first.value_dim = layout.value_dim();
    const SectionPlace keys = PlaceOf(layout, task.kv, 0), values = PlaceOf(layout, task.kv, 1);
    first.key_stride = keys.stride;
    first.value_stride = values.stride;
    first.keys = keys.first + head * key_bytes;
    first.values = values.first + head * value_bytes;
  }

  // The rows of the task's head number `head` of `heads`: keys from `key` on, before `end`.
  UnpackedRows At(int head, int heads, int64_t key, int64_t end) const {
    UnpackedRows rows = first;
    rows.keys += (key - row_begin) * rows.key_stride + head * key_bytes;
    rows.values += (key - row_begin) * rows.value_stride + head * value_bytes;
    rows.count = static_cast<int>(std::min<int64_t>(kUnpackedKeys, end - key));
    const int next = head + kCallsAhead;
    const int64_t groups = next / heads * kUnpackedKeys;
    if (key + groups >= end) return rows;
    rows.keys_ahead = groups * rows.key_stride + (next % heads - head) * key_bytes;
    rows.values_ahead = groups * rows.value_stride + (next % heads - head) * value_bytes;
    return rows;
  }
};

}  // namespace

bool AttendsRows(const RowCall& call) {
  if (call.isa->attend_rows == nullptr || ChangesWeights(*call.job)) return false;
  const int group = call.job->layout->group();
  int64_t pairs = 0, most = 0;
  for (size_t t = 0; t < call.tasks.size(); ++t) {
    const Task& task = call.tasks[t].task;
    pairs += Pairs(call, static_cast<int32_t>(t));
    most += (task.k_end - task.k_begin) * (EndKvHead(task, group) - FirstKvHead(task, group));
  }
  return pairs <= most * call.isa->few_slots;
}

std::vector<Interval> ChunksOf(absl::Span<const KernelTask> tasks) {
  std::vector<Interval> chunks;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const auto at = static_cast<int64_t>(t);
    if (t == 0 || tasks[t].out_q.data != tasks[t - 1].out_q.data) chunks.push_back({at, at});
    ++chunks.back().end;
  }
  return chunks;
}

void RowLoop::Run(Interval tasks) {
  for (int64_t task = tasks.begin; task < tasks.end; ++task) {
    if (call_.control.stopped()) return;
    RunTask(static_cast<int32_t>(task));
  }
}

void RowLoop::GatherSlots(int32_t number) {
  const Task& task = call_.tasks[number].task;
  const int group = call_.job->layout->group();
  places_.clear();
  first_slot_.clear();
  keys_ = {task.k_end, task.k_begin};
  seen_by_all_ = {task.k_begin, task.k_end};
  for (int32_t head = FirstKvHead(task, group); head < EndKvHead(task, group); ++head) {
    first_slot_.push_back(static_cast<int>(places_.size()));
    const int32_t begin = std::max(head * group, task.head_begin);
    const int32_t end = std::min((head + 1) * group, task.head_end);
    for (int64_t row = task.q_begin; row < task.q_end; ++row) {
      for (int32_t q_head = begin; q_head < end; ++q_head) {
        const absl::Span<const Interval> spans = call_.visible->Of(number, q_head, row);
        if (spans.empty()) continue;
        places_.push_back({row, q_head, spans});
        keys_ = {std::min(keys_.begin, spans.front().begin), std::max(keys_.end, spans.back().end)};
        seen_by_all_ = Intersect(seen_by_all_, spans.size() == 1 ? spans[0] : Interval{0, 0});
      }
    }
  }
  first_slot_.push_back(static_cast<int>(places_.size()));
}

void RowLoop::LoadQueries(const KernelTask& task) {
  const BlockLayout& layout = *call_.job->layout;
  const int32_t dim = layout.head_dim();
  const BlockRows rows = RowsOf(layout, task.q);
  queries_.assign(places_.size() * Lines(dim), Line{});
  for (size_t i = 0; i < places_.size(); ++i) {
    float* query = queries_[i * Lines(dim)].value;
    ConvertToFp32(layout.dtype(), rows.At(places_[i].row, places_[i].q_head, 0), dim, query);
    // One rounding, in fp32.
    for (int d = 0; d < dim; ++d) query[d] = static_cast<float>(query[d] * call_.job->scale);
    slots_[i].query = query;
  }
}

void RowLoop::LoadQueryPairs(const KernelTask& task) {
  constexpr int64_t kPairBytes = sizeof(float);
  const BlockLayout& layout = *call_.job->layout;
  const int64_t bytes = layout.head_dim() * BytesPerElement(DataType::kBf16);
  const int64_t lines = PairLines(layout.head_dim());
  const BlockRows rows = RowsOf(layout, task.q);
  // Whole groups, plus at most one more for each head.
  queries_.assign((places_.size() / kUnpackedSlots + first_slot_.size() - 1) * lines, Line{});
  Line* group = queries_.data();
  for (size_t head = 0; head + 1 < first_slot_.size(); ++head) {
    for (int i = first_slot_[head]; i < first_slot_[head + 1]; ++i) {
      const int member = (i - first_slot_[head]) % kUnpackedSlots;
      const std::byte* from = rows.At(places_[i].row, places_[i].q_head, 0);
      for (int64_t at = 0; at < bytes; at += 2 * kPairBytes) {
        float* to = group[at / (2 * kPairBytes)].value + 2 * member;
        std::memcpy(to, from + at, std::min(2 * kPairBytes, bytes - at));
      }
      slots_[i].query = group->value + 2 * member;
      if (member + 1 == kUnpackedSlots || i + 1 == first_slot_[head + 1]) group += lines;
    }
  }
}

void RowLoop::LoadSlots(const KernelTask& task) {
  const BlockLayout& layout = *call_.job->layout;
  const int32_t value_dim = layout.value_dim();
  const int64_t lines = Lines(value_dim) + 1;
  slots_.resize(places_.size());
  call_.isa->unpacked_pairs ? LoadQueryPairs(task) : LoadQueries(task);
  memory_.assign(places_.size() * lines, Line{});
  const BlockRows states = RowsOf(layout, task.out_q);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& place = places_[i];
    RowSlot& slot = slots_[i];
    slot.sums = memory_[i * lines].value;
    slot.weights = slot.sums + Lines(value_dim) * kUnpackedKeys;
    std::memcpy(&slot.max, states.At(place.row, place.q_head, 1), sizeof(float));
    std::memcpy(slot.weights, states.At(place.row, place.q_head, 2), sizeof(float));
    if (slot.max == kMinusInf) continue;  // The sums of such a row are undefined.
    std::memcpy(slot.sums, states.At(place.row, place.q_head, 0), sizeof(float) * value_dim);
  }
}

void RowLoop::StoreSlots(const KernelTask& task) const {
  const BlockLayout& layout = *call_.job->layout;
  const BlockRows states = RowsOf(layout, task.out_q);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const RowSlot& slot = slots_[i];
    float weight = 0, max = slot.max;
    for (int k = 0; k < kUnpackedKeys; ++k) weight += slot.weights[k];
    // A row that has seen keys, but no score above −inf, must differ from one that has seen none
    // (attention/numerics/partial.h).
    if (max == kMinusInf) max = weight == weight ? std::numeric_limits<float>::lowest() : weight;
    const Slot& place = places_[i];
    std::memcpy(states.At(place.row, place.q_head, 0), slot.sums,
                sizeof(float) * layout.value_dim());
    std::memcpy(states.At(place.row, place.q_head, 1), &max, sizeof(float));
    std::memcpy(states.At(place.row, place.q_head, 2), &weight, sizeof(float));
  }
}

void RowLoop::AttendHead(int head, int64_t first, const UnpackedRows& rows) {
  const int begin = first_slot_[head], end = first_slot_[head + 1];
  const bool all = rows.count == kUnpackedKeys && seen_by_all_.begin <= first &&
                   first + kUnpackedKeys <= seen_by_all_.end;
  for (int i = begin; i < end; ++i)
    slots_[i].seen = all ? kSeesAll : SeenBits(places_[i].spans, first);
  for (int i = begin; i < end;) {
    int next = i;
    while (next < end && slots_[next].seen != 0) ++next;
    if (next > i) call_.isa->attend_rows(rows, &slots_[i], next - i);
    i = next + 1;
  }
}

void RowLoop::RunTask(int32_t number) {
  const KernelTask& task = call_.tasks[number];
  GatherSlots(number);
  if (places_.empty()) return;
  LoadSlots(task);
  KeyPlaces keys(*call_.job->layout, task);
  if (call_.isa->unpacked_pairs) keys.first.score_scale = static_cast<float>(call_.job->scale);
  const int heads = static_cast<int>(first_slot_.size()) - 1;
  // Groups of keys count from the task's begin, whatever is visible of them.
  const int64_t skipped = (keys_.begin - task.task.k_begin) / kUnpackedKeys * kUnpackedKeys;
  int64_t until_look = 0;
  for (int64_t first = task.task.k_begin + skipped; first < keys_.end; first += kUnpackedKeys) {
    if (until_look == 0) {
      if (call_.control.stopped()) return;
      call_.control.Count(1);
      until_look = kKeyBlock;
    }
    until_look -= kUnpackedKeys;
    for (int head = 0; head < heads; ++head)
      AttendHead(head, first, keys.At(head, heads, first, keys_.end));
  }
  StoreSlots(task);
}

}  // namespace annulus
