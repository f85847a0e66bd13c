#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "attention/spec/dtype.h"

namespace annulus {

// The unpacked path for few query slots: keys and values are read in place (row_loop.h).

inline constexpr int kUnpackedKeys = 16;  // Keys that are attended to at once.
inline constexpr uint16_t kSeesAll = 0xffff;
inline constexpr int kUnpackedSlots = 8;  // Slots of a group, whose query pairs are interleaved.

// Neighbouring rows of one key/value head, in place, with no alignment.
struct UnpackedRows {
  DataType dtype = DataType::kUnspecified;
  const std::byte *keys = nullptr, *values = nullptr;  // The first row.
  int64_t key_stride = 0, value_stride = 0;            // bytes
  int count = 0;                                       // 1 … kUnpackedKeys
  int head_dim = 0, value_dim = 0;
  float score_scale = 1;  // The factor of products of unscaled queries.
  // The distance in bytes from the rows read now to those read soon, for prefetches. 0: unknown.
  int64_t keys_ahead = 0, values_ahead = 0;
};

// A query row and head, with its running state. Numbers after the last dimension, to a multiple of
// kUnpackedKeys, are 0.
struct RowSlot {
  // The query times the job's scale. Or, with TileIsa::unpacked_pairs, unscaled pairs of bf16
  // numbers. These are interleaved with those of up to kUnpackedSlots slots of the head, in aligned
  // lines of two pairs each: [pairs / 2][kUnpackedSlots][2]. `query` then points to this slot's
  // first pair.
  const float* query = nullptr;
  float* sums = nullptr;
  float* weights = nullptr;  // [kUnpackedKeys]; the slot's sum of weights is their total.
  float max = 0;
  uint16_t seen = 0;  // Bit i: sees key i; i < UnpackedRows::count.
};

// Brings slots, at least one, up to date with the rows: scores, online softmax and values. Masked
// values are not multiplied.
using AttendRowsFunction = void(const UnpackedRows& rows, RowSlot* slots, int count);

AttendRowsFunction AttendRowsAvx512;  // The function of kAvx512Isa.

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_UNPACKED_ROWS_H_
