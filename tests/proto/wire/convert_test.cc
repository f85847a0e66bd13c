#include "proto/wire/convert.h"

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using google::protobuf::util::MessageDifferencer;

// Every field has a value other than its default.
v1::AttentionSpec FullSpec() {
  v1::AttentionSpec spec;
  spec.set_dtype(v1::DATA_TYPE_BF16);
  spec.set_q_heads(8);
  spec.set_kv_heads(2);
  spec.set_head_dim(64);
  spec.set_head_dim_v(32);
  spec.set_scale(0);
  spec.mutable_gradients()->set_d_lse(true);
  spec.mutable_gradients()->set_d_bias(true);
  spec.mutable_gradients()->set_state("job-1");
  spec.mutable_gradients()->set_release_state(true);
  spec.mutable_gradients()->set_d_out_dtype(v1::DATA_TYPE_FP32);
  spec.mutable_modifiers()->set_soft_cap(30);
  spec.mutable_modifiers()->add_alibi_slopes(0.5f);
  spec.mutable_modifiers()->add_sinks(-1.f);
  spec.mutable_modifiers()->mutable_bias()->set_dtype(v1::DATA_TYPE_FP16);
  spec.mutable_modifiers()->mutable_bias()->set_heads(8);
  spec.mutable_modifiers()->set_lse_offset(true);
  spec.set_bit_mask_heads(8);
  spec.mutable_outputs()->set_lse_base(v1::Outputs::LSE_BASE_2);
  spec.mutable_outputs()->set_max_logit(true);
  spec.mutable_outputs()->set_lse_rest(true);
  spec.set_deterministic(true);
  spec.set_arithmetic(v1::AttentionSpec::ARITHMETIC_BF16X3);
  spec.set_out_dtype(v1::DATA_TYPE_FP32);
  spec.mutable_dropout()->set_rate(0.25);
  spec.mutable_dropout()->set_seed(7);
  v1::Sequence* sequence = spec.add_sequences();
  sequence->set_q_len(3);
  sequence->set_kv_len(5);
  sequence->set_session("s");
  sequence->set_layer(4);
  sequence->set_mask(1);
  v1::Mask* mask = spec.add_masks();
  mask->set_causal(true);
  mask->set_alignment(v1::Mask::ALIGNMENT_TOP_LEFT);
  mask->set_window_left(1);
  mask->set_window_right(2);
  mask->set_chunk(3);
  mask->set_prefix(4);
  mask->set_always_visible(5);
  mask->set_bit_mask(true);
  mask->add_query_heads(6);
  v1::MaskRange* range = mask->add_ranges();
  range->set_q_end(2);
  range->set_k_begin(1);
  range->set_k_end(3);
  range->set_kind(v1::MaskRange::KIND_BI_CAUSAL);
  return spec;
}

TEST(ConvertTest, ASpecWithEveryFieldComesBackEqual) {
  const v1::AttentionSpec proto = FullSpec();
  absl::StatusOr<AttentionSpec> spec = SpecFromProto(proto, "spec");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const v1::AttentionSpec back = SpecToProto(*spec);
  EXPECT_TRUE(MessageDifferencer::Equals(proto, back)) << back.DebugString();
}

TEST(ConvertTest, AForwardSpecComesBackEqual) {
  v1::AttentionSpec proto = FullSpec();
  proto.mutable_forward()->mutable_keep_state()->set_seconds(90);
  proto.mutable_forward()->mutable_keep_state()->set_nanos(5);
  absl::StatusOr<AttentionSpec> spec = SpecFromProto(proto, "spec");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(MessageDifferencer::Equals(proto, SpecToProto(*spec)));
}

// A new field of the message must be converted. This test counts them.
TEST(ConvertTest, FullSpecSetsEveryFieldOfTheMessage) {
  const v1::AttentionSpec spec = FullSpec();
  const auto* descriptor = spec.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (field->name() == "forward") continue;  // The other member of the oneof.
    const bool set = field->is_repeated() ? spec.GetReflection()->FieldSize(spec, field) > 0
                                          : spec.GetReflection()->HasField(spec, field);
    EXPECT_TRUE(set) << field->name();
  }
}

TEST(ConvertTest, UnknownEnumsNameTheirField) {
  v1::AttentionSpec spec;
  spec.add_masks();
  spec.add_masks()->set_alignment(static_cast<v1::Mask::Alignment>(9));
  const absl::Status status = SpecFromProto(spec, "spec").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "UNKNOWN_ENUM");
  ASSERT_EQ(DetailOf(status).fields.size(), 1u);
  EXPECT_EQ(DetailOf(status).fields[0].field, "spec.masks[1].alignment");

  v1::Execution execution;
  execution.set_strategy(static_cast<v1::Execution::Strategy>(77));
  EXPECT_EQ(DetailOf(ExecutionFromProto(execution, "execution").status()).fields[0].field,
            "execution.strategy");
  execution.clear_strategy();
  execution.set_head_deal(static_cast<v1::Execution::HeadDeal>(77));
  EXPECT_EQ(DetailOf(ExecutionFromProto(execution, "execution").status()).fields[0].field,
            "execution.head_deal");
}

// Calls `visit` with every message below `message`, including itself, and its path.
void ForEachMessage(google::protobuf::Message* message, const std::string& path,
                    const std::function<void(google::protobuf::Message*, std::string)>& visit) {
  using Field = google::protobuf::FieldDescriptor;
  visit(message, path);
  const auto* reflection = message->GetReflection();
  std::vector<const Field*> fields;
  reflection->ListFields(*message, &fields);
  for (const Field* field : fields) {
    if (field->cpp_type() != Field::CPPTYPE_MESSAGE) continue;
    const std::string below = path + "." + field->name();
    if (!field->is_repeated()) {
      ForEachMessage(reflection->MutableMessage(message, field), below, visit);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      ForEachMessage(reflection->MutableRepeatedMessage(message, field, i),
                     below + "[" + std::to_string(i) + "]", visit);
    }
  }
}

TEST(ConvertTest, UnknownFieldsOfEveryMessageNameTheirField) {
  v1::AttentionSpec spec = FullSpec();
  spec.add_sequences();
  spec.add_masks()->add_ranges();
  int messages = 0;
  const auto refused = [&](google::protobuf::Message* message, const std::string& path) {
    ++messages;
    auto* unknown = message->GetReflection()->MutableUnknownFields(message);
    unknown->AddVarint(99, 1);
    const absl::Status status = SpecFromProto(spec, "spec").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_EQ(DetailOf(status).reason, "UNKNOWN_FIELD") << path;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u);
    EXPECT_EQ(DetailOf(status).fields[0].field, path + ".99");
    unknown->Clear();
  };
  ForEachMessage(&spec, "spec", refused);
  EXPECT_EQ(messages, 12);
  spec.mutable_forward();
  refused(spec.mutable_forward(), "spec.forward");
  EXPECT_TRUE(SpecFromProto(spec, "spec").ok());

  v1::Execution execution;
  EXPECT_TRUE(execution.ParseFromString("\x98\x06\x01"));  // Field 99.
  EXPECT_EQ(DetailOf(ExecutionFromProto(execution, "execution").status()).fields[0].field,
            "execution.99");
  EXPECT_EQ(DetailOf(CheckFieldsKnown(execution, "")).fields[0].field, "99");
}

TEST(ConvertTest, ExecutionsComeBackEqual) {
  v1::Execution proto;
  proto.set_strategy(v1::Execution::STRATEGY_HALO);
  proto.set_layout(v1::Execution::LAYOUT_STRIPED);
  proto.set_world_size(3);
  proto.set_ulysses_degree(2);
  proto.set_priority(-4);
  proto.set_timeline(true);
  proto.set_stripe(16);
  proto.set_bf16_partials(true);
  proto.set_ring_degree(6);
  proto.set_inner_ring_degree(3);
  proto.set_head_deal(v1::Execution::HEAD_DEAL_UNITS);
  absl::StatusOr<Execution> execution = ExecutionFromProto(proto, "execution");
  ASSERT_TRUE(execution.ok());
  EXPECT_TRUE(MessageDifferencer::Equals(proto, ExecutionToProto(*execution)));
}

TEST(ConvertTest, RowMapsComeBackAndHostileOnesAreRefused) {
  google::protobuf::RepeatedPtrField<v1::RowRange> ranges;
  RowMapToProto(RowMap({{0, 2, 4, 3}, {20, 5, 5, 1}}), &ranges);
  absl::StatusOr<RowMap> map = RowMapFromProto(ranges);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->rows(), 11);
  EXPECT_EQ(map->Global(6), 20);

  ranges.Mutable(1)->set_begin(9);  // Inside the range before, which ends at 10.
  EXPECT_FALSE(RowMapFromProto(ranges).ok());
  ranges.Mutable(1)->set_begin(10);
  EXPECT_TRUE(RowMapFromProto(ranges).ok());
  ranges.Mutable(1)->set_count(int64_t{1} << 62);
  EXPECT_FALSE(RowMapFromProto(ranges).ok());
  ranges.Mutable(1)->set_count(0);
  EXPECT_FALSE(RowMapFromProto(ranges).ok());
}

TEST(ConvertTest, ErrorsKeepTheirDetail) {
  const absl::Status status = MakeError(
      absl::StatusCode::kResourceExhausted, "the queue is full",
      ErrorDetail{"QUEUE_FULL", {{"queued", "64"}}, {{"spec", "later"}}, absl::Seconds(2)});
  const absl::Status back = ErrorFromProto(ErrorToProto(status));
  EXPECT_EQ(back.code(), status.code());
  EXPECT_EQ(back.message(), status.message());
  EXPECT_EQ(DetailOf(back).reason, "QUEUE_FULL");
  EXPECT_EQ(DetailOf(back).metadata.at("queued"), "64");
  EXPECT_EQ(DetailOf(back).fields[0].field, "spec");
  EXPECT_EQ(DetailOf(back).retry_after, absl::Seconds(2));
  EXPECT_TRUE(ErrorFromProto(ErrorToProto(absl::OkStatus())).ok());
  EXPECT_EQ(ErrorToProto(absl::InternalError("x")).reason(), "INTERNAL");
}

TEST(ConvertTest, TimesAndDurationsComeBackAndInfinityIsBounded) {
  EXPECT_EQ(DurationFromProto(DurationToProto(absl::Milliseconds(-1500))),
            absl::Milliseconds(-1500));
  EXPECT_GT(DurationFromProto(DurationToProto(absl::InfiniteDuration())), absl::Hours(1));
  const absl::Time time = absl::FromUnixNanos(1234567890123456789);
  EXPECT_EQ(TimeFromProto(TimeToProto(time)), time);
  EXPECT_GT(TimeFromProto(TimeToProto(absl::InfiniteFuture())), time);
}

}  // namespace
}  // namespace annulus
