#include "client/cli/files/shard_files.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/cli/files/shard_notes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

// Two ranks: query rows 0, 1 and 2; key rows 0 and 2, and 1.
const char kPlan[] = R"({"strategy": "ring-pass-kv", "shards": [
  {"rank": 0, "endpoint": "a:1", "q_rows": [{"begin": 0, "block": 2, "stride": 2, "count": 1}],
   "kv_rows": [{"begin": 0, "block": 1, "stride": 2, "count": 2}]},
  {"rank": 1, "endpoint": "b:1", "q_rows": [{"begin": 2, "block": 1, "stride": 1, "count": 1}],
   "kv_rows": [{"begin": 1, "block": 1, "stride": 1, "count": 1}]}]})";

PlanRows Rows() { return *PlanRows::Of(*ParsePlan(kPlan)); }

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string bytes;
  std::string dtype = "U8";
};

std::string PathOf(const std::string& name) { return testing::TempDir() + "/shard_files_" + name; }

// A file with these tensors. `name` is unique in this test.
SafetensorsFile FileOf(const std::string& name, const std::vector<Tensor>& tensors) {
  std::vector<SafetensorView> views;
  for (const Tensor& tensor : tensors) {
    const auto* bytes = reinterpret_cast<const std::byte*>(tensor.bytes.data());
    views.push_back({tensor.name, tensor.dtype, tensor.shape, {bytes, tensor.bytes.size()}});
  }
  const std::string path = PathOf(name);
  EXPECT_TRUE(SafetensorsWriter::Create(path)->Commit(views).ok());
  return *SafetensorsFile::Open(path);
}

std::string Text(const OwnedTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

std::string Reason(const absl::Status& status) { return DetailOf(status).reason; }

TEST(ShardFilesTest, CutsEachTensorByItsOwnRowsAndPutsThemTogetherAgain) {
  const SafetensorsFile whole = FileOf(
      "whole", {{"q", {3, 1, 2}, "aAbBcC"}, {"k", {3, 1, 1}, "xyz"}, {"lse", {2, 3}, "123456"}});
  std::vector<SafetensorsFile> files;
  const std::vector<std::vector<std::string>> wanted = {{"aAbB", "xz", "1245"}, {"cC", "y", "36"}};
  for (int32_t rank = 0; rank < 2; ++rank) {
    const auto shard = ShardFile(Rows(), whole, rank);
    ASSERT_TRUE(shard.ok()) << shard.status();
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < shard->size(); ++i) {
      EXPECT_EQ(Text((*shard)[i]), wanted[static_cast<size_t>(rank)][i]) << rank << " " << i;
      tensors.push_back({(*shard)[i].name, (*shard)[i].shape, Text((*shard)[i])});
    }
    files.push_back(FileOf("rank" + std::to_string(rank), tensors));
  }
  const auto back = UnshardFiles(Rows(), files, /*batch=*/3);
  ASSERT_TRUE(back.ok()) << back.status();
  const std::vector<std::vector<int64_t>> shapes = {{3, 1, 1, 2}, {3, 1, 1, 1}, {3, 2, 1}};
  const std::vector<std::string> bytes = {"aAbBcC", "xyz", "142536"};
  ASSERT_EQ(back->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*back)[i].shape, shapes[i]) << i;
    EXPECT_EQ(Text((*back)[i]), bytes[i]) << i;
  }
}

TEST(ShardFilesTest, KnowsTheTensorsOfEveryFileThatTheCommandsReadAndWrite) {
  for (const char* name : {"q", "output", "d_out", "dq"}) {
    const auto shard = ShardFile(Rows(), FileOf("name", {{name, {3, 1, 1}, "abc"}}), 0);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(Text((*shard)[0]), "ab") << name;
  }
  for (const char* name : {"k", "v", "dk", "dv"}) {
    const auto shard = ShardFile(Rows(), FileOf("name", {{name, {3, 1, 1}, "abc"}}), 0);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(Text((*shard)[0]), "ac") << name;
  }
  for (const char* name : {"lse", "max_logit", "d_lse", "lse_offset"}) {
    const auto shard = ShardFile(Rows(), FileOf("name", {{name, {2, 3}, "abcABC"}}), 0);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(Text((*shard)[0]), "abAB") << name;
  }
}

TEST(ShardFilesTest, TensorsOfAnotherJobAreRefusedByName) {
  const std::vector<std::pair<Tensor, std::string>> bad = {
      {{"q", {2, 1, 1}, "ab"}, "SHAPE_MISMATCH"},    // Too few rows.
      {{"q", {4, 1, 1}, "abcd"}, "SHAPE_MISMATCH"},  // Too many.
      {{"q", {3, 1}, "abc"}, "SHAPE_MISMATCH"},      // No heads.
      {{"q", {1, 1, 3, 1, 1}, "abc"}, "SHAPE_MISMATCH"},
      {{"q", {2, 3, 1, 1}, "abcdef"}, "SHAPE_MISMATCH"},  // Two sequences of 3.
      {{"lse", {3, 2}, "abcdef"}, "SHAPE_MISMATCH"},      // [tokens, heads].
      {{"q", {3, 0, int64_t{1} << 62}, ""}, "SHAPE_MISMATCH"},
      {{"bias", {1, 3, 3}, "abcabcabc"}, "UNKNOWN_TENSOR"},
      {{"a\nb\x1b[2J", {3, 1, 1}, "abc"}, "UNKNOWN_TENSOR"}};
  for (const auto& [tensor, reason] : bad) {
    const absl::Status status = ShardFile(Rows(), FileOf("bad", {tensor}), 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tensor.name;
    EXPECT_EQ(Reason(status), reason) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor " + tensor.name.substr(0, 1)));
    EXPECT_EQ(status.message().find_first_of("\n\x1b"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(Reason(ShardFile(Rows(), FileOf("none", {}), 0).status()), "MISSING_TENSOR");
  const SafetensorsFile good = FileOf("good", {{"q", {3, 1, 1}, "abc"}});
  for (const int32_t rank : {-1, 2}) {
    const absl::Status status = ShardFile(Rows(), good, rank).status();
    EXPECT_EQ(Reason(status), "INVALID_RANK");
    EXPECT_EQ(status.message(),
              "--rank: " + std::to_string(rank) + " is not in the plan, which has ranks 0 and 1");
  }
}

// Expects a refusal with the reason, and the text in its message.
void ExpectUnshardRefused(const std::vector<std::vector<Tensor>>& ranks, const std::string& reason,
                          const std::string& text, int64_t batch = 0) {
  std::vector<SafetensorsFile> files;
  for (const std::vector<Tensor>& tensors : ranks)
    files.push_back(FileOf("unshard" + std::to_string(files.size()), tensors));
  const absl::Status status = UnshardFiles(Rows(), files, batch).status();
  EXPECT_EQ(Reason(status), reason) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(ShardFilesTest, RowsOfAFileThatHasChangedAreNoAnswer) {
  std::vector<SafetensorsFile> files;
  files.push_back(FileOf("0", {{"k", {2, 1, 1}, "xz"}}));
  files.push_back(FileOf("1", {{"k", {1, 1, 1}, "y"}}));
  ASSERT_TRUE(UnshardFiles(Rows(), files, 0).ok());
  ASSERT_EQ(truncate(PathOf("1").c_str(), 8), 0);
  EXPECT_EQ(Reason(UnshardFiles(Rows(), files, 0).status()), "INPUT_CHANGED");

  const SafetensorsFile whole = FileOf("whole", {{"k", {3, 1, 1}, "xyz"}});
  ASSERT_TRUE(ShardFile(Rows(), whole, 0).ok());
  ASSERT_EQ(truncate(PathOf("whole").c_str(), 8), 0);
  EXPECT_EQ(Reason(ShardFile(Rows(), whole, 0).status()), "INPUT_CHANGED");
}

TEST(ShardFilesTest, FilesThatAreNotOneForEachRankAreRefused) {
  const Tensor two = {"q", {2, 1, 1}, "ab"}, one = {"q", {1, 1, 1}, "c"}, k = {"k", {1, 1, 1}, "y"};
  ExpectUnshardRefused({}, "INVALID_RANK", "0 files for a plan of 2 ranks");
  ExpectUnshardRefused({{two}}, "INVALID_RANK", "1 file for a plan of 2 ranks");
  ExpectUnshardRefused({{two}, {one}, {one}}, "INVALID_RANK", "3 files for a plan of 2 ranks");
  ExpectUnshardRefused({{one}, {two}}, "SHAPE_MISMATCH",
                       "tensor q of rank 0");  // In another order.
  ExpectUnshardRefused({{two}, {two}}, "SHAPE_MISMATCH", "tensor q of rank 1");
  ExpectUnshardRefused({{two}, {{"q", {1, 1, 1}, "c", "I8"}}}, "SHAPE_MISMATCH", "of rank 1");
  ExpectUnshardRefused({{two}, {{"q", {1, 2, 1}, "cc"}}}, "SHAPE_MISMATCH", "of rank 1");
  ExpectUnshardRefused({{two}, {one, k}}, "MISSING_TENSOR",
                       "tensor k is missing in the file of rank 0");
  ExpectUnshardRefused({{two, k}, {one}}, "MISSING_TENSOR",
                       "tensor k is missing in the file of rank 1");
  ExpectUnshardRefused({{}, {one}}, "MISSING_TENSOR", "tensor q is missing in the file of rank 0");
  ExpectUnshardRefused({{}, {}}, "MISSING_TENSOR", "no tensor");
  ExpectUnshardRefused({{two, {"bias", {0}, ""}}, {one}}, "UNKNOWN_TENSOR", "tensor bias");
  ExpectUnshardRefused({{two}, {one}}, "SHAPE_MISMATCH", "3 rows, not a multiple of --batch 2", 2);
}

// If the ranks have equal numbers of rows, nothing else would detect it.
TEST(ShardFilesTest, AFileIsNotTwoRanks) {
  const PlanRows plan = *PlanRows::Of(*ParsePlan(R"({"shards": [
    {"rank": 0, "q_rows": [{"begin": 0, "block": 1, "stride": 1, "count": 1}], "kv_rows": []},
    {"rank": 1, "q_rows": [{"begin": 1, "block": 1, "stride": 1, "count": 1}], "kv_rows": []}]})"));
  std::vector<SafetensorsFile> files;
  files.push_back(FileOf("0", {{"q", {1, 1, 1}, "x"}}));
  files.push_back(*SafetensorsFile::Open(PathOf("0")));
  const absl::Status twice = UnshardFiles(plan, files, 0).status();
  EXPECT_EQ(Reason(twice), "INPUT_TWICE") << twice;
  files.back() = FileOf("1", {{"q", {1, 1, 1}, "x"}});
  EXPECT_TRUE(UnshardFiles(plan, files, 0).ok());
}

TEST(ShardFilesTest, ShardsThatSayAnotherRankOrPlanAreRefused) {
  const std::string swapped = R"({"shards": [
    {"rank": 0, "q_rows": [{"begin": 0, "block": 1, "stride": 1, "count": 1}],
     "kv_rows": [{"begin": 0, "block": 1, "stride": 1, "count": 1}]},
    {"rank": 1, "q_rows": [{"begin": 1, "block": 1, "stride": 1, "count": 1}],
     "kv_rows": [{"begin": 1, "block": 1, "stride": 1, "count": 1}]}]})";
  const PlanRows plan = *PlanRows::Of(*ParsePlan(swapped));
  const auto file = [](const PlanRows& of, int32_t rank, const std::string& name,
                       TensorLayout layout = TensorLayout::kThd) {
    SafetensorMetadata notes = {{"made", "by hand"}};
    AddShardNotes(of, rank, layout, &notes);
    const std::byte bytes[] = {std::byte{'a'}};
    const std::string path = testing::TempDir() + "/shard_notes_" + name;
    EXPECT_TRUE(
        SafetensorsWriter::Create(path)->Commit({{"q", "U8", {1, 1, 1}, bytes}}, notes).ok());
    return *SafetensorsFile::Open(path);
  };
  const SafetensorsFile first = file(plan, 0, "0"), second = file(plan, 1, "1"),
                        silent = FileOf("silent", {{"q", {1, 1, 1}, "a"}}),
                        foreign = file(Rows(), 1, "foreign");
  EXPECT_TRUE(UnshardFiles(plan, {first, second}, 0).ok());
  EXPECT_TRUE(UnshardFiles(plan, {silent, second}, 0).ok());
  for (const auto& files : {std::vector<SafetensorsFile>{second, first}, {first, first}}) {
    EXPECT_EQ(Reason(UnshardFiles(plan, files, 0).status()), "INVALID_RANK");
  }
  const SafetensorsFile turned = file(plan, 1, "turned", TensorLayout::kHnd);
  EXPECT_EQ(Reason(UnshardFiles(plan, {first, turned}, 0).status()), "SHAPE_MISMATCH");
  EXPECT_EQ(Reason(UnshardFiles(plan, {first, turned}, 0, TensorLayout::kHnd).status()),
            "SHAPE_MISMATCH");
  EXPECT_TRUE(UnshardFiles(plan, {silent, turned}, 0, TensorLayout::kHnd).ok());
  EXPECT_TRUE(UnshardFiles(plan, {silent, turned}, 2, TensorLayout::kBhsd).ok());
  for (const TensorLayout layout : {TensorLayout::kHnd, TensorLayout::kBhsd}) {
    const int64_t other = layout == TensorLayout::kHnd ? 2 : 0;
    const absl::Status batch = UnshardFiles(plan, {silent, turned}, other, layout).status();
    EXPECT_EQ(DetailOf(batch).fields.at(0).field, "batch") << batch;
  }
  const absl::Status status = UnshardFiles(plan, {first, foreign}, 0).status();
  EXPECT_EQ(Reason(status), "INVALID_PLAN");
  EXPECT_EQ(DetailOf(status).fields.at(0).field, "files[1]");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("shard_notes_foreign: the metadata of its file has shard_plan "));
  SafetensorMetadata notes = first.metadata();
  RemoveShardNotes(&notes);
  EXPECT_EQ(notes, (SafetensorMetadata{{"made", "by hand"}}));
}

TEST(ShardFilesTest, WhatIsNoPlanIsRefused) {
  ASSERT_TRUE(ParsePlan(kPlan).ok());
  const auto range = [](const std::string& fields) {
    return R"({"shards": [{"rank": 0, "q_rows": [{)" + fields + R"(}], "kv_rows": []}]})";
  };
  EXPECT_TRUE(ParsePlan(range(R"("begin": 0, "block": 1, "stride": 1, "count": 1)")).ok());
  const std::vector<std::string> bad = {
      "",
      "[]",
      "plan: ring-pass-kv, zigzag, 2 workers",
      "{",
      std::string(100000, '['),
      R"({"error": {"code": "UNAVAILABLE"}})",
      R"({"shards": {}})",
      R"({"shards": [7]})",
      R"({"shards": [{"q_rows": [], "kv_rows": []}]})",
      R"({"shards": [{"rank": 1, "q_rows": [], "kv_rows": []}]})",
      R"({"shards": [{"rank": 0, "q_rows": []}]})",
      R"({"shards": [{"rank": 0, "q_rows": 3, "kv_rows": []}]})",
      R"({"shards": [{"rank": 0, "q_rows": [3], "kv_rows": []}]})",
      range(R"("block": 1, "stride": 1, "count": 1)"),
      range(R"("begin": "0", "block": 1, "stride": 1, "count": 1)"),
      range(R"("begin": 0.5, "block": 1, "stride": 1, "count": 1)"),
      range(R"("begin": -1, "block": 1, "stride": 1, "count": 1)"),
      range(R"("begin": 9223372036854775808, "block": 1, "stride": 1, "count": 1)"),
      range(R"("begin": 1e99, "block": 1, "stride": 1, "count": 1)")};
  for (const std::string& text : bad) {
    const absl::Status status = ParsePlan(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 200);
    EXPECT_EQ(Reason(status), "BAD_PLAN");
  }
  // Well-formed rows that no plan has: PlanRows refuses them.
  for (const std::string& text : {std::string(R"({"shards": []})"),
                                  range(R"("begin": 1, "block": 1, "stride": 1, "count": 1)"),
                                  range(R"("begin": 0, "block": 1, "stride": 0, "count": 2)")}) {
    EXPECT_EQ(Reason(PlanRows::Of(*ParsePlan(text)).status()), "INVALID_PLAN") << text;
  }
}

TEST(ShardFilesTest, ATypeWithoutWholeBytesIsRefusedByItsName) {
  for (const std::string type : {"F4", "F6_E3M2", "F3"}) {
    const std::string bytes(type == "F6_E3M2" ? 9 : 6, 'a');
    const SafetensorsFile file = FileOf("small_type", {{"q", {3, 1, 4}, bytes, type}});
    const absl::Status refused = ShardFile(Rows(), file, 0).status();
    EXPECT_EQ(Reason(refused), "UNSUPPORTED_DTYPE") << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("tensor q is " + type));
  }
}

}  // namespace
}  // namespace annulus
