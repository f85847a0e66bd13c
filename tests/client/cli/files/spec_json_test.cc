#include "client/cli/files/spec_json.h"

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;

absl::StatusOr<v1::AttentionSpec> Parse(const std::string& json) {
  return ParseSpec(json, "spec.json");
}

// Refused JSON, and the expected message.
struct Refusal {
  const char* json;
  const char* message;
};
void ExpectRefused(const std::vector<Refusal>& refusals) {
  for (const auto& [json, message] : refusals) {
    const absl::Status status = Parse(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC") << json;
    EXPECT_EQ(std::string(status.message()), std::string("spec.json: ") + message) << json;
  }
}

TEST(SpecJsonTest, EqualNamesOfDifferentObjectsAreNone) {
  const auto spec = Parse(
      R"({"masks": [{"causal": true, "queryHeads": [0]}, {"causal": true}], "scale": 1,
          "modifiers": {"sinks": [1, 2], "bias": {"heads": 1}}, "sequences": [{"mask": 1}, {"mask": 0}]})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->masks_size(), 2);
  EXPECT_EQ(spec->modifiers().sinks_size(), 2);
}

TEST(SpecJsonTest, ANameTwiceIsRefusedAtEveryDepth) {
  ExpectRefused(
      {{R"({"masks": [{"causal": true}], "masks": []})", "the spec has the field \"masks\" twice"},
       {R"({"scale": 1, "deterministic": true, "scale": 1})",
        "the spec has the field \"scale\" twice"},
       {R"({"scale": null, "scale": 1})", "the spec has the field \"scale\" twice"},
       {R"({"masks": [{"causal": true}, {"causal": true, "causal": false}]})",
        "masks[1] has the field \"causal\" twice"},
       {R"({"masks": [{"bitMask": true, "bit_mask": false}]})",
        "masks[0] has the field \"bitMask\" twice"},
       {R"({"modifiers": {"bias": {"heads": 1, "heads": 1}}})",
        "modifiers.bias has the field \"heads\" twice"}});
}

TEST(SpecJsonTest, WhatIsNoJsonIsRefusedWhereItIs) {
  ExpectRefused(
      {{"", "line 1, column 1: the text ends"},
       {"{", "line 1, column 2: the text ends after '{'"},
       {"{\"masks\": [\n", "line 2, column 1: the text ends after '{\"masks\": ['"},
       {"{\n  \"scale\": NaN} ^", "line 2, column 12: unexpected 'N' after '  \"scale\":'"},
       {"{masks: []}", "line 1, column 2: unexpected 'm' after '{'"},
       {"{'scale': 1}", "line 1, column 2: unexpected ''' after '{'"},
       {"{\"scale\": 1,}", "line 1, column 13: unexpected '}' after '{\"scale\": 1,'"},
       {"{\"scale\": 1 234}", "line 1, column 13: unexpected '234' after '{\"scale\": 1'"},
       {"{\"scale\": 1} {", "line 1, column 14: unexpected '{' after '{\"scale\": 1}'"},
       {"{\"scale\": 1e999}",
        "line 1, column 11: a number outside the range of a double, '1e999' after '{\"scale\":'"},
       {"[]", "the spec is a list, but must be an object, in { }"},
       {"3", "the spec is 3, but must be an object, in { }"},
       {"null", "the spec is null, but must be an object, in { }"}});
  EXPECT_TRUE(Parse("{}").ok());
  EXPECT_EQ(Parse("\xEF\xBB\xBF{\"scale\": 2}")->scale(), 2);
}

TEST(SpecJsonTest, ColumnsAreThoseOfCharacters) {
  const absl::Status status = Parse("{\"sequences\": [{\"session\": \"äöü\"; }]}").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 1, column 33: unexpected ';'"));
}

TEST(SpecJsonTest, NothingIsTakenForAnotherType) {
  for (const char* value :
       {"\"no\"", "\"yes\"", "\"TRUE\"", "\"true\"", "\"\"", "1", "0", "[]", "{}", "[true]"}) {
    const std::string json = std::string("{\"masks\": [{\"causal\": ") + value + "}]}";
    const absl::Status status = Parse(json).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("spec.json: masks[0].causal is ")) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr("but must be true or false")) << json;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u) << json;
    EXPECT_EQ(DetailOf(status).fields[0].field, "spec.masks[0].causal");
  }
  ExpectRefused(
      {{R"({"masks": {"causal": true}})", "masks is an object, but must be a list, in [ ]"},
       {R"({"masks": true})", "masks is true, but must be a list, in [ ]"},
       {R"({"masks": [null]})", "masks[0] is null, but an element of a list cannot be null"},
       {R"({"masks": [{}, {"queryHeads": [0, null]}]})",
        "masks[1].query_heads[1] is null, but an element of a list cannot be null"},
       {R"({"masks": [[]]})", "masks[0] is a list, but must be an object, in { }"},
       {R"({"modifiers": []})", "modifiers is a list, but must be an object, in { }"},
       {R"({"sequences": [{"session": 4}]})", "sequences[0].session is 4, but must be a string"},
       {R"({"qHeads": 8.5})",
        "q_heads is 8.5, but must be a whole number, -2147483648 to 2147483647"},
       {R"({"qHeads": 2147483648})",
        "q_heads is 2147483648, but must be a whole number, -2147483648 to 2147483647"},
       {R"({"qHeads": true})",
        "q_heads is true, but must be a whole number, -2147483648 to 2147483647"},
       {R"({"qHeads": " 8"})",
        "q_heads is \" 8\", but must be a whole number, -2147483648 to 2147483647"},
       {R"({"dropout": {"seed": -1}})",
        "dropout.seed is -1, but must be a whole number, 0 to 18446744073709551615"},
       {R"({"scale": "half"})",
        "scale is \"half\", but must be a number, -1.79769e+308 to "
        "1.79769e+308"},
       {R"({"scale": "nan"})",
        "scale is \"nan\", but must be a number, -1.79769e+308 to "
        "1.79769e+308"},
       {R"({"modifiers": {"sinks": [1, 1e39]}})",
        "modifiers.sinks[1] is 1e39, but must be a number, -3.40282e+38 to 3.40282e+38"}});
}

TEST(SpecJsonTest, LargeNumbersThatADoubleWouldRoundAreNone) {
  EXPECT_EQ(Parse(R"({"dropout": {"seed": 18446744073709551615}})")->dropout().seed(), ~0ull);
  EXPECT_FALSE(Parse(R"({"dropout": {"seed": 9007199254740993.0}})").ok());
}

TEST(SpecJsonTest, ValuesOfEnumsAreListed) {
  const char* const bases = "one of LSE_BASE_UNSPECIFIED, LSE_BASE_E, LSE_BASE_2";
  for (const char* value : {"\"2\"", "\"e\"", "\"lse_base_2\"", "2.5", "true"}) {
    const std::string json = std::string("{\"outputs\": {\"lseBase\": ") + value + "}}";
    const absl::Status status = Parse(json).status();
    EXPECT_EQ(std::string(status.message()),
              std::string("spec.json: outputs.lse_base is ") + value + ", but must be " + bases);
  }
  EXPECT_EQ(Parse(R"({"outputs": {"lseBase": "LSE_BASE_2"}})")->outputs().lse_base(),
            v1::Outputs::LSE_BASE_2);
  EXPECT_EQ(Parse(R"({"outputs": {"lseBase": 2}})")->outputs().lse_base(), v1::Outputs::LSE_BASE_2);
  ExpectRefused({{R"({"masks": [{"alignment": "TOP_LEFT"}]})",
                  "masks[0].alignment is \"TOP_LEFT\", but must be one of ALIGNMENT_UNSPECIFIED, "
                  "ALIGNMENT_BOTTOM_RIGHT, ALIGNMENT_TOP_LEFT"}});
}

TEST(SpecJsonTest, UnknownFieldsAreToldTheNearest) {
  ExpectRefused(
      {{R"({"masks": [{"casual": true}]})",
        "masks[0] has no field \"casual\"; did you mean \"causal\"?"},
       {R"({"mask": []})", "the spec has no field \"mask\"; did you mean \"masks\"?"},
       {R"({"qheads": 4})", "the spec has no field \"qheads\"; did you mean \"qHeads\"?"},
       {R"({"Q_Heads": 4})", "the spec has no field \"Q_Heads\"; did you mean \"qHeads\"?"},
       {R"({"modifiers": {"softcap": 4}})",
        "modifiers has no field \"softcap\"; did you mean \"softCap\"?"},
       {R"({"outputs": {"x\n": 1}})",
        "outputs has no field \"x\\n\"; it has lseBase, maxLogit, lseRest"}});
  const absl::Status status = Parse(R"({"masks": [{"casual": true}]})").status();
  ASSERT_EQ(DetailOf(status).fields.size(), 1u);
  EXPECT_EQ(DetailOf(status).fields[0].field, "spec.masks[0]");
  const std::string huge = "{\"" + std::string(1 << 20, 'x') + "\": 1}";
  EXPECT_LT(Parse(huge).status().message().size(), 1000u);
}

TEST(SpecJsonTest, TimesSayTheirForm) {
  ExpectRefused({{R"({"forward": {"keepState": "5m"}})",
                  "forward.keep_state is \"5m\", but must be a time in seconds such as \"300s\""}});
  for (const char* bad : {"300", "\"300\"", "\"s\"", "\".5s\"", "\"1.s\"", "\"1.0000000001s\"",
                          "\"+1s\"", "{\"seconds\": 300}"}) {
    const std::string json = std::string("{\"forward\": {\"keepState\": ") + bad + "}}";
    EXPECT_THAT(std::string(Parse(json).status().message()), HasSubstr("such as \"300s\"")) << bad;
  }
  EXPECT_EQ(Parse(R"({"forward": {"keepState": "1.5s"}})")->forward().keep_state().nanos(),
            500000000);
  // Values that the format allows are refused by protobuf.
  EXPECT_EQ(DetailOf(Parse(R"({"forward": {"keepState": "999999999999999s"}})").status()).reason,
            "BAD_SPEC");
}

TEST(SpecJsonTest, ThereIsOneOperation) {
  ExpectRefused(
      {{R"({"forward": {}, "gradients": {}})", "gradients cannot be set together with forward"}});
  EXPECT_TRUE(Parse(R"({"forward": null, "gradients": {}})")->has_gradients());
}

TEST(SpecJsonTest, WhatProto3JsonAllowsIsTaken) {
  const auto spec = Parse(R"({"dtype": 3, "q_heads": "8", "kvHeads": 8.0, "headDim": 64,
      "sequences": [{"qLen": "9223372036854775807", "kv_len": 5e2}], "scale": "0.125",
      "masks": null, "outputs": null, "deterministic": null, "outDtype": "DATA_TYPE_FP32",
      "modifiers": {"sinks": ["-Infinity", 1, "2.5e0"], "softCap": 30, "bias": {}},
      "dropout": {"rate": 0.1, "seed": "18446744073709551615"}})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->dtype(), v1::DATA_TYPE_BF16);
  EXPECT_EQ(spec->q_heads(), 8);
  EXPECT_EQ(spec->kv_heads(), 8);
  EXPECT_EQ(spec->sequences(0).q_len(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(spec->sequences(0).kv_len(), 500);
  EXPECT_EQ(spec->scale(), 0.125);
  EXPECT_EQ(spec->masks_size(), 0);
  EXPECT_FALSE(spec->has_outputs());
  EXPECT_EQ(spec->modifiers().sinks(0), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(spec->modifiers().sinks(2), 2.5f);
  EXPECT_TRUE(spec->modifiers().has_bias());
  EXPECT_EQ(spec->dropout().seed(), ~0ull);
}

// Fills an element of a list, or the value of a field, with the largest number of its type, or with
// the smallest if not `largest`.
void FillField(const FieldDescriptor& field, bool largest, Message* message);

void Fill(bool largest, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    for (int n = 0; n < (type.field(i)->is_repeated() ? 2 : 1); ++n) {
      FillField(*type.field(i), largest != (n == 1), message);
    }
  }
}

void FillField(const FieldDescriptor& field, bool largest, Message* message) {
  const Reflection& in = *message->GetReflection();
  const auto put = [&](auto set, auto add, auto value) {
    field.is_repeated() ? (in.*add)(message, &field, value) : (in.*set)(message, &field, value);
  };
  const auto extreme = [&](auto zero) {
    using Limits = std::numeric_limits<decltype(zero)>;
    if (Limits::has_infinity) return largest ? Limits::infinity() : Limits::denorm_min();
    return largest ? Limits::max() : Limits::lowest();
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return put(&Reflection::SetBool, &Reflection::AddBool, true);
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&Reflection::SetInt32, &Reflection::AddInt32, extreme(int32_t{}));
    case FieldDescriptor::CPPTYPE_INT64:
      return put(&Reflection::SetInt64, &Reflection::AddInt64, extreme(int64_t{}));
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&Reflection::SetUInt64, &Reflection::AddUInt64, extreme(uint64_t{}));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return put(&Reflection::SetFloat, &Reflection::AddFloat, extreme(float{}));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return put(&Reflection::SetDouble, &Reflection::AddDouble, extreme(double{}));
    case FieldDescriptor::CPPTYPE_ENUM:  // 77 has no name.
      return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, largest ? 77 : 1);
    case FieldDescriptor::CPPTYPE_STRING:
      return put(&Reflection::SetString, &Reflection::AddString, std::string("ä\"\n"));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
    default:
      FAIL() << field.full_name() << " is of a type that no field was of";
  }
  if (field.message_type() == google::protobuf::Duration::descriptor()) {
    auto* const time =
        dynamic_cast<google::protobuf::Duration*>(in.MutableMessage(message, &field));
    time->set_seconds(largest ? 315576000000 : -1);
    time->set_nanos(largest ? 1 : -500000000);
    return;
  }
  Fill(largest,
       field.is_repeated() ? in.AddMessage(message, &field) : in.MutableMessage(message, &field));
}

TEST(SpecJsonTest, WhatProtobufWritesIsRead) {
  for (int round = 0; round < 8; ++round) {
    v1::AttentionSpec spec;
    Fill(/*largest=*/round % 2 == 0, &spec);
    ASSERT_TRUE(spec.has_gradients());
    if (round / 2 % 2 == 0) Fill(round % 2 == 0, spec.mutable_forward());
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = round / 4 == 1;
    options.add_whitespace = round % 2 == 0;
    std::string json;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(spec, &json, options).ok());
    const auto read = Parse(json);
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << json;
    EXPECT_TRUE(MessageDifferencer::Equals(*read, spec)) << json;
  }
}

}  // namespace
}  // namespace annulus
