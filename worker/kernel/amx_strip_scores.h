#ifndef ANNULUS_WORKER_KERNEL_AMX_STRIP_SCORES_H_
#define ANNULUS_WORKER_KERNEL_AMX_STRIP_SCORES_H_

#include "worker/kernel/amx_scores.h"
#include "worker/kernel/amx_strip.h"

namespace annulus {
namespace {

// A strip's scores; work() is called between products.
template <class FORMAT, int ROWS, class Work>
inline __attribute__((always_inline)) void ScoreStrip(const TileBlock& tile,
                                                      const Strip<ROWS>& strip, const Work& work) {
  constexpr int kTileFloats = kTile * kTile, kChunkFloats = Strip<ROWS>::kChunkFloats;
  TileBlock block = tile;
  block.keys = strip.block->keys;
  Operands of = QueriesAndKeys<FORMAT>(block, strip.row);
  of.right = KeysFrom<FORMAT>(block, strip.first * kTile);
  Products<ROWS, FORMAT::kScoreProducts> products;
  Product out{strip.scores, kTile, kChunkFloats, kTileFloats};
  Fence();
  for (int pair = 0; pair < strip.chunks / 2; ++pair, out.first += 2 * kChunkFloats) {
    products.template Multiply<2, Start::kZero>(of, out, work);
    of.right += 2 * of.right_beside;
  }
  products.Finish();
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_STRIP_SCORES_H_
