// bf16 by AMX: compiled for it, and called only after the CPU has been asked (isa_dispatch.h).
//
// Queries: [16 rows][32 dimensions] tiles, [row group][dimension chunk]. Keys: for 16 keys and 32
// dimensions a tile whose row p holds dimensions 2p and 2p + 1 of each key, [keys][dimension
// chunk]. Values: for 16 columns and 32 keys a tile whose row p holds keys 2p and 2p + 1 of each
// column, [columns][key chunk].
#include <immintrin.h>

#include <cstring>

#include "worker/kernel/tile_functions.h"
#include "worker/kernel/vector_avx512.h"

namespace annulus {
namespace {

using Bf16 = uint16_t;

constexpr int kTile = 16;                     // Rows, and 32-bit columns, of a tile.
constexpr int kChunk = 32;                    // bf16 numbers of a tile's row.
constexpr int kTileNumbers = kTile * kChunk;  // bf16 numbers of a tile.
constexpr int kKeyChunks = kKeyBlock / kChunk;
constexpr __mmask16 kAll = 0xffff;

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

int Chunks(int dim) { return (dim + kChunk - 1) / kChunk; }
int RoundUp(int value, int to) { return (value + to - 1) / to * to; }

// Elements [begin, begin + 32) of a row of `dim`, zeros past its end.
__m512i LoadPart32(const std::byte* row, int begin, int dim) {
  const int left = dim - begin;
  const __mmask32 mask = left >= kChunk ? 0xffffffffu : (1u << left) - 1;
  return _mm512_maskz_loadu_epi16(mask, row + int64_t{begin} * 2);
}

void PackQueriesAmx(const QueryRows& rows, double, float* out) {
  auto* to = reinterpret_cast<Bf16*>(out);
  for (int begin = 0; begin < rows.count; begin += kTile) {
    for (int d = 0; d < rows.dim; d += kChunk) {
      for (int r = 0; r < kTile; ++r, to += kChunk) {
        const bool there = begin + r < rows.count;
        _mm512_storeu_si512(
            to, there ? LoadPart32(rows.row[begin + r], d, rows.dim) : _mm512_setzero_si512());
      }
    }
  }
}

void PackKeysAmx(const ElementRows& rows, const uint8_t* present, int count, int dim, float* out) {
  for (int begin = 0; begin < count; begin += kTile) {
    for (int d = 0; d < dim; d += kChunk, out += kTileNumbers / 2) {
      __m512 square[kTile];
      Unroll<kTile>([&](int r) {
        const int row = begin + r;
        square[r] = row < count && present[row]
                        ? _mm512_castsi512_ps(LoadPart32(rows.first + row * rows.stride, d, dim))
                        : _mm512_setzero_ps();
      });
      Avx512::Transpose(square);
      Unroll<kTile>([&](int r) { _mm512_storeu_ps(out + r * kTile, square[r]); });
    }
  }
}

// 16 numbers of a row, from `begin` on.
__m256i LoadPart16(const std::byte* row, int begin, int dim) {
  const int left = dim - begin;
  const auto mask = static_cast<__mmask16>(left >= kTile ? 0xffffu : (1u << left) - 1);
  return _mm256_maskz_loadu_epi16(mask, row + int64_t{begin} * 2);
}

bool PackValuesAmx(const ElementRows& rows, const uint8_t* present, int count, int dim,
                   float* out) {
  auto* to = reinterpret_cast<Bf16*>(out);
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  bool finite = true;
  const auto load = [&](int row, int column) {
    return row < count && present[row] ? LoadPart16(rows.first + row * rows.stride, column, dim)
                                       : _mm256_setzero_si256();
  };
  for (int column = 0; column < dim; column += kTile) {
    Bf16* tile = to + int64_t{column / kTile} * kKeyChunks * kTileNumbers;
    for (int key = 0; key < RoundUp(count, kChunk); key += 2, tile += kChunk) {
      const __m512i even = _mm512_maskz_cvtepu16_epi32(kAll, load(key, column));
      const __m512i odd = _mm512_maskz_cvtepu16_epi32(kAll, load(key + 1, column));
      const __m512i pairs = _mm512_or_si512(even, _mm512_maskz_slli_epi32(kAll, odd, 16));
      const __m512i bits = _mm512_and_si512(pairs, exponent);
      finite = finite && _mm512_cmpeq_epi16_mask(bits, exponent) == 0;
      _mm512_storeu_si512(tile, pairs);
    }
  }
  return finite;
}

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

// out[16 · ROWS][16 · COLUMNS] = left · right.
template <int ROWS, int COLUMNS>
void Multiply(const Operands& of, float* out, int out_stride) {
  _tile_zero(0);
  if (COLUMNS > 1) _tile_zero(1);
  if (ROWS > 1) _tile_zero(2);
  if (ROWS > 1 && COLUMNS > 1) _tile_zero(3);
  const Bf16 *left = of.left, *right = of.right;
  for (int c = 0; c < of.chunks; ++c, left += of.left_chunk, right += kTileNumbers) {
    _tile_loadd(4, left, of.left_stride);
    _tile_loadd(6, right, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (COLUMNS > 1) {
      _tile_loadd(7, right + of.right_beside, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (ROWS > 1) {
      _tile_loadd(5, left + of.left_below, of.left_stride);
      _tile_dpbf16ps(2, 5, 6);
      if (COLUMNS > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  const int stride = out_stride * static_cast<int>(sizeof(float));
  _tile_stored(0, out, stride);
  if (COLUMNS > 1) _tile_stored(1, out + kTile, stride);
  if (ROWS > 1) _tile_stored(2, out + kTile * out_stride, stride);
  if (ROWS > 1 && COLUMNS > 1) _tile_stored(3, out + kTile * out_stride + kTile, stride);
  Fence();
}

// scores = scale · queries · keys.
template <int ROWS, int KEYS>
void ScoreTiles(const Operands& of, float scale, float* scores) {
  Multiply<ROWS, KEYS>(of, scores, kKeyBlock);
  const __m512 factor = _mm512_set1_ps(scale);
  for (int r = 0; r < ROWS * kTile; ++r) {
    for (int k = 0; k < KEYS; ++k) {
      float* at = scores + r * kKeyBlock + k * kTile;
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), factor));
    }
  }
}

template <int ROWS>
void ScoreRows(const TileBlock& tile, int row) {
  const int chunks = Chunks(tile.head_dim);
  const Hull hull = HullOf(tile, row, MinInt(tile.rows, row + ROWS * kTile));
  Operands of;
  of.left = reinterpret_cast<const Bf16*>(tile.queries) + int64_t{row} * chunks * kChunk;
  of.left_stride = kChunk * sizeof(Bf16);
  of.left_chunk = kTileNumbers;
  of.left_below = of.right_beside = int64_t{chunks} * kTileNumbers;
  of.chunks = chunks;
  float* scores = tile.scores + int64_t{row} * kKeyBlock;
  for (int key = hull.begin / kTile * kTile; key < hull.end; key += 2 * kTile) {
    of.right = reinterpret_cast<const Bf16*>(tile.keys) + int64_t{key} * chunks * kChunk;
    key + kTile < hull.end ? ScoreTiles<ROWS, 2>(of, tile.scale, scores + key)
                           : ScoreTiles<ROWS, 1>(of, tile.scale, scores + key);
  }
}

void ScoreAmx(const TileBlock& tile) {
  const TileUse use;
  Fence();
  for (int row = 0; row < tile.rows; row += 2 * kTile) {
    tile.rows - row > kTile ? ScoreRows<2>(tile, row) : ScoreRows<1>(tile, row);
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
  Multiply<ROWS, COLUMNS>(of, block, COLUMNS * kTile);
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
  of.right_beside = kKeyChunks * kTileNumbers;
  of.chunks = (hull.end + kChunk - 1) / kChunk - first;
  for (int column = 0; column < tile.value_dim; column += 2 * kTile) {
    of.right = reinterpret_cast<const Bf16*>(tile.values) + first * kTileNumbers +
               int64_t{column / kTile} * of.right_beside;
    column + kTile < tile.value_dim ? AddColumns<ROWS, 2>(tile, row, column, of)
                                    : AddColumns<ROWS, 1>(tile, row, column, of);
  }
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
    Multiply<1, 1>(of, block, kTile);
    float* sums = row.sums + column;
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), alpha, _mm512_load_ps(block)));
  }
}

}  // namespace

const TileIsa kAmxIsa = {"amx",           Avx512::kLanes,      kPanel<Avx512>, PackKeysAmx,
                         PackValuesAmx,   PackQueriesAmx,      ScoreAmx,       ChangeScores<Avx512>,
                         Softmax<Avx512>, DropWeights<Avx512>, AccumulateAmx,  AccumulateRowAmx,
                         &kAvx512Isa};

}  // namespace annulus
