#ifndef ANNULUS_WORKER_AGENT_AGENT_STATE_H_
#define ANNULUS_WORKER_AGENT_AGENT_STATE_H_

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "worker/agent/agent_values.h"
#include "worker/agent/link_state.h"

namespace annulus {

// All decisions of a worker, as a deterministic state machine: (event, now) → actions. Owns the
// tables of shards and groups, the rules of the control link, the lease and the exit. Tensors,
// threads, streams and communicators are outside and report with events. Events of an older term,
// attempt, incarnation or generation have no effect. Not thread-safe.
class AgentState {
 public:
  struct Options {
    // The worker's Register message. AgentState adds incarnation, key, highest term, shards and
    // groups.
    std::function<control::v1::Register()> self;
    LinkState::Options link;
    // Makes a random incarnation and ticket key.
    std::function<Identity()> new_identity;
    // Longest time from SIGTERM to the end of the process.
    absl::Duration drain_timeout = absl::Seconds(30);
    // How long a report that a solo shard is complete, or has outputs, may be delayed. The next
    // report includes it.
    absl::Duration patience = absl::Milliseconds(5);
  };

  explicit AgentState(Options options);

  // The first actions. Call before any event.
  AgentActions Start(absl::Time now);
  AgentActions Handle(const AgentEvent& event, absl::Time now);
  // The latest time at which to call Handle(Ticked).
  absl::Time NextWake() const;

  // For tests.
  size_t shards() const { return shards_.size(); }
  size_t groups() const { return groups_.size(); }
  bool connected() const { return link_.up(); }
  bool fenced() const { return fenced_; }
  bool exited() const { return exited_; }

 private:
  // Progress of a shard. It enters each stage at most once, in this order, and may skip some.
  // kFreeing: a delivered solo shard, freed without a command. kClosing: closed by a command.
  enum class Stage {
    kUploading,
    kComplete,
    kPreparing,
    kPrepared,
    kReady,
    kDrained,
    kFreeing,
    kClosing
  };
  enum class GroupStage { kOpening, kOpened, kConnecting, kConnected, kBroken, kClosing };

  // Each appends to actions_.
  void On(const CommandArrived& event, absl::Time now);
  void On(const LinkClosed& event, absl::Time now);
  void On(const Reported& event, absl::Time now);
  void On(const ShardFreed& event, absl::Time now);
  void On(const Ticked&, absl::Time) {}  // Handle does the timed work after every event.
  void On(const Terminated& event, absl::Time now);

  void Execute(const control::v1::WorkerCommand& command);
  void Reserve(const control::v1::Reserve& reserve);
  void Prepare(const ShardId& id);
  void Drop(const ShardId& id);
  void ObeyGroup(const control::v1::WorkerCommand& command);
  void EndGroup(const GroupId& id, const control::v1::WorkerCommand& command);

  struct Shard {
    Stage stage = Stage::kUploading;
    bool solo = false;
    bool keep = false;  // Stays until it is dropped, even if its outputs are delivered.
    // The report of outputs that the coordinator does not have yet.
    std::optional<annulus::v1::ShardReport> untold_report;
    absl::Time ready;  // The time at which these outputs were ready.
  };

  // The shard that a report is about; nullptr if it is gone or being freed or closed.
  Shard* Open(const control::v1::ShardKey& key);
  void ReportShard(const control::v1::WorkerEvent& fact, absl::Time now);
  void TellLater(const control::v1::ShardKey& key, absl::Time now);
  bool HasUntold(const ShardId& id) const;
  // Reports the state of a shard whose report was delayed.
  void TellNow(const ShardId& id, absl::Time now);
  // Sends the delayed reports of solo shards whose patience is over.
  void TellUntold(absl::Time now);
  void ReportGroup(const control::v1::WorkerEvent& fact);
  void Tell(control::v1::WorkerEvent fact);

  // Closes all shards and groups and takes a new identity: the coordinator counts this worker as
  // lost, or soon will.
  void Fence(absl::Time now, const std::string& why);
  void CloseAll(const absl::Status& why);
  void Welcome();
  void RunLink(absl::Time now);
  void GiveStreamUp();
  void SendRegister();
  void LeaveIfDone(absl::Time now);
  bool Idle() const { return shards_.empty(); }

  template <typename Action>
  void Do(Action action) {
    actions_.emplace_back(std::move(action));
  }

  const Options options_;
  LinkState link_;
  // The number of the current control stream. No stream has it after the stream was given up.
  int64_t stream_ = 0;
  Identity identity_;
  std::map<ShardId, Shard> shards_;
  // Solo shards with a delayed report, and when it is due.
  std::deque<std::pair<absl::Time, ShardId>> unreported_;
  std::map<GroupId, GroupStage> groups_;
  // True while shards and groups of an earlier incarnation are being closed. No new stream
  // meanwhile.
  bool fenced_ = false;
  bool asked_to_leave_ = false;
  bool leaving_ = false;  // True after SIGTERM or Drain.
  bool drain_received_ = false;
  absl::Time leave_at_ = absl::InfiniteFuture();  // The latest time of the exit.
  // After this time the worker no longer waits for the coordinator's Drain.
  absl::Time alone_at_ = absl::InfiniteFuture();
  bool exited_ = false;
  AgentActions actions_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_STATE_H_
