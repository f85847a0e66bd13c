#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_SM90_HOPPER_JOBS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_SM90_HOPPER_JOBS_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "attention/spec/spec.h"
#include "tests/worker/kernel/kernel_harness.h"

namespace annulus::cuda {

inline Sequence Rows(int64_t q_len, int64_t kv_len) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  return sequence;
}

inline AttentionSpec Spec(DataType dtype, int32_t q_heads, int32_t kv_heads, int32_t dim,
                          int64_t rows, int64_t keys) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = dim;
  spec.sequences = {Rows(rows, keys)};
  return spec;
}

inline AttentionSpec Causal(AttentionSpec spec) {
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

// Random masks, cuts, heads, dimensions and lengths. Asynchronous parts are late at random.
class RandomJob {
 public:
  explicit RandomJob(uint64_t seed) : random_(seed) {
    const auto kv_heads = static_cast<int32_t>(Between(1, 2));
    spec = Spec(Odds(2) ? DataType::kBf16 : DataType::kFp16,
                kv_heads * static_cast<int32_t>(Between(1, 5)), kv_heads, 8, 0, 0);
    spec.head_dim = 8 * static_cast<int32_t>(Odds(4) ? Between(17, 32) : Between(1, 16));
    spec.sequences.clear();
    for (int64_t n = Between(1, 3); n > 0; --n)
      spec.sequences.push_back(Rows(Between(0, 90), Odds(3) ? Between(0, 500) : Between(0, 150)));
    if (Odds(4)) spec.scale = Odds(2) ? -0.125 : 0.0;
    if (Odds(3)) spec.out_dtype = DataType::kFp32;
    if (!Odds(4)) MakeMask();
    for (int64_t n = Between(0, 1); n > 0; --n) cuts.q_rows.push_back(Between(0, 100));
    for (int64_t n = Between(0, 2); n > 0; --n) cuts.keys.push_back(Between(0, 400));
    if (Odds(3)) cuts.q_heads.push_back(static_cast<int32_t>(Between(0, spec.q_heads)));
    std::sort(cuts.keys.begin(), cuts.keys.end());
    cuts.key_shards = static_cast<int>(Between(1, 2));
    cuts.striped = Odds(2);
    cuts.call_per_task = Odds(3);
  }

  AttentionSpec spec;
  Cuts cuts;

 private:
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Odds(int one_in) { return Between(1, one_in) == 1; }
  void MakeMask() {
    spec.masks.resize(1);
    Mask& mask = spec.masks[0];
    mask.causal = !Odds(3);
    if (Odds(3)) mask.alignment = Mask::Alignment::kTopLeft;
    if (Odds(3)) mask.window_left = Between(0, 200);
    if (Odds(4)) mask.window_right = Between(0, 50);
    if (Odds(3)) mask.always_visible = Between(0, 20);
    if (Odds(6)) mask.chunk = Between(1, 64);
    if (Odds(5)) mask.prefix = Between(0, 150);
  }

  std::mt19937_64 random_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_SM90_HOPPER_JOBS_H_
