#include "base/status_macros.h"

#include <memory>

#include "gtest/gtest.h"

namespace annulus {
namespace {

absl::Status Half(absl::Status first, int* reached) {
  RETURN_IF_ERROR(first);
  *reached = 1;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> first, Box(a));
  ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Box(b));
  return *first + *second;
}

TEST(ReturnIfErrorTest, GoesOnOnlyWhenOk) {
  int reached = 0;
  EXPECT_EQ(Half(absl::InternalError("x"), &reached), absl::InternalError("x"));
  EXPECT_EQ(reached, 0);
  EXPECT_TRUE(Half(absl::OkStatus(), &reached).ok());
  EXPECT_EQ(reached, 1);
}

TEST(AssignOrReturnTest, MovesTheValueOrReturnsTheStatus) {
  EXPECT_EQ(Sum(2, 3).value(), 5);
  EXPECT_EQ(Sum(2, -3).status(), absl::InvalidArgumentError("negative"));
}

}  // namespace
}  // namespace annulus
