#ifndef ANNULUS_CLIENT_VERIFY_ROWS_H_
#define ANNULUS_CLIENT_VERIFY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/dtype.h"
#include "attention/tensor_table.h"

namespace annulus {

// What the verifiers of answers share.

// One head of rows [begin, begin + count) of a tensor, as floats.
std::vector<float> HeadRows(const TensorInfo& tensor, const std::byte* base, int32_t head,
                            int64_t begin, int64_t count);

// `value` rounded to a type and back.
float RoundTo(DataType dtype, float value);

// The distance of neighbouring numbers of a type at a magnitude.
double (*UlpOf(DataType dtype))(double magnitude);

// `count` of [0, rows), distinct, in order; all where there are no more.
std::vector<int64_t> PickRows(int64_t rows, int64_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_VERIFY_ROWS_H_
