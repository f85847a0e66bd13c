// Two masks that differ in one field are two masks: a field that is added to Mask, and that
// MaskGroups does not compare, fails here.

#include "annulus/v1/types.pb.h"
#include "attention/mask/mask_groups.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Gives one field another value than the default one.
void Change(const FieldDescriptor& field, Message* message) {
  const auto* const reflection = message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, &field, true);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(message, &field, 3);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, &field, field.enum_type()->value_count() - 1);
    default:
      FAIL() << field.full_name() << " is of a type that this test does not change";
  }
}

// The numbers that MaskGroups gives to two masks, each of a sequence of its own.
bool AreOne(const v1::Mask& a, const v1::Mask& b) {
  v1::AttentionSpec proto;
  proto.set_q_heads(1);
  proto.set_kv_heads(1);
  *proto.add_masks() = a;
  *proto.add_masks() = b;
  for (const int mask : {0, 1}) {
    v1::Sequence& sequence = *proto.add_sequences();
    sequence.set_q_len(8);
    sequence.set_kv_len(8);
    sequence.set_mask(mask);
  }
  const absl::StatusOr<AttentionSpec> spec = SpecFromProto(proto, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  const MaskGroups groups(*spec);
  return groups.mask_of_head[groups.of_sequence[0]] == groups.mask_of_head[groups.of_sequence[1]];
}

TEST(MaskFieldsTest, MasksThatDifferInOneFieldAreTwo) {
  v1::Mask other;
  other.set_window_right(5);  // No mask of the test is the full one.
  ASSERT_TRUE(AreOne(other, other));
  const auto& fields = *v1::Mask::descriptor();
  int changed = 0;
  for (int i = 0; i < fields.field_count(); ++i) {
    const FieldDescriptor& field = *fields.field(i);
    if (field.is_repeated()) continue;  // The ranges are below; query_heads decide who follows.
    v1::Mask mask = other;
    Change(field, &mask);
    EXPECT_FALSE(AreOne(mask, other)) << field.full_name();
    ++changed;
  }
  EXPECT_EQ(changed, fields.field_count() - 2);
}

TEST(MaskFieldsTest, RangesThatDifferInOneFieldAreTwo) {
  v1::Mask other;
  v1::MaskRange& range = *other.add_ranges();
  range.set_q_end(8);
  range.set_k_end(8);
  ASSERT_TRUE(AreOne(other, other));
  EXPECT_FALSE(AreOne(other, v1::Mask()));
  const auto& fields = *v1::MaskRange::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    v1::Mask mask = other;
    Change(*fields.field(i), mask.mutable_ranges(0));
    EXPECT_FALSE(AreOne(mask, other)) << fields.field(i)->full_name();
  }
}

}  // namespace
}  // namespace annulus
