#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_PACKING_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_PACKING_INL_H_

#include <cstdint>
#include <cstring>

#include "worker/kernel/cpu/isa/two_parts.h"
#include "worker/kernel/cpu/isa/vector-inl.h"

// Packing of a TileIsa (vector-inl.h): rows of any format into fp32 panels.

namespace annulus {
namespace {

template <class V>
inline typename V::F LoadElements(DataType dtype, const std::byte* at) {
  if (dtype == DataType::kFp32) return V::Load(reinterpret_cast<const float*>(at));
  if (dtype == DataType::kBf16) return V::LoadBf16(at);
  return V::LoadFp16(at);
}

// Converts one row. Writes whole vectors, with zeros past `dim`.
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

// Elements [begin, begin + kLanes) of a row of `dim`, with zeros past its end.
template <class V>
inline typename V::F LoadPart(DataType dtype, const std::byte* row, int begin, int dim) {
  const int bytes = dtype == DataType::kFp32 ? 4 : 2;
  const std::byte* at = row + int64_t{begin} * bytes;
  if (begin + V::kLanes <= dim) return LoadElements<V>(dtype, at);
  alignas(64) std::byte tail[V::kLanes * 4] = {};
  std::memcpy(tail, at, static_cast<size_t>(dim - begin) * bytes);
  return LoadElements<V>(dtype, tail);
}

template <class V>
void PackKeys(const ElementRows& rows, const uint8_t* present, int count, int dim, float* out) {
  for (int begin = 0; begin < count; begin += kPanel<V>, out += int64_t{dim} * kPanel<V>) {
    for (int i = 0; i < kPanel<V>; i += V::kLanes) {
      for (int d = 0; d < dim; d += V::kLanes) {
        typename V::F square[V::kLanes];
        Unroll<V::kLanes>([&](int r) {
          const int row = begin + i + r;
          square[r] = row < count && present[row]
                          ? LoadPart<V>(rows.dtype, rows.first + row * rows.stride, d, dim)
                          : V::Zero();
        });
        V::Transpose(square);
        float* to = out + int64_t{d} * kPanel<V> + i;
        for (int c = 0; c < MinInt(V::kLanes, dim - d); ++c)
          V::Store(to + c * kPanel<V>, square[c]);
      }
    }
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

// Stores whole vectors in the place of kRowGroup floats. The next store, of the next dimension or
// group, overwrites the excess. So `out` needs room for one vector more.
template <class V>
void PackQueries(const QueryRows& rows, double scale, float* out) {
  constexpr int kParts = (kRowGroup + V::kLanes - 1) / V::kLanes;
  // A rounding of the scale itself would weigh as much as all others together.
  const TwoParts parts = PartsOf(scale);
  const typename V::F scale_high = V::Set(parts.high), scale_low = V::Set(parts.low);
  for (int begin = 0; begin < rows.count; begin += kRowGroup, out += rows.dim * kRowGroup) {
    for (int d = 0; d < rows.dim; d += V::kLanes) {
      typename V::F square[kParts][V::kLanes];
      Unroll<kParts * V::kLanes>([&](int r) {
        typename V::F scaled = V::Zero();
        if (r < kRowGroup && begin + r < rows.count) {
          const typename V::F q = LoadPart<V>(rows.dtype, rows.row[begin + r], d, rows.dim);
          scaled = V::Fma(q, scale_high, V::Mul(q, scale_low));
        }
        square[r / V::kLanes][r % V::kLanes] = scaled;
      });
      Unroll<kParts>([&](int part) { V::Transpose(square[part]); });
      for (int c = 0; c < MinInt(V::kLanes, rows.dim - d); ++c) {
        Unroll<kParts>([&](int part) {
          V::Store(out + (d + c) * kRowGroup + part * V::kLanes, square[part][c]);
        });
      }
    }
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_TILE_PACKING_INL_H_
