// Records which parts of a written file were synced, and when. fsync is replaced by this test's.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "client/cli/safetensors/safetensors.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

struct Synced {
  std::string path;
  int64_t bytes;
  bool has_name;  // True if the file already had its name.
};

std::vector<Synced> synced;
std::string output;
size_t failing = 0;  // The number of the call that fails, from 1.
int failure = 0;     // The error of the failing call.

std::string PathOf(int fd) {
  char path[PATH_MAX] = {};
  const ssize_t length =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof(path) - 1);
  return {path, length > 0 ? static_cast<size_t>(length) : 0};
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

int Note(int fd) {
  struct stat stat = {};
  fstat(fd, &stat);
  synced.push_back({PathOf(fd), stat.st_size, IsThere(output)});
  if (synced.size() != failing) return 0;
  errno = failure;
  return -1;
}

class SafetensorsSyncTest : public testing::Test {
 protected:
  // Commits a file. The fsync call with number `fail` (from 1) fails with `error`.
  absl::Status Commit(size_t fail = 0, int error = 0) {
    synced.clear();
    failing = fail;
    failure = error;
    output = testing::TempDir() + "/made.safetensors";
    unlink(output.c_str());
    SafetensorsWriter writer = *SafetensorsWriter::Create(output);
    partial_ = writer.partial();
    return writer.Commit({{"a", "U8", {4}, std::vector<std::byte>(4)}});
  }

  std::string partial_;
};

TEST_F(SafetensorsSyncTest, AllBytesBeforeTheNameAndThenTheName) {
  ASSERT_TRUE(Commit().ok());
  ASSERT_EQ(synced.size(), 2u);
  struct stat of_file = {};
  ASSERT_EQ(stat(output.c_str(), &of_file), 0);
  EXPECT_NE(partial_.find(synced[0].path.substr(synced[0].path.rfind('/'))), std::string::npos);
  EXPECT_EQ(synced[0].bytes, of_file.st_size);
  EXPECT_FALSE(synced[0].has_name);
  EXPECT_NE(testing::TempDir().find(synced[1].path), std::string::npos) << synced[1].path;
  EXPECT_TRUE(synced[1].has_name);
}

TEST_F(SafetensorsSyncTest, BytesThatTheDiskDoesNotTakeGetNoName) {
  const absl::Status status = Commit(1, EIO);
  EXPECT_EQ(DetailOf(status).reason, "FILE_ERROR") << status;
  EXPECT_FALSE(IsThere(output));
  EXPECT_FALSE(IsThere(partial_));
}

TEST_F(SafetensorsSyncTest, ANameThatTheDiskDoesNotTakeIsToldAndStays) {
  const absl::Status status = Commit(2, EIO);
  EXPECT_EQ(DetailOf(status).reason, "FILE_ERROR") << status;
  EXPECT_NE(status.message().find("cannot sync the folder"), absl::string_view::npos) << status;
  EXPECT_TRUE(SafetensorsFile::Open(output).ok());
}

TEST_F(SafetensorsSyncTest, AFileSystemThatCannotIsNoError) {
  for (const int error : {EINVAL, ENOTSUP}) {
    EXPECT_TRUE(Commit(1, error).ok());
    EXPECT_TRUE(Commit(2, error).ok());
  }
}

}  // namespace
}  // namespace annulus

int fsync(int fd) { return annulus::Note(fd); }
