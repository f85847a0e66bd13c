#include "client/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "client/file_error.h"
#include "client/json_names.h"
#include "client/safetensor_types.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100 << 20;
constexpr size_t kMaxDims = 64;
constexpr int kBitsPerByte = 8;
constexpr size_t kMaxDepth = 2;  // Of objects; deeper ones are refused, whatever they say.
constexpr char kMetadata[] = "__metadata__";

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("not a safetensors file: ", what), {"BAD_SAFETENSORS", {}, {}, {}});
}

absl::StatusOr<int64_t> Number(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    return Bad("a size is no number from 0 to 2^63 - 1");
  }
  return value.get<int64_t>();
}

// Whether the range is as long as the shape and the type say. Of a type that is not known the range
// alone counts: who uses the tensor refuses its type.
absl::Status CheckSize(const SafetensorInfo& info) {
  const int64_t known_bits = SafetensorElementBits(info.dtype);
  __int128 bits = known_bits == 0 ? kBitsPerByte : known_bits;
  constexpr __int128 kMaxBits = __int128{INT64_MAX} * kBitsPerByte;
  for (const int64_t size : info.shape) {
    if (__builtin_mul_overflow(bits, __int128{size}, &bits) || bits > kMaxBits) {
      return Bad(absl::StrCat("the size of '", info.name, "' overflows"));
    }
  }
  const bool fits = known_bits == 0 || (info.end - info.begin) * __int128{kBitsPerByte} == bits;
  if (info.end >= info.begin && fits) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(bits / kBitsPerByte);
  const auto more = static_cast<int>(bits % kBitsPerByte);
  return Bad(absl::StrCat("'", info.name, "' says ", bytes, " bytes ",
                          more > 0 ? absl::StrCat("and ", more, " bits ") : "",
                          "by its shape and another number by its offsets"));
}

absl::StatusOr<SafetensorInfo> ReadTensor(const std::string& name, const Json& value) {
  SafetensorInfo info;
  info.name = name;
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return Bad(absl::StrCat("'", name, "' has not just dtype, shape and data_offsets"));
  }
  const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  if (!dtype.is_string() || !MayBeSafetensorType(dtype.get<std::string>())) {
    return Bad(absl::StrCat("the dtype of '", name, "' is no name of a type"));
  }
  info.dtype = dtype.get<std::string>();
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    return Bad(absl::StrCat("shape or data_offsets of '", name, "' are no lists of numbers"));
  }
  if (shape.size() > kMaxDims) {
    return Bad(
        absl::StrCat("'", name, "' has ", shape.size(), " dimensions, more than ", kMaxDims));
  }
  for (const Json& size : shape) {
    ASSIGN_OR_RETURN(info.shape.emplace_back(), Number(size));
  }
  ASSIGN_OR_RETURN(info.begin, Number(offsets[0]));
  ASSIGN_OR_RETURN(info.end, Number(offsets[1]));
  RETURN_IF_ERROR(CheckSize(info));
  return info;
}

// `metadata` may be null.
absl::Status ReadMetadata(const Json& value, SafetensorMetadata* metadata) {
  if (!value.is_object()) return Bad("its metadata is no JSON object");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) return Bad("its metadata has what is no text");
    if (metadata != nullptr) (*metadata)[name] = text.get<std::string>();
  }
  return absl::OkStatus();
}

// Sorted, without overlap or gap, and as long as the file.
absl::Status CheckRanges(std::vector<SafetensorInfo>* tensors, int64_t data_bytes) {
  std::sort(tensors->begin(), tensors->end(), [](const SafetensorInfo& a, const SafetensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t end = 0;
  for (const SafetensorInfo& tensor : *tensors) {
    if (tensor.begin < end) return Bad(absl::StrCat("'", tensor.name, "' overlaps another tensor"));
    if (tensor.begin > end) return Bad(absl::StrCat("a gap before '", tensor.name, "'"));
    end = tensor.end;
  }
  if (end > data_bytes) return Bad(absl::StrCat("it is cut off: ", data_bytes, " bytes of ", end));
  if (end < data_bytes) return Bad("bytes after the last tensor");
  return absl::OkStatus();
}

absl::StatusOr<Json> ReadHeader(const char* begin, const char* end) {
  JsonNames names(kMaxDepth);
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t event, Json& value) {
    names.Take(depth, event, value);
    return true;
  };
  Json header = Json::parse(begin, end, callback, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) return Bad("its header is no JSON object");
  if (names.twice().has_value()) return Bad("a name appears twice");
  return header;
}

}  // namespace

DataType DataTypeOf(const SafetensorInfo& info) {
  if (info.dtype == "F32") return DataType::kFp32;
  if (info.dtype == "F16") return DataType::kFp16;
  return info.dtype == "BF16" ? DataType::kBf16 : DataType::kUnspecified;
}

absl::StatusOr<std::vector<SafetensorInfo>> ParseSafetensors(absl::Span<const std::byte> file,
                                                             int64_t* header_bytes,
                                                             SafetensorMetadata* metadata) {
  const auto size = static_cast<int64_t>(file.size());
  if (size < kLengthBytes) return Bad("it is shorter than 8 bytes");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > static_cast<uint64_t>(size - kLengthBytes)) {
    return Bad(absl::StrCat(
        "its first 8 bytes claim a header of ", length, " bytes, and the file has ", size,
        length > kMaxHeaderBytes ? ": is it a safetensors file?" : ": is it one, and whole?"));
  }
  const char* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  ASSIGN_OR_RETURN(const Json header, ReadHeader(text, text + length));
  std::vector<SafetensorInfo> tensors;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      RETURN_IF_ERROR(ReadMetadata(value, metadata));
      continue;
    }
    ASSIGN_OR_RETURN(SafetensorInfo info, ReadTensor(name, value));
    tensors.push_back(std::move(info));
  }
  const int64_t before = kLengthBytes + static_cast<int64_t>(length);
  RETURN_IF_ERROR(CheckRanges(&tensors, size - before));
  if (header_bytes != nullptr) *header_bytes = before;
  return tensors;
}

namespace {

// What else than a regular file has a path.
absl::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  // A FIFO would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError("cannot open", path);
  struct stat stat = {};
  const bool known = fstat(fd, &stat) == 0, regular = known && S_ISREG(stat.st_mode);
  const auto size = static_cast<size_t>(stat.st_size);
  void* address = MAP_FAILED;
  if (regular && size > 0) address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (known && !regular) {
    return InFile(path, Bad(absl::StrCat(KindOf(stat.st_mode),
                                         ": a regular file is needed, as it is mapped")));
  }
  if (regular && size == 0) return InFile(path, Bad("it is empty"));
  if (address == MAP_FAILED) return FileError("cannot map", path);
  SafetensorsFile file;
  file.path_ = path;
  file.opened_ = stat;
  file.mapping_ = std::shared_ptr<const std::byte>(
      static_cast<const std::byte*>(address),
      [size](const std::byte* mapped) { munmap(const_cast<std::byte*>(mapped), size); });
  auto tensors =
      ParseSafetensors({file.mapping_.get(), size}, &file.header_bytes_, &file.metadata_);
  if (!tensors.ok()) return InFile(path, tensors.status());
  file.tensors_ = *std::move(tensors);
  return file;
}

const SafetensorInfo* SafetensorsFile::Find(absl::string_view name) const {
  for (const SafetensorInfo& info : tensors_) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

absl::Span<const std::byte> SafetensorsFile::Bytes(const SafetensorInfo& info) const {
  return {mapping_.get() + header_bytes_ + info.begin, static_cast<size_t>(info.end - info.begin)};
}

absl::Status SafetensorsFile::CheckUnchanged() const {
  struct stat now = {};
  if (::stat(path_.c_str(), &now) != 0) return absl::OkStatus();
  if (now.st_dev != opened_.st_dev || now.st_ino != opened_.st_ino) return absl::OkStatus();
  const bool same = now.st_size == opened_.st_size &&
                    now.st_mtim.tv_sec == opened_.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec;
  if (same) return absl::OkStatus();
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat(path_, ": it was changed while it was read"),
                   {"INPUT_CHANGED", {{"path", path_}}, {}, {}});
}

bool SafetensorsFile::IsSameFileAs(const SafetensorsFile& other) const {
  return opened_.st_dev == other.opened_.st_dev && opened_.st_ino == other.opened_.st_ino;
}

bool SafetensorsFile::IsGivenBefore(const std::vector<SafetensorsFile>& files, size_t index) {
  return std::any_of(files.begin(), files.begin() + static_cast<int64_t>(index),
                     [&](const auto& each) { return each.IsSameFileAs(files[index]); });
}

void SafetensorsFile::LeaveAside(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const SafetensorInfo* const found = Find(name);
    if (found == nullptr) continue;
    tensors_.erase(tensors_.begin() + (found - tensors_.data()));
    left_aside_.push_back(name);
  }
}

bool SafetensorsFile::IsLeftAside(absl::string_view name) const {
  return std::find(left_aside_.begin(), left_aside_.end(), name) != left_aside_.end();
}

namespace {

// What is written in the place of: a name that nobody has, a file, or the one that a link leads to.
absl::StatusOr<std::string> TargetOf(const std::string& path) {
  struct stat stat = {};
  if (lstat(path.c_str(), &stat) != 0) return path;
  std::string target = path;
  if (S_ISLNK(stat.st_mode)) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                           &std::free);
    if (real == nullptr || lstat(real.get(), &stat) != 0) return FileError("cannot write", path);
    target = real.get();
  }
  if (S_ISREG(stat.st_mode)) return target;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("cannot write ", path, ": it is no regular file"),
                   {"FILE_ERROR", {{"path", path}}, {}, {}});
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat of_a = {}, of_b = {};
  if (stat(a.c_str(), &of_a) != 0 || stat(b.c_str(), &of_b) != 0) return a == b;
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

absl::Status CheckNoInput(const std::string& path, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (!IsSameFile(path, input)) continue;
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("cannot write ", path, ": it is the input ", input, ", which would be lost"),
        {"OUTPUT_IS_INPUT", {{"path", path}, {"input", input}}, {}, {}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<std::string>& inputs) {
  RETURN_IF_ERROR(CheckNoInput(path, inputs));
  SafetensorsWriter writer;
  ASSIGN_OR_RETURN(writer.path_, TargetOf(path));
  RETURN_IF_ERROR(writer.Begin());
  return writer;
}

// A file that nobody has, or a link of that name: process numbers are alike in containers, and a
// name that can be guessed can be taken.
absl::Status SafetensorsWriter::Begin() {
  constexpr int kTries = 16, kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t number = uint64_t{random()} << 32 | random();
    partial_ = absl::StrCat(path_, ".partial-", absl::Hex(number, absl::kZeroPad16));
    const int file = open(partial_.c_str(), kFlags, 0666);
    if (file >= 0) {
      file_ = fdopen(file, "wb");
      return file_ == nullptr ? FileError("cannot write", partial_) : absl::OkStatus();
    }
    if (errno != EEXIST) break;
  }
  return FileError("cannot write", partial_);
}

SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(file_, other.file_);
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(partial_.c_str());
}

namespace {

// The header of a file, behind its length.
std::string HeaderOf(const std::vector<SafetensorView>& tensors,
                     const SafetensorMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  for (const SafetensorView& tensor : tensors) {
    const int64_t end = offset + static_cast<int64_t>(tensor.bytes.size());
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return text.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
}

// On a file system that knows no such thing there is nothing to wait for.
bool Sync(int fd) { return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP; }

// A folder that may be written to and not be read cannot be opened for this.
bool SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES;
  const bool good = Sync(fd);
  const int error = errno;
  close(fd);
  errno = error;
  return good;
}

}  // namespace

// Synced before it has its name: else the name could outlive a crash of the machine, and the bytes
// not.
absl::Status SafetensorsWriter::Commit(const std::vector<SafetensorView>& tensors,
                                       const SafetensorMetadata& metadata) {
  const std::string header = HeaderOf(tensors, metadata);
  const auto write = [this](const void* bytes, size_t size) {
    return std::fwrite(bytes, 1, size, file_) == size;
  };
  bool good = write(header.data(), header.size());
  for (const SafetensorView& tensor : tensors) {
    good = good && write(tensor.bytes.data(), tensor.bytes.size());
  }
  good = good && std::fflush(file_) == 0 && Sync(fileno(file_));
  absl::Status status = good ? absl::OkStatus() : FileError("cannot write", path_);
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (status.ok() && (!closed || std::rename(partial_.c_str(), path_.c_str()) != 0)) {
    status = FileError("cannot write", path_);
  }
  if (!status.ok()) {
    std::remove(partial_.c_str());
    return status;
  }
  return SyncFolderOf(path_) ? absl::OkStatus() : FileError("cannot sync the folder of", path_);
}

}  // namespace annulus
