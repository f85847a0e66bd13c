#ifndef ANNULUS_WORKER_KERNEL_AMX_TILES_H_
#define ANNULUS_WORKER_KERNEL_AMX_TILES_H_

#include <immintrin.h>

#include <cstdint>

// The tile registers of AMX.

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

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_AMX_TILES_H_
