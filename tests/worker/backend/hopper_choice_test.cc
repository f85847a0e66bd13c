// Results of the process that checks the sm_90a kernel. Here the processes are shells.
#include "worker/backend/hopper_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace annulus {
namespace {

ChildEnd Shell(const std::string& script, absl::Duration limit = absl::Minutes(1)) {
  return RunChild({"/bin/sh", "-c", script}, limit);
}

// The choice for `asked` on a Hopper GPU with these results.
absl::StatusOr<HopperChoice> On(const std::string& asked, const ChildEnd& end,
                                const ChildEnd& of_gradients) {
  return ChooseHopper(asked, /*sm_90=*/true, [&](Operation operation) {
    return operation == Operation::kGradients ? of_gradients : end;
  });
}

class HopperChoiceTest : public testing::Test {
 protected:
  HopperChoiceTest() {
    LogOptions options;
    options.stream = &log_;
    InitLogging(options);
  }
  ~HopperChoiceTest() override { InitLogging(LogOptions()); }
  // Log output since the last call: `lines` lines.
  std::string Logged(int lines) {
    const std::string text = log_.str();
    log_.str("");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), lines) << text;
    return text;
  }

  std::ostringstream log_;
  const ChildEnd passed_ = Shell("echo passed");
};

TEST_F(HopperChoiceTest, KernelsThatPassTheirChecksServe) {
  for (const std::string asked : {"auto", "hopper"}) {
    const auto choice = On(asked, passed_, passed_);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->on && choice->gradients);
    EXPECT_EQ(choice->verdict + choice->gradients_verdict, "");
    EXPECT_EQ(choice->kernels() + choice->note(), "cuda/wgmma+mma");
    const std::string said = Logged(2);
    EXPECT_NE(said.find("the kernel for Hopper passed its check"), std::string::npos);
    EXPECT_NE(said.find("the kernel for gradients on Hopper passed its check"), std::string::npos);
  }
}

struct Failure {
  ChildEnd end;
  std::string verdict, brief;  // `brief`: up to a colon.
};
std::vector<Failure> Failures() {
  std::vector<Failure> all = {
      {Shell("echo bf16: out is off by 3; echo of 1; exit 1"),
       "failed its check: bf16: out is off by 3; of 1", ""},
      {Shell("echo passed; exit 1"), "failed its check: passed", ""},
      {Shell("true"), "failed its check: exit code 0", ""},
      {Shell("echo passed; kill -SEGV $$"), "crashed in its check (signal 11)", ""},
      {Shell("echo passed; mkfifo \"$TEST_TMPDIR/p\"; exec 3<>\"$TEST_TMPDIR/p\"; read x <&3",
             absl::Milliseconds(300)),
       "hung in its check", ""},
      {RunChild({"/no/such/worker"}, absl::Minutes(1)),
       "was not checked: No such file or directory", ""},
  };
  for (Failure& one : all) one.brief = one.verdict.substr(0, one.verdict.find(':'));
  return all;
}

TEST_F(HopperChoiceTest, WhateverElseHappensThePortableOneServes) {
  for (const Failure& one : Failures()) {
    const auto choice = On("auto", one.end, passed_);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_FALSE(choice->on || choice->gradients) << one.verdict;
    EXPECT_EQ(choice->verdict, one.verdict);
    EXPECT_NE(
        Logged(1).find("the kernel for Hopper " + one.verdict + "; the portable kernel is used"),
        std::string::npos);
    EXPECT_EQ(choice->kernels() + choice->note(), "cuda/mma (hopper " + one.brief + ")");
    const auto asked = On("hopper", one.end, passed_);
    EXPECT_EQ(asked.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(asked.status().message(), "the CUDA kernel for Hopper " + one.verdict);
    EXPECT_EQ(DetailOf(asked.status()).reason, "KERNEL_SELF_CHECK_FAILED");
  }
}

TEST_F(HopperChoiceTest, GradientsThatFailTakeNothingFromAttention) {
  for (const Failure& one : Failures()) {
    const auto choice = On("auto", passed_, one.end);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->on && !choice->gradients) << one.verdict;
    EXPECT_NE(Logged(2).find("the kernel for gradients on Hopper " + one.verdict +
                             "; the portable kernel is used"),
              std::string::npos);
    EXPECT_EQ(choice->kernels() + choice->note(),
              "cuda/wgmma+mma (hopper gradients " + one.brief + ")");
    const auto asked = On("hopper", passed_, one.end);
    EXPECT_EQ(asked.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(asked.status().message(), "the CUDA kernel for gradients on Hopper " + one.verdict);
    Logged(1);  // Line of attention's check.
  }
}

TEST_F(HopperChoiceTest, NothingIsCheckedThatDoesNotMatter) {
  int checks = 0;
  const auto check = [&](Operation) {
    ++checks;
    return ChildEnd{ChildEnd::Kind::kExited, 0, kHopperPassed};
  };
  for (const bool sm_90 : {false, true}) {
    const auto portable = ChooseHopper("portable", sm_90, check);
    ASSERT_TRUE(portable.ok()) << portable.status();
    EXPECT_FALSE(portable->on);
    EXPECT_EQ(portable->verdict, "");
  }
  const auto other = ChooseHopper("auto", /*sm_90=*/false, check);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->on);
  EXPECT_EQ(other->verdict, "");
  EXPECT_EQ(ChooseHopper("hopper", /*sm_90=*/false, check).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(checks, 0);
  EXPECT_EQ(Logged(0), "");
}

}  // namespace
}  // namespace annulus
