#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "proto/wire/convert.h"
#include "worker/shard_opener.h"
#include "worker/staging/memory_budget.h"

namespace annulus {
namespace {

// Rank 1 of 2 of a job with 10 query and 30 key rows, 2 and 1 heads of 4 fp32.
control::v1::Reserve SecondHalf() {
  control::v1::Reserve reserve;
  reserve.mutable_shard()->set_job_id("job");
  reserve.mutable_shard()->set_attempt(1);
  reserve.mutable_shard()->set_rank(1);
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = 10;
  spec.sequences[0].kv_len = 30;
  *reserve.mutable_spec() = SpecToProto(spec);
  Execution execution;
  execution.strategy = Strategy::kRingPassKv;
  execution.layout = Layout::kContiguous;
  execution.world_size = 2;
  *reserve.mutable_execution() = ExecutionToProto(execution);
  reserve.set_granule(1);
  // Q and the output, K and V, LSE.
  reserve.set_staging_bytes(2 * 5 * 2 * 16 + 2 * 15 * 16 + 5 * 2 * 4);
  return reserve;
}

class ReserveTest : public testing::Test {
 protected:
  absl::StatusOr<ShardWork> Open(const control::v1::Reserve& reserve,
                                 const ShardWork* lender = nullptr,
                                 absl::Span<const Capability> lacks = {}) {
    ShardResources means;
    means.pool = pool_.get();
    means.lacks = lacks;
    means.lender = lender;
    return OpenReserve(reserve, std::move(means));
  }

  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create("staging", 1 << 20);
  std::shared_ptr<PagePool> pool_ = PagePool::Create(budget_);
};

TEST_F(ReserveTest, HoldsWhatTheCoordinatorHasCounted) {
  const control::v1::Reserve reserve = SecondHalf();
  const auto work = Open(reserve);
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_EQ(work->staged->shape().q_rows, 5);
  EXPECT_EQ(work->staged->shape().kv_rows, 15);
  EXPECT_EQ(budget_->used_bytes(), reserve.staging_bytes());
}

// The rows of all ranks are computed only for shards by area, and not for a single rank.
TEST_F(ReserveTest, SaysWhereALayoutTakesLong) {
  control::v1::Reserve reserve = SecondHalf();
  EXPECT_FALSE(LaysOutLong(reserve));
  reserve.mutable_execution()->set_layout(v1::Execution::LAYOUT_BY_AREA);
  EXPECT_TRUE(LaysOutLong(reserve));
  reserve.mutable_execution()->set_world_size(1);
  EXPECT_FALSE(LaysOutLong(reserve));
  reserve.mutable_shard()->set_rank(0);
  reserve.set_staging_bytes(2 * 10 * 2 * 16 + 2 * 30 * 16 + 10 * 2 * 4);
  const auto work = Open(reserve);
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_EQ(work->staged->shape().q_rows, 10);
}

TEST_F(ReserveTest, TellsOneSpecAndExecutionFromAnother) {
  control::v1::Reserve reserve = SecondHalf();
  const auto source = [&] {
    const auto work = Open(reserve);
    EXPECT_TRUE(work.ok()) << work.status();
    return work.ok() ? work->request.source : "";
  };
  const std::string first = source();
  EXPECT_EQ(source(), first);
  reserve.mutable_spec()->set_scale(2);
  const std::string second = source();
  EXPECT_NE(second, first);
  reserve.mutable_execution()->set_priority(1);
  EXPECT_NE(source(), second);
}

TEST_F(ReserveTest, RefusesAGranuleThatCutsTilesOfADeterministicJob) {
  control::v1::Reserve reserve = SecondHalf();
  reserve.mutable_spec()->set_deterministic(true);
  const auto work = Open(reserve);
  EXPECT_EQ(DetailOf(work.status()).reason, "INVALID_PLAN");
}

TEST_F(ReserveTest, RefusesBytesThatItsPlanDoesNotGive) {
  for (const int64_t more : {-4, 4}) {
    control::v1::Reserve reserve = SecondHalf();
    reserve.set_staging_bytes(reserve.staging_bytes() + more);
    const auto work = Open(reserve);
    EXPECT_EQ(work.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(DetailOf(work.status()).reason, "INVALID_PLAN");
    EXPECT_EQ(budget_->used_bytes(), 0);
  }
}

TEST_F(ReserveTest, RefusesWhatTheEngineLacks) {
  control::v1::Reserve reserve = SecondHalf();
  const std::vector<Capability> lacks = {{kBf16x3Feature, false, "It needs a CPU with AMX.", ""}};
  EXPECT_TRUE(Open(reserve, nullptr, lacks).ok());
  reserve.mutable_spec()->set_arithmetic(v1::AttentionSpec::ARITHMETIC_BF16X3);
  const absl::Status refused = Open(reserve, nullptr, lacks).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(DetailOf(refused).reason, "NOT_SERVED");
  EXPECT_TRUE(Open(reserve).ok());
}

TEST_F(ReserveTest, LendsToNobodyElse) {
  control::v1::Reserve reserve = SecondHalf();
  reserve.set_principal("one");
  const auto lender = Open(reserve);
  ASSERT_TRUE(lender.ok());
  reserve.mutable_spec()->mutable_gradients()->set_state("job");
  reserve.mutable_shard()->set_job_id("other");
  reserve.set_principal("another");
  const auto work = Open(reserve, &*lender);
  EXPECT_EQ(DetailOf(work.status()).reason, "INVALID_PLAN");
  EXPECT_THAT(work.status().message(), testing::HasSubstr("principal"));
}

}  // namespace
}  // namespace annulus
