#include "client/cli/job_flags.h"

#include <fstream>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

class JobFlagsTest : public testing::Test {
 protected:
  JobFlagsTest() {
    std::ofstream(spec_file_) << R"({"masks": [{"windowLeft": "5"}], "scale": 0.25})";
  }

  // The job of the flags over a spec with a window and a scale of 0.25.
  AttentionSpec Read(std::vector<std::string> flags) {
    CLI::App app("", "annulus");
    JobFlags read;
    AddJobFlags(&app, &read);
    flags.insert(flags.end(), {"--spec", spec_file_, "--synthetic", "1,9,9,2,2,8,fp32,1"});
    std::vector<const char*> words = {"annulus"};
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    EXPECT_FALSE(ParseCommandLine(&app, static_cast<int>(words.size()), words.data()).has_value());
    absl::StatusOr<JobRequest> request = ReadJob(read);
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

}  // namespace
}  // namespace annulus
