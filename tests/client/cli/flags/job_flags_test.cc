#include "client/cli/flags/job_flags.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/command_line.h"
#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

class JobFlagsTest : public testing::Test {
 protected:
  JobFlagsTest() {
    std::ofstream(spec_file_) << R"({"masks": [{"windowLeft": "5"}], "scale": 0.25})";
  }

  // The request of the flags for a spec with a window and a scale of 0.25.
  absl::StatusOr<JobRequest> Request(std::vector<std::string> flags, JobFlags read = {}) {
    CommandLine app("annulus", "");
    AddJobFlags(&app, &read);
    flags.insert(flags.end(), {"--spec", spec_file_, "--synthetic", "1,9,9,2,2,8,fp32,1"});
    std::vector<const char*> words = {"annulus"};
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    EXPECT_FALSE(ParseCommandLine(&app, static_cast<int>(words.size()), words.data()).has_value());
    return ReadJob(read);
  }

  static JobFlags Of(Operation operation) {
    JobFlags flags;
    flags.operation = operation;
    return flags;
  }

  // The job of the flags.
  AttentionSpec Read(const std::vector<std::string>& flags) {
    absl::StatusOr<JobRequest> request = Request(flags);
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->spec : AttentionSpec();
  }

  static void ExpectWindow(const AttentionSpec& spec) {
    ASSERT_EQ(spec.masks.size(), 1u);
    EXPECT_EQ(spec.masks[0].window_left, 5);
    EXPECT_FALSE(spec.masks[0].causal);
  }
  static void ExpectCausal(const AttentionSpec& spec, Mask::Alignment alignment) {
    ASSERT_EQ(spec.masks.size(), 1u);
    EXPECT_TRUE(spec.masks[0].causal);
    EXPECT_EQ(spec.masks[0].alignment, alignment);
    EXPECT_FALSE(spec.masks[0].window_left.has_value());
  }

  const std::string spec_file_ = testing::TempDir() + "/spec.json";
};

TEST_F(JobFlagsTest, WithoutFlagsTheSpecStays) {
  const AttentionSpec spec = Read({});
  ExpectWindow(spec);
  EXPECT_EQ(spec.scale, 0.25);
}

TEST_F(JobFlagsTest, AMaskReplacesTheMasksAlone) {
  const AttentionSpec causal = Read({"--mask", "causal"});
  ExpectCausal(causal, Mask::Alignment::kBottomRight);
  EXPECT_EQ(causal.scale, 0.25);
  const AttentionSpec full = Read({"--mask", "full"});
  EXPECT_TRUE(full.masks.empty());
  EXPECT_EQ(full.scale, 0.25);
}

TEST_F(JobFlagsTest, AWindowReplacesTheWindowAlone) {
  const Mask both = Read({"--window", "7,9"}).masks.at(0);
  EXPECT_EQ(both.window_left, 7);
  EXPECT_EQ(both.window_right, 9);
  std::ofstream(spec_file_) << R"({"masks": [{"causal": true, "windowRight": 3, "prefix": 2}]})";
  const Mask left = Read({"--window", "0"}).masks.at(0);
  EXPECT_TRUE(left.causal);
  EXPECT_EQ(left.prefix, 2);
  EXPECT_EQ(left.window_left, 0);
  EXPECT_FALSE(left.window_right.has_value());
  const Mask causal = Read({"--window", "4", "--mask", "causal"}).masks.at(0);
  EXPECT_TRUE(causal.causal);
  EXPECT_EQ(causal.window_left, 4);
  EXPECT_FALSE(causal.prefix.has_value());
  const AttentionSpec window = Read({"--window", "67108864,0", "--mask", "full"});
  ASSERT_EQ(window.masks.size(), 1u);
  EXPECT_FALSE(window.masks[0].causal);
  EXPECT_EQ(window.masks[0].window_left, 67108864);
  EXPECT_EQ(window.masks[0].window_right, 0);
}

TEST_F(JobFlagsTest, AWindowOverSeveralMasksIsRefused) {
  const char* const specs[][2] = {
      {R"({"masks": [{"causal": true}, {"queryHeads": [0]}]})", "spec.masks"},
      {R"({"masks": [{"causal": true, "queryHeads": [0]}]})", "spec.masks[0].query_heads"}};
  for (const auto& [spec, field] : specs) {
    std::ofstream(spec_file_) << spec;
    EXPECT_TRUE(Request({}).ok());
    const absl::Status status = Request({"--window", "4"}).status();
    EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC") << spec;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u) << spec;
    EXPECT_EQ(DetailOf(status).fields[0].field, field);
    EXPECT_TRUE(Request({"--window", "4", "--mask", "causal"}).ok());
  }
}

TEST_F(JobFlagsTest, ModifiersAndOutputsReplaceTheirFieldsAlone) {
  std::ofstream(spec_file_)
      << R"({"dropout": {"rate": 0.5, "seed": 1}, "outDtype": "DATA_TYPE_FP32",
      "modifiers": {"softCap": 20, "sinks": [1, 2]},
      "outputs": {"lseBase": "LSE_BASE_2", "maxLogit": true}})";
  const AttentionSpec before = Read({});
  EXPECT_EQ(before.dropout->rate, 0.5);
  EXPECT_EQ(before.modifiers.soft_cap, 20);
  EXPECT_EQ(before.outputs.lse_base, LseBase::k2);
  const AttentionSpec after =
      Read({"--dropout", "0.25,18446744073709551615", "--soft-cap", "30.5", "--lse-base", "e"});
  EXPECT_EQ(after.dropout->rate, 0.25);
  EXPECT_EQ(after.dropout->seed, ~0ull);
  EXPECT_EQ(after.modifiers.soft_cap, 30.5);
  EXPECT_EQ(after.modifiers.sinks, (std::vector<float>{1, 2}));
  EXPECT_EQ(after.outputs.lse_base, LseBase::kE);
  EXPECT_TRUE(after.outputs.max_logit);
  EXPECT_EQ(after.out_dtype, DataType::kFp32);
  std::ofstream(spec_file_) << "{}";
  EXPECT_EQ(Read({"--lse-base", "2"}).outputs.lse_base, LseBase::k2);
  EXPECT_EQ(Read({"--out-dtype", "fp32"}).out_dtype, DataType::kFp32);
  EXPECT_EQ(DetailOf(Request({"--out-dtype", "bf16"}).status()).reason, "NOT_SERVED");
}

TEST_F(JobFlagsTest, GradientsHaveNoBaseOfLse) {
  CommandLine app("annulus", "");
  JobFlags flags = Of(Operation::kGradients);
  AddJobFlags(&app, &flags);
  EXPECT_FALSE(app.Find("--lse-base").has_value());
  for (const char* name : {"--spec", "--mask", "--window", "--scale", "--soft-cap", "--dropout",
                           "--out-dtype", "--deterministic", "--arithmetic"}) {
    const auto& options = flags.spec_options;
    EXPECT_EQ(std::count_if(options.begin(), options.end(),
                            [&](const AddedFlag& of) { return of.name() == name; }),
              1)
        << name;
  }
}

TEST_F(JobFlagsTest, UnderscoresAreDashes) {
  for (const char* name : {"causal-top-left", "causal_top_left", "causal-top_left"}) {
    ExpectCausal(Read({"--mask", name}), Mask::Alignment::kTopLeft);
  }
}

TEST_F(JobFlagsTest, AScaleReplacesTheScaleAlone) {
  for (double scale : {0.0, -2.5, 0x1p64, -0x1p64, 0x1p-64}) {
    const AttentionSpec spec = Read({"--scale", absl::StrFormat("%.17g", scale)});
    ExpectWindow(spec);
    EXPECT_EQ(spec.scale, scale);
  }
}

TEST_F(JobFlagsTest, BothReplaceBoth) {
  const AttentionSpec spec = Read({"--mask", "causal", "--scale", "3"});
  ExpectCausal(spec, Mask::Alignment::kBottomRight);
  EXPECT_EQ(spec.scale, 3.0);
}

TEST_F(JobFlagsTest, ASwitchThatIsOffReplacesTheSpecsToo) {
  std::ofstream(spec_file_) << R"({"deterministic": true})";
  EXPECT_TRUE(Read({}).deterministic);
  EXPECT_FALSE(Read({"--deterministic=false"}).deterministic);
  std::ofstream(spec_file_) << "{}";
  EXPECT_TRUE(Read({"--deterministic"}).deterministic);
  EXPECT_FALSE(Read({"--deterministic=false"}).deterministic);
}

TEST_F(JobFlagsTest, ASpecOfTheOtherOperationIsRefused) {
  const struct {
    Operation operation;
    const char* spec;
    const char* field;
    const char* told;
  } kCases[] = {
      {Operation::kForward, R"({"gradients": {}})", "spec.gradients", "`annulus gradients`"},
      {Operation::kGradients, R"({"forward": {}})", "spec.forward", "`annulus attend`"},
      {Operation::kGradients, R"({"forward": {"keepState": "60s"}})", "spec.forward",
       "`annulus attend`"},
  };
  for (const auto& [operation, spec, field, told] : kCases) {
    std::ofstream(spec_file_) << spec;
    const absl::Status status = Request({}, Of(operation)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
    EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC") << spec;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u) << spec;
    EXPECT_EQ(DetailOf(status).fields[0].field, field) << spec;
    EXPECT_NE(status.message().find(told), absl::string_view::npos) << status;
    EXPECT_TRUE(Request({}).ok()) << spec;  // Either operation can be planned.
  }
}

TEST_F(JobFlagsTest, ASpecOfItsOwnOperationIsTaken) {
  std::ofstream(spec_file_) << R"({"forward": {"keepState": "60s"}})";
  EXPECT_EQ(Request({}, Of(Operation::kForward))->spec.forward.keep_state, absl::Seconds(60));
  JobFlags keep = Of(Operation::kForward);
  keep.keep_for = absl::Seconds(5);
  EXPECT_EQ(Request({}, keep)->spec.forward.keep_state, absl::Seconds(5));
  std::ofstream(spec_file_) << R"({"gradients": {"dLse": true}})";
  EXPECT_TRUE(Request({}, Of(Operation::kGradients))->spec.gradients.d_lse);
  std::ofstream(spec_file_) << "{}";
  EXPECT_EQ(Request({}, Of(Operation::kGradients))->spec.operation, Operation::kGradients);
  EXPECT_EQ(Request({}, Of(Operation::kForward))->spec.operation, Operation::kForward);
}

TEST_F(JobFlagsTest, AnErrorOfTheSpecNamesItsFile) {
  std::ofstream(spec_file_) << R"({"masks": [{"casual": true}]})";
  EXPECT_EQ(Request({}).status().message(),
            spec_file_ + ": masks[0] has no field \"casual\"; did you mean \"causal\"?");
}

TEST_F(JobFlagsTest, GradientsThatMayBeUploadedRefuseAStateOfTheSpec) {
  JobFlags either = Of(Operation::kGradients);
  either.or_upload = true;
  const char* const fields[][2] = {{"state", "\"4f\""}, {"release_state", "true"}};
  for (const auto& [field, value] : fields) {
    std::ofstream(spec_file_) << "{\"gradients\": {\"" << field << "\": " << value << "}}";
    const absl::Status status = Request({}, either).status();
    EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC") << status;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u);
    EXPECT_EQ(DetailOf(status).fields[0].field, std::string("spec.gradients.") + field);
  }
  std::ofstream(spec_file_) << R"({"gradients": {"dBias": false}})";
  EXPECT_TRUE(Request({}, either).ok());
}

TEST_F(JobFlagsTest, APriorityIsTheExecutions) {
  EXPECT_EQ(Request({})->execution.priority, 0);
  EXPECT_EQ(Request({"--priority", "-10"})->execution.priority, -10);
}

TEST_F(JobFlagsTest, AStripeIsOfTheStripedLayoutAlone) {
  EXPECT_EQ(Request({})->execution.stripe, 0);
  EXPECT_EQ(Request({"--layout", "striped", "--stripe", "3"})->execution.stripe, 3);
  for (const char* layout : {"auto", "zigzag"}) {
    const absl::Status status = Request({"--layout", layout, "--stripe", "3"}).status();
    EXPECT_EQ(DetailOf(status).reason, "INVALID_EXECUTION") << layout;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u);
    EXPECT_EQ(DetailOf(status).fields[0].field, "execution.stripe");
  }
}

}  // namespace
}  // namespace annulus
