#include "worker/kernel/packed_keys.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "base/streaming_writer.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/fetch_rows.h"

namespace annulus {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

int64_t PackBytes(const TileIsa& isa, const BlockLayout& layout) {
  return static_cast<int64_t>(sizeof(float)) *
         (PackedKeyFloats(isa, layout.head_dim()) + PackedValueFloats(isa, layout.value_dim()));
}

std::vector<PackedContent> ContentsOf(const CallPlan& plan, const Phase& phase) {
  std::vector<PackedContent> contents;
  for (const PackedSource& packed : phase.packed) {
    const KeySource& source = plan.sources[packed.source];
    const int32_t head_begin = std::max(phase.head_begin, source.head_begin);
    contents.push_back({source.kv->content, source.rows, head_begin,
                        std::min(phase.head_end, source.head_end), packed.block_begin,
                        packed.block_end, phase.PackOf(packed, head_begin, 0)});
  }
  return contents;
}

bool PackedKeys::Holds(const std::vector<PackedContent>& contents) const {
  const auto same = [](const PackedContent& a, const PackedContent& b) {
    return a.content != 0 && a.content == b.content && a.head_begin == b.head_begin &&
           a.head_end == b.head_end && a.block_begin == b.block_begin &&
           a.block_end == b.block_end && a.first_pack == b.first_pack && a.rows == b.rows;
  };
  return !held_.empty() &&
         std::equal(contents.begin(), contents.end(), held_.begin(), held_.end(), same);
}

absl::Status PackedKeys::Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t packs,
                                 bool near) {
  isa_ = &isa;
  layout_ = &layout;
  key_floats_ = PackedKeyFloats(isa, layout.head_dim());
  value_floats_ = PackedValueFloats(isa, layout.value_dim());
  if (finite_.size() < static_cast<size_t>(packs)) finite_.resize(packs, 1);
  const int64_t floats = packs * (key_floats_ + value_floats_);
  streamed_ = !near && floats * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes;
  if (floats <= capacity_floats_) return absl::OkStatus();
  memory_.reset();
  held_.clear();
  capacity_floats_ = 0;
  const int64_t bytes =
      (floats * static_cast<int64_t>(sizeof(float)) + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<float*>(std::aligned_alloc(kHugePage, bytes)));
  if (memory_ == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("no memory for ", bytes, " bytes of packed keys and values"),
                     {"OUT_OF_MEMORY", {{"requested_bytes", absl::StrCat(bytes)}}, {}, {}});
  }
  madvise(memory_.get(), bytes, MADV_HUGEPAGE);  // Advice only: small pages work too.
  capacity_floats_ = floats;
  return absl::OkStatus();
}

void PackedKeys::Pack(const KeySource& source, int32_t head, int64_t block, int64_t pack) {
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
  float* keys = memory_.get() + pack * (key_floats_ + value_floats_);
  const auto set = [&](int section, int dim) {
    const SectionPlace place = PlaceOf(*layout_, *source.kv, section);
    rows.stride = place.stride;
    // Rows before the buffer's first one are not present: this address is never read as it stands.
    rows.first = place.first + (first - own.row_begin) * place.stride +
                 int64_t{head - own.head_begin} * dim * element;
    FetchRows(rows.first + from * rows.stride, dim * element, rows.stride, count - from);
  };
  set(0, layout_->head_dim());
  isa_->pack_keys(rows, present, count, layout_->head_dim(), keys);
  set(1, layout_->value_dim());
  finite_[pack] =
      isa_->pack_values(rows, present, count, layout_->value_dim(), keys + key_floats_) ? 1 : 0;
}

absl::Status KeptKeys::Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t places) {
  held_.assign(places, {});
  meetings_ = 0;
  return keys_.Reserve(isa, layout, places, /*near=*/true);
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
