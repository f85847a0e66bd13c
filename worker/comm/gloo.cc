#include "worker/comm/gloo.h"

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker/comm/bind_address.h"
#include "worker/comm/communicator_base.h"
#include "worker/comm/gloo_bootstrap.h"
#include "worker/comm/gloo_context.h"
#include "worker/comm/message_seal.h"
#include "worker/comm/ticker.h"

namespace annulus {
namespace {

using UnboundBuffer = ::gloo::transport::UnboundBuffer;

// After a timeout Gloo closes every pair of the context. So Gloo waits have no timeout: the ticker
// interrupts them, and Join checks its own deadline.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24);
constexpr absl::Duration kTick = absl::Milliseconds(25);
// Messages never use this slot: their slots count up from 0.
constexpr uint64_t kSentinelSlot = ~uint64_t{0};

// Converts Gloo's exceptions to a status.
template <typename Function>
absl::Status GlooCall(absl::string_view what, Function&& function) {
  try {
    std::forward<Function>(function)();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("gloo ", what, ": ", e.what()));
  }
}

// An error may reach the clients of a job. Gloo's messages have file names and addresses, so they
// go to the log only.
absl::Status Lost(int32_t peer, const absl::Status& status) {
  LogInfo(kNoJob, "peer ", peer, ": ", status.message());
  return PeerLost(peer, "its connection has failed");
}

absl::Status CannotBegin(const absl::Status& status) {
  if (status.ok()) return status;
  LogInfo(kNoJob, status.message());
  return absl::UnavailableError("Gloo cannot start; the cause is in the worker's log");
}

// Exchanged on each ordered pair before the first job.
struct Greeting {
  uint64_t group = 0;
  int32_t from = 0, to = 0;
};

// True if `transfer` ended before its peer was lost. If it did not, the second Wait times out, and
// Gloo closes the context. This is harmless: the context has failed.
bool EndedBefore(GlooTransfer& transfer) {
  if (transfer.done) return true;
  const absl::Status looked = GlooCall("look", [&] {
    // Consumes a nudge that arrived after an earlier wait had ended.
    transfer.Nudge();
    transfer.Wait(kForever);
    transfer.Wait(std::chrono::milliseconds(0));
  });
  return looked.ok() && transfer.done;
}

class GlooCommunicator final : public CommunicatorBase {
 public:
  GlooCommunicator(const GlooOptions& options,
                   std::shared_ptr<::gloo::transport::tcp::Device> device)
      : CommunicatorBase(options.rank, options.size),
        options_(options),
        device_(std::move(device)),
        sent_(options.size, 0),
        received_(options.size, 0),
        ticker_(kTick, [this] { Nudge(); }) {}

  ~GlooCommunicator() override {
    if (step_open()) Leave();
    DestroyPairs();
  }

 private:
  absl::StatusOr<std::string> DoBootstrap() override;
  absl::Status DoConnect(absl::Span<const std::string> bootstraps, absl::Time deadline) override;
  absl::Status DoStart(absl::Span<const SendMessage> sends,
                       absl::Span<const ReceiveMessage> receives) override;
  absl::Status DoJoin(absl::Time deadline) override;
  void Interrupt() override { Nudge(); }
  void Leave() override;

  // Closes the pairs softly, so that sent data arrives. The buffers are destroyed later, when
  // Gloo's thread no longer uses them.
  void DestroyPairs();
  absl::Status Greet(uint64_t group, absl::Time deadline);
  // Sends `ours` and receives `theirs`, indexed by peer.
  absl::Status SwapGreetings(std::vector<Greeting>& ours, std::vector<Greeting>& theirs,
                             absl::Time deadline);
  // Starts the pieces of one message.
  absl::Status Begin(const GlooPiece& message);
  absl::Status BeginSeal(SealedMessage& sealed, bool receive);
  absl::Status BeginPiece(const GlooPiece& piece, uint64_t slot);
  uint64_t NextSlot(int32_t peer, bool receive) { return (receive ? received_ : sent_)[peer]++; }
  absl::Status Wait(GlooTransfer& transfer, absl::Time deadline) EXCLUDES(mutex_);
  // PEER_LOST if a peer is gone before a transfer of the open step with it has ended. A peer that
  // waits for another lost peer is not found here; it closes its own connections later.
  absl::Status CheckPeers();
  // Sets the transfer that Nudge interrupts.
  void SetWaiting(GlooTransfer* transfer) EXCLUDES(mutex_);
  // Interrupts the current wait.
  void Nudge() EXCLUDES(mutex_);

  const GlooOptions options_;
  // Members are destroyed in reverse order: the ticker thread, the buffers, the context, the
  // device.
  std::shared_ptr<::gloo::transport::tcp::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<uint64_t> sent_, received_;  // The next slot, by peer. Pieces and seals count.
  // One receive for each peer that never completes. Gloo reports a lost connection only to
  // transfers that have not begun; a partly received one would wait for ever.
  std::vector<std::unique_ptr<UnboundBuffer>> sentinels_;
  std::vector<GlooTransfer> pending_;
  std::deque<SealedMessage> leaving_, arriving_;  // Messages of the open step.
  Mutex mutex_;
  GlooTransfer* waiting_ GUARDED_BY(mutex_) = nullptr;
  Ticker ticker_;
};

absl::StatusOr<std::string> GlooCommunicator::DoBootstrap() {
  GlooBootstrap bootstrap;
  bootstrap.rank = rank();
  bootstrap.addresses.resize(size());
  RETURN_IF_ERROR(CannotBegin(GlooCall("listen", [&] {
    context_ = MakeGlooContext(device_, rank(), size());
    context_->setTimeout(absl::ToChronoMilliseconds(options_.connect_timeout));
    for (int32_t peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const std::vector<char> address = context_->createPair(peer)->address().bytes();
      bootstrap.addresses[peer].assign(address.begin(), address.end());
    }
  })));
  return EncodeGlooBootstrap(bootstrap);
}

absl::Status GlooCommunicator::DoConnect(absl::Span<const std::string> bootstraps,
                                         absl::Time deadline) {
  sentinels_.resize(size());
  std::vector<GlooBootstrap> ranks(size());
  for (int32_t peer = 0; peer < size(); ++peer) {
    ASSIGN_OR_RETURN(ranks[peer], DecodeGlooBootstrap(bootstraps[peer], peer, size()));
  }
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (aborted()) return absl::AbortedError("Connect");
    if (SteadyNow() >= deadline) return PeerTimeout(peer, "no time was left to connect");
    const std::string& address = ranks[peer].addresses[rank()];
    const absl::Status status = GlooCall("connect", [&] {
      context_->getPair(peer)->connect(std::vector<char>(address.begin(), address.end()));
      sentinels_[peer] = context_->createUnboundBuffer(nullptr, 0);
      sentinels_[peer]->recv(peer, kSentinelSlot, 0, 0);
    });
    if (!status.ok()) return Lost(peer, status);
  }
  return Greet(GroupFingerprint(bootstraps), deadline);
}

absl::Status GlooCommunicator::Greet(uint64_t group, absl::Time deadline) {
  std::vector<Greeting> ours(size()), theirs(size());
  for (int32_t peer = 0; peer < size(); ++peer) ours[peer] = {group, rank(), peer};
  const absl::Status status = SwapGreetings(ours, theirs, deadline);
  // The greetings are destroyed when this function returns. After a failure Gloo may still use
  // some, so the pairs are closed first.
  if (!status.ok()) Leave();
  RETURN_IF_ERROR(status);
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Greeting& g = theirs[peer];
    if (g.group != group || g.from != peer || g.to != rank()) {
      return PeerLost(peer, "the process that connected does not belong to this group");
    }
  }
  return absl::OkStatus();
}

absl::Status GlooCommunicator::SwapGreetings(std::vector<Greeting>& ours,
                                             std::vector<Greeting>& theirs, absl::Time deadline) {
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    RETURN_IF_ERROR(
        Begin({peer, reinterpret_cast<std::byte*>(&theirs[peer]), sizeof(Greeting), true}));
    RETURN_IF_ERROR(
        Begin({peer, reinterpret_cast<std::byte*>(&ours[peer]), sizeof(Greeting), false}));
  }
  return DoJoin(deadline);
}

absl::Status GlooCommunicator::DoStart(absl::Span<const SendMessage> sends,
                                       absl::Span<const ReceiveMessage> receives) {
  // Receives first: a send whose receive is posted needs no second round trip.
  for (const ReceiveMessage& m : receives) {
    SealedMessage& sealed = arriving_.emplace_back(m.peer);
    RETURN_IF_ERROR(Begin({m.peer, m.data, m.bytes, true, &sealed}));
    sealed.slot = NextSlot(m.peer, true);
    RETURN_IF_ERROR(BeginSeal(sealed, true));
  }
  for (const SendMessage& m : sends) {
    RETURN_IF_ERROR(Begin({m.peer, const_cast<std::byte*>(m.data), m.bytes, false}));
    leaving_.emplace_back(m.peer).slot = NextSlot(m.peer, false);
  }
  // The CRCs are computed while the messages move.
  for (size_t i = 0; i < sends.size(); ++i) {
    leaving_[i].seal.Add(sends[i].data, sends[i].bytes);
    RETURN_IF_ERROR(BeginSeal(leaving_[i], false));
  }
  return absl::OkStatus();
}

absl::Status GlooCommunicator::Begin(const GlooPiece& message) {
  int64_t done = 0;
  do {
    GlooPiece piece = message;
    piece.data += done;
    piece.bytes = std::min(message.bytes - done, options_.piece_bytes);
    RETURN_IF_ERROR(BeginPiece(piece, NextSlot(piece.peer, piece.receive)));
    done += piece.bytes;
  } while (done < message.bytes);
  return absl::OkStatus();
}

absl::Status GlooCommunicator::BeginSeal(SealedMessage& sealed, bool receive) {
  auto* const bytes = reinterpret_cast<std::byte*>(&sealed.seal);
  return BeginPiece({sealed.peer, bytes, sizeof(sealed.seal), receive}, sealed.slot);
}

absl::Status GlooCommunicator::BeginPiece(const GlooPiece& piece, uint64_t slot) {
  GlooTransfer transfer{piece, false, nullptr};
  const absl::Status status = GlooCall("transfer", [&] {
    transfer.buffer = context_->createUnboundBuffer(piece.data, piece.bytes);
    if (piece.receive) {
      transfer.buffer->recv(piece.peer, slot, 0, piece.bytes);
    } else {
      transfer.buffer->send(piece.peer, slot, 0, piece.bytes);
    }
  });
  pending_.push_back(std::move(transfer));
  return status.ok() ? status : Lost(piece.peer, status);
}

absl::Status GlooCommunicator::DoJoin(absl::Time deadline) {
  ticker_.Arm(deadline);
  absl::Status status;
  for (GlooTransfer& transfer : pending_) {
    status = Wait(transfer, deadline);
    if (!status.ok()) break;
    if (transfer.sealed == nullptr) continue;
    // The CRC is computed while the next pieces move and this one is still in a cache.
    transfer.sealed->arrived.Add(transfer.data, transfer.bytes);
    CountReceived(transfer.bytes);
  }
  ticker_.Disarm();
  // After an error Gloo may still use the buffers; they are destroyed with the context.
  RETURN_IF_ERROR(status);
  pending_.clear();
  for (const SealedMessage& sealed : arriving_) {
    status.Update(CheckSeal(sealed.peer, sealed.arrived, sealed.seal));
  }
  arriving_.clear();
  leaving_.clear();
  return status;
}

absl::Status GlooCommunicator::Wait(GlooTransfer& transfer, absl::Time deadline) {
  while (!transfer.done) {
    SetWaiting(&transfer);
    // Handles an abort that came while no wait was active.
    const absl::Status status =
        aborted() ? absl::OkStatus() : GlooCall("wait", [&] { transfer.Wait(kForever); });
    SetWaiting(nullptr);
    if (!status.ok()) return Lost(transfer.peer, status);
    if (transfer.done) break;
    if (aborted()) return absl::AbortedError("Join");
    RETURN_IF_ERROR(CheckPeers());
    if (!transfer.done && SteadyNow() >= deadline) {
      return PeerTimeout(transfer.peer,
                         transfer.receive ? "did not send in time" : "did not receive in time");
    }
  }
  return absl::OkStatus();
}

absl::Status GlooCommunicator::CheckPeers() {
  std::vector<absl::Status> peers(size());
  std::vector<bool> checked(size(), false);
  for (GlooTransfer& transfer : pending_) {
    absl::Status& status = peers[transfer.peer];
    if (!checked[transfer.peer]) {
      UnboundBuffer& sentinel = *sentinels_[transfer.peer];
      status = GlooCall("connection", [&] {
        sentinel.abortWaitRecv();
        sentinel.waitRecv(nullptr, kForever);  // Throws, or returns false at once.
      });
      checked[transfer.peer] = true;
    }
    if (!status.ok() && !EndedBefore(transfer)) return Lost(transfer.peer, status);
  }
  return absl::OkStatus();
}

void GlooCommunicator::SetWaiting(GlooTransfer* transfer) {
  MutexLock lock(&mutex_);
  waiting_ = transfer;
}

void GlooCommunicator::Nudge() {
  MutexLock lock(&mutex_);
  if (waiting_ != nullptr) waiting_->Nudge();
}

void GlooCommunicator::Leave() {
  if (context_ == nullptr) return;
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    // A hard close must always proceed, so its errors are ignored.
    (void)GlooCall("close", [&] {
      // nullptr if the pair could not be created.
      if (const auto& pair = context_->getPair(peer); pair != nullptr) pair->close();
    });
  }
}

void GlooCommunicator::DestroyPairs() {
  if (context_ == nullptr) return;
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer != rank()) context_->getPair(peer).reset();
  }
}

// Gloo writes to sockets without MSG_NOSIGNAL, so SIGPIPE would end the process when a peer is
// lost.
void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options) {
  RETURN_IF_ERROR(CheckRank(options.rank, options.size));
  if (options.piece_bytes < 1 || options.connect_timeout < absl::Milliseconds(1)) {
    return absl::InvalidArgumentError("piece_bytes and connect_timeout must be positive");
  }
  ASSIGN_OR_RETURN(const BindAddress address, ResolveBindAddress(options.host, options.interface));
  IgnoreSigpipe();
  std::unique_ptr<Communicator> made;  // Starts its own threads.
  RETURN_IF_ERROR(CannotBegin(GlooCall("bind", [&] {
    made = std::make_unique<GlooCommunicator>(options, MakeGlooDevice(address));
  })));
  return made;
}

}  // namespace annulus
