#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H_

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/spec/dtype.h"

namespace annulus {

// Files of the safetensors format: 8 bytes little-endian length, a JSON header of that length, then
// the tensors' bytes without a gap. Reading trusts nothing: every number is checked before it is
// used.

struct SafetensorInfo {
  std::string name;
  std::string dtype;  // "F32", "BF16", …
  std::vector<int64_t> shape;
  int64_t begin = 0;  // Of its bytes, after the header.
  int64_t end = 0;
};

// What a file says of itself beside its tensors.
using SafetensorMetadata = std::map<std::string, std::string>;

// Of F32, F16 and BF16; kUnspecified of any other.
DataType DataTypeOf(const SafetensorInfo& info);

// The tensors of a file's bytes, by their place. INVALID_ARGUMENT / BAD_SAFETENSORS says what is
// wrong: a length past the end, JSON that is none, a missing or foreign member, a name twice, a
// dtype that is no name, sizes that overflow or disagree, ranges that overlap, leave a gap or end
// early, metadata that is not texts by name. A dtype that is not known may be there, with a range
// of any size. `header_bytes` (optional) is where the tensors' bytes begin.
absl::StatusOr<std::vector<SafetensorInfo>> ParseSafetensors(
    absl::Span<const std::byte> file, int64_t* header_bytes = nullptr,
    SafetensorMetadata* metadata = nullptr);

// A file, mapped into memory for its life. Movable.
class SafetensorsFile {
 public:
  // NOT_FOUND / FILE_NOT_FOUND, PERMISSION_DENIED and other errors of the system; those of
  // ParseSafetensors.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // By whatever name.
  bool IsSameFileAs(const SafetensorsFile& other) const;
  // Whether files[index] is one of those before it.
  static bool IsGivenBefore(const std::vector<SafetensorsFile>& files, size_t index);
  // In the order of their bytes.
  const std::vector<SafetensorInfo>& tensors() const { return tensors_; }
  // Empty where it has none.
  const SafetensorMetadata& metadata() const { return metadata_; }
  // The tensor, or nullptr.
  const SafetensorInfo* Find(absl::string_view name) const;
  absl::Span<const std::byte> Bytes(const SafetensorInfo& info) const;
  // Whether all of it was there as it was when it was opened, up to now. FAILED_PRECONDITION /
  // INPUT_CHANGED where somebody has written to it or cut it since, so that nobody knows what was
  // read. One that was replaced or removed is what it was to who has it open.
  absl::Status CheckUnchanged() const;

  // As if the file had them not; those that it has not are passed over.
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

// A tensor to be written.
struct SafetensorView {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;
};

// A file that is being made: under a name of its own beside `path` until Commit, so that `path` is
// whole or as it was, also where several are made at once. Movable. The destructor takes away what
// was not committed.
class SafetensorsWriter {
 public:
  // A file that is there is replaced, or what it links to; nothing else is. INVALID_ARGUMENT:
  // FILE_ERROR where `path` is "-", or there and no regular file, OUTPUT_IS_INPUT where it is one
  // of the files `inputs`, by whatever name. Errors of the system: it cannot be written.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  const std::vector<std::string>& inputs = {});
  SafetensorsWriter(SafetensorsWriter&& other) noexcept { *this = std::move(other); }
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  ~SafetensorsWriter();

  // Where it writes until Commit().
  const std::string& partial() const { return partial_; }

  // Takes room on the disk for so many bytes, so that a disk that is full is found before there is
  // anything to write: errors of the system. No error where the file system cannot.
  absl::Status Reserve(int64_t bytes);

  // Writes all, syncs it to the disk and gives the file its name. Once. Errors of the system: the
  // name is as it was, unless it was only its folder that could not be synced.
  absl::Status Commit(const std::vector<SafetensorView>& tensors,
                      const SafetensorMetadata& metadata = {});

 private:
  SafetensorsWriter() = default;
  absl::Status Begin();

  std::string path_, partial_;
  std::FILE* file_ = nullptr;  // Null: nothing to take away.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H_
