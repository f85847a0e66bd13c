#include "worker/kernel/cuda/cudnn/cudnn_library.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/device/shared_library.h"

namespace annulus::cuda {
namespace {

// Graphs have been tested only from this version on.
constexpr int64_t kLeastVersion = 91900;

// The library's functions, under their own names.
struct Functions {
  size_t (*cudnnGetVersion)();
  void (*cudnnGetLastErrorString)(char*, size_t);
  CudnnStatus (*cudnnCreate)(CudnnHandle*);
  CudnnStatus (*cudnnDestroy)(CudnnHandle);
  CudnnStatus (*cudnnSetStream)(CudnnHandle, CudaStream);
  CudnnStatus (*cudnnBackendCreateDescriptor)(int, CudnnDescriptor*);
  CudnnStatus (*cudnnBackendDestroyDescriptor)(CudnnDescriptor);
  CudnnStatus (*cudnnBackendSetAttribute)(CudnnDescriptor, int, int, int64_t, const void*);
  CudnnStatus (*cudnnBackendGetAttribute)(CudnnDescriptor, int, int, int64_t, int64_t*, void*);
  CudnnStatus (*cudnnBackendFinalize)(CudnnDescriptor);
  CudnnStatus (*cudnnBackendExecute)(CudnnHandle, CudnnDescriptor, CudnnDescriptor);
};

class Library final : public CudnnApi {
 public:
  absl::Status Load(const std::string& path) {
    ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(path, "no cuDNN"));
#define ANNULUS_FIND(name) RETURN_IF_ERROR(library.Find(#name, &cudnn_.name))
    ANNULUS_FIND(cudnnGetVersion);
    // Checked before the functions that an older version may lack.
    if (Version() < kLeastVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is cuDNN ", CudnnVersionText(Version()), ": ",
                       CudnnVersionText(kLeastVersion), " or newer is needed"));
    }
    ANNULUS_FIND(cudnnGetLastErrorString);
    ANNULUS_FIND(cudnnCreate);
    ANNULUS_FIND(cudnnDestroy);
    ANNULUS_FIND(cudnnSetStream);
    ANNULUS_FIND(cudnnBackendCreateDescriptor);
    ANNULUS_FIND(cudnnBackendDestroyDescriptor);
    ANNULUS_FIND(cudnnBackendSetAttribute);
    ANNULUS_FIND(cudnnBackendGetAttribute);
    ANNULUS_FIND(cudnnBackendFinalize);
    ANNULUS_FIND(cudnnBackendExecute);
#undef ANNULUS_FIND
    return absl::OkStatus();
  }

  int64_t Version() override { return static_cast<int64_t>(cudnn_.cudnnGetVersion()); }
  std::string LastError() override {
    char text[1024] = {};
    cudnn_.cudnnGetLastErrorString(text, sizeof(text) - 1);
    return text;
  }
  CudnnStatus CreateHandle(CudnnHandle* handle) override { return cudnn_.cudnnCreate(handle); }
  CudnnStatus DestroyHandle(CudnnHandle handle) override { return cudnn_.cudnnDestroy(handle); }
  CudnnStatus SetStream(CudnnHandle handle, CudaStream stream) override {
    return cudnn_.cudnnSetStream(handle, stream);
  }
  CudnnStatus Create(CudnnKind kind, CudnnDescriptor* made) override {
    return cudnn_.cudnnBackendCreateDescriptor(static_cast<int>(kind), made);
  }
  CudnnStatus Destroy(CudnnDescriptor descriptor) override {
    return cudnn_.cudnnBackendDestroyDescriptor(descriptor);
  }
  CudnnStatus Set(CudnnDescriptor descriptor, CudnnName name, CudnnType type, int64_t count,
                  const void* values) override {
    return cudnn_.cudnnBackendSetAttribute(descriptor, static_cast<int>(name),
                                           static_cast<int>(type), count, values);
  }
  CudnnStatus Get(CudnnDescriptor descriptor, CudnnName name, CudnnType type, int64_t room,
                  int64_t* count, void* values) override {
    return cudnn_.cudnnBackendGetAttribute(descriptor, static_cast<int>(name),
                                           static_cast<int>(type), room, count, values);
  }
  CudnnStatus Finalize(CudnnDescriptor descriptor) override {
    return cudnn_.cudnnBackendFinalize(descriptor);
  }
  CudnnStatus Execute(CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack) override {
    return cudnn_.cudnnBackendExecute(handle, plan, pack);
  }

 private:
  Functions cudnn_ = {};
};

}  // namespace

std::string CudnnVersionText(int64_t version) {
  // Up to version 8 the major number is in thousands.
  const int64_t major = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / major, ".", version % major / 100, ".", version % 100);
}

absl::StatusOr<std::unique_ptr<CudnnApi>> LoadCudnn(const std::string& path) {
  auto library = std::make_unique<Library>();
  RETURN_IF_ERROR(library->Load(path));
  return library;
}

}  // namespace annulus::cuda
