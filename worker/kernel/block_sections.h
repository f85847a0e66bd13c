#ifndef ANNULUS_WORKER_KERNEL_BLOCK_SECTIONS_H_
#define ANNULUS_WORKER_KERNEL_BLOCK_SECTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/schedule/model/block_layout.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// What a row of a block is made of, in bytes.

// One section of it: an equal number of bytes for each head.
struct Section {
  int64_t offset = 0, head_bytes = 0;
};

// In their order. Those that the block lacks, and those past the last, are empty, at 0.
struct Sections {
  std::array<Section, BlockLayout::kMaxSections> list = {};
  size_t count = 0;

  size_t size() const { return count; }
  bool has(size_t index) const { return list[index].head_bytes > 0; }
  const Section& operator[](size_t index) const { return list[index]; }
};

// Of a block of so many heads; none of kPairs, to which no operation is applied.
Sections SectionsOf(const BlockLayout& layout, const Block& block);

// Where section `index` of a block's rows lies, wherever the block does.
SectionPlace PlaceOf(const BlockLayout& layout, const BlockView& view, int index);

// A block with what is needed to find a row and head of it, wherever its sections lie.
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
// Keeps `view`, which must outlive it.
BlockRows RowsOf(const BlockLayout& layout, const BlockView& view);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_BLOCK_SECTIONS_H_
