#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_TILES_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_TILES_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "worker/kernel/cpu/isa/bf16_packing-inl.h"

namespace annulus {

// What is multiplied by AMX tiles, and where it goes.

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

// The tile registers of AMX.

namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kConfig;

// Tiles are the thread's for the time of one function only: a thread that holds some is slower to
// switch to.
class TileUse {
 public:
  TileUse() { _tile_loadconfig(&kConfig); }
  ~TileUse() { _tile_release(); }
};

// GCC 12 does not know that tile loads read memory, and stores write it.
inline void Fence() { asm volatile("" ::: "memory"); }

}  // namespace

// The tiles that products are added up in.

namespace {

// Tiles 0 to 3, of two rows and two columns of tiles, for one product after the other. A tile is
// stored when the next product needs its register, since four stores at once hold up what comes
// behind them; and zeros are loaded, since an instruction that clears a tile waits for all products
// before it.
class Accumulators {
 public:
  // With `fresh`, products that are to be added to what lies there are added to zeros.
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
  // `tiles` (a bit each) of `out` have begun, and no others.
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
  int pending_ = 0;  // Tiles of the last product that are not stored yet, a bit each.
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_TILES_INL_H_
