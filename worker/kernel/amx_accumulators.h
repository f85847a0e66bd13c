#ifndef ANNULUS_WORKER_KERNEL_AMX_ACCUMULATORS_H_
#define ANNULUS_WORKER_KERNEL_AMX_ACCUMULATORS_H_

#include <immintrin.h>

#include "worker/kernel/amx_operands.h"
#include "worker/kernel/amx_tiles.h"

// The tiles that products are added up in.

namespace annulus {
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

#endif  // ANNULUS_WORKER_KERNEL_AMX_ACCUMULATORS_H_
