#include "worker/comm/nccl_library.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/comm/nccl.h"
#include "worker/device/shared_library.h"

namespace annulus {
namespace {

// Older versions do not report that a peer on another machine is gone, and some crash if a
// communicator is aborted while it forms.
constexpr int kLeastVersion = 21900;
constexpr int kBytesType = 1;  // ncclUint8.
constexpr int32_t kMostChannels = 64;

// The library's functions, under their own names.
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
    // Checked first, because an old library may lack other functions.
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
    NcclConfig config;
    config.max_ctas = kNcclCtas;
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

// Parsed as NCCL parses numbers.
std::optional<int32_t> BlocksOf(const char* max_ctas) {
  if (IsUnset(max_ctas)) return std::nullopt;
  char* end = nullptr;
  const long long blocks = std::strtoll(max_ctas, &end, 0);
  if (*end != '\0' || blocks < 1) return std::nullopt;
  return static_cast<int32_t>(std::min<long long>(blocks, kMostChannels));
}

// Parsed like BlocksOf. NCCL ignores text after the number, and values that are not numbers.
int32_t LeastOf(const char* channels) {
  if (IsUnset(channels)) return 0;
  errno = 0;
  const long long least = std::strtoll(channels, nullptr, 0);
  return errno != 0 ? 0 : static_cast<int32_t>(std::clamp<long long>(least, 0, kMostChannels));
}

}  // namespace

NcclEnvironment NcclEnvironment::OfProcess() {
  return {std::getenv("NCCL_COMM_BLOCKING"), std::getenv("NCCL_COMM_ID"),
          std::getenv("NCCL_MAX_CTAS"),      std::getenv("NCCL_MIN_NCHANNELS"),
          std::getenv("NCCL_MIN_NRINGS"),    std::getenv("NCCL_MIN_P2P_NCHANNELS")};
}

int32_t NcclCtasOf(const NcclEnvironment& environment) {
  const char* const least =
      IsUnset(environment.min_channels) ? environment.min_rings : environment.min_channels;
  const int32_t blocks = std::max({BlocksOf(environment.max_ctas).value_or(kNcclCtas),
                                   LeastOf(least), LeastOf(environment.min_p2p_channels)});
  int32_t rounded = 1;
  while (rounded < blocks) rounded *= 2;
  return rounded;
}

absl::Status CheckNcclEnvironment(const NcclEnvironment& environment) {
  const char* const blocking = environment.comm_blocking;
  if (!IsUnset(blocking) && std::strtoll(blocking, nullptr, 0) == 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL_COMM_BLOCKING=", blocking, " would let a lost peer hang this worker: unset it"));
  }
  const char* const max_ctas = environment.max_ctas;
  if (!IsUnset(max_ctas) && !BlocksOf(max_ctas).has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_MAX_CTAS=", max_ctas, " is not a number of blocks, 1 or more"));
  }
  // NCCL treats even an empty value as an address.
  if (environment.comm_id != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_COMM_ID=", environment.comm_id,
                     " would make all groups of workers use one address: unset it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const std::string& path) {
  RETURN_IF_ERROR(CheckNcclEnvironment(NcclEnvironment::OfProcess()));
  auto library = std::make_unique<Library>();
  RETURN_IF_ERROR(library->Load(path));
  return library;
}

}  // namespace annulus
