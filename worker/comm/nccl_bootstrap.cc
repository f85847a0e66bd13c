#include "worker/comm/nccl_bootstrap.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/comm/nccl.h"
#include "worker/comm/nccl_api.h"

namespace annulus {
namespace {

absl::StatusOr<NcclBootstrap> Decode(const std::string& bytes, int32_t rank) {
  const std::vector<std::string> parts = absl::StrSplit(bytes, '/');
  NcclBootstrap decoded;
  const int64_t id_digits = rank == 0 ? 2 * kNcclIdBytes : 0;
  if (parts.size() != 4 || parts[0] != "nccl" || parts[1] != absl::StrCat(rank) ||
      !absl::SimpleAtoi(parts[2], &decoded.version) ||
      static_cast<int64_t>(parts[3].size()) != id_digits) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bootstrap bytes of rank ", rank, " do not belong to this group"));
  }
  decoded.id = absl::HexStringToBytes(parts[3]);
  return decoded;
}

}  // namespace

std::string NcclBootstrap::Encoded(int32_t rank) const {
  return absl::StrCat("nccl/", rank, "/", version, "/", absl::BytesToHexString(id));
}

absl::StatusOr<std::string> NcclIdOf(absl::Span<const std::string> bootstraps,
                                     const NcclBootstrap& own, int32_t rank) {
  std::string id;
  for (int32_t r = 0; r < static_cast<int32_t>(bootstraps.size()); ++r) {
    ASSIGN_OR_RETURN(const NcclBootstrap other, Decode(bootstraps[r], r));
    if (other.version != own.version) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", r, " has NCCL ", NcclVersionText(other.version), ", but rank ", rank, " has ",
          NcclVersionText(own.version), ": all ranks of a group need the same version"));
    }
    if (r == 0) id = other.id;
  }
  if (bootstraps[rank] != own.Encoded(rank)) {
    return absl::InvalidArgumentError("the bootstrap bytes of this rank are not its own");
  }
  return id;
}

}  // namespace annulus
