#include "worker/comm/nccl_library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "attention/status_macros.h"
#include "worker/comm/nccl.h"
#include "worker/device/shared_library.h"

namespace annulus {
namespace {

constexpr int kLeastVersion = 21400;
constexpr int kBytesType = 1;  // ncclUint8.
constexpr int kTakesCtas = 21700, kChannelsBefore = 32, kMostChannels = 64;

// The library's functions, under their names in it.
struct Functions {
  NcclResult (*ncclGetVersion)(int*);
  const char* (*ncclGetErrorString)(NcclResult);
  const char* (*ncclGetLastError)(NcclComm);
  NcclResult (*ncclGetUniqueId)(NcclUniqueId*);
  NcclResult (*ncclCommInitRankConfig)(NcclComm*, int, NcclUniqueId, int, NcclConfig*);
  NcclResult (*ncclCommGetAsyncError)(NcclComm, NcclResult*);
  NcclResult (*ncclCommFinalize)(NcclComm);
  NcclResult (*ncclCommDestroy)(NcclComm);
  NcclResult (*ncclCommAbort)(NcclComm);
  NcclResult (*ncclGroupStart)();
  NcclResult (*ncclGroupEnd)();
  NcclResult (*ncclSend)(const void*, size_t, int, int, NcclComm, CudaStream);
  NcclResult (*ncclRecv)(void*, size_t, int, int, NcclComm, CudaStream);
};

class Library final : public NcclApi {
 public:
  absl::Status Load(const std::string& path) {
    ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(path, "no NCCL"));
#define ANNULUS_FIND(name) RETURN_IF_ERROR(library.Find(#name, &nccl_.name))
    ANNULUS_FIND(ncclGetVersion);
    // Before what an old one may lack.
    if (nccl_.ncclGetVersion(&version_) != kNcclSuccess || version_ < kLeastVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is NCCL ", NcclVersionText(version_), ": ",
                       NcclVersionText(kLeastVersion), " or newer is needed"));
    }
    ANNULUS_FIND(ncclGetErrorString);
    ANNULUS_FIND(ncclGetLastError);
    ANNULUS_FIND(ncclGetUniqueId);
    ANNULUS_FIND(ncclCommInitRankConfig);
    ANNULUS_FIND(ncclCommGetAsyncError);
    ANNULUS_FIND(ncclCommFinalize);
    ANNULUS_FIND(ncclCommDestroy);
    ANNULUS_FIND(ncclCommAbort);
    ANNULUS_FIND(ncclGroupStart);
    ANNULUS_FIND(ncclGroupEnd);
    ANNULUS_FIND(ncclSend);
    ANNULUS_FIND(ncclRecv);
#undef ANNULUS_FIND
    return absl::OkStatus();
  }

  int Version() override { return version_; }
  std::string ErrorText(NcclResult result) override { return nccl_.ncclGetErrorString(result); }
  std::string LastError(NcclComm comm) override {
    const char* const text = nccl_.ncclGetLastError(comm);
    return text == nullptr ? "" : text;
  }
  NcclResult GetUniqueId(std::string* id) override {
    NcclUniqueId made;
    const NcclResult result = nccl_.ncclGetUniqueId(&made);
    if (result == kNcclSuccess) id->assign(made.internal, sizeof(made.internal));
    return result;
  }
  NcclResult CommInit(NcclComm* comm, int32_t size, const std::string& id, int32_t rank) override {
    NcclUniqueId unique;
    std::memcpy(unique.internal, id.data(), sizeof(unique.internal));
    NcclConfig config = NcclConfigOf(version_, NcclCtasOf(version_, std::getenv("NCCL_MAX_CTAS")));
    return nccl_.ncclCommInitRankConfig(comm, size, unique, rank, &config);
  }
  NcclResult AsyncError(NcclComm comm, NcclResult* state) override {
    return nccl_.ncclCommGetAsyncError(comm, state);
  }
  NcclResult Finalize(NcclComm comm) override { return nccl_.ncclCommFinalize(comm); }
  NcclResult Destroy(NcclComm comm) override { return nccl_.ncclCommDestroy(comm); }
  NcclResult Abort(NcclComm comm) override { return nccl_.ncclCommAbort(comm); }
  NcclResult GroupStart() override { return nccl_.ncclGroupStart(); }
  NcclResult GroupEnd() override { return nccl_.ncclGroupEnd(); }
  NcclResult Send(NcclComm comm, const std::byte* data, int64_t bytes, int32_t peer,
                  CudaStream stream) override {
    return nccl_.ncclSend(data, bytes, kBytesType, peer, comm, stream);
  }
  NcclResult Receive(NcclComm comm, std::byte* data, int64_t bytes, int32_t peer,
                     CudaStream stream) override {
    return nccl_.ncclRecv(data, bytes, kBytesType, peer, comm, stream);
  }

 private:
  Functions nccl_ = {};
  int version_ = 0;
};

bool IsUnset(const char* value) { return value == nullptr || *value == '\0'; }

// As NCCL reads numbers.
std::optional<int32_t> BlocksOf(const char* max_ctas) {
  if (IsUnset(max_ctas)) return std::nullopt;
  char* end = nullptr;
  const long long blocks = std::strtoll(max_ctas, &end, 0);
  if (*end != '\0' || blocks < 1) return std::nullopt;
  return static_cast<int32_t>(std::min<long long>(blocks, kMostChannels));
}

}  // namespace

NcclConfig NcclConfigOf(int version, int32_t max_ctas) {
  NcclConfig config;
  if (version >= kTakesCtas) {
    config.max_ctas = max_ctas;
    return config;
  }
  struct Before {
    size_t size;
    unsigned int magic, version;
    int blocking;
  };
  config.size = sizeof(Before);
  config.version = kLeastVersion;
  return config;
}

int32_t NcclCtasOf(int version, const char* max_ctas) {
  if (version < kTakesCtas) return kChannelsBefore;
  return BlocksOf(max_ctas).value_or(kNcclCtas);
}

absl::Status CheckNcclEnvironment(const char* blocking, const char* max_ctas) {
  if (!IsUnset(blocking) && std::strtoll(blocking, nullptr, 0) == 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL_COMM_BLOCKING=", blocking, " would let a lost peer hang this worker: unset it"));
  }
  if (!IsUnset(max_ctas) && !BlocksOf(max_ctas).has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_MAX_CTAS=", max_ctas, " is no number of blocks, 1 or more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const std::string& path) {
  RETURN_IF_ERROR(
      CheckNcclEnvironment(std::getenv("NCCL_COMM_BLOCKING"), std::getenv("NCCL_MAX_CTAS")));
  auto library = std::make_unique<Library>();
  RETURN_IF_ERROR(library->Load(path));
  return library;
}

}  // namespace annulus
