#include "client/cli/local/cgroup_memory.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
constexpr char kOwn[] = "proc/self/cgroup", kMounted[] = "sys/fs/cgroup/";

// The limit that a process with these files sees.
int64_t SaidBy(const std::map<std::string, std::string>& files) {
  const std::string root = testing::TempDir() + "/cgroup_memory/";
  std::filesystem::remove_all(root);
  for (const auto& [name, text] : files) {
    std::filesystem::create_directories((root + name).substr(0, (root + name).rfind('/')));
    std::ofstream(root + name) << text;
  }
  return CgroupMemoryBytes(root);
}

std::string Mounted(const std::string& path) { return kMounted + path; }

TEST(CgroupMemoryTest, NoneWhereNothingIsSaid) {
  EXPECT_EQ(SaidBy({}), kNone);
  EXPECT_EQ(SaidBy({{kOwn, "0::/\n"}}), kNone);
  EXPECT_EQ(SaidBy({{kOwn, "0::/a\n"}, {Mounted("a/memory.max"), "max\n"}}), kNone);
  EXPECT_EQ(SaidBy({{kOwn, "\n:\n0:\nmemory\n0::a\n4:memory:a/b\n"}}), kNone);
}

TEST(CgroupMemoryTest, TheLeastOfItsOwnAndOfThoseAroundIt) {
  const std::string own = "0::/user.slice/job/part\n";
  EXPECT_EQ(SaidBy({{kOwn, own}, {Mounted("user.slice/job/part/memory.max"), "3000\n"}}), 3000);
  EXPECT_EQ(SaidBy({{kOwn, own},
                    {Mounted("user.slice/job/part/memory.max"), "max\n"},
                    {Mounted("user.slice/job/memory.max"), "2000\n"},
                    {Mounted("user.slice/memory.max"), "5000\n"}}),
            2000);
  EXPECT_EQ(SaidBy({{kOwn, own}, {Mounted("user.slice/jobs/memory.max"), "1000\n"}}), kNone)
      << "another's";
}

TEST(CgroupMemoryTest, AContainersOwnIsAtTheTop) {
  EXPECT_EQ(SaidBy({{kOwn, "0::/\n"}, {Mounted("memory.max"), "536870912\n"}}), 536870912);
  EXPECT_EQ(SaidBy({{kOwn, "0::/../host\n"}, {Mounted("memory.max"), "7000\n"}}), 7000);
  EXPECT_EQ(SaidBy({{kOwn, "4:memory:/docker/5f84\n0::/docker/5f84\n"},
                    {Mounted("memory/memory.limit_in_bytes"), "6000\n"}}),
            6000);
}

TEST(CgroupMemoryTest, TheFirstVersionIsByItsController) {
  const std::string own = "9:name=systemd:/\n4:cpu,memory:/job\n1:cpu:/other\n0::/\n";
  const std::string file = "/memory.limit_in_bytes";
  EXPECT_EQ(SaidBy({{kOwn, own},
                    {Mounted("memory/job" + file), "4000\n"},
                    {Mounted("memory/other" + file), "1000\n"},
                    {Mounted("memory" + file), "9223372036854771712\n"}}),
            4000);
}

}  // namespace
}  // namespace annulus
