#include "worker/kernel/cuda/sm80/gradient_launch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "tests/worker/kernel/cuda/placed_gradients.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "worker/kernel/cuda/sm80/gradient_config.h"

namespace annulus::cuda {
namespace {

class GradientLaunchTest : public PlacedGradients {
 protected:
  void Make(int32_t group, bool shared_bias) {
    spec_ = Spec(DataType::kBf16, 2 * group, 2, 8);
    spec_.sequences = {Rows(300, 500)};
    spec_.masks = {Causal()};
    if (shared_bias) {
      spec_.modifiers.bias = Bias{DataType::kFp32, 1};
      spec_.operation = Operation::kGradients;
      spec_.gradients.d_bias = true;
    }
    Cuts cuts;
    cuts.q_rows = {130, 131};
    cuts.keys = {100, 233};
    cuts.key_shards = 2;
    Place(spec_, cuts);
  }

  AttentionSpec spec_;
};

template <class T>
T Get(const GradientLaunch& launch, int64_t table, int64_t index) {
  T value;
  std::memcpy(&value, launch.bytes.data() + table + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// A thread block's work as GradientBlock finds it.
struct Work {
  int32_t kv_head;
  int64_t tile;
  std::vector<int32_t> pieces;
};
std::vector<Work> WorkOf(const GradientLaunch& launch, const GradientGrid& grid) {
  const GradientArgs args = launch.ArgsOf(grid);
  std::vector<Work> all;
  int32_t g = 0;
  for (int64_t block = 0; block < grid.blocks; ++block) {
    while (g + 1 < args.group_count &&
           Get<GradientGroup>(launch, args.groups, g + 1).first_block <= block)
      ++g;
    const auto group = Get<GradientGroup>(launch, args.groups, g);
    const auto i = static_cast<int32_t>(block) - group.first_block;
    Work work = {group.head_begin + i % group.heads,
                 group.first_tile + int64_t{i / group.heads} * group.tile_step,
                 {}};
    for (int32_t u = group.unit_begin; u < group.unit_end; ++u)
      work.pieces.push_back(Get<int32_t>(launch, args.units, u));
    all.push_back(work);
  }
  return all;
}

// In each launch of a task's pieces, every (task, row, key/value head) meets its queries' owner
// once, and every (task, key tile, head) its keys' owner once. Tasks come in list order.
TEST_F(GradientLaunchTest, EveryAccumulatorMeetsItsTasksOnceInOrder) {
  for (const int32_t group : {2, 3}) {
    for (const bool bias : {false, true}) {
      Make(group, bias);
      for (const int64_t max_bytes : {1 << 20, 12 << 10}) {
        const std::vector<LaunchPieces> cut = Cut(max_bytes);
        EXPECT_EQ(cut.size() > 1, max_bytes < 1 << 20);
        std::map<std::tuple<int32_t, int64_t, int32_t>, int> rows;
        std::map<std::tuple<const std::byte*, int64_t, int32_t>, int32_t> last;
        int64_t pairs = 0, expected_pairs = 0;
        for (const LaunchPieces& pieces : cut) {
          const GradientLaunch launch = MakeGradientLaunch(job_, tasks_, *seen_, pieces, &memory_);
          EXPECT_LE(static_cast<int64_t>(launch.bytes.size()), max_bytes);
          for (const TaskPiece& piece : pieces) {
            const Task& task = tasks_[piece.task].task;
            expected_pairs += ((task.k_end + 63) / 64 - task.k_begin / 64) * 2;
          }
          for (const GradientGrid& grid : launch.grids) {
            for (const Work& work : WorkOf(launch, grid)) {
              for (const int32_t p : work.pieces) {
                const TaskPiece& piece = pieces[p];
                const Task& task = tasks_[piece.task].task;
                if (grid.side == GradientSide::kKeysAndValues) {
                  pairs += work.tile >= task.k_begin / 64 && work.tile * 64 < task.k_end;
                  continue;
                }
                for (int64_t slot = work.tile * 64; slot < work.tile * 64 + 64; ++slot) {
                  const int64_t row = slot / group;
                  if (slot % group != 0 || row < piece.q_begin || row >= piece.q_end) continue;
                  ++rows[{piece.task, row, work.kv_head}];
                  int32_t& before = last[{tasks_[piece.task].out_q.data, row, work.kv_head}];
                  EXPECT_LE(before, piece.task);
                  before = piece.task;
                }
              }
            }
          }
        }
        int64_t expected = 0;
        for (const KernelTask& bound : tasks_)
          expected += (bound.task.q_end - bound.task.q_begin) * 2;
        EXPECT_EQ(static_cast<int64_t>(rows.size()), expected);
        for (const auto& [key, count] : rows) ASSERT_EQ(count, 1) << std::get<1>(key);
        EXPECT_EQ(pairs, expected_pairs);
      }
    }
  }
}

// Rows of a bias that heads share belong to only one block of a launch.
TEST_F(GradientLaunchTest, BlocksThatShareRowsOfABiasAreInLaunchesOfTheirOwn) {
  for (const int32_t group : {2, 3, 70}) {
    Make(group, true);
    for (const LaunchPieces& pieces : Cut(1 << 20)) {
      const GradientLaunch launch = MakeGradientLaunch(job_, tasks_, *seen_, pieces, &memory_);
      for (const GradientGrid& grid : launch.grids) {
        if (grid.side != GradientSide::kQueries) continue;
        std::map<int64_t, size_t> owner;
        const std::vector<Work> all = WorkOf(launch, grid);
        for (size_t b = 0; b < all.size(); ++b) {
          for (int64_t slot = all[b].tile * 64; slot < all[b].tile * 64 + 64; ++slot)
            ASSERT_EQ(owner.try_emplace(slot / group, b).first->second, b) << group;
        }
      }
    }
  }
}

TEST_F(GradientLaunchTest, ALaunchOfMuchWorkBecomesSeveral) {
  Make(2, false);
  constexpr int64_t kRows = 1 << 21;
  KernelTask huge = tasks_[0];
  huge.task.q_end = huge.task.k_end = kRows;
  huge.task.coverage = Coverage::kFull;
  const auto cut = CutGradients(job_, {huge}, *seen_, int64_t{1} << 30);
  ASSERT_TRUE(cut.ok()) << cut.status();
  const double rows = kRows - huge.task.q_begin, keys = kRows - huge.task.k_begin;
  const double pairs = rows * keys * (huge.task.head_end - huge.task.head_begin);
  const double launches = pairs * PairCost(job_).Of(huge) / kMaxLaunchWork;
  EXPECT_GE(cut->size(), launches);
  EXPECT_LE(cut->size(), launches * 1.1 + 1);
}

// A chunk of rows, each of another sequence, seen by the most classes of heads that are permitted.
TEST_F(GradientLaunchTest, AnyNumberOfSequencesAndMasksFitsWhatALaunchHas) {
  constexpr int64_t kMaxBytes = int64_t{4} << 20;  // A device's value.
  constexpr int32_t kHeads = 64;
  spec_ = Spec(DataType::kBf16, kHeads, kHeads, 1);
  spec_.sequences.assign(8192, Rows(1, 2));
  for (int32_t head = 0; head < kHeads; ++head) {
    spec_.masks.push_back(Causal());
    spec_.masks.back().window_left = 100 + head;
    spec_.masks.back().bit_mask = true;
    spec_.masks.back().query_heads = {head};
  }
  spec_.modifiers.alibi_slopes.assign(kHeads, 0.5f);
  Place(spec_, {});
  int64_t rows = 0;
  for (const LaunchPieces& pieces : Cut(kMaxBytes)) {
    const GradientLaunch launch = MakeGradientLaunch(job_, tasks_, *seen_, pieces, &memory_);
    EXPECT_LE(static_cast<int64_t>(launch.bytes.size()), kMaxBytes);
    for (const TaskPiece& piece : pieces) rows += piece.q_end - piece.q_begin;
  }
  EXPECT_EQ(rows, 8192);
}

TEST_F(GradientLaunchTest, PiecesAreOfWholeChunks) {
  Make(2, false);
  int inner = 0;
  for (int64_t bytes = 9 << 10; bytes <= 12 << 10; bytes += 128) {
    for (const LaunchPieces& pieces : Cut(bytes)) {
      for (const TaskPiece& piece : pieces) {
        if (piece.q_end == tasks_[piece.task].task.q_end) continue;
        EXPECT_EQ(piece.q_end % kChunkRows, 0);
        ++inner;
      }
    }
  }
  EXPECT_GT(inner, 0);
  EXPECT_EQ(CutGradients(job_, tasks_, *seen_, 1000).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(GradientLaunchTest, HullsHoldWhatTheirRowsSee) {
  Make(2, false);
  for (const LaunchPieces& pieces : Cut(1 << 20)) {
    const GradientLaunch launch = MakeGradientLaunch(job_, tasks_, *seen_, pieces, &memory_);
    for (size_t p = 0; p < pieces.size(); ++p) {
      const auto task = Get<GradientTask>(launch, launch.args.tasks, static_cast<int64_t>(p));
      if (task.hull_at < 0) continue;
      for (int64_t row = pieces[p].q_begin; row < pieces[p].q_end; ++row) {
        const int64_t chunk = row / kChunkRows - pieces[p].q_begin / kChunkRows;
        const auto hull = Get<KeySpan32>(launch, launch.args.hulls, task.hull_at + chunk);
        for (const Interval& span : visible_->Of(pieces[p].task, 0, row)) {
          EXPECT_LE(hull.begin, span.begin);
          EXPECT_GE(hull.end, span.end);
        }
      }
    }
  }
}

// Like the forward kernel: within a block's limit on sm_80.
TEST(GradientSharedBytesTest, FitsGpus) {
  for (const Element element : {Element::kFp32, Element::kFp16, Element::kBf16})
    for (const int dim : {64, 128, 256})
      for (const bool changes : {false, true})
        for (const GradientSide side :
             {GradientSide::kQueries, GradientSide::kKeysAndValues, GradientSide::kKeys})
          EXPECT_LE(SharedBytesOf(GradientKind{{element, dim, changes}, side}), 163 << 10);
}

}  // namespace
}  // namespace annulus::cuda
