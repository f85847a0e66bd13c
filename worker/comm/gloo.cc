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
#include "worker/comm/gloo_transfer.h"
#include "worker/comm/message_seal.h"
#include "worker/comm/ticker.h"

namespace annulus {
namespace {

using UnboundBuffer = ::gloo::transport::UnboundBuffer;

// A Gloo wait that times out closes every pair of its context, so none ever does: the ticker
// interrupts it, and Join looks at its own deadline.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24);
constexpr absl::Duration kTick = absl::Milliseconds(25);
// Never used by a message: those count up from 0.
constexpr uint64_t kSentinelSlot = ~uint64_t{0};

// The wall at which Gloo's exceptions end.
template <typename Function>
absl::Status GlooCall(absl::string_view what, Function&& function) {
  try {
    std::forward<Function>(function)();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("gloo ", what, ": ", e.what()));
  }
}

// Gloo's texts, of source files and addresses, are for the log: an error may reach the clients of a
// job.
absl::Status Lost(int32_t peer, const absl::Status& status) {
  LogInfo(kNoJob, "peer ", peer, ": ", status.message());
  return PeerLost(peer, "its connection has failed");
}

absl::Status CannotBegin(const absl::Status& status) {
  if (status.ok()) return status;
  LogInfo(kNoJob, status.message());
  return absl::UnavailableError("Gloo cannot begin; the worker's log says why");
}

// What ranks tell each other on every ordered pair before the first job.
struct Greeting {
  uint64_t group = 0;
  int32_t from = 0, to = 0;
};

// Whether `transfer` had ended before its peer went away. When it had not, the look at it times
// out, and the whole context, which has failed, goes with that.
bool EndedBefore(GlooTransfer& transfer) {
  if (transfer.done) return true;
  const absl::Status looked = GlooCall("look", [&] {
    // Takes back a nudge that came too late for an earlier wait.
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

  // A soft close, so that what is on its way arrives. Buffers are destroyed after it, when Gloo's
  // thread is done with them.
  void DestroyPairs();
  absl::Status Greet(uint64_t group, absl::Time deadline);
  // Sends `ours` and receives `theirs`, by peer.
  absl::Status SwapGreetings(std::vector<Greeting>& ours, std::vector<Greeting>& theirs,
                             absl::Time deadline);
  // Starts the pieces of one message, and what its sender seals it with.
  absl::Status Begin(const GlooPiece& message);
  absl::Status BeginSeal(SealedMessage& sealed, bool receive);
  absl::Status BeginPiece(const GlooPiece& piece, uint64_t slot);
  uint64_t NextSlot(int32_t peer, bool receive) { return (receive ? received_ : sent_)[peer]++; }
  absl::Status Wait(GlooTransfer& transfer, absl::Time deadline) EXCLUDES(mutex_);
  // Names a peer that is gone and still owes a transfer of the open step. (One that waits for a
  // third which is gone goes too, when it finds out.)
  absl::Status CheckPeers();
  // The transfer that Nudge means.
  void SetWaiting(GlooTransfer* transfer) EXCLUDES(mutex_);
  // Makes the wait under way look up.
  void Nudge() EXCLUDES(mutex_);

  const GlooOptions options_;
  // Destroyed from the bottom up: the thread that nudges, the buffers, the context, its device.
  std::shared_ptr<::gloo::transport::tcp::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<uint64_t> sent_, received_;  // Pieces and seals so far, by peer: the next slot.
  // One receive for each peer that never comes. Gloo tells only transfers that have not begun of a
  // lost connection, and one that was cut off in the middle would wait for ever.
  std::vector<std::unique_ptr<UnboundBuffer>> sentinels_;
  std::vector<GlooTransfer> pending_;
  std::deque<SealedMessage> leaving_, arriving_;  // Of the open step.
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
  // The greetings are gone when this returns, and where one of them failed, to begin or later, Gloo
  // still holds on to others.
  if (!status.ok()) Leave();
  RETURN_IF_ERROR(status);
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Greeting& g = theirs[peer];
    if (g.group != group || g.from != peer || g.to != rank()) {
      return PeerLost(peer, "who connected in its place is not of this group");
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
  // Receives first: a send that finds its receive needs no second round trip.
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
  // While they move.
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
    // While the next ones move, and what has come is in a cache.
    transfer.sealed->arrived.Add(transfer.data, transfer.bytes);
    CountReceived(transfer.bytes);
  }
  ticker_.Disarm();
  // After an error Gloo may still hold on to buffers; they go with the context.
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
    // An abort that found nobody waiting shows here.
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
    // A hard close cannot be made to wait, and what it says of errors changes nothing.
    (void)GlooCall("close", [&] {
      // None where it could not be made.
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

// Gloo writes to sockets without MSG_NOSIGNAL: a lost peer would end the process.
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
  std::unique_ptr<Communicator> made;  // With threads of its own.
  RETURN_IF_ERROR(CannotBegin(GlooCall("bind", [&] {
    made = std::make_unique<GlooCommunicator>(options, MakeGlooDevice(address));
  })));
  return made;
}

}  // namespace annulus
