#include "worker/kernel/cpu/packed_keys.h"

#include <algorithm>

#include "base/status_macros.h"
#include "base/streaming_writer.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/fetch_rows.h"

namespace annulus {
namespace {

// The used rows of a block; empty if they are in several runs.
Interval RunOf(const KeySource& source, int64_t block) {
  const int64_t first = block * kKeyBlock;
  Interval run;
  for (const Interval& rows : source.rows) {
    const int64_t begin = std::max(rows.begin, first), end = std::min(rows.end, first + kKeyBlock);
    if (begin >= end) continue;
    if (run.begin < run.end) return {};
    run = {begin, end};
  }
  return run;
}

}  // namespace

int64_t PackBytes(const TileIsa& isa, const BlockLayout& layout) {
  return static_cast<int64_t>(sizeof(float)) *
         (PackedKeyFloats(isa, layout.head_dim()) + PackedValueFloats(isa, layout.value_dim()));
}

absl::StatusOr<bool> PackMemory::Reserve(const TileIsa& isa, const BlockLayout& layout,
                                         int64_t blocks, int64_t packs, bool near) {
  isa_ = &isa;
  layout_ = &layout;
  const int64_t keys = PackedKeyFloats(isa, layout.head_dim());
  const int64_t values = PackedValueFloats(isa, layout.value_dim());
  const bool alike = keys == key_floats_ && values == value_floats_;
  key_floats_ = keys;
  value_floats_ = values;
  const int64_t block_bytes = static_cast<int64_t>(sizeof(float)) * (keys + values);
  streamed_ = !near && packs * block_bytes >= kStreamedBytes;
  if (finite_.size() < static_cast<size_t>(blocks)) finite_.resize(blocks, 1);
  const bool there = alike && blocks * block_bytes <= memory_.bytes();
  RETURN_IF_ERROR(memory_.Reserve(blocks * block_bytes, "packed keys and values"));
  return there;
}

void PackMemory::Pack(const KeySource& source, int32_t head, int64_t block, int64_t slot) {
  const Block& own = source.kv->block;
  const int64_t first = block * kKeyBlock;
  uint8_t present[kKeyBlock] = {};
  int from = kKeyBlock, count = 0;
  for (const Interval& rows : source.rows) {
    const int64_t begin = std::max(rows.begin, first), end = std::min(rows.end, first + kKeyBlock);
    for (int64_t row = begin; row < end; ++row) present[row - first] = 1;
    if (begin >= end) continue;
    from = std::min(from, static_cast<int>(begin - first));
    count = static_cast<int>(end - first);
  }
  const int element = BytesPerElement(layout_->dtype());
  ElementRows rows;
  rows.dtype = layout_->dtype();
  rows.streamed = streamed_;
  float* keys = memory_.get() + slot * (key_floats_ + value_floats_);
  const auto set = [&](int section, int dim) {
    const SectionPlace place = PlaceOf(*layout_, *source.kv, section);
    rows.stride = place.stride;
    // Rows before the buffer's first one are not present, so this address is never read directly.
    rows.first = place.first + (first - own.row_begin) * place.stride +
                 int64_t{head - own.head_begin} * dim * element;
    FetchRows(rows.first + from * rows.stride, dim * element, rows.stride, count - from);
  };
  set(0, layout_->head_dim());
  isa_->pack_keys(rows, present, count, layout_->head_dim(), keys);
  set(1, layout_->value_dim());
  finite_[slot] =
      isa_->pack_values(rows, present, count, layout_->value_dim(), keys + key_floats_) ? 1 : 0;
}

absl::Status PackedKeys::Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t packs,
                                 int64_t most) {
  room_ = std::max(packs, most);
  const absl::StatusOr<bool> stays = memory_.Reserve(isa, layout, room_, packs, /*near=*/false);
  if (!stays.ok() || !*stays) held_.Forget();
  return stays.status();
}

std::vector<PackedKeys::Order> PackedKeys::Begin(const CallPlan& plan, const Phase& phase) {
  std::vector<BlockId> blocks;
  std::vector<Order> orders;
  std::vector<int64_t> packs;
  for (const PackedSource& packed : phase.packed) {
    const KeySource& source = plan.sources[packed.source];
    std::vector<Interval> runs;
    for (int64_t block = packed.block_begin; block < packed.block_end; ++block)
      runs.push_back(RunOf(source, block));
    const int32_t head_end = std::min(phase.head_end, source.head_end);
    for (int32_t head = std::max(phase.head_begin, source.head_begin); head < head_end; ++head) {
      for (int64_t block = packed.block_begin; block < packed.block_end; ++block) {
        blocks.push_back({source.kv->content, head, block, runs[block - packed.block_begin]});
        orders.push_back({&source, head, block, 0});
        packs.push_back(phase.PackOf(packed, head, block));
      }
    }
  }
  const std::vector<HeldBlocks::Place> places = held_.PlaceAll(blocks, room_);
  slots_.assign(phase.packs, 0);
  std::vector<Order> missing;
  for (size_t i = 0; i < places.size(); ++i) {
    slots_[packs[i]] = orders[i].slot = places[i].slot;
    if (!places[i].held) missing.push_back(orders[i]);
  }
  return missing;
}

absl::Status KeptKeys::Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t places) {
  held_.assign(places, {});
  meetings_ = 0;
  return keys_.Reserve(isa, layout, places, places, /*near=*/true).status();
}

int64_t KeptKeys::Meet(const KeySource& source, int32_t head, int64_t block) {
  size_t oldest = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    Held& held = held_[i];
    if (held.source == &source && held.block == block && held.head == head) {
      held.met = ++meetings_;
      return static_cast<int64_t>(i);
    }
    if (held.met < held_[oldest].met) oldest = i;
  }
  held_[oldest] = {&source, head, block, ++meetings_};
  keys_.Pack(source, head, block, static_cast<int64_t>(oldest));
  return static_cast<int64_t>(oldest);
}

}  // namespace annulus
