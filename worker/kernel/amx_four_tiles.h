#ifndef ANNULUS_WORKER_KERNEL_AMX_FOUR_TILES_H_
#define ANNULUS_WORKER_KERNEL_AMX_FOUR_TILES_H_

#include <immintrin.h>

#include "worker/kernel/amx_operands.h"
#include "worker/kernel/amx_tiles.h"

// Products of 32 rows and columns, in tiles 0 to 3.

namespace annulus {
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

// A chunk of 32 along what is summed, of packed tiles: numbers from the first tile of the left
// matrix to the one below, of the right one to the one beside. Where FIRST, the products begin with
// `from`, and what the tiles held goes to `to`, unless that is nowhere. work() is called twice: it
// may read the upper rows of `to` at once, all of it after this.
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

#endif  // ANNULUS_WORKER_KERNEL_AMX_FOUR_TILES_H_
