#include "worker/kernel/cuda/cudnn/cudnn_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/kernel_harness.h"

namespace annulus::cuda {
namespace {

AttentionSpec Spec(int64_t rows, int64_t keys) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 16;
  spec.head_dim_v = 8;
  Sequence sequence;
  sequence.q_len = rows;
  sequence.kv_len = keys;
  spec.sequences = {sequence};
  return spec;
}

bool Serves(const AttentionSpec& spec) {
  const MaskMap mask(spec);
  const BlockLayout layout(spec);
  return CudnnServes({&spec, &mask, &layout, spec.scale.value_or(0.25)});
}

TEST(CudnnPlan, ServesWhatItsArithmeticIs) {
  const AttentionSpec plain = Spec(4, 4);
  EXPECT_TRUE(Serves(plain));
  const auto with = [&](auto change) {
    AttentionSpec spec = plain;
    change(&spec);
    return Serves(spec);
  };
  EXPECT_TRUE(with([](AttentionSpec* s) { s->dtype = DataType::kFp16; }));
  EXPECT_TRUE(with([](AttentionSpec* s) { s->head_dim = 256; }));
  EXPECT_TRUE(with([](AttentionSpec* s) { s->modifiers.sinks = {1, 2}; }));
  EXPECT_TRUE(with([](AttentionSpec* s) { s->outputs.max_logit = true; }));
  EXPECT_TRUE(with([](AttentionSpec* s) { s->out_dtype = DataType::kFp32; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->dtype = DataType::kFp32; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->head_dim = 264; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->head_dim = 20; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->head_dim_v = 12; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->scale = 0.0; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->scale = -1.0; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->scale = 1e-40; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->deterministic = true; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->modifiers.soft_cap = 1; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->modifiers.alibi_slopes = {1, 2}; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->dropout = Dropout{0.0, 1}; }));
  EXPECT_FALSE(with([](AttentionSpec* s) { s->modifiers.bias.emplace(); }));
}

// A random job, its tasks and their cuts.
struct Case {
  explicit Case(std::mt19937* random) {
    const auto one_of = [&](int64_t least, int64_t most) {
      return std::uniform_int_distribution<int64_t>(least, most)(*random);
    };
    spec = Spec(one_of(1, 60), one_of(1, 90));
    spec.kv_heads = static_cast<int32_t>(one_of(1, 3));
    spec.q_heads = static_cast<int32_t>(spec.kv_heads * one_of(1, 3));
    if (one_of(0, 2) == 0) spec.sequences.push_back(spec.sequences[0]);
    spec.masks.resize(1);
    spec.masks[0].causal = one_of(0, 3) > 0;
    if (one_of(0, 2) == 0) spec.masks[0].window_left = one_of(0, 60);
    if (one_of(0, 3) == 0) spec.masks[0].prefix = one_of(0, 60);
    if (one_of(0, 2) == 0) {
      spec.masks.emplace_back();
      spec.masks[1].causal = one_of(0, 1) > 0;
      for (int32_t head = 0; head < spec.q_heads; ++head)
        if (one_of(0, 1) > 0) spec.masks[1].query_heads.push_back(head);
      if (spec.masks[1].query_heads.empty()) spec.masks.pop_back();
    }
    cuts.key_shards = static_cast<int>(one_of(1, 2));
    cuts.striped = one_of(0, 3) == 0;
    if (spec.q_heads > 1 && one_of(0, 1) == 0)
      cuts.q_heads = {static_cast<int32_t>(one_of(1, spec.q_heads - 1))};
    rule.least_rows = one_of(1, 20);
    rule.least_keys = one_of(1, 30);
    rule.granule = one_of(1, 9);
    rule.scratch_bytes = one_of(0, 6000);
    rule.most_numbers = one_of(0, 1) > 0 ? one_of(1, 4000) : rule.most_numbers;
  }
  AttentionSpec spec;
  Cuts cuts;
  CudnnRule rule;
};

// (accumulator, head, query row, shard, key row) of every pair of a task.
using Pair = std::tuple<const std::byte*, int32_t, int64_t, const std::byte*, int64_t>;

template <class Function>
void ForEachPair(const KernelJob& job, const KernelTask& bound, Function function) {
  const Task& task = bound.task;
  for (int32_t head = task.head_begin; head < task.head_end; ++head) {
    for (int64_t row = task.q_begin; row < task.q_end; ++row) {
      const Intervals seen = job.mask->VisiblePacked(head, bound.q_rows->Global(row));
      for (int64_t key = task.k_begin; key < task.k_end; ++key) {
        const int64_t packed = bound.k_rows->Global(key);
        const bool visible = std::any_of(seen.begin(), seen.end(), [&](const Interval& interval) {
          return interval.begin <= packed && packed < interval.end;
        });
        function(Pair(bound.out_q.data, head, row, bound.kv.data, key), visible);
      }
    }
  }
}

TEST(CudnnPlan, PartsSeeWhatTheTasksSaw) {
  std::mt19937 random(5);
  int64_t rectangles = 0, whole = 0;
  for (int round = 0; round < 1500; ++round) {
    const Case made(&random);
    KernelHarness harness(made.spec, reference::InputOf(made.spec), made.cuts);
    const KernelJob job = harness.job();
    const std::vector<KernelTask> tasks = harness.Tasks();
    const CudnnCut cut = CutForCudnn(job, tasks, made.rule);
    std::map<Pair, int> parts;
    for (const KernelTask& rectangle : cut.rectangles) {
      const Task& task = rectangle.task;
      EXPECT_EQ(task.coverage, Coverage::kFull);
      const CudnnShape shape = ShapeOf(job, rectangle);
      EXPECT_GE(shape.keys, made.rule.least_keys);
      EXPECT_EQ(shape.rows, task.q_end - task.q_begin);
      EXPECT_EQ(shape.keys, task.k_end - task.k_begin);
      EXPECT_EQ(shape.q_heads % shape.kv_heads, 0);
      EXPECT_LE(shape.rows * shape.out_stride * 4, made.rule.scratch_bytes);
      EXPECT_LT(shape.rows * shape.q_stride, made.rule.most_numbers);
      EXPECT_LT(shape.keys * shape.kv_stride, made.rule.most_numbers);
      // A head's keys are those of its group.
      for (int32_t h = 0; h < shape.q_heads; ++h) {
        EXPECT_EQ(
            h / (shape.q_heads / shape.kv_heads),
            (task.head_begin + h) / job.layout->group() - task.head_begin / job.layout->group());
      }
      ForEachPair(job, rectangle, [&](const Pair& pair, bool visible) {
        EXPECT_TRUE(visible);
        ++parts[pair];
      });
    }
    for (const KernelTask& rest : cut.rest) {
      ForEachPair(job, rest, [&](const Pair& pair, bool visible) {
        EXPECT_TRUE(visible || rest.task.coverage != Coverage::kFull);
        ++parts[pair];
      });
    }
    for (const KernelTask& task : tasks) {
      ForEachPair(job, task, [&](const Pair& pair, bool visible) {
        const auto at = parts.find(pair);
        const int times = at == parts.end() ? 0 : at->second;
        EXPECT_LE(times, 1);
        EXPECT_GE(times, visible ? 1 : 0);
        if (at != parts.end()) parts.erase(at);
      });
    }
    EXPECT_TRUE(parts.empty()) << "what no task had";
    rectangles += static_cast<int64_t>(cut.rectangles.size());
    whole += cut.rectangles.empty() && cut.rest.size() == tasks.size() ? 1 : 0;
  }
  EXPECT_GT(rectangles, 1500);
  EXPECT_GT(whole, 100);
}

// Seven eighths of the pairs of a long causal job; without a mask one task.
TEST(CudnnPlan, ACausalMaskIsMostlyRectangles) {
  AttentionSpec spec = Spec(16384, 16384);
  spec.head_dim = spec.head_dim_v = 8;
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  KernelHarness harness(spec, reference::InputOf(spec), {});
  const std::vector<KernelTask> tasks = harness.Tasks();
  const CudnnCut cut = CutForCudnn(harness.job(), tasks, CudnnRule());
  int64_t area = 0;
  for (const KernelTask& rectangle : cut.rectangles)
    area += (rectangle.task.q_end - rectangle.task.q_begin) *
            (rectangle.task.k_end - rectangle.task.k_begin);
  EXPECT_EQ(area, int64_t{7} * 16384 * 16384 / 16);
  EXPECT_EQ(CutForCudnn(harness.job(), tasks, {256, 16384, 128, 1 << 26}).rest.size(), 1u);
}

// One of many wide heads with little output: the means of a million rows fit the scratch memory.
TEST(CudnnPlan, QueriesThatCannotBeCountedAreCut) {
  constexpr int64_t kRows = 100000, kKeys = 4096;
  AttentionSpec spec = Spec(kRows, kKeys);
  spec.q_heads = 128;
  spec.head_dim = 256;
  const MaskMap mask(spec);
  const BlockLayout layout(spec);
  const KernelJob job = {&spec, &mask, &layout, 1};
  const RowMap q_rows = AllRows(kRows), k_rows = AllRows(kKeys);
  KernelTask bound;
  const auto view = [](BlockKind kind, int64_t rows, int32_t heads) {
    BlockView made;
    made.block.kind = kind;
    made.block.row_end = rows;
    made.block.head_end = heads;
    made.data = reinterpret_cast<std::byte*>(int64_t{1} << 40);  // This address is never read.
    return made;
  };
  bound.q = view(BlockKind::kQ, kRows, 128);
  bound.kv = view(BlockKind::kKv, kKeys, 1);
  bound.out_q = view(BlockKind::kPartial, kRows, 128);
  bound.q_rows = &q_rows;
  bound.k_rows = &k_rows;
  bound.task.q_end = kRows;
  bound.task.k_end = kKeys;
  bound.task.head_end = 1;
  bound.task.coverage = Coverage::kFull;
  const CudnnCut cut = CutForCudnn(job, {&bound, 1}, CudnnRule());
  EXPECT_TRUE(cut.rest.empty());
  ASSERT_EQ(cut.rectangles.size(), 2u);
  int64_t rows = 0;
  for (const KernelTask& rectangle : cut.rectangles) {
    const CudnnShape shape = ShapeOf(job, rectangle);
    EXPECT_EQ(shape.q_stride, 128 * 256);
    EXPECT_LT(shape.rows * shape.q_stride, int64_t{1} << 31);
    rows += shape.rows;
  }
  EXPECT_EQ(rows, kRows);
}

TEST(CudnnPlan, RowsThatAreNotAlignedAreTheOthers) {
  AttentionSpec spec = Spec(40, 40);
  KernelHarness harness(spec, reference::InputOf(spec), {});
  std::vector<KernelTask> tasks = harness.Tasks();
  const CudnnRule rule{1, 1, 8, 1 << 20};
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(CutForCudnn(harness.job(), tasks, rule).rectangles.size(), 1u);
  for (BlockView KernelTask::*view : {&KernelTask::q, &KernelTask::kv}) {
    std::vector<KernelTask> moved = tasks;
    (moved[0].*view).data += 8;
    EXPECT_TRUE(CutForCudnn(harness.job(), moved, rule).rectangles.empty());
  }
  const SectionPlaces places = {};
  tasks[0].kv.apart = &places;
  EXPECT_TRUE(CutForCudnn(harness.job(), tasks, rule).rectangles.empty());
}

}  // namespace
}  // namespace annulus::cuda
