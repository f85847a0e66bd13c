#ifndef ANNULUS_WORKER_KERNEL_AMX_PRODUCTS_H_
#define ANNULUS_WORKER_KERNEL_AMX_PRODUCTS_H_

#include <immintrin.h>

#include "worker/kernel/amx_packing.h"
#include "worker/kernel/amx_tiles.h"

// Products of matrices by AMX tiles, of numbers that are one bf16 number each, or the sum of two.

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

// Where the tiles of a product go; in floats.
struct Product {
  float* first = nullptr;
  int stride = 0;             // From row to row of a tile.
  int beside = 0, below = 0;  // To the other tiles.
};

// Accumulators are tiles 0 to 3, the left matrix is in 4 and 5, the right one in 6 and 7.
template <int ROWS>
inline void LoadLeft(const Operands& of, const Bf16* at) {
  _tile_loadd(4, at, of.left_stride);
  if (ROWS > 1) _tile_loadd(5, at + of.left_below, of.left_stride);
}
template <int COLUMNS>
inline void LoadRight(const Operands& of, const Bf16* at) {
  _tile_stream_loadd(6, at, 64);
  if (COLUMNS > 1) _tile_stream_loadd(7, at + of.right_beside, 64);
}
template <int ROWS, int COLUMNS>
inline void AddProducts() {
  _tile_dpbf16ps(0, 4, 6);
  if (COLUMNS > 1) _tile_dpbf16ps(1, 4, 7);
  if (ROWS > 1) _tile_dpbf16ps(2, 5, 6);
  if (ROWS > 1 && COLUMNS > 1) _tile_dpbf16ps(3, 5, 7);
}

// One chunk of whole numbers: each tile is multiplied as soon as it is there.
template <int ROWS, int COLUMNS>
inline void AddWhole(const Operands& of, const Bf16* left, const Bf16* right) {
  _tile_loadd(4, left, of.left_stride);
  _tile_stream_loadd(6, right, 64);
  _tile_dpbf16ps(0, 4, 6);
  if (COLUMNS > 1) {
    _tile_stream_loadd(7, right + of.right_beside, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  if (ROWS > 1) {
    _tile_loadd(5, left + of.left_below, of.left_stride);
    _tile_dpbf16ps(2, 5, 6);
    if (COLUMNS > 1) _tile_dpbf16ps(3, 5, 7);
  }
}

// One chunk of numbers of two parts: high · low, high · high, low · high, and low · low where four
// products are asked for. Neighbours share a matrix, which stays in its tiles.
template <int ROWS, int COLUMNS, int PRODUCTS>
inline void AddSplit(const Operands& of, const Bf16* left, const Bf16* right) {
  LoadLeft<ROWS>(of, left);
  LoadRight<COLUMNS>(of, right + kTileNumbers);
  AddProducts<ROWS, COLUMNS>();
  LoadRight<COLUMNS>(of, right);
  AddProducts<ROWS, COLUMNS>();
  LoadLeft<ROWS>(of, left + of.left_low);
  AddProducts<ROWS, COLUMNS>();
  if (PRODUCTS == 3) return;
  LoadRight<COLUMNS>(of, right + kTileNumbers);
  AddProducts<ROWS, COLUMNS>();
}

// What a product is added to.
enum class Start { kZero, kOut };

template <int ROWS, int COLUMNS>
inline void LoadOut(const Product& out, int stride) {
  _tile_loadd(0, out.first, stride);
  if (COLUMNS > 1) _tile_loadd(1, out.first + out.beside, stride);
  if (ROWS > 1) _tile_loadd(2, out.first + out.below, stride);
  if (ROWS > 1 && COLUMNS > 1) _tile_loadd(3, out.first + out.below + out.beside, stride);
}
template <int ROWS, int COLUMNS>
inline void ClearOut() {
  _tile_zero(0);
  if (COLUMNS > 1) _tile_zero(1);
  if (ROWS > 1) _tile_zero(2);
  if (ROWS > 1 && COLUMNS > 1) _tile_zero(3);
}

// out[16 · ROWS][16 · COLUMNS] = left · right, by so many products of bf16 numbers for each; added
// to what is there for kOut.
template <int ROWS, int COLUMNS, int PRODUCTS, Start START = Start::kZero>
void Multiply(const Operands& of, const Product& out) {
  constexpr int kParts = PRODUCTS == 1 ? 1 : 2;
  const int stride = out.stride * static_cast<int>(sizeof(float));
  if (START == Start::kOut) {
    LoadOut<ROWS, COLUMNS>(out, stride);
  } else {
    ClearOut<ROWS, COLUMNS>();
  }
  const Bf16 *left = of.left, *right = of.right;
  for (int c = 0; c < of.chunks; ++c, left += of.left_chunk, right += kParts * kTileNumbers) {
    if (PRODUCTS == 1) {
      AddWhole<ROWS, COLUMNS>(of, left, right);
    } else {
      AddSplit<ROWS, COLUMNS, PRODUCTS>(of, left, right);
    }
  }
  _tile_stored(0, out.first, stride);
  if (COLUMNS > 1) _tile_stored(1, out.first + out.beside, stride);
  if (ROWS > 1) _tile_stored(2, out.first + out.below, stride);
  if (ROWS > 1 && COLUMNS > 1) _tile_stored(3, out.first + out.below + out.beside, stride);
  Fence();
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_PRODUCTS_H_
