#ifndef ANNULUS_WORKER_KERNEL_BLOCK_SECTIONS_H_
#define ANNULUS_WORKER_KERNEL_BLOCK_SECTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/schedule/model/block_layout.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The sections of a block's rows, in bytes.

// One section: the same number of bytes for each head. `offset` counts from the row's first byte.
struct Section {
  int64_t offset = 0, head_bytes = 0;
};

// All sections in BlockLayout's order. A section that the block lacks, and one past the last, is
// empty, at offset 0.
struct Sections {
  std::array<Section, BlockLayout::kMaxSections> list = {};
  size_t count = 0;

  size_t size() const { return count; }
  bool has(size_t index) const { return list[index].head_bytes > 0; }
  const Section& operator[](size_t index) const { return list[index]; }
};

// The sections of `block`, which may have any number of heads. Not for kPairs: no operation is
// applied to it.
Sections SectionsOf(const BlockLayout& layout, const Block& block);

// The place of section `index` of a block's rows, for both kinds of memory (BlockView::apart).
SectionPlace PlaceOf(const BlockLayout& layout, const BlockView& view, int index);

// A block with the data that finds the bytes of a row and head, for both kinds of memory.
struct BlockRows {
  const BlockView* view;
  Sections sections;
  SectionPlaces places;

  std::byte* At(int64_t row, int32_t head, size_t section) const {
    const SectionPlace& place = places[section];
    return place.first + (row - view->block.row_begin) * place.stride +
           (head - view->block.head_begin) * sections[section].head_bytes;
  }
  float* Floats(int64_t row, int32_t head, size_t section) const {
    return reinterpret_cast<float*>(At(row, head, section));
  }
};
// Keeps a pointer to `view`, which must outlive the result.
BlockRows RowsOf(const BlockLayout& layout, const BlockView& view);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_BLOCK_SECTIONS_H_
