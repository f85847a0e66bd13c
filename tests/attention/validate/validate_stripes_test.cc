// Planning limits of striped shards, in which every rank has rows everywhere.

#include <limits>
#include <string>

#include "attention/validate/validate.h"
#include "tests/attention/validate/validate_request.h"

namespace annulus {
namespace {

Sequence Lengths(int64_t q_len, int64_t kv_len, int32_t mask = 0) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  sequence.mask = mask;
  return sequence;
}

TEST(ValidateStripesTest, SpansUnderStripesAreLimited) {
  Request request;
  request.execution.layout = Layout::kStriped;
  request.spec.sequences.assign(2, Lengths(12800, 10));
  Mask& mask = request.spec.masks[0];
  const auto expect = [&](bool served) {
    if (served) {
      EXPECT_TRUE(request.Check().ok()) << request.Check();
    } else {
      ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
    }
  };
  mask.window_left = 99;
  expect(true);
  mask.window_left = 98;
  expect(false);
  mask.causal = false;  // To the end: one span.
  expect(true);
  mask.window_right = 0;
  expect(false);
  mask.window_right = 1;
  expect(true);
  mask.window_right = std::numeric_limits<int64_t>::max();
  expect(true);
  mask.chunk = 99;
  expect(false);
  request.execution.layout = Layout::kZigzag;
  expect(true);
}

// Pairs of ranks that share a sequence, for each class of heads.
TEST(ValidateStripesTest, SequencesUnderStripesAreLimited) {
  Request request;
  request.execution.layout = Layout::kStriped;
  request.execution.world_size = 64;
  request.spec.sequences.assign(256, Lengths(512, 512));
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences.push_back(Lengths(1, 1));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
  request.execution.world_size = 8;
  request.spec.sequences.assign(16384, Lengths(512, 512));
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  Mask& mask = request.spec.masks.emplace_back();
  mask.query_heads = {3};
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
  request.execution.stripe = 512;  // A sequence is on at most two ranks.
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.execution.stripe = 0;
  request.execution.world_size = 0;  // The planner chooses the size.
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.execution.world_size = 1;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
}

// With a separate mask for each sequence, planning processes the spans of all.
TEST(ValidateStripesTest, SpansOfAllMasksAreLimitedTogether) {
  Request request;
  request.execution.layout = Layout::kStriped;
  request.spec.sequences.clear();
  request.spec.masks.clear();
  for (int32_t i = 0; i < 4; ++i) {
    request.spec.sequences.push_back(Lengths(6400, 10, i));
    Mask& mask = request.spec.masks.emplace_back();
    mask.chunk = 100;
    mask.window_left = 300 + i;
  }
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences.push_back(Lengths(101, 10, 3));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
  request.spec.sequences.back() = Lengths(100, 10, 3);  // In one span.
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  // Heads of one sequence count like masks.
  request.spec.sequences = {Lengths(12800, 10)};
  request.spec.masks.resize(2);
  request.spec.masks[1].query_heads = {3};
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences = {Lengths(12801, 10)};
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
}

// In each span of a sequence, ranks meet as in a sequence of one span.
TEST(ValidateStripesTest, RanksMeetInEverySpan) {
  Request request;
  request.execution.layout = Layout::kStriped;
  request.execution.world_size = 64;
  request.spec.masks[0].chunk = 100;
  request.spec.sequences = {Lengths(20000, 20000)};
  request.spec.sequences.resize(57, Lengths(100, 100));
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences.push_back(Lengths(100, 100));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
  request.execution.world_size = 32;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
}

}  // namespace
}  // namespace annulus
