// GPU memory of a rank in a long ring, by its plan. Needs no GPU.

#include <cstdint>

#include "attention/spec/spec.h"
#include "gtest/gtest.h"
#include "worker/executor/program.h"

namespace annulus {
namespace {

AttentionSpec LongSpec(bool causal) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = 65536;
  if (causal) {
    spec.masks.resize(1);
    spec.masks[0].causal = true;
  }
  return spec;
}

// Bytes per rank that a ring needs at least: its queries, the keys and values that it reads and
// those that it receives meanwhile, and the partial. All of them exist before the output does.
double LeastBytes(const AttentionSpec& spec, int32_t ranks) {
  const double rows = static_cast<double>(spec.q_rows()) / ranks, dim = spec.head_dim;
  const double q = spec.q_heads, kv = spec.kv_heads, bytes = 2, sums = 4;
  return rows * (q * dim * bytes + 2 * 2 * kv * dim * bytes + q * (dim + 2) * sums);
}

TEST(RingBytes, AnArenaIsHardlyMoreThanARingCannotDoWithout) {
  for (const int32_t ranks : {4, 8}) {
    for (const bool causal : {false, true}) {
      ProgramRequest request;
      request.spec = LongSpec(causal);
      request.plan_options.world_size = ranks;
      request.plan_options.layout = Layout::kZigzag;
      request.execution.strategy = Strategy::kRingPassKv;
      const double least = LeastBytes(request.spec, ranks);
      for (request.rank = 0; request.rank < ranks; ++request.rank) {
        const auto program = MakeProgram(request);
        ASSERT_TRUE(program.ok()) << program.status();
        const auto arena = static_cast<double>((*program)->placement.arena_bytes);
        EXPECT_GE(arena, least) << "rank " << request.rank << " of " << ranks;
        EXPECT_LE(arena, 1.01 * least) << "rank " << request.rank << " of " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace annulus
