#ifndef ANNULUS_WORKER_KERNEL_AMX_BLOCKS_H_
#define ANNULUS_WORKER_KERNEL_AMX_BLOCKS_H_

#include <limits>

#include "worker/kernel/amx_attend.h"
#include "worker/kernel/amx_flow.h"

// Which blocks go which way through AMX; the bits are the same.

namespace annulus {
namespace {

// All rows have seen a score that is a number.
inline bool AllHaveSeen(const TileBlock& tile) {
  for (int row = 0; row < tile.rows; ++row) {
    if (!(__builtin_fabsf(tile.max[row]) < std::numeric_limits<float>::max())) return false;
  }
  return true;
}

// Whole blocks by the flow, unless maxima grow; others by the stages.
template <class FLOW>
void AttendInTurn(const TileBlock& tile, const PackedBlock* blocks, int count, BegunStrips* begun) {
  bool calm = AllHaveSeen(tile);
  const auto alike = [&](int done) {
    int next = done;
    while (next < count &&
           (blocks[next].row_begin == nullptr) == (blocks[done].row_begin == nullptr))
      ++next;
    return next - done;
  };
  for (int done = 0; done < count;) {
    const bool whole = blocks[done].row_begin == nullptr;
    if (whole && calm) {
      done += FLOW(tile).Run(blocks + done, alike(done), &calm);
      continue;
    }
    const int some = whole ? 1 : alike(done);
    calm = AttendStages<Whole, 2>(tile, begun).Run(blocks + done, some) && AllHaveSeen(tile);
    done += some;
  }
}

template <class FORMAT>
void AttendBlocks(const TileBlock& tile, const PackedBlock* blocks, int count) {
  const TileUse use;
  BegunStrips begun;
  if (tile.rows <= kTile) {
    AttendStages<FORMAT, 1>(tile, &begun).Run(blocks, count);
  } else if (FORMAT::kSlack > 0 && AttendFlow<4>::Serves(tile)) {
    AttendInTurn<AttendFlow<4>>(tile, blocks, count, &begun);
  } else if (FORMAT::kSlack > 0 && AttendFlow<2>::Serves(tile)) {
    AttendInTurn<AttendFlow<2>>(tile, blocks, count, &begun);
  } else {
    AttendStages<FORMAT, 2>(tile, &begun).Run(blocks, count);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_BLOCKS_H_
