#ifndef ANNULUS_WORKER_KERNEL_NEXT_PANEL_H_
#define ANNULUS_WORKER_KERNEL_NEXT_PANEL_H_

#include <cstdint>

#include "worker/kernel/tile_vector.h"

// What the matrix products of a TileIsa ask memory for (tile_vector.h).

namespace annulus {
namespace {

inline constexpr int kLineFloats = 16;

// Panels that are read one after the other lie so in memory, each far larger than what the row
// groups of a tile have of their own. So while a panel is read the next is asked for, from wherever
// it lies: each row group asks for its part, a line in so many steps.
template <class V>
inline constexpr int kAskEvery = kTileRows / kRowGroup* kLineFloats /
                                 (kPanel<V> > kLineFloats ? kPanel<V> : kLineFloats);

class NextPanel {
 public:
  // Behind the panel at `panel`, of `steps` steps, for the row group of that number.
  template <class V>
  static NextPanel Of(const float* panel, int steps, int group) {
    const int64_t lines = int64_t{steps / kAskEvery<V>} * (group % (kTileRows / kRowGroup));
    const int64_t floats = int64_t{steps} * kPanel<V> + lines * kLineFloats;
    return NextPanel(reinterpret_cast<uintptr_t>(panel) + floats * sizeof(float));
  }
  void AskForLine() {
    __builtin_prefetch(reinterpret_cast<const void*>(line_), /*rw=*/0, /*locality=*/3);
    line_ += kLineFloats * sizeof(float);
  }

 private:
  explicit NextPanel(uintptr_t line) : line_(line) {}
  uintptr_t line_;  // Perhaps of nothing: it is not read.
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_NEXT_PANEL_H_
