#include "base/exit_in_time.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(ExitInTimeDeathTest, WhatHangsEndsWithTheCode) {
  EXPECT_EXIT(
      {
        ExitInTime(71, 1);
        for (;;) pause();
      },
      testing::ExitedWithCode(71), "");
}

TEST(ExitInTimeDeathTest, WhatEndsBeforeHasItsOwn) {
  EXPECT_EXIT(
      {
        ExitInTime(71, 60);
        _exit(5);
      },
      testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace annulus
