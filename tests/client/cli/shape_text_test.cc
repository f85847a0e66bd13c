#include "client/cli/shape_text.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

AttentionSpec SpecOf(std::vector<Sequence> sequences) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.sequences = std::move(sequences);
  return spec;
}

Sequence Lengths(int64_t q, int64_t kv) {
  Sequence sequence;
  sequence.q_len = q;
  sequence.kv_len = kv;
  return sequence;
}

TEST(ShapeTextTest, SaysWhatIsComputed) {
  AttentionSpec spec = SpecOf({Lengths(128, 128)});
  EXPECT_EQ(ShapeText(spec), "128 tokens, 8 heads over 2 of 64, bf16");
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  EXPECT_EQ(ShapeText(spec), "128 tokens, 8 heads over 2 of 64, bf16, causal");
  spec.masks[0].window_left = 5;
  spec.kv_heads = 8;
  spec.head_dim_v = 32;
  EXPECT_EQ(ShapeText(spec), "128 tokens, 8 heads of 64 and 32, bf16, masked");
}

TEST(ShapeTextTest, SaysHowLongSequencesAre) {
  EXPECT_EQ(ShapeText(SpecOf({Lengths(7, 9), Lengths(7, 9)})),
            "2 sequences of 7 queries over 9 keys, 8 heads over 2 of 64, bf16");
  EXPECT_EQ(ShapeText(SpecOf({Lengths(3, 3), Lengths(7, 7)})),
            "2 sequences, 10 tokens, 8 heads over 2 of 64, bf16");
  EXPECT_EQ(ShapeText(SpecOf({Lengths(1, 1)})), "1 token, 8 heads over 2 of 64, bf16");
}

TEST(ShapeTextTest, NotesHeadsThatLookLikeTokens) {
  AttentionSpec spec = SpecOf({Lengths(8, 8), Lengths(8, 8)});
  EXPECT_EQ(SwappedShapeNote(spec), "");
  spec.q_heads = 128;
  EXPECT_EQ(SwappedShapeNote(spec),
            "there are more heads (128) than tokens (8): without --tensor-layout, the order is "
            "[tokens, heads, dim] or [batch, tokens, heads, dim]");
  spec.sequences = {Lengths(1, 4096)};  // A decoding step.
  EXPECT_EQ(SwappedShapeNote(spec), "");
}

}  // namespace
}  // namespace annulus
