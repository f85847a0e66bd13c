#ifndef ANNULUS_WORKER_DEVICE_SHARED_LIBRARY_H_
#define ANNULUS_WORKER_DEVICE_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace annulus {

// A library loaded at run time, so that programs start without it. Never unloaded.
// FAILED_PRECONDITION with a one-line message if the library or a function is missing.
class SharedLibrary {
 public:
  // `path` is as for dlopen. `missing` appears in errors: "no NCCL".
  static absl::StatusOr<SharedLibrary> Load(std::string path, std::string missing) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(handle, std::move(path), std::move(missing));
    return absl::FailedPreconditionError(absl::StrCat(missing, ": ", dlerror()));
  }

  template <typename Function>
  absl::Status Find(const char* symbol, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (*function != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " is ", missing_, ": it has no ", symbol));
  }

 private:
  SharedLibrary(void* handle, std::string path, std::string missing)
      : handle_(handle), path_(std::move(path)), missing_(std::move(missing)) {}

  void* handle_;
  std::string path_, missing_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_SHARED_LIBRARY_H_
