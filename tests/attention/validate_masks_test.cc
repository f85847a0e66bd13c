// What masks may be, and the bounds on what planning them costs.

#include <limits>
#include <vector>

#include "attention/validate.h"
#include "tests/attention/validate_request.h"

namespace annulus {
namespace {

Sequence Lengths(int64_t q_len, int64_t kv_len) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  return sequence;
}

TEST(ValidateTest, MasksThatAreServedPass) {
  Request request;
  Mask& mask = request.spec.masks[0];
  mask.window_left = mask.window_right = mask.prefix = mask.always_visible = 0;
  mask.chunk = 1;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  mask.causal = false;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
}

TEST(ValidateTest, RangesOverOneRowAreLimited) {
  Request request;
  request.spec.masks[0].ranges.assign(16, {5, 9, 0, 3, MaskRange::Kind::kFull});
  request.spec.masks[0].ranges.push_back({9, 11, 0, 3, MaskRange::Kind::kFull});
  request.spec.masks[0].ranges.push_back({7, 7, 0, 3, MaskRange::Kind::kFull});
  ExpectNotServed(request, "spec.masks[0].ranges");
  request.spec.masks[0].ranges.push_back({8, 20, 0, 3, MaskRange::Kind::kFull});
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks[0].ranges");
}

TEST(ValidateTest, SpansUnderStripesAreLimited) {
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

TEST(ValidateTest, ChunksAndCutSequencesAreLimited) {
  Request request;
  request.spec.sequences.assign(2, Lengths(100000, 10));
  request.spec.masks[0].chunk = 13;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.masks[0].chunk = 12;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks[0].chunk");
  request = Request();
  request.execution.layout = Layout::kZigzagPerSequence;
  request.spec.sequences.assign(32, Lengths(3, 3));
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences.push_back(Lengths(3, 3));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
}

}  // namespace
}  // namespace annulus
