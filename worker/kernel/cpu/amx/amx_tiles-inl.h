#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_TILES_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_TILES_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "worker/kernel/cpu/isa/bf16_packing-inl.h"

// AMX tile registers: operands and destinations of products, and the accumulator tiles. Compiled
// for AMX and included by amx_products-inl.h. Start at Operands, Product and Accumulators.
namespace annulus {

// Operands and results.

namespace {

// The tiles of two matrices, 16 or 32 rows by 16 or 32 columns, in chunks of 32 along the sum. In
// the right matrix, the parts of a chunk are contiguous, and so are chunks.
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

// The destination of a product's tiles; distances in floats.
struct Product {
  float* first = nullptr;
  int stride = 0;             // From row to row of a tile.
  int beside = 0, below = 0;  // To the other tiles.
};

// The start value of a product's sums: zero, or `out`.
enum class Start { kZero, kOut };

// No work between products of tiles.
struct NoWork {
  void operator()() const {}
};

}  // namespace

// The tile registers.

namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kConfig;

// Configures the tiles for the duration of one function only: a thread with live tiles is slower to
// switch.
class TileUse {
 public:
  TileUse() { _tile_loadconfig(&kConfig); }
  ~TileUse() { _tile_release(); }
};

// GCC 12 does not model that tile loads read memory and tile stores write it.
inline void Fence() { asm volatile("" ::: "memory"); }

}  // namespace

// The tiles that products are summed in.

namespace {

// Tiles 0 to 3, two rows and two columns of tiles, for one product after the other. A tile is
// stored only when the next product needs its register: four stores at once delay the code after
// them. Zeros are loaded: an instruction that clears a tile waits for all earlier products.
class Accumulators {
 public:
  // With `fresh`, Start::kOut starts from zero instead of the content of `out`.
  explicit Accumulators(bool fresh = false) : fresh_(fresh) {}

  // Begins tile TILE of `out`.
  template <int TILE, Start START>
  void Begin(const Product& out) {
    Store<TILE>();
    const bool adds = START == Start::kOut && !fresh_;
    const float* from = adds ? At<TILE>(out) : kZeros;
    const int stride = (adds ? out.stride : kTile) * static_cast<int>(sizeof(float));
    if (TILE == 0) _tile_loadd(0, from, stride);
    if (TILE == 1) _tile_loadd(1, from, stride);
    if (TILE == 2) _tile_loadd(2, from, stride);
    if (TILE == 3) _tile_loadd(3, from, stride);
  }
  // Call after Begin of exactly the tiles `tiles` (one bit each) of `out`.
  void TakeOver(const Product& out, int tiles) {
    pending_ &= ~tiles;
    StoreAll();
    last_ = out;
    pending_ = tiles;
  }
  void Finish() {
    StoreAll();
    pending_ = 0;
    Fence();
  }

 private:
  template <int TILE>
  static float* At(const Product& product) {
    return product.first + (TILE / 2) * product.below + (TILE % 2) * product.beside;
  }
  template <int TILE>
  void Store() {
    if ((pending_ >> TILE & 1) == 0) return;
    const int stride = last_.stride * static_cast<int>(sizeof(float));
    if (TILE == 0) _tile_stored(0, At<0>(last_), stride);
    if (TILE == 1) _tile_stored(1, At<1>(last_), stride);
    if (TILE == 2) _tile_stored(2, At<2>(last_), stride);
    if (TILE == 3) _tile_stored(3, At<3>(last_), stride);
  }
  void StoreAll() {
    Store<0>();
    Store<1>();
    Store<2>();
    Store<3>();
  }

  const bool fresh_;
  Product last_;
  int pending_ = 0;  // Tiles of the last product that are not stored yet, one bit each.
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_TILES_INL_H_
