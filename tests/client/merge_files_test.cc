#include "client/merge_files.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// One row of one head of two dimensions.
SafetensorsFile PartialFile(const std::string& path) {
  const float output[] = {1, 2}, lse[] = {0};
  const auto* output_bytes = reinterpret_cast<const std::byte*>(output);
  const auto* lse_bytes = reinterpret_cast<const std::byte*>(lse);
  EXPECT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"output", "F32", {1, 1, 2}, {output_bytes, sizeof(output)}},
                            {"lse", "F32", {1, 1}, {lse_bytes, sizeof(lse)}}})
                  .ok());
  return *SafetensorsFile::Open(path);
}

TEST(MergeFilesTest, AMergeOfFilesThatHaveChangedIsNotWritten) {
  const std::string dir = testing::TempDir() + "/merge_files_", last = dir + "last";
  std::vector<SafetensorsFile> files;
  files.push_back(PartialFile(dir + "first"));
  files.push_back(PartialFile(last));
  const auto merge = MergeFiles::Open(std::move(files), {}, LseBase::kE);
  ASSERT_TRUE(merge.ok()) << merge.status();
  const std::string output = dir + "output";
  SafetensorsWriter in_time = *SafetensorsWriter::Create(output);
  EXPECT_TRUE(merge->WriteOutputs(&in_time).ok());
  ASSERT_EQ(unlink(output.c_str()), 0);
  ASSERT_EQ(truncate(last.c_str(), 8), 0);
  SafetensorsWriter late = *SafetensorsWriter::Create(output);
  EXPECT_EQ(DetailOf(merge->WriteOutputs(&late)).reason, "INPUT_CHANGED");
  EXPECT_NE(access(output.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace annulus
