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

// All that a worker decides: a deterministic state machine, (event, now) → actions. It owns the
// tables of shards and groups, the link's rules, the lease and the way out. Tensors, threads,
// streams and communicators are elsewhere, and answer with events. What belongs to an older term,
// attempt, incarnation or generation changes nothing. One thread.
class AgentState {
 public:
  struct Options {
    // What this worker says of itself. The agent fills in incarnation, key, highest term, shards
    // and groups.
    std::function<control::v1::Register()> self;
    LinkState::Options link;
    // A new incarnation and ticket key, random.
    std::function<Identity()> new_identity;
    // Longest time from SIGTERM to the end of the process.
    absl::Duration drain_timeout = absl::Seconds(30);
    // How long the coordinator need not know that a solo shard is complete, or has its outputs:
    // what comes after says it too.
    absl::Duration patience = absl::Milliseconds(5);
  };

  explicit AgentState(Options options);

  // What to do first, before any event.
  AgentActions Start(absl::Time now);
  AgentActions Handle(const AgentEvent& event, absl::Time now);
  // When to call Handle(Ticked) at the latest.
  absl::Time NextWake() const;

  // For tests.
  size_t shards() const { return shards_.size(); }
  size_t groups() const { return groups_.size(); }
  bool connected() const { return link_.up(); }
  bool fenced() const { return fenced_; }
  bool exited() const { return exited_; }

 private:
  // How far a shard has come. A stage is entered once, in this order, though some are skipped.
  // A delivered solo shard is being freed without a command, a closing one because of one.
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
  void On(const Ticked&, absl::Time) {}  // What time brings, every event does.
  void On(const Terminated& event, absl::Time now);

  void Obey(const control::v1::WorkerCommand& command);
  void Reserve(const control::v1::Reserve& reserve);
  void Prepare(const ShardId& id);
  void Drop(const ShardId& id);
  void ObeyGroup(const control::v1::WorkerCommand& command);
  void EndGroup(const GroupId& id, const control::v1::WorkerCommand& command);

  struct Shard {
    Stage stage = Stage::kUploading;
    bool solo = false;
    bool keep = false;  // Until it is dropped, also when it is drained.
    std::optional<annulus::v1::ShardReport> untold_report;  // Of outputs,
    absl::Time ready;                                       // there since then.
  };

  // The shard that a report is about, where the report may still change something.
  Shard* Open(const control::v1::ShardKey& key);
  void ReportShard(const control::v1::WorkerEvent& fact, absl::Time now);
  void TellLater(const control::v1::ShardKey& key, absl::Time now);
  bool HasUntold(const ShardId& id) const;
  // Tells where it stands of a shard that has something untold.
  void TellNow(const ShardId& id, absl::Time now);
  // Tells where solo shards stand whose patience is over.
  void TellUntold(absl::Time now);
  void ReportGroup(const control::v1::WorkerEvent& fact);
  void Tell(control::v1::WorkerEvent fact);

  // Lets go of everything and takes a new identity: the coordinator counts this worker lost, or
  // soon will.
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
  int64_t stream_ = 0;  // Of the control stream that counts; none has it after it was given up.
  Identity identity_;
  std::map<ShardId, Shard> shards_;
  std::deque<std::pair<absl::Time, ShardId>> untold_;  // Solo shards, and till when.
  std::map<GroupId, GroupStage> groups_;
  // Shards and groups of an earlier incarnation are still on their way out: no new stream
  // meanwhile.
  bool fenced_ = false;
  bool asked_to_leave_ = false;
  bool leaving_ = false;  // SIGTERM, or Drain.
  bool drain_received_ = false;
  absl::Time leave_at_ = absl::InfiniteFuture();  // At the latest.
  absl::Time alone_at_ = absl::InfiniteFuture();  // No longer waiting for the coordinator's Drain.
  bool exited_ = false;
  AgentActions actions_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_STATE_H_
