#ifndef ANNULUS_TESTS_WORKER_KERNEL_EMULATED_TILES_H_
#define ANNULUS_TESTS_WORKER_KERNEL_EMULATED_TILES_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

// AMX's tiles without AMX. Included before a source that uses their intrinsics, it redefines these.
// Numbers are bf16. A product adds in the order of Intel's manual (TDPBF16PS: sums of even and of
// odd numbers from zero, both added to the accumulator), with denormals as in the thread's modes.
// Needs AVX-512.

namespace annulus {
namespace emulated_tiles {

constexpr int kRows = 16, kRowBytes = 64;

struct Tile {
  alignas(64) uint8_t row[kRows][kRowBytes];
};
inline thread_local Tile tiles[8];

// A tile that is read before it is loaded must not contain zeros.
inline void Forget() { std::memset(static_cast<void*>(tiles), 0xff, sizeof(tiles)); }

inline void Load(int tile, const void* from, int64_t stride) {
  for (int r = 0; r < kRows; ++r)
    std::memcpy(tiles[tile].row[r], static_cast<const uint8_t*>(from) + r * stride, kRowBytes);
}

inline void Store(int tile, void* to, int64_t stride) {
  for (int r = 0; r < kRows; ++r)
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, tiles[tile].row[r], kRowBytes);
}

inline void AddProduct(int sum, int left, int right) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const auto even = [](__m512i pair) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, pair, 16));
  };
  const auto odd = [upper](__m512i pair) {
    return _mm512_castsi512_ps(_mm512_and_si512(pair, upper));
  };
  for (int r = 0; r < kRows; ++r) {
    __m512 evens = _mm512_setzero_ps(), odds = _mm512_setzero_ps();
    for (int k = 0; k < kRows; ++k) {
      int pair;
      std::memcpy(&pair, tiles[left].row[r] + k * sizeof(pair), sizeof(pair));
      const __m512i a = _mm512_set1_epi32(pair), b = _mm512_load_si512(tiles[right].row[k]);
      evens = _mm512_fmadd_ps(even(a), even(b), evens);
      odds = _mm512_fmadd_ps(odd(a), odd(b), odds);
    }
    float* to = reinterpret_cast<float*>(tiles[sum].row[r]);
    _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(evens, odds)));
  }
}

}  // namespace emulated_tiles
}  // namespace annulus

#undef _tile_dpbf16ps
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_release
#undef _tile_stored
#undef _tile_stream_loadd
#define _tile_dpbf16ps(sum, left, right) \
  ::annulus::emulated_tiles::AddProduct((sum), (left), (right))
#define _tile_loadconfig(config) ::annulus::emulated_tiles::Forget()
#define _tile_loadd(tile, from, stride) ::annulus::emulated_tiles::Load((tile), (from), (stride))
#define _tile_release() ::annulus::emulated_tiles::Forget()
#define _tile_stored(tile, to, stride) ::annulus::emulated_tiles::Store((tile), (to), (stride))
#define _tile_stream_loadd(tile, from, stride) \
  ::annulus::emulated_tiles::Load((tile), (from), (stride))

#endif  // ANNULUS_TESTS_WORKER_KERNEL_EMULATED_TILES_H_
