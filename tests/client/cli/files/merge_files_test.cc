#include "client/cli/files/merge_files.h"

#include <unistd.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/cli/files/lse_notes.h"
#include "client/cli/files/merge_copies.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// One row of one head of two dimensions.
SafetensorsFile PartialFile(const std::string& path, const SafetensorMetadata& notes = {}) {
  const float output[] = {1, 2}, lse[] = {0};
  const auto* output_bytes = reinterpret_cast<const std::byte*>(output);
  const auto* lse_bytes = reinterpret_cast<const std::byte*>(lse);
  EXPECT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"output", "F32", {1, 1, 2}, {output_bytes, sizeof(output)}},
                            {"lse", "F32", {1, 1}, {lse_bytes, sizeof(lse)}}},
                           notes)
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

TEST(MergeFilesTest, CopiesAreFoundByWhatTheyHold) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const auto file = [](const std::string& name, float output, float lse, bool has_rest = false) {
    const float rest = 0;
    const auto bytes = [](const float& value) {
      return absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(&value), sizeof(value));
    };
    std::vector<SafetensorView> views = {{"output", "F32", {1, 1, 1}, bytes(output)},
                                         {"lse", "F32", {1, 1}, bytes(lse)}};
    if (has_rest) views.push_back({"lse_rest", "F32", {1, 1}, bytes(rest)});
    EXPECT_TRUE(SafetensorsWriter::Create(name)->Commit(views, {{"name", name}}).ok());
    return *SafetensorsFile::Open(name);
  };
  const std::string dir = testing::TempDir() + "/copies_";
  const std::vector<SafetensorsFile> files = {file(dir + "a", 1, 2),
                                              file(dir + "b", 2, 2),
                                              file(dir + "c", 1, 3),
                                              file(dir + "a again", 1, 2),
                                              file(dir + "rest", 1, 2, true),
                                              file(dir + "nothing", 0, kNone),
                                              file(dir + "nothing too", 0, kNone)};
  const std::vector<std::pair<std::string, std::string>> wanted = {{dir + "a again", dir + "a"}};
  EXPECT_EQ(CopiedPartials(files), wanted);
}

// Merges a file for each of the notes.
absl::StatusOr<MergeFiles> MergeOf(const std::vector<SafetensorMetadata>& notes) {
  std::vector<SafetensorsFile> files;
  for (const SafetensorMetadata& each : notes) {
    files.push_back(
        PartialFile(testing::TempDir() + "/merge_part_" + std::to_string(files.size()), each));
  }
  return MergeFiles::Open(std::move(files), {}, LseBase::kE);
}

AttentionSpec Forward() {
  AttentionSpec spec;
  spec.head_dim = 2;
  spec.sequences.resize(1);
  return spec;
}

TEST(MergeFilesTest, SinksAreInOnePartAndModifiersInAll) {
  AttentionSpec sunk = Forward(), capped = Forward();
  sunk.modifiers.sinks = {0.5};
  capped.modifiers.soft_cap = 3;
  const SafetensorMetadata plain = NotesOfJob(Forward()), with_sinks = NotesOfJob(sunk),
                           with_cap = NotesOfJob(capped);
  EXPECT_TRUE(MergeOf({plain, with_sinks, plain}).ok());
  EXPECT_TRUE(MergeOf({with_cap, with_cap, {}}).ok());
  for (const auto& notes : {std::vector{with_sinks, plain, with_sinks}, {with_cap, plain}}) {
    const absl::Status status = MergeOf(notes).status();
    EXPECT_EQ(DetailOf(status).reason, "LSE_MISMATCH");
    const std::string index = std::to_string(notes.size() - 1), message(status.message());
    EXPECT_EQ(DetailOf(status).fields.at(0).field, "inputs[" + index + "].lse");
    EXPECT_NE(message.find("/merge_part_" + index + ": lse: "), std::string::npos);
    EXPECT_NE(message.find("/merge_part_0"), std::string::npos) << message;
  }
}

TEST(MergeFilesTest, AMergeSaysWhatItsPartsSaid) {
  AttentionSpec sunk = Forward();
  sunk.modifiers.sinks = {0.5};
  const auto first = MergeOf({NotesOfJob(sunk), NotesOfJob(Forward())});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string joined = testing::TempDir() + "/merge_joined";
  SafetensorsWriter output = *SafetensorsWriter::Create(joined);
  ASSERT_TRUE(first->WriteOutputs(&output).ok());
  const SafetensorMetadata said = SafetensorsFile::Open(joined)->metadata();
  EXPECT_EQ(said.at("op"), "merge");
  EXPECT_TRUE(MergeOf({said, NotesOfJob(Forward())}).ok());
  EXPECT_EQ(DetailOf(MergeOf({said, NotesOfJob(sunk)}).status()).reason, "LSE_MISMATCH");
}

TEST(MergeFilesTest, AFileIsGivenOnce) {
  const std::string path = testing::TempDir() + "/merge_twice", link = path + "_link";
  std::vector<SafetensorsFile> files = {PartialFile(path), PartialFile(path + "_other")};
  unlink(link.c_str());
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  files.push_back(*SafetensorsFile::Open(link));
  const absl::Status status = MergeFiles::Open(std::move(files), {}, LseBase::kE).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "INPUT_TWICE");
  EXPECT_EQ(status.message(), link + ": it is given twice, so its keys would count twice");
}

TEST(MergeFilesTest, AnAnswerThatNamesAValueIsToldByItsFile) {
  const auto merge = MergeOf({{}, {}});
  ASSERT_TRUE(merge.ok());
  const absl::Status status =
      merge->InFiles(0, InvalidField("CORRUPT_PARTIAL", "partials[1].lse.values[0]", "is NaN"));
  EXPECT_EQ(status.message(), testing::TempDir() + "/merge_part_1: lse: row 0, head 0 is NaN");
  EXPECT_EQ(DetailOf(status).fields.at(0).field, "inputs[1].lse");
  for (const char* field : {"partials", "partials[7].lse", "partials[x].lse", "partials["}) {
    const absl::Status other = InvalidField("SO", field, "wrong");
    EXPECT_EQ(merge->InFiles(0, other), other) << field;
  }
}

}  // namespace
}  // namespace annulus
