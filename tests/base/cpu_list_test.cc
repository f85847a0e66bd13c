#include "base/cpu_list.h"

#include <gtest/gtest.h>

#include <thread>

namespace annulus {
namespace {

TEST(CpuListTest, IsReadAndWritten) {
  EXPECT_EQ(*ParseCpuList("0"), std::vector<int>{0});
  EXPECT_EQ(*ParseCpuList("8,0-3"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(*ParseCpuList("1023"), std::vector<int>{1023});
  EXPECT_EQ(CpuListText({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(CpuListText({1, 3, 4, 6}), "1,3-4,6");
  EXPECT_EQ(CpuListText({}), "");
}

TEST(CpuListTest, WhatIsNoListIsRefused) {
  for (const char* text :
       {"", ",", "a", "-1", "1-", "3-2", "1-2-3", "1,,2", "1024", "0-1024", " "}) {
    const absl::Status status = ParseCpuList(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("is not a list of CPUs"), std::string::npos) << status;
  }
  EXPECT_EQ(ParseCpuList("0-3,2").status().message(), "'0-3,2' has CPU 2 twice");
}

TEST(CpuListTest, ThreadsKeepToIt) {
  const std::vector<int> allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  std::vector<int> after, of_child;
  absl::Status kept, refused;
  std::thread([&] {
    kept = KeepToCpus({allowed.back()});
    after = AllowedCpus();
    std::thread([&] { of_child = AllowedCpus(); }).join();
    refused = KeepToCpus({1023});
  }).join();
  EXPECT_TRUE(kept.ok()) << kept;
  EXPECT_EQ(after, std::vector<int>{allowed.back()});
  EXPECT_EQ(of_child, after);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_EQ(AllowedCpus(), allowed) << "others are left alone";
}

}  // namespace
}  // namespace annulus
