// Every field of a request belongs to a row of the capability table: a new option must state there
// if it is served.

#include <map>
#include <set>
#include <string>

#include "annulus/v1/types.pb.h"
#include "attention/validate/capability.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Fields without a separate row, and the field whose rows cover them; none for fields that every
// request has, with any value.
const std::map<std::string, std::string>& SpokenFor() {
  static const auto& fields = *new std::map<std::string, std::string>{
      {"spec.q_heads", ""},
      {"spec.kv_heads", ""},
      {"spec.head_dim", ""},
      {"spec.head_dim_v", ""},
      {"spec.scale", ""},
      {"spec.sequences[].q_len", ""},
      {"spec.sequences[].kv_len", ""},
      {"spec.sequences[].layer", "spec.sequences[].session"},
      {"spec.masks[].ranges[].q_begin", "spec.masks[].ranges"},
      {"spec.masks[].ranges[].q_end", "spec.masks[].ranges"},
      {"spec.masks[].ranges[].k_begin", "spec.masks[].ranges"},
      {"spec.masks[].ranges[].k_end", "spec.masks[].ranges"},
      {"spec.masks[].ranges[].kind", "spec.masks[].ranges"},
      {"spec.bit_mask_heads", "spec.masks[].bit_mask"},
      {"spec.modifiers.bias.dtype", "spec.modifiers.bias"},
      {"spec.modifiers.bias.heads", "spec.modifiers.bias"},
      {"spec.dropout.rate", "spec.dropout"},
      {"spec.dropout.seed", "spec.dropout"},
      {"spec.gradients.d_lse", "spec.gradients"},
      {"spec.gradients.release_state", "spec.gradients.state"},
      {"execution.world_size", ""},
      {"execution.stripe", "execution.layout"},
  };
  return fields;
}

// Adds the paths below `prefix` of fields that are not messages of ours.
void AddLeaves(const Descriptor& message, const std::string& prefix, std::set<std::string>* paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = prefix + "." + field.name() + (field.is_repeated() ? "[]" : "");
    const Descriptor* of = field.message_type();
    if (of != nullptr && of->file()->package() == message.file()->package()) {
      AddLeaves(*of, path, paths);
    } else {
      paths->insert(prefix + "." + field.name());
    }
  }
}

std::set<std::string> FieldsOfARequest() {
  std::set<std::string> fields;
  AddLeaves(*v1::AttentionSpec::descriptor(), "spec", &fields);
  AddLeaves(*v1::Execution::descriptor(), "execution", &fields);
  return fields;
}

TEST(CapabilityFieldsTest, EveryFieldOfARequestHasARow) {
  const std::set<std::string> fields = FieldsOfARequest();
  std::set<std::string> rows;
  EXPECT_GT(fields.size(), 50u);
  for (const Capability& row : CapabilityTable()) rows.insert(row.field_path);
  for (const std::string& field : fields) {
    EXPECT_NE(rows.count(field), SpokenFor().count(field)) << field;
  }
  for (const auto& [field, by] : SpokenFor()) {
    EXPECT_EQ(fields.count(field), 1u) << field << " is no field";
    EXPECT_TRUE(by.empty() || rows.count(by) > 0) << by << " has no row";
  }
}

// The converse: a row with a wrong field would refuse with a path that no request has.
TEST(CapabilityFieldsTest, EveryRowNamesAField) {
  const std::set<std::string> fields = FieldsOfARequest();
  for (const Capability& row : CapabilityTable()) {
    // The field itself, or a message or list that has fields.
    const std::string& path = row.field_path;
    const auto at = fields.lower_bound(path);
    ASSERT_TRUE(at != fields.end() && at->compare(0, path.size(), path) == 0) << path;
    EXPECT_TRUE(at->size() == path.size() || (*at)[path.size()] == '.' || (*at)[path.size()] == '[')
        << row.feature << ": " << path;
  }
}

}  // namespace
}  // namespace annulus
