#ifndef ANNULUS_WORKER_KERNEL_AMX_OPERANDS_H_
#define ANNULUS_WORKER_KERNEL_AMX_OPERANDS_H_

#include <cstdint>

#include "worker/kernel/amx_packing.h"

// What is multiplied by AMX tiles, and where it goes.

namespace annulus {
namespace {

// Tiles of two matrices, 16 or 32 rows by 16 or 32 columns, in chunks of 32 along what is summed.
// Of the right one a chunk's parts lie side by side, and chunks too.
struct Operands {
  const Bf16* left = nullptr;
  int left_stride = 0;     // bytes from row to row of a tile
  int64_t left_chunk = 0;  // numbers from chunk to chunk
  int64_t left_below = 0;  // numbers to the tiles of the other rows
  int64_t left_low = 0;    // numbers to the tile of the low parts
  const Bf16* right = nullptr;
  int64_t right_beside = 0;  // numbers to the tiles of the other columns
  int chunks = 0;
};

alignas(64) constexpr float kZeros[kTile * kTile] = {};

// Where the tiles of a product go; in floats.
struct Product {
  float* first = nullptr;
  int stride = 0;             // From row to row of a tile.
  int beside = 0, below = 0;  // To the other tiles.
};

// What a product is added to.
enum class Start { kZero, kOut };

// What else there is to do, a step at a time, while tiles are multiplied: nothing.
struct NoWork {
  void operator()() const {}
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_OPERANDS_H_
