#ifndef ANNULUS_WORKER_KERNEL_TILE_PACKING_H_
#define ANNULUS_WORKER_KERNEL_TILE_PACKING_H_

#include <cstdint>
#include <cstring>

#include "worker/kernel/tile_vector.h"

// Packing of a TileIsa (tile_vector.h): rows of any format into fp32 panels.

namespace annulus {
namespace {

template <class V>
inline typename V::F LoadElements(DataType dtype, const std::byte* at) {
  if (dtype == DataType::kFp32) return V::Load(reinterpret_cast<const float*>(at));
  if (dtype == DataType::kBf16) return V::LoadBf16(at);
  return V::LoadFp16(at);
}

// Converts one row; writes whole vectors, zeros past `dim`.
template <class V>
inline void ConvertRow(DataType dtype, const std::byte* row, int dim, float* out) {
  const int bytes = dtype == DataType::kFp32 ? 4 : 2;
  int d = 0;
  for (; d + V::kLanes <= dim; d += V::kLanes)
    V::Store(out + d, LoadElements<V>(dtype, row + int64_t{d} * bytes));
  if (d == dim) return;
  alignas(64) std::byte tail[V::kLanes * 4] = {};
  std::memcpy(tail, row + int64_t{d} * bytes, static_cast<size_t>(dim - d) * bytes);
  V::Store(out + d, LoadElements<V>(dtype, tail));
}

// Converts rows [begin, begin + kPanel) of which `present` and `count` say which exist; the others
// become 0.
template <class V>
inline void ConvertPanelRows(const ElementRows& rows, const uint8_t* present, int begin, int count,
                             int dim, float (*out)[kMaxHeadDim]) {
  for (int i = 0; i < kPanel<V>; ++i) {
    const int row = begin + i;
    if (row < count && present[row]) {
      ConvertRow<V>(rows.dtype, rows.first + row * rows.stride, dim, out[i]);
    } else {
      std::memset(out[i], 0, sizeof(float) * dim);
    }
  }
}

template <class V>
void PackKeys(const ElementRows& rows, const uint8_t* present, int count, int dim, float* out) {
  alignas(64) float converted[kPanel<V>][kMaxHeadDim];
  for (int begin = 0; begin < count; begin += kPanel<V>, out += int64_t{dim} * kPanel<V>) {
    ConvertPanelRows<V>(rows, present, begin, count, dim, converted);
    for (int d = 0; d < dim; ++d)
      for (int i = 0; i < kPanel<V>; ++i) out[d * kPanel<V> + i] = converted[i][d];
  }
}

template <class V>
bool PackValues(const ElementRows& rows, const uint8_t* present, int count, int dim, float* out) {
  alignas(64) float row[kMaxHeadDim + kPanel<V>];
  typename V::F poison = V::Zero();  // Becomes NaN with the first value that is not finite.
  for (int i = 0; i < count; ++i) {
    std::memset(row + dim / kPanel<V> * kPanel<V>, 0, sizeof(float) * kPanel<V>);
    if (present[i]) {
      ConvertRow<V>(rows.dtype, rows.first + i * rows.stride, dim, row);
    } else {
      std::memset(row, 0, sizeof(float) * dim);
    }
    for (int c = 0; c < dim; c += V::kLanes) {
      const typename V::F value = V::Load(row + c);
      poison = V::Fma(value, V::Zero(), poison);
      V::Store(out + c / kPanel<V> * kPanel<V> * kKeyBlock + i * kPanel<V> + c % kPanel<V>, value);
    }
  }
  return SumOfLanes<V>(poison) == 0.0f;
}

template <class V>
void PackQueries(const QueryRows& rows, double scale, float* out) {
  alignas(64) float scaled[kRowGroup][kMaxHeadDim];
  // The scale in two parts, or its own rounding would weigh as much as all others.
  const float high = static_cast<float>(scale);
  const typename V::F scale_high = V::Set(high),
                      scale_low = V::Set(static_cast<float>(scale - high));
  for (int begin = 0; begin < rows.count; begin += kRowGroup, out += rows.dim * kRowGroup) {
    std::memset(scaled, 0, sizeof(scaled));
    for (int r = 0; r < MinInt(kRowGroup, rows.count - begin); ++r) {
      ConvertRow<V>(rows.dtype, rows.row[begin + r], rows.dim, scaled[r]);
      for (int d = 0; d < rows.dim; d += V::kLanes) {
        const typename V::F q = V::Load(scaled[r] + d);
        V::Store(scaled[r] + d, V::Fma(q, scale_high, V::Mul(q, scale_low)));
      }
    }
    for (int d = 0; d < rows.dim; ++d)
      for (int r = 0; r < kRowGroup; ++r) out[d * kRowGroup + r] = scaled[r][d];
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_PACKING_H_
