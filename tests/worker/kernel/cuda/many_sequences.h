#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_MANY_SEQUENCES_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_MANY_SEQUENCES_H_

#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus::cuda {

// A job of many short sequences, some empty. Its modifiers need the sequence of each row and, with
// ALiBi and bits, its data for each head. Two masks align rows differently; one has bits.
inline AttentionSpec ManySequencesSpec(DataType dtype) {
  AttentionSpec spec = Spec(dtype, 6, 3, 16);
  for (int64_t s = 0; s < 150; ++s) spec.sequences.push_back(Rows(s % 4, (s * 5 + 3) % 7));
  spec.masks = {Causal(), Causal()};
  spec.masks[0].bit_mask = true;
  spec.masks[1].alignment = Mask::Alignment::kTopLeft;
  spec.masks[1].query_heads = {1, 4};
  spec.modifiers.alibi_slopes = {0.5f, 0.25f, 0.1f, 0.01f, -0.1f, 1.0f};
  spec.dropout = Dropout{0.2, 7};
  return spec;
}

// A limit of tables in bytes that is too small for all sequences and heads of that job.
inline constexpr int64_t kFewTables = 7 << 10;

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_MANY_SEQUENCES_H_
