#include "worker/executor/program_memo.h"

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

ProgramRequest Request(int64_t rows = 40) {
  ProgramRequest request;
  request.spec.dtype = DataType::kFp32;
  request.spec.q_heads = request.spec.kv_heads = 1;
  request.spec.head_dim = 4;
  request.spec.sequences = {{rows, rows, "", 0, 0}};
  request.execution.strategy = Strategy::kRingPassKv;
  request.execution.layout = Layout::kContiguous;
  request.execution.world_size = 2;
  request.plan_options.world_size = 2;
  request.source = "spec of " + std::to_string(rows);
  return request;
}

std::shared_ptr<const RankProgram> Of(ProgramMemo* memo, const ProgramRequest& request) {
  auto program = memo->ProgramOf(request);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : nullptr;
}

TEST(ProgramMemoTest, HandsOutWhatItHasMade) {
  ProgramMemo memo;
  const auto program = Of(&memo, Request());
  EXPECT_EQ(Of(&memo, Request()), program);
  EXPECT_EQ(memo.size(), 1u);
}

TEST(ProgramMemoTest, NothingOfAnotherRequest) {
  const std::vector<std::function<void(ProgramRequest*)>> changes = {
      [](auto* r) { *r = Request(41); },
      [](auto* r) { r->rank = 1; },
      [](auto* r) { r->reads_staging = true; },
      [](auto* r) { r->ends_rows = true; },
      [](auto* r) { r->plan_options.world_size = 1; },
      [](auto* r) { r->plan_options.layout = Layout::kZigzag; },
      [](auto* r) { r->plan_options.granule = 8; },
      [](auto* r) { r->plan_options.stripe = 2; },
      [](auto* r) {
        r->parts_of_step = {2, 1};
      },
      [](auto* r) {
        r->parts_of_step = {1, 2};
      },
      [](auto* r) { r->source = "another execution"; },
  };
  ProgramMemo memo;
  std::vector<std::shared_ptr<const RankProgram>> programs = {Of(&memo, Request())};
  for (const auto& change : changes) {
    ProgramRequest request = Request();
    change(&request);
    programs.push_back(Of(&memo, request));
  }
  EXPECT_EQ(memo.size(), programs.size());
  for (size_t i = 0; i < programs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(programs[i], programs[j]) << i << " " << j;
  }
}

TEST(ProgramMemoTest, KeepsTheLatestOnly) {
  ProgramMemo memo;
  const auto first = Of(&memo, Request(1)), second = Of(&memo, Request(2));
  for (size_t i = 2; i < ProgramMemo::kMaxPrograms; ++i) Of(&memo, Request(i + 1));
  EXPECT_EQ(Of(&memo, Request(1)), first);
  Of(&memo, Request(1000));
  EXPECT_EQ(memo.size(), ProgramMemo::kMaxPrograms);
  EXPECT_EQ(Of(&memo, Request(1)), first);
  EXPECT_NE(Of(&memo, Request(2)), second);
}

TEST(ProgramMemoTest, NothingLargeUnknownOrWrong) {
  ProgramMemo memo;
  ProgramRequest request = Request();
  request.source.assign(ProgramMemo::kMaxKeyBytes, 'x');
  Of(&memo, request);
  request.source.clear();
  Of(&memo, request);
  request = Request(200000);
  request.parts_of_step = {2000, 1};
  const auto large = Of(&memo, request);
  EXPECT_GT(large->schedule.steps.size(), 1000u);
  // A mask takes two bytes of a spec, and an entry for each head of a program.
  request = Request();
  request.spec.q_heads = 1024;
  request.spec.masks.resize(17);
  Of(&memo, request);
  request = Request();
  request.rank = 2;
  EXPECT_FALSE(memo.ProgramOf(request).ok());
  EXPECT_EQ(memo.size(), 0u);
}

}  // namespace
}  // namespace annulus
