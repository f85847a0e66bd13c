#include "tests/worker/comm/in_process.h"

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker/comm/communicator_base.h"

namespace annulus {

// State shared by the ranks. One lock; the mover thread copies without it.
class InProcessHub::State {
 public:
  explicit State(const Options& options)
      : options_(options), random_(options.seed), ranks_(options.size) {
    mover_ = std::thread([this] { MoveMessages(); });
  }
  ~State() {
    {
      MutexLock lock(&mutex_);
      stop_ = true;
      mover_wakes_.Signal();
    }
    mover_.join();
  }

  int32_t size() const { return options_.size; }

  // Waits until every rank has connected.
  absl::Status Connect(int32_t rank, absl::Time deadline) EXCLUDES(mutex_);
  absl::Status Post(int32_t rank, absl::Span<const SendMessage> sends,
                    absl::Span<const ReceiveMessage> receives) EXCLUDES(mutex_);
  // Waits for the step of `rank`. Returns the bytes received.
  absl::StatusOr<int64_t> Join(int32_t rank, absl::Time deadline) EXCLUDES(mutex_);
  void Interrupt(int32_t rank) EXCLUDES(mutex_);
  bool Waits(int32_t rank) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return ranks_[rank].joining;
  }
  // The mover's part before a step of `rank`.
  absl::Status BeginStep(int32_t rank) {
    return options_.mover == nullptr ? absl::OkStatus() : options_.mover->BeginStep(rank);
  }
  // Withdraws messages that `rank` posted, fails waiting peers, and waits for copies in progress.
  void Leave(int32_t rank) EXCLUDES(mutex_);

 private:
  struct Message {
    int32_t source = 0, target = 0;
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };
  // Unmatched sends and receives of an ordered pair.
  struct Link {
    std::deque<SendMessage> sends;
    std::deque<ReceiveMessage> receives;
  };
  struct Rank {
    bool connected = false;
    bool gone = false;
    bool interrupted = false;
    bool joining = false;
    int64_t waiting = 0;  // Messages of the open step that have not moved.
    int64_t copying = 0;  // Messages that the mover is copying.
    int64_t received = 0;
    absl::Status failure;
    CondVar changed;
  };

  void MoveMessages() EXCLUDES(mutex_);
  void Match(int32_t source, int32_t target) REQUIRES(mutex_);
  void Move(const Message& message) EXCLUDES(mutex_);
  void Fail(int32_t rank, const absl::Status& failure) REQUIRES(mutex_);
  // DEADLINE_EXCEEDED with a peer that `rank` still waits for.
  absl::Status Timeout(int32_t rank) REQUIRES(mutex_);
  Link& LinkOf(int32_t source, int32_t target) REQUIRES(mutex_) { return links_[{source, target}]; }

  const Options options_;
  Mutex mutex_;
  CondVar mover_wakes_;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  std::vector<Rank> ranks_ GUARDED_BY(mutex_);
  std::map<std::pair<int32_t, int32_t>, Link> links_ GUARDED_BY(mutex_);
  std::multimap<absl::Time, Message> due_ GUARDED_BY(mutex_);
  std::thread mover_;
};

absl::Status InProcessHub::State::Connect(int32_t rank, absl::Time deadline) {
  MutexLock lock(&mutex_);
  Rank& self = ranks_[rank];
  self.connected = true;
  for (Rank& other : ranks_) other.changed.SignalAll();
  bool in_time = true;
  for (;;) {
    int32_t missing = -1;
    for (int32_t r = 0; r < size(); ++r) {
      if (ranks_[r].gone) return PeerLost(r, "gone before the group was connected");
      if (!ranks_[r].connected) missing = r;
    }
    if (missing < 0) return absl::OkStatus();
    if (self.interrupted) return absl::AbortedError("Connect");
    if (!in_time) return PeerTimeout(missing, "did not connect in time");
    in_time = self.changed.WaitFor(&mutex_, deadline - SteadyNow());
  }
}

absl::Status InProcessHub::State::Post(int32_t rank, absl::Span<const SendMessage> sends,
                                       absl::Span<const ReceiveMessage> receives) {
  MutexLock lock(&mutex_);
  for (const SendMessage& m : sends) {
    if (ranks_[m.peer].gone) return PeerLost(m.peer, "left the group");
  }
  for (const ReceiveMessage& m : receives) {
    if (ranks_[m.peer].gone) return PeerLost(m.peer, "left the group");
  }
  ranks_[rank].waiting = static_cast<int64_t>(sends.size() + receives.size());
  ranks_[rank].received = 0;
  for (const ReceiveMessage& m : receives) {
    LinkOf(m.peer, rank).receives.push_back(m);
    Match(m.peer, rank);
  }
  for (const SendMessage& m : sends) {
    LinkOf(rank, m.peer).sends.push_back(m);
    Match(rank, m.peer);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InProcessHub::State::Join(int32_t rank, absl::Time deadline) {
  MutexLock lock(&mutex_);
  Rank& self = ranks_[rank];
  bool in_time = true;
  while (self.waiting > 0) {
    if (self.interrupted) return absl::AbortedError("Join");
    RETURN_IF_ERROR(self.failure);
    if (!in_time) return Timeout(rank);
    self.joining = true;
    in_time = self.changed.WaitFor(&mutex_, deadline - SteadyNow());
    self.joining = false;
  }
  return self.received;
}

void InProcessHub::State::Interrupt(int32_t rank) {
  MutexLock lock(&mutex_);
  ranks_[rank].interrupted = true;
  ranks_[rank].changed.SignalAll();
}

void InProcessHub::State::Leave(int32_t rank) {
  MutexLock lock(&mutex_);
  Rank& self = ranks_[rank];
  self.gone = true;
  const absl::Status lost = PeerLost(rank, "left the group");
  for (auto& [pair, link] : links_) {
    const auto [source, target] = pair;
    if (source == rank && !link.receives.empty()) Fail(target, lost);
    if (target == rank && !link.sends.empty()) Fail(source, lost);
    if (source == rank || target == rank) link = Link();
  }
  for (auto it = due_.begin(); it != due_.end();) {
    const Message& m = it->second;
    const bool ours = m.source == rank || m.target == rank;
    if (ours) Fail(m.source == rank ? m.target : m.source, lost);
    it = ours ? due_.erase(it) : std::next(it);
  }
  for (Rank& other : ranks_) other.changed.SignalAll();
  while (self.copying > 0) self.changed.Wait(&mutex_);
}

void InProcessHub::State::Fail(int32_t rank, const absl::Status& failure) {
  ranks_[rank].failure.Update(failure);
  ranks_[rank].changed.SignalAll();
}

absl::Status InProcessHub::State::Timeout(int32_t rank) {
  for (const auto& [pair, link] : links_) {
    if (pair.second == rank && !link.receives.empty()) {
      return PeerTimeout(pair.first, "did not send in time");
    }
    if (pair.first == rank && !link.sends.empty()) {
      return PeerTimeout(pair.second, "did not receive in time");
    }
  }
  for (const auto& [due, m] : due_) {
    if (m.target == rank) return PeerTimeout(m.source, "its message is late");
    if (m.source == rank) return PeerTimeout(m.target, "the message to it is late");
  }
  return absl::DeadlineExceededError("the step's transfers did not end in time");
}

void InProcessHub::State::Match(int32_t source, int32_t target) {
  Link& link = LinkOf(source, target);
  while (!link.sends.empty() && !link.receives.empty()) {
    const SendMessage send = link.sends.front();
    const ReceiveMessage receive = link.receives.front();
    link.sends.pop_front();
    link.receives.pop_front();
    if (send.bytes != receive.bytes) {
      const absl::Status wrong = absl::InternalError(
          absl::StrCat("rank ", source, " sends ", send.bytes, " bytes to rank ", target,
                       ", which expects ", receive.bytes));
      Fail(source, wrong);
      Fail(target, wrong);
      return;
    }
    const int64_t most = absl::ToInt64Nanoseconds(options_.max_delay);
    const int64_t delay = most == 0 ? 0 : static_cast<int64_t>(random_() % most);
    due_.emplace(SteadyNow() + absl::Nanoseconds(delay),
                 Message{source, target, send.data, receive.data, send.bytes});
    mover_wakes_.Signal();
  }
}

void InProcessHub::State::MoveMessages() {
  for (;;) {
    Message message;
    {
      MutexLock lock(&mutex_);
      while (!stop_ && (due_.empty() || due_.begin()->first > SteadyNow())) {
        const absl::Time next = due_.empty() ? absl::InfiniteFuture() : due_.begin()->first;
        mover_wakes_.WaitFor(&mutex_, next - SteadyNow());
      }
      if (stop_) return;
      message = due_.begin()->second;
      due_.erase(due_.begin());
      ++ranks_[message.source].copying;
      ++ranks_[message.target].copying;
    }
    Move(message);
  }
}

// Without the lock, so that a thread sanitizer detects every use of a message's memory that Start
// and Join do not order.
void InProcessHub::State::Move(const Message& message) {
  absl::Status moved;
  if (message.bytes > 0 && options_.mover != nullptr) {
    moved = options_.mover->Move(message.source, message.target, message.from, message.to,
                                 message.bytes);
  } else if (message.bytes > 0) {
    std::memcpy(message.to, message.from, message.bytes);
  }
  MutexLock lock(&mutex_);
  if (moved.ok()) ranks_[message.target].received += message.bytes;
  for (const int32_t r : {message.source, message.target}) {
    if (moved.ok())
      --ranks_[r].waiting;
    else
      Fail(r, moved);
    --ranks_[r].copying;
    ranks_[r].changed.SignalAll();
  }
}

namespace {

class InProcessCommunicator final : public CommunicatorBase {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessHub::State> hub, int32_t rank)
      : CommunicatorBase(rank, hub->size()), hub_(std::move(hub)) {}
  ~InProcessCommunicator() override { hub_->Leave(rank()); }

 private:
  std::string BytesOf(int32_t rank) const {
    return absl::StrCat("in_process/", reinterpret_cast<uintptr_t>(hub_.get()), "/", rank);
  }

  absl::StatusOr<std::string> DoBootstrap() override { return BytesOf(rank()); }

  absl::Status DoConnect(absl::Span<const std::string> bootstraps, absl::Time deadline) override {
    for (int32_t r = 0; r < size(); ++r) {
      if (bootstraps[r] != BytesOf(r)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the bootstrap bytes of rank ", r, " are not of this group"));
      }
    }
    return hub_->Connect(rank(), deadline);
  }

  absl::Status DoStart(absl::Span<const SendMessage> sends,
                       absl::Span<const ReceiveMessage> receives) override {
    RETURN_IF_ERROR(hub_->BeginStep(rank()));
    return hub_->Post(rank(), sends, receives);
  }

  absl::Status DoJoin(absl::Time deadline) override {
    ASSIGN_OR_RETURN(const int64_t received, hub_->Join(rank(), deadline));
    CountReceived(received);
    return absl::OkStatus();
  }

  void Interrupt() override { hub_->Interrupt(rank()); }
  void Leave() override { hub_->Leave(rank()); }

  const std::shared_ptr<InProcessHub::State> hub_;
};

}  // namespace

InProcessHub::InProcessHub(const Options& options) : state_(std::make_shared<State>(options)) {}
InProcessHub::~InProcessHub() = default;

bool InProcessHub::Waits(int32_t rank) const { return state_->Waits(rank); }

std::unique_ptr<Communicator> InProcessHub::MakeCommunicator(int32_t rank) {
  return std::make_unique<InProcessCommunicator>(state_, rank);
}

}  // namespace annulus
