// TileLoop: loads, begins, stores and ends the state of its rows.

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/numerics/partial.h"
#include "base/streaming_writer.h"
#include "worker/kernel/cpu/fetch_rows.h"
#include "worker/kernel/cpu/flush_denormals.h"
#include "worker/kernel/cpu/row_end.h"
#include "worker/kernel/cpu/tile_loop.h"

namespace annulus {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// Rows whose lines are prefetched ahead of the writes.
constexpr int kRowsAhead = 16;

// The addresses of the state of a (row, head) in a block of partials.
class StatePlaces {
 public:
  struct At {
    std::byte *sum, *max, *weight;
  };

  StatePlaces(const BlockLayout& layout, const BlockView& view)
      : view_(view),
        sum_bytes_(layout.value_dim() * kFloat),
        row_bytes_(layout.RowBytes(BlockKind::kPartial, Heads())),
        max_offset_(layout.SecondOffset(BlockKind::kPartial, Heads())),
        weight_offset_(layout.ThirdOffset(BlockKind::kPartial, Heads())) {}

  At Find(int64_t row, int32_t q_head) const {
    const int64_t head = q_head - view_.block.head_begin;
    std::byte* at = view_.data + (row - view_.block.row_begin) * row_bytes_;
    return {at + head * sum_bytes_, at + max_offset_ + head * kFloat,
            at + weight_offset_ + head * kFloat};
  }

 private:
  static constexpr int64_t kFloat = sizeof(float);
  int32_t Heads() const { return view_.block.head_end - view_.block.head_begin; }

  const BlockView& view_;
  const int64_t sum_bytes_, row_bytes_, max_offset_, weight_offset_;
};

RowState StateAt(const StatePlaces::At& at) {
  RowState state;
  std::memcpy(&state.max, at.max, sizeof(float));
  std::memcpy(&state.weight, at.weight, sizeof(float));
  return state;
}

void SetState(const StatePlaces::At& at, const RowState& state) {
  std::memcpy(at.max, &state.max, sizeof(float));
  std::memcpy(at.weight, &state.weight, sizeof(float));
}

}  // namespace

void TileLoop::BeginAndEndUnseen(const KernelTask& task, const Unit& unit) {
  if (s_.unseen_.empty()) return;
  const KeepDenormals keep;
  const StatePlaces places(*call_.job->layout, task.out_q);
  for (const TileScratch::Slot& slot : s_.unseen_) {
    const bool begins = BeginsWith(unit, task.task, slot.row);
    if (!EndsWith(unit, task.task, slot.row)) {
      SetState(places.Find(slot.row, slot.q_head), RowState());
      continue;
    }
    const StatePlaces::At at = begins ? StatePlaces::At() : places.Find(slot.row, slot.q_head);
    RowEnd(*call_.job, task.out, *call_.isa)
        .Write(slot.row, slot.q_head, begins ? RowState() : StateAt(at),
               reinterpret_cast<const float*>(at.sum));
  }
}

void TileLoop::LoadState(const KernelTask& task, const Unit& unit) {
  const size_t bytes = sizeof(float) * tile_.value_dim;
  const StatePlaces places(*call_.job->layout, task.out_q);
  for (int i = 0; i < tile_.rows; ++i) {
    if (BeginsWith(unit, task.task, s_.slots_[i].row)) continue;
    const StatePlaces::At at = places.Find(s_.slots_[i].row, s_.slots_[i].q_head);
    FetchRows(at.max, sizeof(float), 0, 1);
    FetchRows(at.weight, sizeof(float), 0, 1);
  }
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    float* sums = s_.sums_ + int64_t{i} * tile_.sum_stride;
    StatePlaces::At at;
    RowState state;
    if (!BeginsWith(unit, task.task, slot.row)) {
      at = places.Find(slot.row, slot.q_head);
      state = StateAt(at);
    }
    s_.max_[i] = state.max;
    s_.weight_[i] = state.weight;
    if (state.max != kMinusInf) std::memcpy(sums, at.sum, bytes);
    std::fill(sums + tile_.value_dim, sums + tile_.sum_stride, 0.0f);
  }
}

bool TileLoop::EndAll(const Unit& unit, const Task& task) const {
  const Interval rows{s_.slots_[0].row, s_.slots_[tile_.rows - 1].row + 1};
  return unit.last && Intersect(rows, task.ends) == rows;
}

void TileLoop::EndRows(const KernelTask& task, const Unit& unit) {
  if (!unit.last || task.task.ends.length() == 0) return;
  const KeepDenormals keep;
  const RowEnd end(*call_.job, task.out, *call_.isa);
  const auto fetch = [&](int i) {
    if (i < tile_.rows) end.FetchOutput(s_.slots_[i].row, s_.slots_[i].q_head);
  };
  for (int i = 0; i < kRowsAhead; ++i) fetch(i);
  for (int i = 0; i < tile_.rows; ++i) {
    fetch(i + kRowsAhead);
    const TileScratch::Slot& slot = s_.slots_[i];
    if (!EndsWith(unit, task.task, slot.row)) continue;
    s_.alpha_[i] = end.WriteOutput(slot.row, slot.q_head, {s_.max_[i], s_.weight_[i]},
                                   s_.sums_ + int64_t{i} * tile_.sum_stride);
  }
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    if (!EndsWith(unit, task.task, slot.row)) continue;
    end.WriteStatistics(slot.row, slot.q_head, {s_.max_[i], s_.weight_[i]}, s_.alpha_[i]);
  }
}

void TileLoop::ClearUnseen() {
  for (int i = 0; i < tile_.rows; ++i) {
    if (s_.max_[i] != kMinusInf) continue;
    std::fill_n(s_.sums_ + int64_t{i} * tile_.sum_stride, tile_.value_dim, 0.0f);
  }
}

// Sums first: maxima and weights of a row's heads share cache lines, which other threads write to.
void TileLoop::StoreState(const KernelTask& task, const Unit& unit) {
  if (EndAll(unit, task.task)) return;
  const size_t bytes = sizeof(float) * tile_.value_dim;
  const StatePlaces places(*call_.job->layout, task.out_q);
  const bool streamed = call_.job->layout->BlockBytes(task.out_q.block) >= kStreamedBytes;
  StreamingWriter writer;
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    if (EndsWith(unit, task.task, slot.row) || s_.max_[i] == kMinusInf) continue;
    void* to = places.Find(slot.row, slot.q_head).sum;
    const float* from = s_.sums_ + int64_t{i} * tile_.sum_stride;
    if (streamed) {
      writer.Copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    if (EndsWith(unit, task.task, slot.row)) continue;
    SetState(places.Find(slot.row, slot.q_head), {s_.max_[i], s_.weight_[i]});
  }
}

}  // namespace annulus
