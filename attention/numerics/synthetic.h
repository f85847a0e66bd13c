#ifndef ANNULUS_ATTENTION_NUMERICS_SYNTHETIC_H_
#define ANNULUS_ATTENTION_NUMERICS_SYNTHETIC_H_

#include <cstddef>
#include <cstdint>

#include "attention/mask/mask.h"
#include "attention/numerics/philox.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Synthetic inputs. Each element is a pure function of (seed, tensor, row, head, dim), so any part
// of a tensor can be made or checked alone, in any language. The element is
//   n / 128, where n + 128 is the top byte of word 0 of Philox4x32-10 under
//   key     = (seed mod 2^32, ⌊seed / 2^32⌋)
//   counter = (tensor + 256·⌊row / 2^32⌋, row mod 2^32, head, dim)
// `tensor` is the number of the TensorId and `row` the packed row of the job. Values are multiples
// of 2^-7 in [−1, 1), exact in fp32, fp16 and bf16, so every dtype has the same numbers. An element
// of a bit mask is the top byte itself, as eight bits. See docs/reference/numerics.md, "Synthetic
// inputs".

// One element. row, head and dim must not be negative.
float SyntheticValue(uint64_t seed, TensorId tensor, int64_t row, int32_t head, int32_t dim);

// Writes the packed rows `rows` of a tensor, all heads, row-major, as `tensor.dtype` (fp32, fp16,
// bf16 or bits). `target` has room for rows.length() * tensor.row_bytes() bytes and needs no
// alignment. Writes about 50 million elements per second.
void FillSyntheticRows(uint64_t seed, const TensorInfo& tensor, Interval rows, std::byte* target);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_SYNTHETIC_H_
