// Valid masks, limits of their planning costs, and requests that deterministic jobs and bf16x3
// refuse.

#include <limits>
#include <utility>
#include <vector>

#include "attention/validate/validate.h"
#include "tests/attention/validate/validate_request.h"

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

TEST(ValidateTest, APrefixNeedsTheCausalMaskThatItIsAnExceptionTo) {
  Request request;
  request.spec.masks[0].causal = true;
  request.spec.masks[0].prefix = 1;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.masks[0].causal = false;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].prefix");
  request.spec.masks[0].window_left = 3;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].prefix");
}

// An empty sequence names its group too. A mask may exist only to begin a group.
TEST(ValidateTest, MasksThatNoSequenceFollowsAreRefused) {
  Request request;
  request.spec.masks.resize(2);
  request.spec.masks[1].window_left = 3;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[1]");
  request.spec.sequences[0].mask = request.spec.sequences[1].mask = 1;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0]");
  request.spec.sequences[1].mask = 0;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences[1] = Lengths(0, 0);
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  Mask& heads = request.spec.masks.emplace_back();
  for (int32_t head = 0; head < request.spec.q_heads; ++head) heads.query_heads.push_back(head);
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences[0].mask = 0;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[1]");
  request.spec.masks.erase(request.spec.masks.begin() + 1);
  EXPECT_TRUE(request.Check().ok()) << request.Check();
}

TEST(ValidateTest, BiasAndBitMaskOfOneHeadOrOfAllPass) {
  Request request;
  for (const int32_t heads : {1, 8}) {
    for (const DataType dtype : {DataType::kUnspecified, DataType::kFp32, DataType::kFp16}) {
      request.spec.modifiers.bias = Bias{dtype, heads};
      request.spec.masks[0].bit_mask = true;
      request.spec.bit_mask_heads = heads;
      EXPECT_TRUE(request.Check().ok()) << request.Check();
    }
  }
}

TEST(ValidateTest, BiasAndBitMaskThatFitNothingAreRefused) {
  const auto refused = [](const std::string& reason, const std::string& field,
                          void (*spoil)(AttentionSpec&)) {
    SCOPED_TRACE(field);
    Request request;
    request.spec.modifiers.bias = Bias();
    request.spec.masks[0].bit_mask = true;
    ASSERT_TRUE(request.Check().ok()) << request.Check();
    spoil(request.spec);
    ExpectInvalid(request, reason, field);
  };
  using Spec = AttentionSpec;
  constexpr char kHeads[] = "spec.modifiers.bias.heads", kType[] = "spec.modifiers.bias.dtype";
  refused("SHAPE_MISMATCH", kHeads, [](Spec& spec) { spec.modifiers.bias->heads = 2; });
  refused("SHAPE_MISMATCH", kHeads, [](Spec& spec) { spec.modifiers.bias->heads = 0; });
  refused("SHAPE_MISMATCH", kHeads, [](Spec& spec) { spec.modifiers.bias->heads = -8; });
  refused("SHAPE_MISMATCH", "spec.bit_mask_heads", [](Spec& spec) { spec.bit_mask_heads = 7; });
  // Heads of a bit mask that no mask uses would be ignored.
  refused("SHAPE_MISMATCH", "spec.bit_mask_heads", [](Spec& spec) {
    spec.bit_mask_heads = 8;
    spec.masks[0].bit_mask = false;
  });
  for (const DataType dtype : {DataType::kFp8E4m3, DataType::kBits8}) {
    Request request;
    request.spec.modifiers.bias = Bias{dtype, 1};
    ExpectInvalid(request, "UNSUPPORTED_DTYPE", kType);
  }
}

// A row and head must fit into a chunk: 2^19 keys of bf16, 2^23 bits.
TEST(ValidateTest, RowsOfABiasAndOfABitMaskAreLimited) {
  Request request;
  request.spec.modifiers.bias = Bias();
  request.spec.sequences[1].kv_len = int64_t{1} << 19;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  ++request.spec.sequences[1].kv_len;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.modifiers.bias");
  request.spec.sequences[1].kv_len = std::numeric_limits<int64_t>::max();
  ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences[1].kv_len");
  request.spec.sequences[0].kv_len = 0;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.modifiers.bias");
  request.spec.modifiers.bias.reset();
  request.spec.masks[0].bit_mask = true;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
  request.spec.sequences[1].kv_len = int64_t{1} << 23;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  ++request.spec.sequences[1].kv_len;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
}

TEST(ValidateTest, TheGradientOfABiasNeedsABiasAndRowsThatFit) {
  Request request;
  request.spec.operation = Operation::kGradients;
  request.spec.gradients.d_bias = true;
  ExpectInvalid(request, "INVALID_MODIFIER", "spec.gradients.d_bias");
  request.spec.modifiers.bias = Bias();
  request.spec.sequences[1].kv_len = int64_t{1} << 18;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  ++request.spec.sequences[1].kv_len;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.gradients.d_bias");
}

// Rows times keys: many more than q, k and v.
TEST(ValidateTest, TheBytesOfABiasAreLimited) {
  Request request;
  request.spec.modifiers.bias = Bias{DataType::kFp32, 8};
  request.spec.sequences.resize(1);
  request.spec.sequences[0].q_len = int64_t{1} << 17;
  request.spec.sequences[0].kv_len = int64_t{1} << 18;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  ++request.spec.sequences[0].q_len;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.sequences");
}

TEST(ValidateTest, RangesOverOneRowAreLimited) {
  Request request;
  request.spec.masks[0].ranges.assign(16, {5, 9, 0, 3, MaskRange::Kind::kFull});
  request.spec.masks[0].ranges.push_back({9, 11, 0, 3, MaskRange::Kind::kFull});
  request.spec.masks[0].ranges.push_back({7, 7, 0, 3, MaskRange::Kind::kFull});
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.masks[0].ranges.push_back({8, 20, 0, 3, MaskRange::Kind::kFull});
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks[0].ranges");
}

TEST(ValidateTest, RangesOfAllMasksAreLimited) {
  Request request;
  request.spec.masks.assign(64, Mask());
  request.spec.sequences.resize(65, Lengths(1, 1));
  for (int32_t i = 0; i < 64; ++i) {
    request.spec.sequences[i].mask = i;
    for (int64_t row = 0; row < 4096; ++row) {
      request.spec.masks[i].ranges.push_back({row, row + 1, 0, i + 1, MaskRange::Kind::kFull});
    }
  }
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences[64].mask = 64;
  request.spec.masks.emplace_back().ranges.push_back({0, 1, 0, 1, MaskRange::Kind::kFull});
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
}

// Ranges are inspected only after their number has been checked.
TEST(ValidateTest, RangesAreCountedBeforeTheyAreLookedAt) {
  Request request;
  const MaskRange wrong{0, 1, 5, 4, MaskRange::Kind::kFull};
  request.spec.masks.assign(65, Mask());
  for (Mask& mask : request.spec.masks) mask.ranges.assign(4096, wrong);
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
  request.spec.masks[64].ranges.push_back(wrong);
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks[64].ranges");
  request.spec.masks.resize(64);
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].ranges[0].k_end");
}

// For each class of heads, a kernel call stores what each row sees.
TEST(ValidateTest, RowsOfManyClassesAreLimited) {
  Request request;
  request.spec.q_heads = request.spec.kv_heads = 8;
  request.spec.sequences = {Lengths(int64_t{1} << 23, 64)};
  request.spec.masks.assign(1, Mask());
  for (int32_t head = 0; head < 8; ++head) {
    Mask mask;
    mask.window_left = head;
    mask.query_heads = {head};
    request.spec.masks.push_back(mask);
  }
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences = {Lengths((int64_t{1} << 23) + 1, 64)};
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
}

// There is nothing to split, but planning inspects each pair of lengths.
TEST(ValidateTest, SequencesWithoutQueriesCountToo) {
  Request request;
  request.spec.masks[0].ranges.push_back({0, 9, 0, 9, MaskRange::Kind::kFull});
  request.limits.max_range_cuts = 100;
  request.spec.sequences.assign(100, Lengths(0, 5));
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences.push_back(Lengths(0, 6));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
}

// Only the undefined-behaviour sanitizer may detect it.
TEST(ValidateTest, FarWindowsAndChunksBesideRangesDoNotOverflow) {
  Request request;
  Mask& mask = request.spec.masks[0];
  mask.ranges.push_back({0, 9, 0, 9, MaskRange::Kind::kCausal});
  mask.window_left = mask.window_right = mask.chunk = std::numeric_limits<int64_t>::max();
  mask.prefix = mask.always_visible = std::numeric_limits<int64_t>::max();
  for (const Sequence& lengths : {Lengths(5, 70), Lengths(70, 5)}) {
    request.spec.sequences = {lengths};
    EXPECT_TRUE(request.Check().ok()) << request.Check();
  }
}

// 16 layers of ranges, each with as many adjacent causal ones, whose edges all cross.
TEST(ValidateTest, PartsThatRangesCutRowsIntoAreLimited) {
  Request request;
  request.spec.sequences.assign(1, Lengths(1 << 20, 1 << 20));
  Mask& mask = request.spec.masks[0];
  mask = Mask();
  for (int64_t i = 0; i < 4096; ++i) {
    const int64_t begin = i / 16 * 4096, n = i % 16, shift = 97 * n + n * n;
    mask.ranges.push_back({begin, begin + 4096, begin + 1500 + shift / 8, begin + 2500 + shift / 7,
                           MaskRange::Kind::kFull});
  }
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  for (MaskRange& range : mask.ranges) range.kind = MaskRange::Kind::kBiCausal;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
  // Sequences count one by one.
  mask.ranges.assign(1, {0, 4, 0, 4, MaskRange::Kind::kCausal});
  request.spec.sequences.assign(32768, Lengths(6, 6));
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  mask.ranges.push_back({1, 3, 1, 4, MaskRange::Kind::kFull});
  mask.ranges.push_back({2, 5, 1, 4, MaskRange::Kind::kFull});
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
  request.spec.sequences.resize(32);
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.execution.layout = Layout::kStriped;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.sequences.resize(200, Lengths(6, 6));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
}

// Many heads with few masks make few classes in any order.
TEST(ValidateTest, ClassesOfHeadsAreLimited) {
  Request request;
  request.spec.q_heads = request.spec.kv_heads = 1024;
  request.spec.masks.assign(4, Mask());
  for (int32_t head = 0; head < 1024; ++head) {
    if (head % 4 != 0) request.spec.masks[head % 4].query_heads.push_back(head);
  }
  for (int64_t i = 1; i < 4; ++i) request.spec.masks[i].window_left = i;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.masks.assign(65, Mask());
  for (int32_t i = 0; i < 65; ++i) {
    request.spec.masks[i].window_left = i;
    if (i > 0) request.spec.masks[i].query_heads = {3 * i};
  }
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
  // The same mask again is no new class.
  request.spec.masks[64].window_left = 5;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
}

// The same for heads: those of a group use the masks of their group.
TEST(ValidateTest, OnlySequencesThatFollowAMaskCountForIt) {
  Request request;
  request.spec.sequences = {Lengths(1 << 20, 1 << 20), Lengths(64, 64)};
  request.spec.masks.resize(2);
  request.spec.sequences[1].mask = 1;
  request.spec.masks[1].chunk = 16;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.execution.layout = Layout::kStriped;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.masks[1].window_left = request.spec.masks[1].window_right = 4;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  std::swap(request.spec.sequences[0].mask, request.spec.sequences[1].mask);
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks[1].chunk");
  request.spec.masks[1].chunk.reset();
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
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
  request.spec.sequences.assign(1024, Lengths(3, 3));
  for (const int32_t world : {0, 2, 8}) {
    request.execution.world_size = world;
    EXPECT_TRUE(request.Check().ok()) << request.Check();
  }
  request.execution.world_size = 9;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
  request.execution.world_size = 0;
  request.spec.sequences.push_back(Lengths(3, 3));
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.layout");
}

TEST(ValidateTest, DeterministicJobs) {
  Request request;
  request.spec.deterministic = true;
  for (const Strategy strategy : {Strategy::kAuto, Strategy::kRingPassKv, Strategy::kUlysses}) {
    request.execution.strategy = strategy;
    EXPECT_TRUE(request.Check().ok()) << request.Check();
  }
  for (const Strategy strategy : {Strategy::kTree, Strategy::kRingPassQ}) {
    request.execution.strategy = strategy;
    ExpectNotServed(request, "execution.strategy");
  }
  request.execution.strategy = Strategy::kAuto;
  request.execution.layout = Layout::kStriped;
  EXPECT_TRUE(request.Check().ok());
  request.execution.stripe = 512;
  EXPECT_TRUE(request.Check().ok());
  request.execution.stripe = 100;
  ExpectInvalid(request, "INVALID_EXECUTION", "execution.stripe");
  request.execution.stripe = 256;
  request.spec.sequences[0].kv_len = 256 * 300;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.stripe");
}

TEST(ValidateArithmeticTest, Bf16x3IsForTheScoresOfFp32) {
  Request request;
  request.spec.dtype = DataType::kFp32;
  request.spec.arithmetic = Arithmetic::kBf16x3;
  EXPECT_TRUE(request.Check().ok());
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    request.spec.dtype = dtype;
    ExpectNotServed(request, "spec.arithmetic");
  }
  request.spec.dtype = DataType::kFp32;
  request.spec.operation = Operation::kGradients;
  ExpectNotServed(request, "spec.arithmetic");
  request = Request();
  request.spec.arithmetic = static_cast<Arithmetic>(2);
  ExpectInvalid(request, "UNKNOWN_ENUM", "spec.arithmetic");
}

}  // namespace
}  // namespace annulus
