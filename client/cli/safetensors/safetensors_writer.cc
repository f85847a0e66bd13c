#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/safetensors/file_error.h"
#include "client/cli/safetensors/safetensors.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

constexpr char kMetadata[] = "__metadata__";

absl::Status CannotWrite(const std::string& path, absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("cannot write ", path, ": ", why),
                   {"FILE_ERROR", {{"path", path}}, {}, {}});
}

// The path to replace: `path` if it does not exist or is a file, else the target of the link.
// /dev/stdout is a link; if it leads to a pipe, there is no path to replace.
absl::StatusOr<std::string> TargetOf(const std::string& path) {
  if (path == "-") {
    return CannotWrite(
        path, "the output must be a file, not standard output; for a file of this name, give ./-");
  }
  struct stat stat = {};
  if (lstat(path.c_str(), &stat) != 0) return path;
  const bool is_link = S_ISLNK(stat.st_mode);
  if (::stat(path.c_str(), &stat) != 0) return FileError("cannot write", path);
  if (!S_ISREG(stat.st_mode)) {
    return CannotWrite(path,
                       absl::StrCat("it is ", KindOfFile(stat.st_mode),
                                    ", not a regular file; only a regular file can be replaced"));
  }
  if (!is_link) return path;
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? FileError("cannot write", path)
                         : absl::StatusOr<std::string>(real.get());
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

// The name is random and must not exist. Process ids repeat between containers, and a name that can
// be guessed could be taken by a link.
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

// The length and the header of a file.
std::string HeaderOf(const std::vector<SafetensorView>& tensors,
                     const SafetensorMetadata& metadata) {
  nlohmann::json header = nlohmann::json::object();
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

// A file system without fsync has nothing to wait for.
bool Sync(int fd) { return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP; }

// True also if the file system has no fallocate. posix_fallocate would emulate it by writing.
bool TakeRoom(int fd, int64_t bytes) {
  while (bytes > 0 && fallocate(fd, /*mode=*/0, /*offset=*/0, bytes) != 0) {
    if (errno != EINTR) return errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
  }
  return true;
}

// A folder that is writable but not readable cannot be opened for a sync.
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

absl::Status SafetensorsWriter::Reserve(int64_t bytes) {
  return TakeRoom(fileno(file_), bytes) ? absl::OkStatus() : FileError("cannot write", path_);
}

// Synced before the rename. Otherwise a crash of the machine could keep the name without the bytes.
absl::Status SafetensorsWriter::Commit(const std::vector<SafetensorView>& tensors,
                                       const SafetensorMetadata& metadata) {
  const std::string header = HeaderOf(tensors, metadata);
  auto size = static_cast<int64_t>(header.size());
  for (const SafetensorView& tensor : tensors) size += static_cast<int64_t>(tensor.bytes.size());
  const auto write = [this](const void* bytes, size_t size) {
    return std::fwrite(bytes, 1, size, file_) == size;
  };
  bool good = TakeRoom(fileno(file_), size) && write(header.data(), header.size());
  for (const SafetensorView& tensor : tensors) {
    good = good && write(tensor.bytes.data(), tensor.bytes.size());
  }
  good = good && std::fflush(file_) == 0 && ftruncate(fileno(file_), size) == 0;
  good = good && Sync(fileno(file_));
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
