#include "worker/comm/communicator_base.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "worker/device/device.h"

namespace annulus {
namespace {

absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message) {
  ErrorDetail detail;
  detail.reason = std::string(reason);
  return MakeError(code, message, detail);
}

absl::Status PeerError(absl::StatusCode code, absl::string_view reason, int32_t peer,
                       absl::string_view what) {
  ErrorDetail detail;
  detail.reason = std::string(reason);
  detail.metadata["peer"] = absl::StrCat(peer);
  return MakeError(code, absl::StrCat("rank ", peer, ": ", what), detail);
}

}  // namespace

absl::Status PeerLost(int32_t peer, absl::string_view what) {
  return PeerError(absl::StatusCode::kUnavailable, kReasonPeerLost, peer, what);
}

absl::Status MessageDamaged(int32_t peer, absl::string_view what) {
  return PeerError(absl::StatusCode::kUnavailable, kReasonDamaged, peer, what);
}

absl::Status PeerTimeout(int32_t peer, absl::string_view what) {
  return PeerError(absl::StatusCode::kDeadlineExceeded, kReasonStepTimeout, peer, what);
}

absl::Status CheckRank(int32_t rank, int32_t size) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no rank ", rank, " in a group of ", size));
}

absl::StatusOr<std::string> CommunicatorBase::Bootstrap() {
  RETURN_IF_ERROR(Enter("Bootstrap", Phase::kNew));
  absl::StatusOr<std::string> bytes = DoBootstrap();
  RETURN_IF_ERROR(Finish(bytes.status(), Phase::kBootstrapped));
  return bytes;
}

absl::Status CommunicatorBase::Connect(absl::Span<const std::string> bootstraps,
                                       absl::Time deadline) {
  RETURN_IF_ERROR(Enter("Connect", Phase::kBootstrapped));
  if (static_cast<int64_t>(bootstraps.size()) != size_) {
    return Finish(
        absl::InvalidArgumentError(absl::StrCat("Connect needs the bootstrap bytes of ", size_,
                                                " ranks, got ", bootstraps.size())),
        Phase::kPoisoned);
  }
  return Finish(DoConnect(bootstraps, deadline), Phase::kConnected);
}

absl::Status CommunicatorBase::Start(absl::Span<const SendMessage> sends,
                                     absl::Span<const ReceiveMessage> receives) {
  RETURN_IF_ERROR(Enter("Start", Phase::kConnected));
  absl::Status status;
  for (const SendMessage& m : sends) status.Update(CheckPeer(m.peer, m.bytes, m.data));
  for (const ReceiveMessage& m : receives) status.Update(CheckPeer(m.peer, m.bytes, m.data));
  if (status.ok()) status = DoStart(sends, receives);
  return Finish(status, Phase::kStarted);
}

absl::Status CommunicatorBase::Join(absl::Time deadline) {
  RETURN_IF_ERROR(Enter("Join", Phase::kStarted));
  return Finish(DoJoin(deadline), Phase::kConnected);
}

void CommunicatorBase::Abort() {
  aborted_.store(true);
  Interrupt();
}

absl::Status CommunicatorBase::Enter(absl::string_view verb, Phase expected) {
  if (phase_ == Phase::kPoisoned) {
    return Error(absl::StatusCode::kFailedPrecondition, kReasonPoisoned,
                 absl::StrCat(verb, " on a communicator that failed: ", first_error_.message()));
  }
  if (aborted()) return Finish(absl::AbortedError(verb), Phase::kPoisoned);
  if (phase_ == expected) return absl::OkStatus();
  return Finish(absl::FailedPreconditionError(absl::StrCat(verb, " called out of order")),
                Phase::kPoisoned);
}

absl::Status CommunicatorBase::Finish(const absl::Status& status, Phase next) {
  if (status.ok()) {
    phase_ = next;
    return status;
  }
  // After an abort, the error of a call depends on timing, so it is replaced. A device fault is not
  // a consequence of the abort and is kept.
  first_error_ =
      aborted() && !IsDeviceFault(status)
          ? Error(absl::StatusCode::kAborted, kReasonAborted, "the communicator was aborted")
          : status;
  Leave();
  phase_ = Phase::kPoisoned;
  return first_error_;
}

absl::Status CommunicatorBase::CheckPeer(int32_t peer, int64_t bytes, const void* data) const {
  if (peer < 0 || peer >= size_ || peer == rank_) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank_, " of ", size_, " has no peer ", peer));
  }
  if (bytes < 0 || (bytes > 0 && data == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", bytes, " bytes with peer ", peer, " has no memory"));
  }
  return absl::OkStatus();
}

}  // namespace annulus
