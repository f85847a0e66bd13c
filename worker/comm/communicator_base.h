#ifndef ANNULUS_WORKER_COMM_COMMUNICATOR_BASE_H_
#define ANNULUS_WORKER_COMM_COMMUNICATOR_BASE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/comm/communicator.h"

namespace annulus {

// Reasons (base/error.h) of communicator errors. Metadata "peer" holds the rank if it is known.
inline constexpr absl::string_view kReasonPeerLost = "PEER_LOST";
inline constexpr absl::string_view kReasonDamaged = "MESSAGE_DAMAGED";
inline constexpr absl::string_view kReasonStepTimeout = "STEP_TIMEOUT";
inline constexpr absl::string_view kReasonAborted = "COMMUNICATOR_ABORTED";
inline constexpr absl::string_view kReasonPoisoned = "COMMUNICATOR_POISONED";

// UNAVAILABLE, UNAVAILABLE and DEADLINE_EXCEEDED, with metadata "peer".
absl::Status PeerLost(int32_t peer, absl::string_view what);
absl::Status MessageDamaged(int32_t peer, absl::string_view what);
absl::Status PeerTimeout(int32_t peer, absl::string_view what);

// INVALID_ARGUMENT unless 0 <= rank < size.
absl::Status CheckRank(int32_t rank, int32_t size);

// Implements the rules that all communicators share: order of calls, arguments, poison, abort.
// Back-ends implement the Do… functions. These are called in order, with valid arguments, and never
// after an error.
class CommunicatorBase : public Communicator {
 public:
  absl::StatusOr<std::string> Bootstrap() final;
  absl::Status Connect(absl::Span<const std::string> bootstraps, absl::Time deadline) final;
  absl::Status Start(absl::Span<const SendMessage> sends,
                     absl::Span<const ReceiveMessage> receives) final;
  absl::Status Join(absl::Time deadline) final;
  void Abort() final;

  int32_t rank() const final { return rank_; }
  int32_t size() const final { return size_; }
  int64_t bytes_received() const final { return bytes_received_.load(std::memory_order_relaxed); }

 protected:
  CommunicatorBase(int32_t rank, int32_t size) : rank_(rank), size_(size) {}

  virtual absl::StatusOr<std::string> DoBootstrap() = 0;
  virtual absl::Status DoConnect(absl::Span<const std::string> bootstraps, absl::Time deadline) = 0;
  virtual absl::Status DoStart(absl::Span<const SendMessage> sends,
                               absl::Span<const ReceiveMessage> receives) = 0;
  virtual absl::Status DoJoin(absl::Time deadline) = 0;
  // Makes a blocked Do… function return an error soon. Any thread. Called after aborted() is true.
  virtual void Interrupt() = 0;
  // Called once, on the owner thread, after the first error. Closes the connections, so that
  // waiting peers fail. When it returns, no buffer is used any more.
  virtual void Leave() = 0;

  bool aborted() const { return aborted_.load(); }
  bool step_open() const { return phase_ == Phase::kStarted; }
  void CountReceived(int64_t bytes) { bytes_received_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  enum class Phase : uint8_t { kNew, kBootstrapped, kConnected, kStarted, kPoisoned };

  // OK if `verb` may run now; otherwise poisons.
  absl::Status Enter(absl::string_view verb, Phase expected);
  // Enters phase `next` if `status` is OK; otherwise poisons.
  absl::Status Finish(const absl::Status& status, Phase next);
  absl::Status CheckPeer(int32_t peer, int64_t bytes, const void* data) const;

  const int32_t rank_;
  const int32_t size_;
  Phase phase_ = Phase::kNew;
  absl::Status first_error_;
  std::atomic<bool> aborted_{false};
  std::atomic<int64_t> bytes_received_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_COMMUNICATOR_BASE_H_
