// What becomes of the process that checks the kernel for sm_90a: the processes here are shells.
#include "worker/hopper_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "attention/error.h"
#include "base/log.h"

namespace annulus {
namespace {

ChildEnd Shell(const std::string& script, absl::Duration limit = absl::Minutes(1)) {
  return RunChild({"/bin/sh", "-c", script}, limit);
}

// What `asked` comes to on a Hopper whose check goes like that.
absl::StatusOr<HopperChoice> On(const std::string& asked, const ChildEnd& end) {
  return ChooseHopper(asked, /*sm_90=*/true, [&] { return end; });
}

class HopperChoiceTest : public testing::Test {
 protected:
  HopperChoiceTest() {
    LogOptions options;
    options.stream = &log_;
    InitLogging(options);
  }
  ~HopperChoiceTest() override { InitLogging(LogOptions()); }
  // What was logged since the last time; a line.
  std::string Logged() {
    const std::string text = log_.str();
    log_.str("");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), text.empty() ? 0 : 1) << text;
    return text;
  }

  std::ostringstream log_;
};

TEST_F(HopperChoiceTest, AKernelThatPassesItsCheckServes) {
  const ChildEnd end = Shell("echo passed");
  for (const std::string asked : {"auto", "hopper"}) {
    const auto choice = On(asked, end);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(choice->on);
    EXPECT_EQ(choice->verdict, "");
    EXPECT_EQ(choice->kernels() + choice->note(), "cuda/wgmma+mma");
    EXPECT_NE(Logged().find("the kernel for Hopper passed its check"), std::string::npos);
  }
}

TEST_F(HopperChoiceTest, WhateverElseHappensThePortableOneServes) {
  struct Case {
    ChildEnd end;
    std::string verdict;
  };
  const Case cases[] = {
      {Shell("echo bf16: out is off by 3; echo of 1; exit 1"),
       "failed its check: bf16: out is off by 3; of 1"},
      {Shell("echo passed; exit 1"), "failed its check: passed"},
      {Shell("true"), "failed its check: exit code 0"},
      {Shell("echo passed; kill -SEGV $$"), "crashed in its check (signal 11)"},
      {Shell("echo passed; mkfifo \"$TEST_TMPDIR/p\"; exec 3<>\"$TEST_TMPDIR/p\"; read x <&3",
             absl::Milliseconds(300)),
       "hung in its check"},
      {RunChild({"/no/such/worker"}, absl::Minutes(1)),
       "was not checked: No such file or directory"},
  };
  for (const Case& one : cases) {
    const auto choice = On("auto", one.end);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_FALSE(choice->on) << one.verdict;
    EXPECT_EQ(choice->verdict, one.verdict);
    EXPECT_NE(Logged().find("the kernel for Hopper " + one.verdict + "; the portable one serves"),
              std::string::npos);
    const std::string brief = one.verdict.substr(0, one.verdict.find(':'));
    EXPECT_EQ(choice->kernels() + choice->note(), "cuda/mma (hopper " + brief + ")");
    const auto asked = On("hopper", one.end);
    EXPECT_EQ(asked.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(asked.status().message(), "the CUDA kernel \"hopper\" " + one.verdict);
    EXPECT_EQ(DetailOf(asked.status()).reason, "KERNEL_SELF_CHECK_FAILED");
  }
}

TEST_F(HopperChoiceTest, NothingIsCheckedThatDoesNotMatter) {
  int checks = 0;
  const auto check = [&] {
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
  EXPECT_EQ(Logged(), "");
}

}  // namespace
}  // namespace annulus
