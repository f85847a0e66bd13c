#include "client/cli/safetensors/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/safetensors/file_error.h"
#include "client/cli/safetensors/safetensor_types.h"
#include "nlohmann/json.hpp"

namespace annulus {

using Event = nlohmann::json::parse_event_t;

void JsonNames::Take(int depth, Event event, const nlohmann::json& value) {
  const auto at = static_cast<size_t>(depth);
  if (event == Event::object_start) {
    open_.resize(std::min(at, max_depth_));
    open_.emplace_back();
  } else if (event == Event::key && at <= max_depth_) {
    open_.resize(at);
    const std::string name = value.get<std::string>();
    if (!open_.back().insert(name).second && !twice_.has_value()) twice_ = name;
  }
}

namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100 << 20;
constexpr size_t kMaxDims = 64;
constexpr int kBitsPerByte = 8;
// The header has two levels of objects. Deeper ones are refused in any case.
constexpr size_t kMaxDepth = 2;
constexpr char kMetadata[] = "__metadata__";
constexpr char kDash[] = "-";

absl::Status Bad(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("not a safetensors file: ", what), {"BAD_SAFETENSORS", {}, {}, {}});
}

absl::StatusOr<int64_t> Number(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    return Bad("a size is not a whole number from 0 to 2^63 - 1");
  }
  return value.get<int64_t>();
}

// Checks that the range is as long as shape and type require. For unknown types any length is
// valid: the user of the tensor refuses the type.
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
  return Bad(absl::StrCat("the shape of '", info.name, "' gives ", bytes, " bytes",
                          more > 0 ? absl::StrCat(" and ", more, " bits") : "",
                          ", but its data_offsets another number"));
}

absl::StatusOr<SafetensorInfo> ReadTensor(const std::string& name, const Json& value) {
  SafetensorInfo info;
  info.name = name;
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return Bad(absl::StrCat("'", name, "' must have exactly dtype, shape and data_offsets"));
  }
  const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  if (!dtype.is_string() || !MayBeSafetensorType(dtype.get<std::string>())) {
    return Bad(absl::StrCat("the dtype of '", name, "' is not the name of a type"));
  }
  info.dtype = dtype.get<std::string>();
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    return Bad(absl::StrCat("shape and data_offsets of '", name,
                            "' must be lists of numbers, data_offsets of two"));
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
  if (!value.is_object()) return Bad("its metadata is not a JSON object");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) return Bad("its metadata has a value that is not a string");
    if (metadata != nullptr) (*metadata)[name] = text.get<std::string>();
  }
  return absl::OkStatus();
}

// Sorts the tensors. Checks that they are without overlap and gap and end with the file.
absl::Status CheckRanges(std::vector<SafetensorInfo>* tensors, int64_t data_bytes) {
  std::sort(tensors->begin(), tensors->end(), [](const SafetensorInfo& a, const SafetensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t end = 0;
  for (const SafetensorInfo& tensor : *tensors) {
    if (tensor.begin < end) return Bad(absl::StrCat("'", tensor.name, "' overlaps another tensor"));
    if (tensor.begin > end) return Bad(absl::StrCat("there is a gap before '", tensor.name, "'"));
    end = tensor.end;
  }
  if (end > data_bytes) return Bad(absl::StrCat("it is cut off: ", data_bytes, " bytes of ", end));
  if (end < data_bytes) return Bad("there are bytes after the last tensor");
  return absl::OkStatus();
}

absl::StatusOr<Json> ReadHeader(const char* begin, const char* end) {
  JsonNames names(kMaxDepth);
  const Json::parser_callback_t callback = [&](int depth, Json::parse_event_t event, Json& value) {
    names.Take(depth, event, value);
    return true;
  };
  Json header = Json::parse(begin, end, callback, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) return Bad("its header is not a JSON object");
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
    return Bad(absl::StrCat("its first 8 bytes give a header of ", length,
                            " bytes, but the file has ", size,
                            length > kMaxHeaderBytes ? ": is it a safetensors file?"
                                                     : ": is it a complete safetensors file?"));
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

absl::Status NotRegular(const std::string& path, mode_t mode) {
  return InFile(path, Bad(absl::StrCat(KindOfFile(mode),
                                       ", not a regular file: the file is read at random offsets, "
                                       "so write the data to a file first")));
}

// The error of a failed open(). A socket, for example as standard input, cannot be opened.
absl::Status CannotOpen(const std::string& path) {
  absl::Status status = FileError("cannot open", path);
  struct stat stat = {};
  const bool there = ::stat(path.c_str(), &stat) == 0;
  if (there && S_ISSOCK(stat.st_mode)) return NotRegular(path, stat.st_mode);
  if (there || path != kDash) return status;
  return MakeError(
      status.code(),
      absl::StrCat(status.message(), ": standard input is not supported; give the path of a file"),
      DetailOf(status));
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return CannotOpen(path);
  struct stat stat = {};
  const bool known = fstat(fd, &stat) == 0, regular = known && S_ISREG(stat.st_mode);
  const auto size = static_cast<size_t>(stat.st_size);
  void* address = MAP_FAILED;
  if (regular && size > 0) address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (known && !regular) return NotRegular(path, stat.st_mode);
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

}  // namespace annulus
