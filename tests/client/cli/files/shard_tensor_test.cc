#include "client/cli/files/shard_tensor.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attention/sharding/shard_plan.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

using Bytes = std::vector<std::byte>;

// A plan as the service sends it.
v1::Plan PlanOf(const AttentionSpec& spec, const PlanOptions& options) {
  const auto made = MakeShardPlan(spec, options);
  v1::Plan plan;
  for (const Shard& shard : made->shards) {
    v1::ShardPlan* said = plan.add_shards();
    said->set_rank(shard.owner);
    RowMapToProto(shard.q_rows, said->mutable_q_rows());
    RowMapToProto(shard.kv_rows, said->mutable_kv_rows());
  }
  return plan;
}

AttentionSpec SpecOf(const std::vector<std::pair<int64_t, int64_t>>& lengths) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = spec.kv_heads = spec.head_dim = 1;
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  for (const auto& [q, kv] : lengths) spec.sequences.push_back({q, kv, "", 0, 0});
  return spec;
}

// Elements that contain their own index.
Bytes Numbered(int64_t elements, int64_t element_bytes) {
  Bytes bytes(elements * element_bytes);
  for (int64_t i = 0; i < elements; ++i)
    std::memcpy(&bytes[i * element_bytes], &i, std::min<int64_t>(element_bytes, 8));
  return bytes;
}

int64_t Elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// The packed row of each of a rank's rows, from the plan's message alone.
std::vector<int64_t> RowsSaid(const v1::ShardPlan& shard, RowSpace space) {
  std::vector<int64_t> rows;
  for (const v1::RowRange& range : space == RowSpace::kQuery ? shard.q_rows() : shard.kv_rows()) {
    for (int64_t i = 0; i < range.count(); ++i)
      for (int64_t j = 0; j < range.block(); ++j)
        rows.push_back(range.begin() + i * range.stride() + j);
  }
  return rows;
}

// Copies one element after another.
Bytes ShardByHand(const TensorShape& t, const Bytes& whole, const std::vector<int64_t>& rows) {
  const int64_t tokens = t.shape[t.token_dim];
  int64_t blocks = 1, inner = 1;
  for (int d = t.has_batch ? 1 : 0; d < t.token_dim; ++d) blocks *= t.shape[d];
  for (size_t d = t.token_dim + 1; d < t.shape.size(); ++d) inner *= t.shape[d];
  Bytes shard;
  for (int64_t block = 0; block < blocks; ++block) {
    for (const int64_t row : rows) {
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t at = ((row / tokens * blocks + block) * tokens + row % tokens) * inner + i;
        const auto from = whole.begin() + at * t.element_bytes;
        shard.insert(shard.end(), from, from + t.element_bytes);
      }
    }
  }
  return shard;
}

void ExpectRoundTrip(const v1::Plan& plan, const TensorShape& tensor) {
  const auto rows = PlanRows::Of(plan);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const Bytes whole = Numbered(Elements(tensor.shape), tensor.element_bytes);
  std::vector<TensorShard> shards;
  for (int32_t rank = 0; rank < rows->ranks(); ++rank) {
    auto shard = ShardTensor(*rows, tensor, whole, rank);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(shard->bytes, ShardByHand(tensor, whole, RowsSaid(plan.shards(rank), tensor.rows)));
    EXPECT_EQ(Elements(shard->shape) * tensor.element_bytes,
              static_cast<int64_t>(shard->bytes.size()));
    EXPECT_EQ(shard->shape, *ShardShape(*rows, tensor, rank));
    shards.push_back(*std::move(shard));
  }
  std::vector<absl::Span<const std::byte>> parts;
  for (const TensorShard& shard : shards) parts.push_back(shard.bytes);
  const auto back = UnshardTensor(*rows, tensor, parts);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == whole);
}

constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag, Layout::kStriped,
                               Layout::kByArea, Layout::kZigzagPerSequence};

// Lengths below, at and above what divides; shorter than the number of ranks; zero; and packed ones
// of which some are empty.
TEST(ShardTensorTest, EveryLayoutGivesTheRowsThatThePlanSaysAndTheWayBack) {
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> jobs = {
      {{0, 0}},   {{1, 1}},   {{2, 7}},   {{8, 8}},
      {{13, 13}}, {{37, 64}}, {{64, 37}}, {{5, 0}, {0, 9}, {17, 1}, {3, 30}}};
  for (const auto& lengths : jobs) {
    const AttentionSpec spec = SpecOf(lengths);
    for (const Layout layout : kLayouts) {
      for (const int32_t ranks : {1, 2, 3, 8}) {
        for (const int64_t stripe : {1, 3}) {
          SCOPED_TRACE(testing::Message() << LayoutName(layout) << " of " << spec.q_rows() << " on "
                                          << ranks << " by " << stripe);
          const v1::Plan plan = PlanOf(spec, {ranks, layout, stripe, 1});
          ExpectRoundTrip(plan, {RowSpace::kQuery, 2, {spec.q_rows(), 3, 5}, 0, false});
          ExpectRoundTrip(plan, {RowSpace::kKey, 4, {spec.kv_rows(), 2}, 0, false});
          ExpectRoundTrip(plan, {RowSpace::kKey, 8, {spec.kv_rows()}, 0, false});
          ExpectRoundTrip(plan, {RowSpace::kQuery, 4, {3, spec.q_rows()}, 1, false});
        }
      }
    }
  }
}

// Rows of equal sequences follow one another, also with heads in between.
TEST(ShardTensorTest, ABatchIsItsSequencesOneAfterTheOther) {
  const AttentionSpec spec = SpecOf({{7, 11}, {7, 11}, {7, 11}});
  for (const Layout layout : kLayouts) {
    const v1::Plan plan = PlanOf(spec, {4, layout, 2, 1});
    ExpectRoundTrip(plan, {RowSpace::kQuery, 2, {3, 7, 2, 5}, 1, true});
    ExpectRoundTrip(plan, {RowSpace::kKey, 2, {3, 11, 2}, 1, true});
    ExpectRoundTrip(plan, {RowSpace::kQuery, 4, {3, 2, 7}, 2, true});
    ExpectRoundTrip(plan, {RowSpace::kQuery, 4, {3, 2, 7, 6}, 2, true});
  }
  const auto rows = PlanRows::Of(PlanOf(spec, {2, Layout::kContiguous, 1, 1}));
  EXPECT_EQ(*ShardShape(*rows, {RowSpace::kQuery, 4, {3, 2, 7}, 2, true}, 0),
            (std::vector<int64_t>{2, 11}));
  EXPECT_EQ(*ShardShape(*rows, {RowSpace::kQuery, 4, {3, 7, 2, 5}, 1, true}, 1),
            (std::vector<int64_t>{10, 2, 5}));
}

std::string FieldOf(const absl::Status& status, const std::string& reason) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(DetailOf(status).reason, reason);
  const auto fields = DetailOf(status).fields;
  return fields.size() == 1 ? fields[0].field : "";
}

TEST(ShardTensorTest, WhatDoesNotFitIsRefusedWithItsField) {
  const auto rows = PlanRows::Of(PlanOf(SpecOf({{8, 12}}), {2, Layout::kZigzag, 1, 1}));
  const Bytes whole(8 * 3 * 2);
  const TensorShape good{RowSpace::kQuery, 2, {8, 3}, 0, false};
  const auto refused = [&](TensorShape tensor) {
    return FieldOf(ShardTensor(*rows, tensor, whole, 0).status(), "SHAPE_MISMATCH");
  };
  EXPECT_TRUE(ShardTensor(*rows, good, whole, 1).ok());
  EXPECT_EQ(refused({RowSpace::kKey, 2, {8, 3}, 0, false}), "tensor.shape");
  EXPECT_EQ(refused({RowSpace::kQuery, 2, {9, 3}, 0, false}), "tensor.shape");
  EXPECT_EQ(refused({RowSpace::kQuery, 2, {8, -3}, 0, false}), "tensor.shape");
  const int64_t much = std::numeric_limits<int64_t>::max() / 4;
  EXPECT_EQ(refused({RowSpace::kQuery, 2, {8, much, 0}, 0, false}), "tensor.shape");
  EXPECT_EQ(refused({RowSpace::kQuery, 0, {8, 3}, 0, false}), "tensor.element_bytes");
  EXPECT_EQ(refused({RowSpace::kQuery, 2, {8, 3}, 2, false}), "tensor.token_dim");
  EXPECT_EQ(refused({RowSpace::kQuery, 2, {8, 3}, -1, false}), "tensor.token_dim");
  EXPECT_EQ(refused({RowSpace::kQuery, 2, {1, 8, 3}, 0, true}), "tensor.token_dim");
  for (const int32_t rank : {-1, 2})
    EXPECT_EQ(FieldOf(ShardTensor(*rows, good, whole, rank).status(), "INVALID_RANK"), "rank");
  const absl::Span<const std::byte> less(whole.data(), whole.size() - 1);
  EXPECT_EQ(FieldOf(ShardTensor(*rows, good, less, 0).status(), "TENSOR_BYTES_MISMATCH"),
            "tensor.bytes");
  const Bytes half(4 * 3 * 2), other(4 * 3 * 2 + 1);
  const auto back = [&](std::vector<absl::Span<const std::byte>> shards) {
    return FieldOf(UnshardTensor(*rows, good, shards).status(), "TENSOR_BYTES_MISMATCH");
  };
  EXPECT_EQ(back({half}), "shards");
  EXPECT_EQ(back({half, other}), "shards[1]");
}

TEST(ShardTensorTest, APlanThatIsNoPartitionIsRefused) {
  const auto refused = [](void (*spoil)(v1::Plan*)) {
    v1::Plan plan = PlanOf(SpecOf({{8, 12}}), {2, Layout::kContiguous, 1, 1});
    spoil(&plan);
    return FieldOf(PlanRows::Of(plan).status(), "INVALID_PLAN");
  };
  EXPECT_EQ(refused([](v1::Plan* plan) { plan->clear_shards(); }), "plan.shards");
  EXPECT_EQ(refused([](v1::Plan* plan) { plan->mutable_shards(1)->set_rank(0); }),
            "plan.shards[1].rank");
  EXPECT_EQ(refused([](v1::Plan* plan) {
              *plan->mutable_shards(1)->mutable_q_rows() = plan->shards(0).q_rows();
            }),
            "plan.shards[1].q_rows");
  EXPECT_EQ(refused([](v1::Plan* plan) { plan->mutable_shards(0)->clear_kv_rows(); }),
            "plan.shards[1].kv_rows");
  EXPECT_EQ(
      refused([](v1::Plan* plan) { plan->mutable_shards(0)->mutable_q_rows(0)->set_stride(0); }),
      "plan.shards[0].q_rows");
  EXPECT_EQ(refused([](v1::Plan* plan) {
              plan->mutable_shards(0)->mutable_q_rows(0)->set_block(int64_t{1} << 40);
              plan->mutable_shards(0)->mutable_q_rows(0)->set_stride(int64_t{1} << 40);
            }),
            "plan.shards");
}

}  // namespace
}  // namespace annulus
