// bf16 by AMX: compiled for it, and called only after the CPU has been asked (isa_dispatch.h).
#include <immintrin.h>

#include <cstring>

#include "worker/kernel/amx_packing.h"
#include "worker/kernel/amx_softmax.h"
#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_avx512.h"

namespace annulus {
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

// What 16 or 32 rows see of a block, all together.
struct Hull {
  int begin = kKeyBlock, end = 0;
};
Hull HullOf(const TileBlock& tile, int row_begin, int row_end) {
  Hull hull;
  for (int group = row_begin / kRowGroup; group * kRowGroup < row_end; ++group) {
    if (tile.group_begin[group] >= tile.group_end[group]) continue;
    hull.begin = MinInt(hull.begin, tile.group_begin[group]);
    hull.end = hull.end > tile.group_end[group] ? hull.end : tile.group_end[group];
  }
  return hull;
}

// Tiles of two matrices, 16 or 32 rows by 16 or 32 columns, in chunks of 32 along what is summed.
struct Operands {
  const Bf16* left = nullptr;
  int left_stride = 0;     // bytes from row to row of a tile
  int64_t left_chunk = 0;  // numbers from chunk to chunk
  int64_t left_below = 0;  // numbers to the tiles of the other rows
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

// out[16 · ROWS][16 · COLUMNS] = left · right.
template <int ROWS, int COLUMNS>
void Multiply(const Operands& of, const Product& out) {
  _tile_zero(0);
  if (COLUMNS > 1) _tile_zero(1);
  if (ROWS > 1) _tile_zero(2);
  if (ROWS > 1 && COLUMNS > 1) _tile_zero(3);
  const Bf16 *left = of.left, *right = of.right;
  for (int c = 0; c < of.chunks; ++c, left += of.left_chunk, right += kTileNumbers) {
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
  const int stride = out.stride * static_cast<int>(sizeof(float));
  _tile_stored(0, out.first, stride);
  if (COLUMNS > 1) _tile_stored(1, out.first + out.beside, stride);
  if (ROWS > 1) _tile_stored(2, out.first + out.below, stride);
  if (ROWS > 1 && COLUMNS > 1) _tile_stored(3, out.first + out.below + out.beside, stride);
  Fence();
}

// scores = scale · queries · keys.
template <int ROWS, int KEYS>
void ScoreTiles(const Operands& of, float scale, float* scores) {
  Multiply<ROWS, KEYS>(of, {scores, kKeyBlock, kTile, kTile * kKeyBlock});
  if (scale == 1) return;
  const __m512 factor = _mm512_set1_ps(scale);
  for (int r = 0; r < ROWS * kTile; ++r) {
    for (int k = 0; k < KEYS; ++k) {
      float* at = scores + r * kKeyBlock + k * kTile;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), factor));
    }
  }
}

// Queries from `row` on, times keys.
Operands QueriesAndKeys(const TileBlock& tile, int row) {
  const int chunks = Chunks(tile.head_dim);
  Operands of;
  of.left = reinterpret_cast<const Bf16*>(tile.queries) + int64_t{row} * chunks * kChunk;
  of.left_stride = kChunk * sizeof(Bf16);
  of.left_chunk = kTileNumbers;
  of.left_below = of.right_beside = int64_t{chunks} * kTileNumbers;
  of.chunks = chunks;
  return of;
}
const Bf16* KeysFrom(const TileBlock& tile, int key) {
  return reinterpret_cast<const Bf16*>(tile.keys) + int64_t{key} * Chunks(tile.head_dim) * kChunk;
}

template <int ROWS>
void ScoreRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  Operands of = QueriesAndKeys(tile, row);
  float* scores = tile.scores + int64_t{row} * kKeyBlock;
  for (int key = hull.begin / kTile * kTile; key < hull.end; key += 2 * kTile) {
    of.right = KeysFrom(tile, key);
    key + kTile < hull.end ? ScoreTiles<ROWS, 2>(of, tile.score_scale, scores + key)
                           : ScoreTiles<ROWS, 1>(of, tile.score_scale, scores + key);
  }
}

void ScoreAmx(const TileBlock& tile) {
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? ScoreRows<2>(tile, row) : ScoreRows<1>(tile, row);
  }
}

void SoftmaxAmx(const TileBlock& tile) {
  for (int row = 0; row < tile.rows; row += kTile) {
    const ScoreView view{tile.scores + int64_t{row} * kKeyBlock, kKeyBlock, kTile};
    const auto part = [&](int r) {
      const KeySpan keys = WrittenPart<Avx512>(tile, row + r);
      return ChunkSpan{keys.begin / kTile, keys.end / kTile};
    };
    SoftmaxRows(tile, row, MinInt(kTile, tile.rows - row), view, part,
                [&](int r, int c, __m512 p) { _mm512_storeu_ps(view.At(r, c), p); });
  }
}

// 32 weights of a row as bf16, those that the softmax has not written as zero.
__m512i RoundWeights(const float* weights, int key, int begin, int end) {
  const auto part = [&](int at) {
    return at >= begin && at < end ? _mm512_loadu_ps(weights + at) : _mm512_setzero_ps();
  };
  const __m512 low = part(key), high = part(key + kTile);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Over the row's own scores: what is written lies before what is still to be read.
void RoundRow(const TileBlock& tile, int row, Hull hull) {
  float* scores = tile.scores + int64_t{row} * kKeyBlock;
  auto* out = reinterpret_cast<Bf16*>(scores);
  int begin = 0, end = 0;
  if (row < tile.rows) {
    const int group = row / kRowGroup;
    constexpr int kPanelKeys = kPanel<Avx512>;
    if (tile.group_begin[group] < tile.group_end[group]) {
      begin = tile.group_begin[group] / kPanelKeys * kPanelKeys;
      end = RoundUp(tile.group_end[group], kTile);
    }
  }
  for (int key = hull.begin / kChunk * kChunk; key < hull.end; key += kChunk) {
    const __m512i rounded = RoundWeights(scores, key, begin, end);
    _mm512_storeu_si512(out + key, rounded);
  }
}

// The block's own sum is built first and added once, to rows that see something of it.
template <int ROWS, int COLUMNS>
void AddColumns(const TileBlock& tile, int row, int column, const Operands& of) {
  alignas(64) float block[ROWS * kTile * COLUMNS * kTile];
  Multiply<ROWS, COLUMNS>(of, {block, COLUMNS * kTile, kTile, kTile * COLUMNS * kTile});
  const int rows = MinInt(ROWS * kTile, tile.rows - row);
  for (int r = 0; r < rows; ++r) {
    const int group = (row + r) / kRowGroup;
    if (tile.group_begin[group] >= tile.group_end[group]) continue;
    const __m512 alpha = _mm512_set1_ps(tile.alpha[row + r]);
    for (int c = 0; c < COLUMNS; ++c) {
      float* sums = tile.sums + int64_t{row + r} * tile.sum_stride + column + c * kTile;
      const __m512 more = _mm512_load_ps(block + (r * COLUMNS + c) * kTile);
      _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, more));
    }
  }
}

// Weights times values, from key chunk `first` on.
template <int ROWS>
void AddAllColumns(const TileBlock& tile, int row, int first, Operands of) {
  of.right_beside = kKeyChunks * kTileNumbers;
  for (int column = 0; column < tile.value_dim; column += 2 * kTile) {
    of.right = reinterpret_cast<const Bf16*>(tile.values) + first * kTileNumbers +
               int64_t{column / kTile} * of.right_beside;
    column + kTile < tile.value_dim ? AddColumns<ROWS, 2>(tile, row, column, of)
                                    : AddColumns<ROWS, 1>(tile, row, column, of);
  }
}

template <int ROWS>
void AccumulateRows(const TileBlock& tile, int row) {
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  if (hull.begin >= hull.end) return;
  for (int r = 0; r < ROWS * kTile; ++r) RoundRow(tile, row + r, hull);
  Fence();
  const int first = hull.begin / kChunk;
  Operands of;
  of.left = reinterpret_cast<const Bf16*>(tile.scores + int64_t{row} * kKeyBlock) + first * kChunk;
  of.left_stride = kKeyBlock * sizeof(float);
  of.left_chunk = kChunk;
  of.left_below = kTile * kKeyBlock * (sizeof(float) / sizeof(Bf16));
  of.chunks = (hull.end + kChunk - 1) / kChunk - first;
  AddAllColumns<ROWS>(tile, row, first, of);
}

void AccumulateAmx(const TileBlock& tile) {
  const TileUse use;
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AccumulateRows<2>(tile, row) : AccumulateRows<1>(tile, row);
  }
}

// The row alone in a tile of zeros, and of the values only what it sees: the same sums in the same
// order, because what is left out would have been multiplied by zero.
void AccumulateRowAmx(const TileBlock& row, const KeySpan* spans, int count) {
  const TileUse use;
  alignas(64) Bf16 weights[kTile][kKeyBlock] = {};
  alignas(64) Bf16 seen[kKeyBlock] = {};
  for (int i = 0; i < count; ++i) {
    for (int key = spans[i].begin; key < spans[i].end; ++key) seen[key] = 0xffff;
  }
  const int first = spans[0].begin / kChunk;
  const int chunks = (spans[count - 1].end + kChunk - 1) / kChunk - first;
  for (int key = first * kChunk; key < (first + chunks) * kChunk; key += kChunk) {
    const __m512i rounded = RoundWeights(row.scores, key, 0, kKeyBlock);
    _mm512_storeu_si512(&weights[0][key],
                        _mm512_and_si512(rounded, _mm512_loadu_si512(seen + key)));
  }
  alignas(64) Bf16 values[kKeyChunks][kTileNumbers];
  const auto* packed = reinterpret_cast<const Bf16*>(row.values);
  const __m512 alpha = _mm512_set1_ps(*row.alpha);
  for (int column = 0; column < row.value_dim; column += kTile) {
    const Bf16* from = packed + int64_t{column / kTile} * kKeyChunks * kTileNumbers;
    for (int pair = first * kTile; pair < (first + chunks) * kTile; ++pair) {
      uint32_t mask;
      std::memcpy(&mask, seen + 2 * pair, sizeof(mask));
      _mm512_storeu_si512(&values[0][0] + pair * kChunk,
                          _mm512_and_si512(_mm512_loadu_si512(from + pair * kChunk),
                                           _mm512_set1_epi32(static_cast<int>(mask))));
    }
    Fence();
    alignas(64) float block[kTile * kTile];
    Operands of;
    of.left = &weights[0][first * kChunk];
    of.left_stride = kKeyBlock * sizeof(Bf16);
    of.left_chunk = kChunk;
    of.right = values[first];
    of.chunks = chunks;
    Multiply<1, 1>(of, {block, kTile, 0, 0});
    float* sums = row.sums + column;
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, _mm512_load_ps(block)));
  }
}

// A strip of rows against the whole block. Its scores lie tile by tile, [key chunk][row][16 keys],
// 32 KiB that stay in the first cache, and its weights, rounded, in the first half of each pair of
// tiles: the same operations as one after the other, with less way between them.
template <int ROWS>
void AttendRows(const TileBlock& tile, int row) {
  constexpr int kTileFloats = kTile * kTile;
  constexpr int kChunkFloats = ROWS * kTileFloats;
  Operands of = QueriesAndKeys(tile, row);
  for (int key = 0; key < kKeyBlock; key += 2 * kTile) {
    of.right = KeysFrom(tile, key);
    Multiply<ROWS, 2>(of,
                      {tile.scores + key / kTile * kChunkFloats, kTile, kChunkFloats, kTileFloats});
  }
  for (int i = 0; i < ROWS; ++i) {
    const ScoreView view{tile.scores + i * kTileFloats, kTile, kChunkFloats};
    __m512 even = _mm512_setzero_ps();
    SoftmaxRows(
        tile, row + i * kTile, MinInt(kTile, tile.rows - row - i * kTile), view,
        [](int) { return ChunkSpan(); },
        [&](int r, int c, __m512 p) {
          if (c % 2 == 0) {
            even = p;
          } else {
            _mm512_storeu_si512(view.At(r, c - 1),
                                reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p, even)));
          }
        });
  }
  Fence();
  Operands weights;
  weights.left = reinterpret_cast<const Bf16*>(tile.scores);
  weights.left_stride = kChunk * sizeof(Bf16);
  weights.left_chunk = 2 * kChunkFloats * (sizeof(float) / sizeof(Bf16));
  weights.left_below = kTileNumbers;
  weights.chunks = kKeyChunks;
  AddAllColumns<ROWS>(tile, row, 0, weights);
}

void AttendAmx(const TileBlock& tile) {
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? AttendRows<2>(tile, row) : AttendRows<1>(tile, row);
  }
}

}  // namespace

const TileIsa kAmxIsa = {"amx",         Avx512::kLanes,      kPanel<Avx512>, PackKeysAmx,
                         PackValuesAmx, PackQueriesAmx,      ScoreAmx,       ChangeScores<Avx512>,
                         SoftmaxAmx,    DropWeights<Avx512>, AccumulateAmx,  AccumulateRowAmx,
                         AttendAmx,     &kAvx512Isa};

}  // namespace annulus
