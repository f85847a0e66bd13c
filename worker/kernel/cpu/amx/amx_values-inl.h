#ifndef ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_VALUES_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_VALUES_INL_H_

#include <immintrin.h>

#include "worker/kernel/cpu/amx/amx_products-inl.h"
#include "worker/kernel/cpu/amx/amx_scores-inl.h"
#include "worker/kernel/cpu/isa/bf16_rounding-inl.h"

// Weights times values by AMX, added to the sums of the rows. Compiled for AMX and included by both
// pipelines and amx_isa-inl.h. Start at AccumulateAmx (a whole tile) and AddAllColumns (a row
// block).
namespace annulus {

// Products of weights and values, added to the sums of their rows.

namespace {

// The rescale factors of rows' sums. `fresh`: no row has sums yet; the memory is undefined.
struct Rescale {
  const float* alphas;
  bool fresh;
};

// Rescales the sums of rows that see some of a block, and adds the block's own sums, [rows][32
// columns]. Fresh rows that see nothing begin with zeros like the others: when they later see a
// key, the row block is no longer fresh.
template <int ROWS>
inline void AddSums(const TileBlock& tile, int row, int column, Rescale old, const float* block) {
  const int rows = MinInt(ROWS * kTile, tile.rows - row);
  const bool both = column + kTile < tile.value_dim;
  float* sums = tile.sums + int64_t{row} * tile.sum_stride + column;
  for (int r = 0; r < rows; ++r, sums += tile.sum_stride, block += 2 * kTile) {
    const int group = (row + r) / kRowGroup;
    if (!old.fresh && tile.group_begin[group] >= tile.group_end[group]) continue;
    const __m512 alpha = _mm512_set1_ps(old.alphas[r]);
    const __mmask16 there = old.fresh ? 0 : kAll;
    const auto add = [=](float* to, const float* more) {
      const __m512 sums = _mm512_maskz_loadu_ps(there, to);
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sums, alpha, _mm512_load_ps(more)));
    };
    add(sums, block);
    if (both) add(sums + kTile, block + kTile);
  }
}

// Rescales the sums of rows that see some of the block; alpha is 1 for most.
inline void ScaleSums(const TileBlock& tile, int row_begin, int row_end, const float* alphas) {
  for (int row = row_begin; row < row_end; row += kTile, alphas += kTile) {
    uint32_t changed = _mm512_cmp_ps_mask(_mm512_loadu_ps(alphas), _mm512_set1_ps(1), _CMP_NEQ_UQ);
    if (row_end - row < kTile) changed &= (1u << (row_end - row)) - 1;
    for (; changed != 0; changed &= changed - 1) {
      const int i = __builtin_ctz(changed), at = row + i;
      if (tile.group_begin[at / kRowGroup] >= tile.group_end[at / kRowGroup]) continue;
      float* sums = tile.sums + int64_t{at} * tile.sum_stride;
      const __m512 alpha = _mm512_set1_ps(alphas[i]);
      for (int column = 0; column < tile.value_dim; column += kTile, sums += kTile)
        _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), alpha));
    }
  }
}

// Adds weights times whole values, from key chunk `first` on, directly to the rows' sums.
template <int ROWS, class Work>
inline __attribute__((always_inline)) void AddInPlace(const TileBlock& tile, int row, int first,
                                                      Rescale old, Operands of, const Work& work) {
  // A tile load stalls on recent stores to its rows, so all rows are rescaled first.
  if (!old.fresh) ScaleSums(tile, row, MinInt(tile.rows, row + ROWS * kTile), old.alphas);
  Fence();
  of.right_beside = kKeyChunks * kTileNumbers;
  of.right = reinterpret_cast<const Bf16*>(tile.values) + first * kTileNumbers;
  Product out{tile.sums + int64_t{row} * tile.sum_stride, tile.sum_stride, kTile,
              kTile * tile.sum_stride};
  Products<ROWS, 1> products(old.fresh);
  for (int column = 0; column < tile.value_dim; column += 2 * kTile) {
    column + kTile < tile.value_dim ? products.template Multiply<2, Start::kOut>(of, out, work)
                                    : products.template Multiply<1, Start::kOut>(of, out, work);
    of.right += 2 * of.right_beside;
    out.first += 2 * kTile;
  }
  products.Finish();
}

// Adds weights times values, from key chunk `first` on. The block's own sums are built first and
// added once: those of two columns while the next two are multiplied.
template <class FORMAT, int ROWS, class Work>
inline __attribute__((always_inline)) void AddByBlocks(const TileBlock& tile, int row, int first,
                                                       Rescale old, Operands of, const Work& work) {
  constexpr int kPartNumbers = FORMAT::kParts * kTileNumbers;
  constexpr int kBelow = 2 * kTile * kTile;
  alignas(64) float block[2][ROWS * kBelow];
  of.right_beside = kKeyChunks * kPartNumbers;
  of.right = reinterpret_cast<const Bf16*>(tile.values) + first * kPartNumbers;
  Products<ROWS, FORMAT::kValueProducts> products;
  int column = 0;
  for (; column < tile.value_dim; column += 2 * kTile, of.right += 2 * of.right_beside) {
    const Product out{block[column / kChunk % 2], 2 * kTile, kTile, kBelow};
    column + kTile < tile.value_dim ? products.template Multiply<2, Start::kZero>(of, out, work)
                                    : products.template Multiply<1, Start::kZero>(of, out, work);
    if (column > 0)
      AddSums<ROWS>(tile, row, column - kChunk, old, block[(column / kChunk + 1) % 2]);
  }
  products.Finish();
  AddSums<ROWS>(tile, row, column - kChunk, old, block[(column / kChunk + 1) % 2]);
}

// `old` is for the rows from `row` on.
template <class FORMAT, int ROWS, class Work>
inline __attribute__((always_inline)) void AddAllColumns(const TileBlock& tile, int row, int first,
                                                         Rescale old, const Operands& of,
                                                         const Work& work) {
  FORMAT::kInPlace ? AddInPlace<ROWS>(tile, row, first, old, of, work)
                   : AddByBlocks<FORMAT, ROWS>(tile, row, first, old, of, work);
}

}  // namespace

// Weights times values of a whole tile.

namespace {

template <class FORMAT, int ROWS>
void AccumulateRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  if (hull.begin >= hull.end) return;
  for (int r = 0; r < ROWS * kTile; ++r) RoundRow<FORMAT>(tile, row + r, hull);
  Fence();
  const int first = hull.begin / kChunk;
  Operands of;
  of.left_chunk = FORMAT::kParts * kChunk;
  of.left =
      reinterpret_cast<const Bf16*>(tile.scores + int64_t{row} * kKeyBlock) + first * of.left_chunk;
  of.left_stride = kKeyBlock * sizeof(float);
  of.left_low = kChunk;
  of.left_below = kTile * kKeyBlock * (sizeof(float) / sizeof(Bf16));
  of.chunks = (hull.end + kChunk - 1) / kChunk - first;
  AddAllColumns<FORMAT, ROWS>(tile, row, first, {tile.alpha + row, /*fresh=*/false}, of, NoWork());
}

template <class FORMAT>
void AccumulateAmx(const TileBlock& tile) {
  const TileUse use;
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AccumulateRows<FORMAT, 2>(tile, row)
                            : AccumulateRows<FORMAT, 1>(tile, row);
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_AMX_AMX_VALUES_INL_H_
