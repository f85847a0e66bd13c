#include "client/cli/safetensors/safetensors.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

std::string FileOf(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + std::string(data_bytes, 'x');
}

absl::StatusOr<std::vector<SafetensorInfo>> Parse(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()});
}

std::string Tensor(const std::string& name, const std::string& shape, const std::string& offsets,
                   const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsTest, ReadsWhatItWrites) {
  const std::string path = testing::TempDir() + "/round.safetensors";
  const std::vector<float> q = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> v = {7, 8};
  const auto bytes = [](const auto& values) {
    return absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(values.data()),
                                       values.size() * sizeof(values[0]));
  };
  ASSERT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"q", "F32", {1, 2, 3}, bytes(q)},
                            {"none", "F32", {0, 4}, {}},
                            {"v", "BF16", {2}, bytes(v)}})
                  .ok());
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorInfo* read = file->Find("q");
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->dtype, "F32");
  EXPECT_EQ(read->shape, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(file->Bytes(*read), bytes(q));
  EXPECT_EQ(file->Bytes(*file->Find("v")), bytes(v));
  EXPECT_EQ(file->Bytes(*file->Find("none")).size(), 0u);
  EXPECT_EQ(file->Find("k"), nullptr);
}

TEST(SafetensorsTest, MetadataAreReadAsTheyAreWritten) {
  const std::string path = testing::TempDir() + "/metadata.safetensors";
  const SafetensorMetadata metadata = {{"lse_base", "2"}, {"with \"quotes\"", "ä\n"}};
  const std::vector<std::byte> one = {std::byte{3}};
  ASSERT_TRUE(SafetensorsWriter::Create(path)->Commit({{"a", "U8", {1}, one}}, metadata).ok());
  const SafetensorsFile file = *SafetensorsFile::Open(path);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), 1u);
  ASSERT_TRUE(SafetensorsWriter::Create(path)->Commit({}).ok());
  EXPECT_TRUE(SafetensorsFile::Open(path)->metadata().empty());
}

TEST(SafetensorsTest, WhatIsLeftAsideIsNotThere) {
  const std::string path = testing::TempDir() + "/aside.safetensors";
  const std::vector<std::byte> two = {std::byte{1}, std::byte{2}}, one = {std::byte{3}};
  ASSERT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"a", "U8", {2}, two}, {"b", "U8", {1}, one}, {"c", "U8", {2}, two}})
                  .ok());
  SafetensorsFile file = *SafetensorsFile::Open(path);
  file.LeaveAside({"d", "c", "a"});
  EXPECT_TRUE(file.IsLeftAside("a"));
  EXPECT_FALSE(file.IsLeftAside("b"));
  EXPECT_FALSE(file.IsLeftAside("d"));
  ASSERT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.Find("a"), nullptr);
  EXPECT_EQ(file.Bytes(*file.Find("b"))[0], std::byte{3});
}

TEST(SafetensorsTest, AFileIsTheSameByAnyName) {
  const std::string path = testing::TempDir() + "/same", link = testing::TempDir() + "/same_link",
                    other = testing::TempDir() + "/same_other";
  for (const std::string& each : {path, other}) {
    ASSERT_TRUE(SafetensorsWriter::Create(each)->Commit({}).ok());
  }
  unlink(link.c_str());
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  const SafetensorsFile file = *SafetensorsFile::Open(path);
  EXPECT_TRUE(file.IsSameFileAs(*SafetensorsFile::Open(link)));
  EXPECT_FALSE(file.IsSameFileAs(*SafetensorsFile::Open(other)));
  EXPECT_EQ(file.path(), path);
}

TEST(SafetensorsTest, WhatIsNoSafetensorsFileIsToldByWhatItIs) {
  const std::string path = testing::TempDir() + "/none", fifo = testing::TempDir() + "/none_fifo";
  const auto told = [](const std::string& name) {
    const absl::Status status = SafetensorsFile::Open(name).status();
    EXPECT_EQ(DetailOf(status).reason, "BAD_SAFETENSORS");
    return std::string(status.message());
  };
  std::ofstream(path) << std::string("\x93NUMPY\x01\0{...}", 13);
  EXPECT_EQ(told(path), path +
                            ": not a safetensors file: its first 8 bytes give a header of "
                            "379676406402707 bytes, but the file has 13: is it a safetensors "
                            "file?");
  std::ofstream(path) << std::string("\x40\0\0\0\0\0\0\0{}", 10);
  EXPECT_NE(told(path).find(
                "a header of 64 bytes, but the file has 10: is it a complete safetensors file?"),
            std::string::npos);
  std::ofstream(path) << "";
  EXPECT_EQ(told(path), path + ": not a safetensors file: it is empty");
  unlink(fifo.c_str());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const auto& [name, kind] : {std::pair(fifo, "a pipe"),
                                   {testing::TempDir(), "a directory"},
                                   {std::string("/dev/null"), "a device"}}) {
    EXPECT_EQ(told(name),
              name + ": not a safetensors file: " + kind +
                  ", not a regular file: the file is read at random offsets, so write the "
                  "data to a file first");
  }
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  // Relative to the test's folder, because socket names are short.
  sockaddr_un address = {AF_UNIX, "none_socket"};
  unlink(address.sun_path);
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_NE(told("none_socket").find("a socket, not a regular file"), std::string::npos);
  close(socket);
  const absl::Status dash = SafetensorsFile::Open("-").status();
  EXPECT_EQ(DetailOf(dash).reason, "FILE_NOT_FOUND");
  EXPECT_NE(dash.message().find("standard input is not supported"), absl::string_view::npos)
      << dash;
}

TEST(SafetensorsTest, WhatIsWrittenToAFileThatIsReadIsNoticed) {
  const std::string path = testing::TempDir() + "/changing.safetensors";
  const auto open_new = [&] {
    std::ofstream(path, std::ios::trunc) << FileOf("{" + Tensor("q", "[4]", "[0,16]") + "}", 16);
    const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), long_ago, 0), 0);
    return *SafetensorsFile::Open(path);
  };
  const SafetensorsFile left = open_new();
  EXPECT_TRUE(left.CheckUnchanged().ok());
  std::fstream(path, std::ios::in | std::ios::out).seekp(-1, std::ios::end) << 'y';
  EXPECT_EQ(DetailOf(left.CheckUnchanged()).reason, "INPUT_CHANGED");
  const SafetensorsFile cut = open_new();
  ASSERT_EQ(truncate(path.c_str(), 8), 0);
  EXPECT_EQ(DetailOf(cut.CheckUnchanged()).reason, "INPUT_CHANGED");
  const SafetensorsFile replaced = open_new();
  std::ofstream(path + ".new") << "another";
  ASSERT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
  EXPECT_TRUE(replaced.CheckUnchanged().ok()) << "the old one is what is mapped";
  unlink(path.c_str());
  EXPECT_TRUE(replaced.CheckUnchanged().ok());
}

TEST(SafetensorsTest, FilesThatAreNoneAreErrors) {
  EXPECT_EQ(DetailOf(SafetensorsFile::Open("/nonexistent").status()).reason, "FILE_NOT_FOUND");
  EXPECT_EQ(DetailOf(SafetensorsFile::Open("/dev/null").status()).reason, "BAD_SAFETENSORS");
  const std::string short_file = testing::TempDir() + "/short.safetensors";
  std::ofstream(short_file) << "cut";
  for (const std::string& path : {std::string("/dev/null"), short_file}) {
    const absl::Status status = SafetensorsFile::Open(path).status();
    EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
    EXPECT_EQ(DetailOf(status).metadata["path"], path);
  }
  EXPECT_EQ(DetailOf(SafetensorsWriter::Create("/nonexistent/file").status()).reason,
            "FILE_NOT_FOUND");
  EXPECT_EQ(DetailOf(SafetensorsWriter::Create(testing::TempDir()).status()).reason, "FILE_ERROR");
  EXPECT_TRUE(Parse(FileOf("{}", 0)).ok());
  EXPECT_TRUE(Parse(FileOf("{\"__metadata__\":{\"a\":\"b\"}}  ", 0)).ok());
}

// "[1,1,…,6]".
std::string ManyDims(int count) {
  std::string shape = "[";
  for (int i = 1; i < count; ++i) shape += "1,";
  return shape + "6]";
}

TEST(SafetensorsTest, ATensorIsReadWhateverTypeOfTheFormatItHas) {
  const std::vector<std::pair<std::string, size_t>> types = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"I16", 16}, {"U16", 16},
      {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},        {"F32", 32}, {"C64", 64},
      {"F64", 64},    {"I64", 64},    {"U64", 64},    {"F8_E5M2FNUZ", 8}};
  for (const auto& [type, bits] : types) {
    const size_t bytes = 2 * 4 * bits / 8;
    const auto header = [&, name = type](size_t end) {
      return "{" + Tensor("q", "[2,4]", "[0," + std::to_string(end) + "]", name) + "}";
    };
    const auto tensors = Parse(FileOf(header(bytes), bytes));
    ASSERT_TRUE(tensors.ok()) << type << tensors.status();
    EXPECT_EQ((*tensors)[0].dtype, type);
    EXPECT_EQ((*tensors)[0].end, bytes);
    EXPECT_FALSE(Parse(FileOf(header(bytes + 1), bytes + 1)).ok()) << type;
    EXPECT_FALSE(Parse(FileOf(header(bytes - 1), bytes - 1)).ok()) << type;
  }
}

TEST(SafetensorsTest, ATypeThatNobodyKnowsIsJudgedWhereItsTensorIsUsed) {
  const std::string file =
      FileOf("{" + Tensor("q", "[3]", "[0,12]") + "," + Tensor("new", "[7]", "[12,15]", "F3_E1M1") +
                 "," + Tensor("k", ManyDims(64), "[15,39]") + "}",
             39);
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[1].dtype, "F3_E1M1");
  EXPECT_EQ((*tensors)[1].end, 15);
  EXPECT_EQ(DataTypeOf((*tensors)[1]), DataType::kUnspecified);
  EXPECT_EQ((*tensors)[2].shape.size(), 64u);
}

TEST(SafetensorsTest, HostileHeadersAreRefused) {
  const std::string good = Tensor("q", "[2,3]", "[0,24]");
  ASSERT_TRUE(Parse(FileOf("{" + good + "}", 24)).ok());
  const std::vector<std::pair<std::string, size_t>> bad = {
      {"", 0},
      {"[]", 0},
      {"{", 0},
      {"{" + good + "}", 23},               // cut off
      {"{" + good + "}", 25},               // too long
      {"{" + good + "," + good + "}", 24},  // a name twice
      {"{\"q\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}", 24},
      {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}," + good + "}", 24},
      {"{\"__metadata__\":{\"\":\"b\",\"\":\"b\"}," + good + "}", 24},
      {"{" + good + "," + Tensor("k", "[1]", "[20,24]") + "}", 24},  // overlap
      {"{" + good + "," + Tensor("k", "[1]", "[28,32]") + "}", 32},  // gap
      {"{" + Tensor("q", "[2,3]", "[0,20]") + "}", 20},              // bytes != shape
      {"{" + Tensor("q", "[2,3]", "[24,0]") + "}", 24},
      {"{" + Tensor("q", "[2,-3]", "[0,24]") + "}", 24},
      {"{" + Tensor("q", "[2,3.0]", "[0,24]") + "}", 24},
      {"{" + Tensor("q", "[2,\"3\"]", "[0,24]") + "}", 24},
      {"{" + Tensor("q", "6", "[0,24]") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[0]") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[0,24,48]") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[0,24]", "") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[0,24]", "F 33") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[0,24]", std::string(33, 'F')) + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[24,0]", "F33") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[0,23]", "F33") + "}", 24},
      {"{" + Tensor("q", "[4294967296,4294967296]", "[0,24]", "F33") + "}", 24},
      {"{" + Tensor("q", "[6]", "[0,24]") + "," + Tensor("k", "[9]", "[20,24]", "F33") + "}", 24},
      {"{" + Tensor("q", "[3]", "[0,2]", "F4") + "}", 2},
      {"{" + Tensor("q", "[5]", "[0,4]", "F6_E2M3") + "}", 4},
      {"{\"q\":{\"dtype\":\"F32\",\"shape\":[6]}}", 24},
      {"{\"q\":{\"dtype\":7,\"shape\":[6],\"data_offsets\":[0,24]}}", 24},
      {"{\"q\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24],\"more\":1}}", 24},
      {"{" + Tensor("q", "[4611686018427387904,4]", "[0,0]") + "}", 0},  // 2^62 * 4 * 4
      {"{" + Tensor("q", "[9223372036854775807,2]", "[0,24]") + "}", 24},
      {"{" + Tensor("q", "[18446744073709551615]", "[0,24]") + "}", 24},
      {"{" + Tensor("q", "[2,3]", "[18446744073709551592,18446744073709551616]") + "}", 24},
      {"{" + Tensor("q", ManyDims(65), "[0,24]") + "}", 24},
      {std::string(100000, '['), 0},
      {"{\"__metadata__\":7}", 0},
      {"{\"__metadata__\":[\"a\"]}", 0},
      {"{\"__metadata__\":{\"a\":1}}", 0},
  };
  for (const auto& [header, data_bytes] : bad) {
    const absl::Status status = Parse(FileOf(header, data_bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << header.substr(0, 100);
    EXPECT_EQ(DetailOf(status).reason, "BAD_SAFETENSORS");
  }
  std::string unpacked = FileOf("{}", 0);
  for (uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{7}}) {
    std::memcpy(unpacked.data(), &length, sizeof(length));
    EXPECT_FALSE(Parse(unpacked).ok()) << length;
  }
}

TEST(SafetensorsTest, TruncationsAndMutationsEndCleanly) {
  const uint32_t seed = 77;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good =
      FileOf("{" + Tensor("q", "[2,3]", "[0,24]") + "," + Tensor("k", "[4]", "[24,40]") + "}", 40);
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(Parse(good.substr(0, size)).ok());
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (int flips = 1 + random() % 4; flips > 0; --flips)
      bad[random() % (bad.size() - 40)] = random();
    const auto tensors = Parse(bad);
    if (!tensors.ok()) continue;
    for (const SafetensorInfo& info : *tensors) {
      EXPECT_GE(info.begin, 0);
      EXPECT_LE(info.end, 40);
    }
  }
}

}  // namespace
}  // namespace annulus
