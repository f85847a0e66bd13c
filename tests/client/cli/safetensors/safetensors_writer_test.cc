#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/cli/safetensors/safetensors.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(SafetensorsWriterTest, AFileThatIsNotCommittedLeavesTheOldOne) {
  const std::string path = testing::TempDir() + "/kept.safetensors";
  ASSERT_TRUE(SafetensorsWriter::Create(path)->Commit({}).ok());
  std::string partial;
  {
    SafetensorsWriter writer = *SafetensorsWriter::Create(path);
    SafetensorsWriter moved = std::move(writer);
    partial = moved.partial();
    EXPECT_EQ(access(partial.c_str(), F_OK), 0);
  }
  EXPECT_TRUE(SafetensorsFile::Open(path).ok());
  EXPECT_NE(access(partial.c_str(), F_OK), 0);
}

TEST(SafetensorsWriterTest, WritersOfOneFileDoNotMix) {
  const std::string path = testing::TempDir() + "/shared.safetensors";
  const std::byte ones[] = {std::byte{1}}, twos[] = {std::byte{2}, std::byte{2}};
  SafetensorsWriter first = *SafetensorsWriter::Create(path);
  SafetensorsWriter second = *SafetensorsWriter::Create(path);
  EXPECT_NE(first.partial(), second.partial());
  ASSERT_TRUE(first.Commit({{"a", "U8", {1}, ones}}).ok());
  EXPECT_EQ(SafetensorsFile::Open(path)->Find("a")->shape[0], 1);
  ASSERT_TRUE(second.Commit({{"a", "U8", {2}, twos}}).ok());
  EXPECT_EQ(SafetensorsFile::Open(path)->Find("a")->shape[0], 2);
}

TEST(SafetensorsWriterTest, WhatIsNoFileIsNotReplacedAndALinkStaysOne) {
  const std::string fifo = testing::TempDir() + "/fifo", link = testing::TempDir() + "/link";
  const std::string target = testing::TempDir() + "/target.safetensors";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const absl::Status refused = SafetensorsWriter::Create(fifo).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_EQ(DetailOf(refused).reason, "FILE_ERROR");
  EXPECT_EQ(DetailOf(SafetensorsWriter::Create("/dev/null").status()).reason, "FILE_ERROR");
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  EXPECT_EQ(DetailOf(SafetensorsWriter::Create(link).status()).reason, "FILE_NOT_FOUND");
  ASSERT_TRUE(SafetensorsWriter::Create(target)->Commit({}).ok());
  const std::vector<std::byte> one = {std::byte{3}};
  ASSERT_TRUE(SafetensorsWriter::Create(link)->Commit({{"a", "U8", {1}, one}}).ok());
  struct stat stat = {};
  ASSERT_EQ(lstat(link.c_str(), &stat), 0);
  EXPECT_TRUE(S_ISLNK(stat.st_mode));
  EXPECT_NE(SafetensorsFile::Open(target)->Find("a"), nullptr);
}

// Like /dev/stdout, which links to a name without a path if standard output is a pipe.
TEST(SafetensorsWriterTest, StandardOutputIsNoPlaceForAFile) {
  const std::string link = testing::TempDir() + "/stdout_link";
  int pipe_ends[2] = {};
  ASSERT_EQ(pipe(pipe_ends), 0);
  unlink(link.c_str());
  ASSERT_EQ(symlink(("/proc/self/fd/" + std::to_string(pipe_ends[1])).c_str(), link.c_str()), 0);
  for (const auto& [path, why] :
       {std::pair<std::string, std::string>(link, "it is a pipe, not a regular file"),
        {"/dev/null", "it is a device, not a regular file"},
        {testing::TempDir(), "it is a directory, not a regular file"},
        {"-",
         "the output must be a file, not standard output; for a file of this name, give ./-"}}) {
    const absl::Status refused = SafetensorsWriter::Create(path).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_EQ(DetailOf(refused).reason, "FILE_ERROR");
    EXPECT_EQ(refused.message().substr(0, 14 + path.size() + why.size() + 1),
              "cannot write " + path + ": " + why);
  }
  EXPECT_NE(access("-", F_OK), 0);
  for (const int end : pipe_ends) close(end);
}

TEST(SafetensorsWriterTest, RoomIsTakenBeforeThereIsAnythingToWrite) {
  const std::string path = testing::TempDir() + "/reserved.safetensors";
  const std::vector<std::byte> one = {std::byte{3}};
  const auto size_of = [](const std::string& name) {
    struct stat stat = {};
    return ::stat(name.c_str(), &stat) == 0 ? stat.st_size : -1;
  };
  {
    SafetensorsWriter writer = *SafetensorsWriter::Create(path);
    ASSERT_TRUE(writer.Reserve(1 << 20).ok());
    EXPECT_EQ(size_of(writer.partial()), 1 << 20);
    ASSERT_TRUE(writer.Commit({{"a", "U8", {1}, one}}).ok());
    EXPECT_LT(size_of(path), 1000) << "no more than it has";
    EXPECT_TRUE(SafetensorsFile::Open(path).ok());
  }
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {4096, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  SafetensorsWriter writer = *SafetensorsWriter::Create(path);
  const absl::Status small_enough = writer.Reserve(4096), full = writer.Reserve(4097);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(small_enough, absl::OkStatus());
  EXPECT_EQ(DetailOf(full).reason, "FILE_ERROR");
  EXPECT_EQ(full.message(), "cannot write " + path + ": File too large");
}

TEST(SafetensorsWriterTest, AnInputIsNotWrittenOver) {
  const std::string input = testing::TempDir() + "/input.safetensors";
  const std::string link = testing::TempDir() + "/input.link", hard = input + ".hard";
  ASSERT_TRUE(SafetensorsWriter::Create(input)->Commit({}).ok());
  for (const std::string& name : {link, hard}) unlink(name.c_str());
  ASSERT_EQ(symlink(input.c_str(), link.c_str()), 0);
  ASSERT_EQ(::link(input.c_str(), hard.c_str()), 0);
  for (const std::string& output :
       {input, testing::TempDir() + "/./input.safetensors", link, hard}) {
    const absl::Status status = SafetensorsWriter::Create(output, {"", "none", input}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << output;
    EXPECT_EQ(DetailOf(status).reason, "OUTPUT_IS_INPUT") << status;
  }
  EXPECT_EQ(DetailOf(SafetensorsWriter::Create("none", {"none"}).status()).reason,
            "OUTPUT_IS_INPUT");
  EXPECT_TRUE(SafetensorsWriter::Create(input + ".other", {"", "none", input}).ok());
}

}  // namespace
}  // namespace annulus
