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
  absl::StatusOr<JobRequest> Request(std::vector<std::string> flags, bool gradients = false,
                                     bool or_upload = false) {
    CLI::App app("", "annulus");
    JobFlags read;
    read.gradients = gradients;
    read.or_upload = or_upload;
    AddJobFlags(&app, &read);
    flags.insert(flags.end(), {"--spec", spec_file_, "--synthetic", "1,9,9,2,2,8,fp32,1"});
    std::vector<const char*> words = {"annulus"};
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    EXPECT_FALSE(ParseCommandLine(&app, static_cast<int>(words.size()), words.data()).has_value());
    return ReadJob(read);
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

TEST_F(JobFlagsTest, GradientsRefuseAStateToBeKept) {
  std::ofstream(spec_file_) << R"({"forward": {"keepState": "60s"}})";
  EXPECT_TRUE(Request({}).ok());
  const absl::Status status = Request({}, /*gradients=*/true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC");
  ASSERT_EQ(DetailOf(status).fields.size(), 1u);
  EXPECT_EQ(DetailOf(status).fields[0].field, "spec.forward.keep_state");
}

TEST_F(JobFlagsTest, GradientsThatMayBeUploadedRefuseAStateOfTheSpec) {
  const char* const fields[][2] = {{"state", "\"4f\""}, {"release_state", "true"}};
  for (const auto& [field, value] : fields) {
    std::ofstream(spec_file_) << "{\"gradients\": {\"" << field << "\": " << value << "}}";
    const absl::Status status = Request({}, /*gradients=*/true, /*or_upload=*/true).status();
    EXPECT_EQ(DetailOf(status).reason, "BAD_SPEC") << status;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u);
    EXPECT_EQ(DetailOf(status).fields[0].field, std::string("spec.gradients.") + field);
  }
  std::ofstream(spec_file_) << R"({"gradients": {"dBias": false}})";
  EXPECT_TRUE(Request({}, /*gradients=*/true, /*or_upload=*/true).ok());
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
