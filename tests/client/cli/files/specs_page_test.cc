// Every example of docs/reference/specs.md is accepted by the command line, and every field has an
// example.
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/validate/validate.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/files/spec_json.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Names = std::set<std::string>;

// Refused in every request (NOT_SERVED).
const Names& NotServed() {
  static const auto* const kNames =
      new Names{"sequences.session", "sequences.layer", "DATA_TYPE_FP8_E4M3"};
  return *kNames;
}

std::vector<std::string> ReadExamples() {
  std::ifstream page("docs/reference/specs.md");
  std::vector<std::string> examples;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line == "```json") {
      inside = true;
      examples.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      absl::StrAppend(&examples.back(), line, "\n");
    }
  }
  return examples;
}

bool IsOfOurs(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type()->file()->package() == "annulus.v1";
}

// Fields by path, and values of enums by name.
void AddAll(const Descriptor& message, const std::string& path, Names* names) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string name = absl::StrCat(path, field.name());
    names->insert(name);
    if (IsOfOurs(field)) AddAll(*field.message_type(), absl::StrCat(name, "."), names);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) continue;
    for (int v = 1; v < field.enum_type()->value_count(); ++v) {  // 0 is UNSPECIFIED.
      names->insert(field.enum_type()->value(v)->name());
    }
  }
}

void AddSaid(const Message& message, const std::string& path, Names* names) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> said;
  reflection.ListFields(message, &said);
  for (const FieldDescriptor* field : said) {
    const std::string name = absl::StrCat(path, field->name());
    names->insert(name);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      names->insert(reflection.GetEnum(message, field)->name());
    }
    if (!IsOfOurs(*field)) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      AddSaid(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                   : reflection.GetMessage(message, field),
              absl::StrCat(name, "."), names);
    }
  }
}

// The shape of the inputs that the page names.
JobShape ShapeFor(const v1::AttentionSpec& spec) {
  JobShape shape = ParseSynthetic("1,4096,4096,8,2,64,fp32,1")->shape;
  shape.batch.reset();
  if (spec.dtype() == v1::DATA_TYPE_FP16) shape.dtype = DataType::kFp16;
  if (spec.dtype() == v1::DATA_TYPE_BF16) shape.dtype = DataType::kBf16;
  return shape;
}

TEST(SpecsPageTest, EveryExampleIsTaken) {
  const std::vector<std::string> examples = ReadExamples();
  ASSERT_GE(examples.size(), 20u);
  for (const std::string& example : examples) {
    const absl::StatusOr<v1::AttentionSpec> parsed = ParseSpec(example, "docs/reference/specs.md");
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << example;
    const absl::StatusOr<AttentionSpec> spec = CompleteSpec(*parsed, ShapeFor(*parsed));
    ASSERT_TRUE(spec.ok()) << spec.status() << "\n" << example;
    const absl::Status valid = Validate(*spec, Execution(), Limits());
    EXPECT_TRUE(valid.ok()) << valid << "\n" << example;
  }
}

TEST(SpecsPageTest, EveryFieldHasAnExample) {
  Names said;
  for (const std::string& example : ReadExamples()) {
    const absl::StatusOr<v1::AttentionSpec> spec = ParseSpec(example, "docs/reference/specs.md");
    if (spec.ok()) AddSaid(*spec, "", &said);
  }
  Names all;
  AddAll(*v1::AttentionSpec::descriptor(), "", &all);
  ASSERT_EQ(all.count("masks.ranges.kind") + all.count("KIND_CAUSAL"), 2u);
  for (const std::string& name : all) {
    EXPECT_EQ(said.count(name) + NotServed().count(name), 1u) << name;
  }
}

}  // namespace
}  // namespace annulus
