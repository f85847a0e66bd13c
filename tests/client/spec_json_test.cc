#include "client/spec_json.h"

#include <string>

#include "attention/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(SpecJsonTest, EqualNamesOfDifferentObjectsAreNone) {
  const auto spec = ParseSpec(
      R"({"masks": [{"causal": true, "queryHeads": [0]}, {"causal": true}], "scale": 1,
          "modifiers": {"sinks": [1, 2], "bias": {"heads": 1}}, "sequences": [{"mask": 1}, {"mask": 0}]})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->masks_size(), 2);
  EXPECT_EQ(spec->modifiers().sinks_size(), 2);
}

TEST(SpecJsonTest, ANameTwiceIsRefusedAtEveryDepth) {
  for (const char* json : {R"({"masks": [{"causal": true}], "masks": []})",
                           R"({"deterministic": true, "scale": 1, "deterministic": true})",
                           R"({"masks": [{"causal": true}, {"causal": true, "causal": false}]})",
                           R"({"masks": [{"bitMask": true, "bit_mask": false}]})",
                           R"({"modifiers": {"bias": {"heads": 1, "heads": 1}}})"}) {
    const absl::Status status = ParseSpec(json).status();
    EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC") << json;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("twice")) << json;
  }
}

TEST(SpecJsonTest, WhatIsNoJsonIsRefused) {
  for (const char* json : {"", "{", "{masks: []}", "{'scale': 1}", "{\"scale\": 1,}", "[]", "3"}) {
    EXPECT_EQ(DetailOf(ParseSpec(json).status()).reason, "BAD_SPEC") << json;
  }
  EXPECT_TRUE(ParseSpec("{}").ok());
}

}  // namespace
}  // namespace annulus
