#include "client/cli/job_flags.h"

#include <fstream>
#include <string>
#include <vector>

#include "attention/error.h"
#include "base/command_line.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

class JobFlagsTest : public testing::Test {
 protected:
  JobFlagsTest() {
    std::ofstream(spec_file_) << R"({"masks": [{"windowLeft": "5"}], "scale": 0.25})";
  }

  // What the flags make of a spec with a window and a scale of 0.25.
  absl::StatusOr<JobRequest> Request(std::vector<std::string> flags, JobFlags read = {}) {
    CLI::App app("", "annulus");
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

  // The job of them.
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

TEST_F(JobFlagsTest, UnderscoresAreDashes) {
  for (const char* name : {"causal-top-left", "causal_top_left", "causal-top_left"}) {
    ExpectCausal(Read({"--mask", name}), Mask::Alignment::kTopLeft);
  }
}

TEST_F(JobFlagsTest, AScaleReplacesTheScaleAlone) {
  for (double scale : {0.0, -2.5}) {
    const AttentionSpec spec = Read({"--scale", std::to_string(scale)});
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
    EXPECT_TRUE(Request({}).ok()) << spec;  // A plan is of either.
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
