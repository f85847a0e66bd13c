#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "attention/spec/dtype.h"

namespace annulus {

// What few query slots attend to without packing it (row_loop.h).

inline constexpr int kUnpackedKeys = 16;  // Keys that are attended to at once as they lie.
inline constexpr uint16_t kSeesAll = 0xffff;
inline constexpr int kUnpackedSlots = 8;  // Whose pairs lie in groups.

// Neighbouring rows of one key/value head as they lie, no alignment.
struct UnpackedRows {
  DataType dtype = DataType::kUnspecified;
  const std::byte *keys = nullptr, *values = nullptr;  // Of the first row.
  int64_t key_stride = 0, value_stride = 0;            // bytes
  int count = 0;                                       // 1 … kUnpackedKeys
  int head_dim = 0, value_dim = 0;
  float score_scale = 1;  // Of products of queries that are not scaled.
  // From what is read to what will be read soon: bytes. 0: unknown.
  int64_t keys_ahead = 0, values_ahead = 0;
};

// A query row and head, with its running state. Numbers behind the last dimension, to a multiple of
// kUnpackedKeys, are 0.
struct RowSlot {
  // Times the job's scale. Or pairs of bf16 numbers as they came (TileIsa::unpacked_pairs), beside
  // those of up to kUnpackedSlots slots of its head, in lines of two pairs each: [pairs / 2]
  // [kUnpackedSlots][2], where lines are aligned and this slot's first pair is what it points to.
  const float* query = nullptr;
  float* sums = nullptr;
  float* weights = nullptr;  // [kUnpackedKeys], which add up to the slot's.
  float max = 0;
  uint16_t seen = 0;  // Bit i: sees key i, which is below the count.
};

// Brings slots, at least one, up to date with the rows: scores, softmax and values. Values that a
// slot does not see are not multiplied for it.
using AttendRowsFunction = void(const UnpackedRows& rows, RowSlot* slots, int count);

AttendRowsFunction AttendRowsAvx512;  // kAvx512Isa's.

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_ROWS_H_
