#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_PRODUCTS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_PRODUCTS_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "worker/kernel/cpu/isa/bf16_packing-inl.h"

namespace annulus {

// Matrix products by AMX tiles. Compiled for AMX and included by other amx_*-inl.h files. Start at
// Products::Multiply (any shape and format) and MultiplyFourTiles (32 × 32, bf16). They read
// Operands, write to a Product, and sum in the tile registers (Accumulators).

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

// Products of numbers that are one bf16 number each, or the sum of two.

namespace {

// Calls of work() during one chunk of a product.
template <int ROWS, int PRODUCTS>
constexpr int kPauses = PRODUCTS == 1 ? ROWS : PRODUCTS;

// A series of products out[16 · ROWS][16 · COLUMNS] = left · right. Each is PRODUCTS products of
// bf16 numbers. The left matrix is in tiles 4 and 5, the right one in 6 and 7.
template <int ROWS, int PRODUCTS>
class Products {
 public:
  explicit Products(bool fresh = false) : sums_(fresh) {}

  // Multiplies. `out` is complete after the next product, or Finish. Calls work() between products
  // of tiles; it must not touch the memory of the tiles.
  template <int COLUMNS, Start START, class Work>
  inline __attribute__((always_inline)) void Multiply(const Operands& of, const Product& out,
                                                      const Work& work) {
    constexpr int kParts = PRODUCTS == 1 ? 1 : 2;
    const Bf16 *left = of.left, *right = of.right;
    AddChunk<COLUMNS, START, true>(of, left, right, out, work);
    sums_.TakeOver(out, (COLUMNS > 1 ? 3 : 1) * (ROWS > 1 ? 5 : 1));
    for (int c = 1; c < of.chunks; ++c) {
      left += of.left_chunk;
      right += kParts * kTileNumbers;
      AddChunk<COLUMNS, START, false>(of, left, right, out, work);
    }
    Fence();
  }

  // Stores the last product.
  void Finish() { sums_.Finish(); }

 private:
  template <int COLUMNS, Start START, bool FIRST, class Work>
  inline __attribute__((always_inline)) void AddChunk(const Operands& of, const Bf16* left,
                                                      const Bf16* right, const Product& out,
                                                      const Work& work) {
    if (PRODUCTS == 1) {
      AddWhole<COLUMNS, START, FIRST>(of, left, right, out, work);
    } else {
      AddSplit<COLUMNS, START, FIRST>(of, left, right, out, work);
    }
  }

  // One chunk of whole numbers: each tile is multiplied as soon as it is loaded.
  template <int COLUMNS, Start START, bool FIRST, class Work>
  inline __attribute__((always_inline)) void AddWhole(const Operands& of, const Bf16* left,
                                                      const Bf16* right, const Product& out,
                                                      const Work& work) {
    _tile_loadd(4, left, of.left_stride);
    _tile_stream_loadd(6, right, 64);
    if (FIRST) sums_.Begin<0, START>(out);
    _tile_dpbf16ps(0, 4, 6);
    if (COLUMNS > 1) {
      _tile_stream_loadd(7, right + of.right_beside, 64);
      if (FIRST) sums_.Begin<1, START>(out);
      _tile_dpbf16ps(1, 4, 7);
    }
    work();
    if (ROWS == 1) return;
    _tile_loadd(5, left + of.left_below, of.left_stride);
    if (FIRST) sums_.Begin<2, START>(out);
    _tile_dpbf16ps(2, 5, 6);
    if (COLUMNS > 1) {
      if (FIRST) sums_.Begin<3, START>(out);
      _tile_dpbf16ps(3, 5, 7);
    }
    work();
  }

  // One chunk of numbers of two parts: high · low, high · high, low · high, and low · low if
  // PRODUCTS is 4. Consecutive products share a matrix, which stays in its tiles.
  template <int COLUMNS, Start START, bool FIRST, class Work>
  inline __attribute__((always_inline)) void AddSplit(const Operands& of, const Bf16* left,
                                                      const Bf16* right, const Product& out,
                                                      const Work& work) {
    LoadLeft(of, left);
    LoadRight<COLUMNS>(of, right + kTileNumbers);
    AddProducts<COLUMNS, START, FIRST>(out);
    work();
    LoadRight<COLUMNS>(of, right);
    AddProducts<COLUMNS, START, false>(out);
    work();
    LoadLeft(of, left + of.left_low);
    AddProducts<COLUMNS, START, false>(out);
    work();
    if (PRODUCTS == 3) return;
    LoadRight<COLUMNS>(of, right + kTileNumbers);
    AddProducts<COLUMNS, START, false>(out);
    work();
  }

  static void LoadLeft(const Operands& of, const Bf16* at) {
    _tile_loadd(4, at, of.left_stride);
    if (ROWS > 1) _tile_loadd(5, at + of.left_below, of.left_stride);
  }
  template <int COLUMNS>
  static void LoadRight(const Operands& of, const Bf16* at) {
    _tile_stream_loadd(6, at, 64);
    if (COLUMNS > 1) _tile_stream_loadd(7, at + of.right_beside, 64);
  }
  template <int COLUMNS, Start START, bool FIRST>
  void AddProducts(const Product& out) {
    if (FIRST) sums_.Begin<0, START>(out);
    _tile_dpbf16ps(0, 4, 6);
    if (FIRST && COLUMNS > 1) sums_.Begin<1, START>(out);
    if (COLUMNS > 1) _tile_dpbf16ps(1, 4, 7);
    if (FIRST && ROWS > 1) sums_.Begin<2, START>(out);
    if (ROWS > 1) _tile_dpbf16ps(2, 5, 6);
    if (FIRST && ROWS > 1 && COLUMNS > 1) sums_.Begin<3, START>(out);
    if (ROWS > 1 && COLUMNS > 1) _tile_dpbf16ps(3, 5, 7);
  }

  Accumulators sums_;
};

}  // namespace

// Products of 32 rows and columns, in tiles 0 to 3.

namespace {

inline void StoreFourTiles(const Product& to) {
  constexpr int kFloat = sizeof(float);
  _tile_stored(0, to.first, to.stride * kFloat);
  _tile_stored(1, to.first + to.beside, to.stride * kFloat);
  _tile_stored(2, to.first + to.below, to.stride * kFloat);
  _tile_stored(3, to.first + to.below + to.beside, to.stride * kFloat);
  Fence();
}
inline void LoadFourTiles(const Product& from) {
  constexpr int kFloat = sizeof(float);
  Fence();
  _tile_loadd(0, from.first, from.stride * kFloat);
  _tile_loadd(1, from.first + from.beside, from.stride * kFloat);
  _tile_loadd(2, from.first + from.below, from.stride * kFloat);
  _tile_loadd(3, from.first + from.below + from.beside, from.stride * kFloat);
}

// Multiplies one chunk of 32 along the sum, of packed tiles. `below` and `beside` are the distances
// in numbers to the lower tile of the left matrix and to the next tile of the right one. If FIRST,
// the products are added to `from`, and the earlier content of the tiles goes to `to`, unless
// to.first is null. Calls work() twice: the first call may read the upper rows of `to`, the second
// all of it.
template <bool FIRST, class Work>
inline __attribute__((always_inline)) void MultiplyFourTiles(const Bf16* left, int64_t below,
                                                             const Bf16* right, int64_t beside,
                                                             const Product& to, const Product& from,
                                                             const Work& work) {
  constexpr int kFloat = sizeof(float);
  const bool store = FIRST && to.first != nullptr;
  _tile_loadd(4, left, 64);
  _tile_stream_loadd(6, right, 64);
  if (store) _tile_stored(0, to.first, to.stride * kFloat);
  if (FIRST) _tile_loadd(0, from.first, from.stride * kFloat);
  _tile_dpbf16ps(0, 4, 6);
  _tile_stream_loadd(7, right + beside, 64);
  if (store) _tile_stored(1, to.first + to.beside, to.stride * kFloat);
  if (FIRST) _tile_loadd(1, from.first + from.beside, from.stride * kFloat);
  _tile_dpbf16ps(1, 4, 7);
  if (FIRST) Fence();
  work();
  _tile_loadd(5, left + below, 64);
  if (store) _tile_stored(2, to.first + to.below, to.stride * kFloat);
  if (FIRST) _tile_loadd(2, from.first + from.below, from.stride * kFloat);
  _tile_dpbf16ps(2, 5, 6);
  if (store) _tile_stored(3, to.first + to.below + to.beside, to.stride * kFloat);
  if (FIRST) _tile_loadd(3, from.first + from.below + from.beside, from.stride * kFloat);
  _tile_dpbf16ps(3, 5, 7);
  if (FIRST) Fence();
  work();
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_PRODUCTS_INL_H_
