#ifndef ANNULUS_WORKER_KERNEL_TILE_ROWS_H_
#define ANNULUS_WORKER_KERNEL_TILE_ROWS_H_

#include <cstdint>

#include "worker/kernel/tile_row_scores.h"
#include "worker/kernel/tile_row_values.h"
#include "worker/kernel/tile_vector.h"

// Few query slots against keys and values as they lie in rows (tile_vector.h): each byte is read
// once, and nothing is packed. All of it waits for memory, so what is a few calls ahead is fetched
// into the second cache between multiplications, evenly: a burst of fetches keeps memory busy for
// its own time only.

namespace annulus {
namespace {

// TileIsa::few_slots, where the processor multiplies vectors.
inline constexpr int kFewSlots = 16;

template <class V, DataType TYPE, int SLOTS>
void AttendSlots(const LyingRows& rows, RowSlot* slots) {
  const std::byte* keys[kLyingKeys];
  WeighedValues<SLOTS> values;
  values.count = kLyingKeys;
  values.ahead = rows.values_ahead;
  for (int k = 0; k < kLyingKeys; ++k) {
    // Behind the last row it stands in: nobody sees the key.
    const int64_t row = MinInt(k, rows.count - 1);
    keys[k] = rows.keys + row * rows.key_stride;
    values.at[k] = rows.values + row * rows.value_stride;
  }
  LaneProducts<V> products[SLOTS];
  for (int first = 0; first < kLyingKeys; first += 4)
    MultiplyKeys<V, TYPE, SLOTS>(rows, keys, slots, first, products);
  bool all_seen = true;
  for (int s = 0; s < SLOTS; ++s) {
    AddLanes<V>(products[s], values.weights[s]);
    values.alphas[s] = WeighScores<V>(slots[s], values.weights[s]);
    all_seen = all_seen && slots[s].seen == kSeesAll;
  }
  if (all_seen) return AddRowValues<V, TYPE, SLOTS>(values, rows.value_dim, slots);
  for (int s = 0; s < SLOTS; ++s)
    AddSeenValues<V, TYPE, SLOTS>(values, s, rows.value_dim, slots[s]);
}

template <class V, DataType TYPE>
void AttendRowsOf(const LyingRows& rows, RowSlot* slots, int count) {
  for (; count >= 4; count -= 4, slots += 4) AttendSlots<V, TYPE, 4>(rows, slots);
  for (; count >= 2; count -= 2, slots += 2) AttendSlots<V, TYPE, 2>(rows, slots);
  if (count > 0) AttendSlots<V, TYPE, 1>(rows, slots);
}

template <class V>
void AttendRows(const LyingRows& rows, RowSlot* slots, int count) {
  if (rows.dtype == DataType::kFp32) return AttendRowsOf<V, DataType::kFp32>(rows, slots, count);
  if (rows.dtype == DataType::kBf16) return AttendRowsOf<V, DataType::kBf16>(rows, slots, count);
  AttendRowsOf<V, DataType::kFp16>(rows, slots, count);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_ROWS_H_
