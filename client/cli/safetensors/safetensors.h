#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H_

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/spec/dtype.h"
#include "nlohmann/json.hpp"

namespace annulus {

// Files in the safetensors format: 8 bytes of little-endian length, a JSON header of that length,
// then the tensors' bytes without gaps. The reader checks every number before it uses it.

// Finds duplicate members of JSON objects, which the parser would drop without an error. Take() is
// for the parser's callback.
class JsonNames {
 public:
  // Objects nested in more than `max_depth` others are not checked.
  explicit JsonNames(size_t max_depth) : max_depth_(max_depth) {}

  void Take(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value);
  // The first duplicate name.
  const std::optional<std::string>& twice() const { return twice_; }

 private:
  const size_t max_depth_;
  // The names of the enclosing objects, by depth.
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> twice_;
};

// One tensor of a file.
struct SafetensorInfo {
  std::string name;
  std::string dtype;  // For example "F32", "BF16".
  std::vector<int64_t> shape;
  int64_t begin = 0;  // Byte range, counted from the end of the header.
  int64_t end = 0;
};

// The texts that a file has beside its tensors, by name.
using SafetensorMetadata = std::map<std::string, std::string>;

// The type for F32, F16 and BF16; kUnspecified for any other.
DataType DataTypeOf(const SafetensorInfo& info);

// Parses a file's bytes. The tensors are in the order of their bytes. `header_bytes` (optional) is
// the offset of the first tensor's bytes. A tensor of an unknown dtype may have a range of any
// size. INVALID_ARGUMENT / BAD_SAFETENSORS, with the problem in the message, for:
// - a length beyond the end of the file, or a header that is no JSON object
// - duplicate names, missing or unknown members
// - a dtype that is no name, or metadata with values that are not texts
// - sizes that overflow, or differ from the byte range
// - ranges that overlap, leave a gap or end before or after the file
absl::StatusOr<std::vector<SafetensorInfo>> ParseSafetensors(
    absl::Span<const std::byte> file, int64_t* header_bytes = nullptr,
    SafetensorMetadata* metadata = nullptr);

// A safetensors file, mapped into memory. Movable.
class SafetensorsFile {
 public:
  // NOT_FOUND / FILE_NOT_FOUND; the system's code / FILE_ERROR, for example PERMISSION_DENIED;
  // errors of ParseSafetensors().
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // True if both are the same file, under any name.
  bool IsSameFileAs(const SafetensorsFile& other) const;
  // True if files[index] is the same file as an earlier one.
  static bool IsGivenBefore(const std::vector<SafetensorsFile>& files, size_t index);
  // The tensors in the order of their bytes.
  const std::vector<SafetensorInfo>& tensors() const { return tensors_; }
  // Empty if the file has none.
  const SafetensorMetadata& metadata() const { return metadata_; }
  // The tensor, or null.
  const SafetensorInfo* Find(absl::string_view name) const;
  absl::Span<const std::byte> Bytes(const SafetensorInfo& info) const;
  // Checks that the file has not been written or truncated since Open(). FAILED_PRECONDITION /
  // INPUT_CHANGED if it has: the bytes that were read are then unknown. OK if the path now has
  // another file or none: the open file is unaffected.
  absl::Status CheckUnchanged() const;

  // Removes tensors by name. Names that the file does not have are ignored.
  void LeaveAside(const std::vector<std::string>& names);
  bool IsLeftAside(absl::string_view name) const;

 private:
  std::string path_;
  struct stat opened_ = {};
  std::shared_ptr<const std::byte> mapping_;
  int64_t header_bytes_ = 0;
  std::vector<SafetensorInfo> tensors_;
  std::vector<std::string> left_aside_;
  SafetensorMetadata metadata_;
};

// A tensor to write.
struct SafetensorView {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;
};

// Writes a file atomically. Until Commit() the bytes are in a temporary file beside `path`, so that
// `path` is either the old or the complete new file, also with several writers. Movable. The
// destructor removes a file that was not committed.
class SafetensorsWriter {
 public:
  // Creates the temporary file. Commit() then replaces a file at `path`, or the file that a link at
  // `path` leads to. Errors, in this order: INVALID_ARGUMENT / OUTPUT_IS_INPUT if `path` is one of
  // the files `inputs`, under any name; INVALID_ARGUMENT / FILE_ERROR if `path` is "-" or exists
  // and is not a regular file; errors of the system.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  const std::vector<std::string>& inputs = {});
  SafetensorsWriter(SafetensorsWriter&& other) noexcept { *this = std::move(other); }
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  ~SafetensorsWriter();

  // The path of the temporary file.
  const std::string& partial() const { return partial_; }

  // Reserves disk space, so that a full disk is detected before the work. Errors of the system. OK
  // if the file system has no such function.
  absl::Status Reserve(int64_t bytes);

  // Writes all tensors, syncs them to the disk and renames the file to `path`. Call once. Errors of
  // the system: `path` is unchanged, unless only the sync of its folder has failed.
  absl::Status Commit(const std::vector<SafetensorView>& tensors,
                      const SafetensorMetadata& metadata = {});

 private:
  SafetensorsWriter() = default;
  absl::Status Begin();

  std::string path_, partial_;
  std::FILE* file_ = nullptr;  // Null: nothing to remove.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H_
