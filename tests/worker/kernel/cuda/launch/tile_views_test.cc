#include "worker/kernel/cuda/launch/tile_views.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/schedule/model/block_layout.h"

namespace annulus::cuda {
namespace {

using Heads = std::vector<int32_t>;

// Two sequences. `special` heads have a window, all others a causal mask.
AttentionSpec SpecOf(int32_t q_heads, int32_t kv_heads, const Heads& special) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = 64;
  spec.sequences.resize(2);
  for (Sequence& sequence : spec.sequences) sequence.q_len = sequence.kv_len = 300;
  spec.masks.resize(special.empty() ? 1 : 2);
  spec.masks[0].causal = true;
  if (special.empty()) return spec;
  spec.masks[1].window_left = 20;
  spec.masks[1].query_heads = special;
  return spec;
}

struct Call {
  explicit Call(const AttentionSpec& of) : spec(of), mask(spec), layout(spec) {
    job.spec = &spec;
    job.mask = &mask;
    job.layout = &layout;
  }
  Heads Alike(int32_t head_begin, int32_t head_end) const {
    Task task;
    task.head_begin = head_begin;
    task.head_end = head_end;
    return AlikeHeads(job, task);
  }

  const AttentionSpec spec;
  const MaskMap mask;
  const BlockLayout layout;
  KernelJob job;
};

TEST(TileViewsTest, HeadsOfOneMaskAreLookedAtOnce) {
  const Call call(SpecOf(16, 16, {}));
  EXPECT_EQ(call.Alike(0, 16), Heads(16, 0));
  EXPECT_EQ(call.Alike(5, 9), Heads(4, 5));
  EXPECT_EQ(Call(SpecOf(16, 4, {})).Alike(0, 16), Heads(4, 0));
}

TEST(TileViewsTest, HeadsAreAlikeWhereAsManyQueryHeadsSeeTheSame) {
  // Key/value heads 0 to 3: {3}, {4}, none, {12, 15}.
  const Call call(SpecOf(16, 4, {3, 4, 12, 15}));
  EXPECT_EQ(call.Alike(0, 16), (Heads{0, 0, 2, 3}));
  // Heads of the task: {2, 3}, {4 to 7}, {8}.
  EXPECT_EQ(call.Alike(2, 9), (Heads{0, 1, 2}));
}

// Each key/value head's query heads, by the class of their visibility.
TEST(TileViewsTest, AlikeIsWhatBruteForceSays) {
  std::mt19937 random(20261123);
  for (int round = 0; round < 300; ++round) {
    const int32_t group = 1 + static_cast<int32_t>(random() % 4);
    const int32_t kv_heads = 1 + static_cast<int32_t>(random() % 8), q_heads = kv_heads * group;
    Heads special;
    for (int32_t head = 0; head < q_heads; ++head)
      if (random() % 3 == 0) special.push_back(head);
    const Call call(SpecOf(q_heads, kv_heads, special));
    const auto begin = static_cast<int32_t>(random() % q_heads);
    const int32_t end = begin + 1 + static_cast<int32_t>(random() % (q_heads - begin));
    std::map<int32_t, std::multiset<int32_t>> classes;
    for (int32_t head = begin; head < end; ++head)
      classes[head / group].insert(call.mask.ClassOf(head));
    const Heads alike = call.Alike(begin, end);
    ASSERT_EQ(alike.size(), classes.size());
    size_t i = 0;
    for (const auto& [kv_head, seen] : classes) {
      int32_t first = kv_head;
      for (const auto& [other, other_seen] : classes)
        if (other < first && other_seen == seen) first = other;
      ASSERT_EQ(alike[i++], first) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
