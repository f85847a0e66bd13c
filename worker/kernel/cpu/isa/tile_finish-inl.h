#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_FINISH_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_FINISH_INL_H_

#include <algorithm>

#include "attention/numerics/partial.h"
#include "attention/spec/rounding.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

// The epilogue of a row: as Finish (attention/numerics/partial.h), with the same bits, rounded to
// `dtype`.
inline void FinishRow(const float* sums, const RowDivision& by, int dim, DataType dtype,
                      std::byte* out) {
  alignas(64) float row[kMaxHeadDim];
  if (by.instead) {
    std::fill_n(row, dim, *by.instead);
  } else {
    const float scale = by.scale, divisor = by.divisor;
    for (int i = 0; i < dim; ++i) row[i] = scale * sums[i] / divisor + 0.0f;
  }
  RoundAll(dtype, row, dim, out);
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_FINISH_INL_H_
