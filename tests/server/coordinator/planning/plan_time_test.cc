// Jobs that are planned inside an event, elsewhere, and elsewhere without a wait.

#include "server/coordinator/planning/plan_time.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/coordinator/state/plan_shape.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

constexpr int64_t kManyRows = 131072;

v1::RunJobRequest Heads(int32_t heads, int64_t rows) {
  v1::RunJobRequest request = CoordinatorHarness::Request(0, rows);
  request.mutable_spec()->set_dtype(v1::DATA_TYPE_BF16);
  request.mutable_spec()->set_q_heads(heads);
  request.mutable_spec()->set_kv_heads(heads);
  return request;
}

v1::RunJobRequest Chunked(int32_t heads, int64_t rows, int64_t chunk) {
  v1::RunJobRequest request = Heads(heads, rows);
  request.mutable_spec()->add_masks()->set_chunk(chunk);
  return request;
}

// Each head has a separate mask.
v1::RunJobRequest ManyMasks(int64_t rows, bool chunks) {
  v1::RunJobRequest request = Heads(64, rows);
  for (int i = 0; i < 64; ++i) {
    v1::Mask& mask = *request.mutable_spec()->add_masks();
    chunks ? mask.set_chunk(8 + i) : mask.set_window_left(8 + i);
    mask.add_query_heads(i);
  }
  return request;
}

v1::RunJobRequest Striped(v1::RunJobRequest request) {
  request.mutable_execution()->set_layout(v1::Execution::LAYOUT_STRIPED);
  return request;
}

PlanShape ShapeOf(const v1::RunJobRequest& request) {
  return (*MakeSubmission(request, CoordinatorOptions()))->shape;
}

TEST(PlanShapeTest, CountsWhatHeadsFollowInEachSequence) {
  v1::RunJobRequest request = Heads(4, 100);
  v1::AttentionSpec& spec = *request.mutable_spec();
  spec.add_sequences()->set_q_len(30);
  spec.mutable_sequences(1)->set_kv_len(50);
  EXPECT_EQ(ShapeOf(request).followed, 2);
  EXPECT_EQ(ShapeOf(request).pairs, 4 * (100 * 100 + 30 * 50));
  EXPECT_EQ(ShapeOf(request).rows, 4 * 130);
  EXPECT_EQ(ShapeOf(request).keys, 4 * 150);
  spec.add_masks()->set_chunk(40);
  v1::Mask& window = *spec.add_masks();
  window.set_window_left(9);
  window.set_causal(true);
  window.add_query_heads(1);
  const PlanShape shape = ShapeOf(request);
  EXPECT_EQ(shape.classes, 2);
  EXPECT_EQ(shape.followed, 4);
  EXPECT_EQ(shape.pieces, 3) << "the second sequence is one chunk";
  EXPECT_EQ(shape.spans, 3 + 10 + 3);
  EXPECT_EQ(shape.pairs, 3 * (100 * 40 + 30 * 40) + (100 * 10 + 30 * 10));
}

class PlanTimeTest : public testing::Test {
 protected:
  // True if the event itself made the plan.
  bool PlannedInside(const v1::RunJobRequest& request) {
    const int made = harness_.plans_made;
    const size_t wanted = harness_.plans_wanted.size();
    const int64_t call = harness_.Run(request);
    EXPECT_FALSE(harness_.JobOf(call).empty()) << "it was refused";
    EXPECT_EQ(
        static_cast<size_t>(harness_.plans_made - made) + (harness_.plans_wanted.size() - wanted),
        1u);
    harness_.Handle(event::CallGone{call});
    harness_.Execute();
    return harness_.plans_made > made;
  }
  CoordinatorHarness harness_;
};

TEST_F(PlanTimeTest, AnOrdinaryJobIsPlannedInside) {
  harness_.staging_limit = int64_t{1} << 40;
  harness_.Start(4);
  for (const int64_t rows : {16, 1024, 16384}) EXPECT_TRUE(PlannedInside(Heads(8, rows))) << rows;
  EXPECT_TRUE(PlannedInside(Chunked(1, kManyRows, 1024)));
}

TEST_F(PlanTimeTest, WhatMasksMakeLongIsPlannedElsewhere) {
  harness_.staging_limit = int64_t{1} << 40;
  harness_.Start(4);
  EXPECT_FALSE(PlannedInside(Chunked(1, kManyRows, 8))) << "16,384 chunks";
  EXPECT_FALSE(PlannedInside(ManyMasks(kManyRows, /*chunks=*/true)));
  EXPECT_FALSE(PlannedInside(ManyMasks(1024, /*chunks=*/false))) << "64 classes";
  EXPECT_FALSE(PlannedInside(Striped(Chunked(1, kManyRows, 1024)))) << "128 spans of all ranks";
  v1::RunJobRequest documents = Heads(1, 16);
  for (int i = 1; i < 64; ++i)
    *documents.mutable_spec()->add_sequences() = documents.spec().sequences(0);
  documents.mutable_execution()->set_world_size(4);
  EXPECT_TRUE(PlannedInside(documents));
  EXPECT_FALSE(PlannedInside(Striped(documents))) << "every rank meets every other in each";
  documents.mutable_execution()->set_layout(v1::Execution::LAYOUT_ZIGZAG_PER_SEQUENCE);
  EXPECT_FALSE(PlannedInside(documents)) << "each is cut for itself";
}

// Its steps would be split into thousands of parts.
TEST_F(PlanTimeTest, ALongJobIsPlannedElsewhere) {
  harness_.staging_limit = int64_t{1} << 40;
  harness_.Start(4);
  EXPECT_FALSE(PlannedInside(Heads(32, kManyRows)));
  v1::RunJobRequest alone = Heads(32, kManyRows);
  alone.mutable_execution()->set_world_size(1);
  EXPECT_TRUE(PlannedInside(alone)) << "one rank's steps are not cut";
}

// With any number of workers, planning considers only those that a job may use.
TEST_F(PlanTimeTest, ASmallJobIsPlannedInsideAmongManyWorkers) {
  harness_.Start(64);
  v1::RunJobRequest request = harness_.Request(0);
  EXPECT_TRUE(PlannedInside(request)) << "a group would cost more than it could save";
  for (const int32_t ranks : {1, 4}) {
    request.mutable_execution()->set_world_size(ranks);
    EXPECT_TRUE(PlannedInside(request)) << ranks;
  }
  request.mutable_execution()->set_world_size(64);
  EXPECT_FALSE(PlannedInside(request));
  request.mutable_execution()->set_world_size(0);
  request.mutable_execution()->set_strategy(v1::Execution::STRATEGY_ULYSSES_RING);
  request.mutable_execution()->set_ring_degree(2);
  EXPECT_FALSE(PlannedInside(request));
  request.mutable_execution()->set_ulysses_degree(1);
  EXPECT_TRUE(PlannedInside(request)) << "on two ranks";
}

TEST_F(PlanTimeTest, ElsewhereQuickPlansDoNotWaitForOthers) {
  harness_.Start(16);
  v1::RunJobRequest request = Heads(1, 16);
  request.mutable_execution()->set_world_size(16);
  EXPECT_FALSE(PlannedInside(request));
  EXPECT_FALSE(PlannedInside(ManyMasks(kManyRows, /*chunks=*/true)));
  EXPECT_EQ(harness_.quick_plans, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace annulus
