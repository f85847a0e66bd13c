#include "tests/worker/kernel/pair_numbers.h"

#include <cstring>
#include <limits>

#include "worker/kernel/block_sections.h"

namespace annulus {
namespace {

const std::byte* RowOf(const KernelJob& job, const KernelTask& bound, int64_t row, int section) {
  const SectionPlace place = PlaceOf(*job.layout, bound.pairs, section);
  return place.first + (row - bound.pairs.block.row_begin) * place.stride;
}

}  // namespace

double OffsetOf(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head) {
  if (!job.layout->pairs().has_offset) return 0;
  float offset = 0;
  std::memcpy(&offset,
              RowOf(job, bound, row, 2) + (head - bound.pairs.block.head_begin) * sizeof(float),
              sizeof(float));
  return offset;
}

double BiasOf(const KernelJob& job, const KernelTask& bound, int64_t row, int32_t head,
              int64_t key) {
  const BiasAndMaskInputs& pairs = job.layout->pairs();
  if (!pairs.has_bits && !pairs.has_bias) return 0;
  const Block& block = bound.pairs.block;
  const int64_t sequence = job.mask->SequenceOfQuery(bound.q_rows->Global(row));
  const int64_t column = bound.k_rows->Global(key) - job.mask->KeyBegin(sequence);
  if (pairs.has_bits && job.mask->HasBits(head, sequence)) {
    const int64_t of_head = pairs.bit_heads == 1 ? 0 : head - block.head_begin;
    const std::byte* bits = RowOf(job, bound, row, 1) + of_head * pairs.bit_bytes();
    if ((bits[column / 8] & std::byte{1} << column % 8) == std::byte{0})
      return -std::numeric_limits<double>::infinity();
  }
  if (!pairs.has_bias) return 0;
  const int64_t of_head = pairs.bias_heads == 1 ? 0 : head - block.head_begin;
  float bias = 0;
  ConvertToFp32(pairs.bias_dtype,
                RowOf(job, bound, row, 0) +
                    (of_head * pairs.width + column) * BytesPerElement(pairs.bias_dtype),
                1, &bias);
  return bias;
}

}  // namespace annulus
