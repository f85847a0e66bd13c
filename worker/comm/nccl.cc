#include "worker/comm/nccl.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker/comm/communicator_base.h"
#include "worker/comm/nccl_bootstrap.h"
#include "worker/comm/nccl_error_text.h"

namespace annulus {
namespace {

constexpr int32_t kNoPeer = -1;
constexpr int kBusyPolls = 2000;
constexpr auto kPause = std::chrono::microseconds(20);
// Start waits at most this long until NCCL has queued the step, so that it is ahead of the kernels
// that follow.
constexpr absl::Duration kLaunchWait = absl::Milliseconds(1);

// Less than one allocation of NCCL for a peer.
constexpr int64_t kLittleMemory = int64_t{8} << 20;

// Content of the first message from rank `from` to rank `to`.
uint64_t Greeting(int32_t from, int32_t to) {
  return 0x9e3779b97f4a7c15u * static_cast<uint64_t>(from * 4096 + to + 1);
}

class NcclCommunicator final : public CommunicatorBase {
 public:
  explicit NcclCommunicator(const NcclOptions& options)
      : CommunicatorBase(options.rank, options.size),
        options_(options),
        api_(options.api),
        device_(options.device),
        cuda_(options.device->context()->api()) {}

  ~NcclCommunicator() override {
    if (comm_ != nullptr && !step_open() && Flush()) Destroy();
    Leave();
    if (id_waits_ && options_.lost_ids != nullptr) options_.lost_ids->Add();
    for (CudaEvent event : {ready_, moved_}) {
      if (event != nullptr) (void)cuda_->EventDestroy(event);
    }
  }

 private:
  using Condition = absl::StatusOr<bool>;

  absl::StatusOr<std::string> DoBootstrap() override {
    own_.version = api_->Version();
    words_before_ = api_->LastError(nullptr);
    if (rank() == 0 && size() > 1) {
      const NcclResult result = api_->GetUniqueId(&own_.id);
      // The device's own error is not read, because another thread may be using the device.
      if (result != kNcclSuccess) return OwnFailure(result, Text(result, "cannot make an id"));
      id_waits_ = true;
    }
    // A group of one rank needs no id.
    if (rank() == 0) own_.id.resize(kNcclIdBytes);
    return own_.Encoded(rank());
  }

  absl::Status DoConnect(absl::Span<const std::string> bootstraps, absl::Time deadline) override;
  absl::Status DoStart(absl::Span<const SendMessage> sends,
                       absl::Span<const ReceiveMessage> receives) override;
  absl::Status DoJoin(absl::Time deadline) override;
  // The owner thread checks for an abort in every wait.
  void Interrupt() override {}
  void Leave() override;

  // Exchanges one message on each ordered pair, since NCCL connects a pair and allocates its memory
  // at its first message.
  absl::Status Greet(absl::Time deadline);
  absl::Status Queue(absl::Span<const SendMessage> sends,
                     absl::Span<const ReceiveMessage> receives);
  absl::Status Complete(absl::Time deadline);

  // Polls until `done` returns true. Also checks NCCL's errors, the abort and the deadline.
  template <typename Done>
  absl::Status WaitUntil(absl::Time deadline, const Done& done);
  // True if NCCL has finished its last asynchronous call.
  Condition NcclIsThrough();
  Condition Reached(CudaEvent event);
  bool Flush();
  void Destroy();
  void AbortAll();
  std::string Text(NcclResult result, absl::string_view what) const;
  // The error of a failure that no peer can have caused.
  absl::Status OwnFailure(NcclResult result, const std::string& text) const;
  absl::Status FailureOf(NcclResult result, const std::string& text) const;
  // Like FailureOf, but also asks the device for its error. Owner thread.
  absl::Status Failure(NcclResult result, absl::string_view what) const;
  absl::Status Late() const;
  // No code is loaded onto the device between CloseGate and OpenGate.
  void CloseGate();
  void OpenGate();

  const NcclOptions options_;
  NcclApi* const api_;
  CudaDevice* const device_;
  CudaApi* const cuda_;
  NcclBootstrap own_;
  bool id_waits_ = false;     // True while the id waits for ranks that have not connected.
  std::string words_before_;  // NCCL's last error text before this communicator.
  NcclComm comm_ = nullptr;
  DeviceMemory greeting_;  // Held until the greeting is complete or its transfers have ended.
  // Events: all work before the open step is done; the step is done.
  CudaEvent ready_ = nullptr, moved_ = nullptr;
  bool queued_ = false;  // True if the open step has non-empty messages.
  bool gate_closed_ = false;
  int64_t step_bytes_ = 0;
  int32_t only_peer_ = kNoPeer;  // The open step's peer, if it has only one.
};

std::string NcclCommunicator::Text(NcclResult result, absl::string_view what) const {
  std::string text = absl::StrCat("NCCL: ", what, ": ", api_->ErrorText(result));
  const std::string words = api_->LastError(comm_);
  const bool of_device = result == kNcclUnhandledCudaError;
  if (comm_ != nullptr || of_device || words != words_before_) absl::StrAppend(&text, " ", words);
  return text;
}

absl::Status NcclCommunicator::OwnFailure(NcclResult result, const std::string& text) const {
  const std::string words = api_->LastError(comm_);
  const bool of_device = result == kNcclUnhandledCudaError;
  // NCCL keeps its last text when a communicator goes, and a lost peer may leave no new text.
  const bool of_host = result == kNcclSystemError && words != words_before_;
  if ((of_device || of_host) && IsNcclOutOfMemory(words)) return NcclOutOfMemory(text);
  if (of_host && IsNcclHostLimit(words)) return NcclHostLimit(text);
  return absl::InternalError(text);
}

absl::Status NcclCommunicator::FailureOf(NcclResult result, const std::string& text) const {
  absl::Status own = OwnFailure(result, text);
  const bool may_be_a_peer = result == kNcclRemoteError || result == kNcclSystemError;
  if (!may_be_a_peer || !absl::IsInternal(own)) return own;
  if (only_peer_ != kNoPeer) return PeerLost(only_peer_, text);
  return MakeError(absl::StatusCode::kUnavailable, text,
                   {std::string(kReasonPeerLost), {}, {}, {}});
}

absl::Status NcclCommunicator::Failure(NcclResult result, absl::string_view what) const {
  const std::string text = Text(result, what);
  if (result == kNcclUnhandledCudaError) {
    RETURN_IF_ERROR(device_->MakeCurrent());
    if (moved_ != nullptr) {
      const CudaError error = cuda_->EventQuery(moved_);
      if (error != kCudaNotReady) RETURN_IF_ERROR(device_->Check(error, text));
    }
    int64_t free = 0;
    RETURN_IF_ERROR(device_->Check(cuda_->MemoryFree(&free), text));
    if (free < kLittleMemory) return NcclOutOfMemory(text);
  }
  return FailureOf(result, text);
}

absl::Status NcclCommunicator::Late() const {
  if (only_peer_ != kNoPeer) return PeerTimeout(only_peer_, "did not answer in time");
  return MakeError(absl::StatusCode::kDeadlineExceeded, "NCCL: some rank did not answer in time",
                   {std::string(kReasonStepTimeout), {}, {}, {}});
}

void NcclCommunicator::CloseGate() {
  if (!std::exchange(gate_closed_, true)) device_->context()->load_gate()->BeginMessages();
}

void NcclCommunicator::OpenGate() {
  if (std::exchange(gate_closed_, false)) device_->context()->load_gate()->EndMessages();
}

template <typename Done>
absl::Status NcclCommunicator::WaitUntil(absl::Time deadline, const Done& done) {
  for (int poll = 0;; ++poll) {
    ASSIGN_OR_RETURN(const bool yes, done());
    if (yes) return absl::OkStatus();
    (void)device_->KernelsDone();  // Records the time at which the kernels were done.
    if (aborted()) return absl::AbortedError("while NCCL was at work");
    NcclResult state = kNcclSuccess;
    const NcclResult asked = api_->AsyncError(comm_, &state);
    if (asked != kNcclSuccess) return Failure(asked, "its state");
    if (state != kNcclSuccess && state != kNcclInProgress) return Failure(state, "a transfer");
    if (SteadyNow() >= deadline) return Late();
    if (poll >= kBusyPolls) std::this_thread::sleep_for(kPause);
  }
}

NcclCommunicator::Condition NcclCommunicator::NcclIsThrough() {
  NcclResult state = kNcclSuccess;
  const NcclResult asked = api_->AsyncError(comm_, &state);
  if (asked != kNcclSuccess) return Failure(asked, "its state");
  if (state != kNcclSuccess && state != kNcclInProgress) return Failure(state, "a call");
  return state == kNcclSuccess;
}

NcclCommunicator::Condition NcclCommunicator::Reached(CudaEvent event) {
  const CudaError error = cuda_->EventQuery(event);
  if (error == kCudaNotReady) return false;
  RETURN_IF_ERROR(device_->Check(error, "a transfer"));
  return true;
}

absl::Status NcclCommunicator::DoConnect(absl::Span<const std::string> bootstraps,
                                         absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::string id, NcclIdOf(bootstraps, own_, rank()));
  if (size() == 1) return absl::OkStatus();
  only_peer_ = size() == 2 ? 1 - rank() : kNoPeer;
  RETURN_IF_ERROR(device_->MakeCurrent());
  RETURN_IF_ERROR(device_->Check(cuda_->EventCreate(&ready_), "an event"));
  RETURN_IF_ERROR(device_->Check(cuda_->EventCreate(&moved_), "an event"));
  CloseGate();
  // CommInit may set comm_ even if it fails.
  const NcclResult result = api_->CommInit(&comm_, size(), id, rank());
  if (result != kNcclSuccess && result != kNcclInProgress) {
    return Failure(result, "cannot begin a communicator");
  }
  RETURN_IF_ERROR(WaitUntil(deadline, [this] { return NcclIsThrough(); }));
  id_waits_ = false;
  return Greet(deadline);
}

absl::Status NcclCommunicator::Greet(absl::Time deadline) {
  constexpr int64_t kBytes = sizeof(uint64_t);
  const int64_t half = size() * kBytes;
  std::vector<uint64_t> words(2 * size());
  ASSIGN_OR_RETURN(greeting_, device_->Allocate(2 * half));
  std::byte* const memory = greeting_.get();
  std::vector<SendMessage> sends;
  std::vector<ReceiveMessage> receives;
  for (int32_t peer = 0; peer < size(); ++peer) {
    words[peer] = Greeting(rank(), peer);
    if (peer == rank()) continue;
    sends.push_back({peer, memory + peer * kBytes, kBytes});
    receives.push_back({peer, memory + half + peer * kBytes, kBytes});
  }
  auto* const host = reinterpret_cast<std::byte*>(words.data());
  RETURN_IF_ERROR(device_->CopyIn({memory, 2 * half, host, 2 * half, 2 * half, 1}));
  RETURN_IF_ERROR(Queue(sends, receives));
  RETURN_IF_ERROR(Complete(deadline));
  RETURN_IF_ERROR(device_->CopyOut({host, 2 * half, memory, 2 * half, 2 * half, 1}));
  RETURN_IF_ERROR(device_->Synchronize());
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (peer != rank() && words[size() + peer] != Greeting(peer, rank())) {
      return absl::InternalError(absl::StrCat("NCCL: wrong bytes from rank ", peer));
    }
  }
  greeting_.reset();
  return absl::OkStatus();
}

absl::Status NcclCommunicator::DoStart(absl::Span<const SendMessage> sends,
                                       absl::Span<const ReceiveMessage> receives) {
  queued_ = false;
  only_peer_ = kNoPeer;
  step_bytes_ = 0;
  std::vector<int32_t> peers;
  for (const SendMessage& m : sends) {
    if (m.bytes > 0) peers.push_back(m.peer);
  }
  for (const ReceiveMessage& m : receives) {
    if (m.bytes > 0) peers.push_back(m.peer);
    step_bytes_ += m.bytes;
  }
  if (peers.empty()) return absl::OkStatus();
  const bool one =
      std::all_of(peers.begin(), peers.end(), [&](int32_t peer) { return peer == peers.front(); });
  if (one) only_peer_ = peers.front();
  return Queue(sends, receives);
}

absl::Status NcclCommunicator::Queue(absl::Span<const SendMessage> sends,
                                     absl::Span<const ReceiveMessage> receives) {
  CloseGate();
  const CudaStream stream = device_->transfers();
  ASSIGN_OR_RETURN(const CudaStream compute, device_->Compute());
  RETURN_IF_ERROR(device_->Check(cuda_->EventRecord(ready_, compute), "an event's record"));
  RETURN_IF_ERROR(device_->OrderAfter(stream));
  NcclResult result = api_->GroupStart();
  if (result != kNcclSuccess) return Failure(result, "cannot begin a step");
  const auto keep = [&result](NcclResult next) {
    if (result == kNcclSuccess && next != kNcclInProgress) result = next;
  };
  for (const SendMessage& m : sends) {
    if (m.bytes > 0) keep(api_->Send(comm_, m.data, m.bytes, m.peer, stream));
  }
  for (const ReceiveMessage& m : receives) {
    if (m.bytes > 0) keep(api_->Receive(comm_, m.data, m.bytes, m.peer, stream));
  }
  keep(api_->GroupEnd());
  if (result != kNcclSuccess) return Failure(result, "cannot start a step");
  queued_ = true;
  const absl::Time end = SteadyNow() + kLaunchWait;
  return WaitUntil(absl::InfiniteFuture(), [&]() -> Condition {
    ASSIGN_OR_RETURN(const bool through, NcclIsThrough());
    return through || SteadyNow() >= end;
  });
}

absl::Status NcclCommunicator::DoJoin(absl::Time deadline) {
  if (queued_) RETURN_IF_ERROR(Complete(deadline));
  CountReceived(step_bytes_);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Complete(absl::Time deadline) {
  RETURN_IF_ERROR(device_->MakeCurrent());
  const absl::Duration allowed = deadline - SteadyNow();
  // No deadline here: this is only this rank's own work, and the watchdog limits it.
  RETURN_IF_ERROR(WaitUntil(absl::InfiniteFuture(), [this] { return Reached(ready_); }));
  const absl::Time end = std::max(deadline, SteadyNow() + allowed);
  // Until then NCCL owns the stream; not even an event may be recorded on it.
  RETURN_IF_ERROR(WaitUntil(end, [this] { return NcclIsThrough(); }));
  RETURN_IF_ERROR(
      device_->Check(cuda_->EventRecord(moved_, device_->transfers()), "an event's record"));
  RETURN_IF_ERROR(WaitUntil(end, [this] { return Reached(moved_); }));
  OpenGate();
  return absl::OkStatus();
}

bool NcclCommunicator::Flush() {
  if (aborted()) return false;
  CloseGate();
  const NcclResult result = api_->Finalize(comm_);
  if (result != kNcclSuccess && result != kNcclInProgress) return false;
  return WaitUntil(SteadyNow() + options_.flush_timeout, [this] { return NcclIsThrough(); }).ok();
}

void NcclCommunicator::Leave() {
  if (comm_ != nullptr) AbortAll();
  OpenGate();
}

void NcclCommunicator::Destroy() {
  const NcclResult result = api_->Destroy(comm_);
  if (result == kNcclSuccess || result == kNcclInProgress) {
    comm_ = nullptr;
    return;
  }
  // After an error NCCL may leave this thread inside a group of its own. It would then defer all
  // later calls of this thread.
  const NcclResult left = api_->GroupEnd();
  // The thread was not in a group, and CUDA caused the failure: NCCL has freed the communicator, so
  // it must not be aborted.
  if (left == kNcclInvalidUsage && result == kNcclUnhandledCudaError) comm_ = nullptr;
}

void NcclCommunicator::AbortAll() {
  // NCCL's threads read comm_ until Abort returns.
  (void)api_->Abort(comm_);
  comm_ = nullptr;
  // The caller owns the buffers again once the stream is empty. The watchdog handles a hang here.
  if (moved_ == nullptr || !device_->MakeCurrent().ok()) return;
  if (cuda_->EventRecord(moved_, device_->transfers()) != kCudaSuccess) return;
  while (cuda_->EventQuery(moved_) == kCudaNotReady) std::this_thread::sleep_for(kPause);
  greeting_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options) {
  RETURN_IF_ERROR(CheckRank(options.rank, options.size));
  return std::make_unique<NcclCommunicator>(options);
}

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace annulus
