#include "worker/comm/bind_address.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

using absl::StatusCode;

TEST(BindAddress, AnInterfaceIsFoundByItsAddressAndByItsName) {
  EXPECT_EQ(InterfaceOf("127.0.0.1", "").value(), "lo");
  EXPECT_EQ(InterfaceOf("", "lo").value(), "lo");
}

// Otherwise the error would appear only when a group is formed, without its reason.
TEST(BindAddress, OneThatIsNotThereIsRefused) {
  EXPECT_EQ(InterfaceOf("", "nosuch0").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(InterfaceOf("0.0.0.0", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(InterfaceOf("", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(InterfaceOf("127.0.0.1", "lo").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace annulus
