#ifndef ANNULUS_WORKER_AGENT_AGENT_VALUES_H_
#define ANNULUS_WORKER_AGENT_AGENT_VALUES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "base/error.h"
#include "worker/staging/shard_id.h"

namespace annulus {

inline ShardId IdOf(const control::v1::ShardKey& key) {
  return {key.job_id(), key.attempt(), key.rank()};
}
inline control::v1::ShardKey KeyOf(const ShardId& id) {
  control::v1::ShardKey key;
  key.set_job_id(id.job_id);
  key.set_attempt(id.attempt);
  key.set_rank(id.rank);
  return key;
}

// A generation as a key of tables: term, then number.
using GroupId = std::pair<int64_t, int64_t>;
inline GroupId IdOf(const control::v1::Generation& generation) {
  return {generation.term(), generation.number()};
}
inline control::v1::Generation GenerationOf(const GroupId& id) {
  control::v1::Generation generation;
  generation.set_term(id.first);
  generation.set_number(id.second);
  return generation;
}
// The group of a command for a lane.
GroupId GroupOf(const control::v1::WorkerCommand& command);

// An event about a shard, for example ShardEvent(&WorkerEvent::mutable_dropped, id).
template <typename Fact>
control::v1::WorkerEvent ShardEvent(Fact* (control::v1::WorkerEvent::*fact)(), const ShardId& id) {
  control::v1::WorkerEvent event;
  *(event.*fact)()->mutable_shard() = KeyOf(id);
  return event;
}
control::v1::WorkerEvent ShardFailedEvent(const ShardId& id, const absl::Status& why);

inline absl::Status JobEndedError(absl::string_view why) {
  return MakeError(absl::StatusCode::kAborted, why, {"JOB_ENDED", {}, {}, {}});
}

// UNAVAILABLE / DRAINING: ends the calls of a worker that exits. Other workers may take the job.
inline absl::Status LeavingError() {
  return MakeError(absl::StatusCode::kUnavailable, "the worker is leaving",
                   {"DRAINING", {}, {}, absl::Seconds(1)});
}

// Identifies a worker process to the coordinator and to clients until it fences itself.
struct Identity {
  std::string incarnation;
  std::string ticket_key;  // Never logged.
};

// Events, the only input of AgentState. A command from the coordinator:
struct CommandArrived {
  int64_t stream = 0;  // The Connect::stream of the control stream that delivered the command.
  control::v1::WorkerCommand command;
};
// The control stream has ended, or could not be opened.
struct LinkClosed {
  int64_t stream = 0;
  absl::Status status;
};
// A report of the data plane or the lanes: an event without term, ack and id.
struct Reported {
  control::v1::WorkerEvent fact;
};
// All memory of a closed shard has been returned.
struct ShardFreed {
  ShardId id;
};
// NextWake() has passed.
struct Ticked {};
// SIGTERM. A second one ends the drain early.
struct Terminated {
  // False if the worker exits by itself; then a later SIGTERM counts as the first.
  bool asked = true;
};
using AgentEvent =
    std::variant<CommandArrived, LinkClosed, Reported, ShardFreed, Ticked, Terminated>;

// Actions of AgentState, executed in order. Results come back as events. Opens a control stream;
// replaces an older one:
struct Connect {
  int64_t stream = 0;  // A new number for each stream.
};
struct Disconnect {};
struct Send {  // Sends on the open stream.
  control::v1::WorkerEvent event;
};
// Answered by ShardComplete or ShardFailed. A solo shard then runs without a further command and is
// answered by OutputReady or ShardFailed.
struct OpenShard {
  control::v1::Reserve reserve;
};
struct PrepareShard {  // Answered by Prepared or ShardFailed.
  ShardId id;
};
struct CloseShard {  // Ends the shard's calls and its run. Answered by ShardFreed.
  ShardId id;
  absl::Status why;
};
// OpenGroup, ConnectGroup, RunSegment, CloseGroup or AbortGroup, for the lane.
struct CommandGroup {
  control::v1::WorkerCommand command;
};
struct TakeIdentity {  // Makes tickets of the old identity invalid.
  Identity identity;
};
struct SetReady {  // Sets the result of health checks.
  bool ready = false;
};
struct Exit {  // Events sent before are still written.
  int code = 0;
  std::string why;
};
using AgentAction = std::variant<Connect, Disconnect, Send, OpenShard, PrepareShard, CloseShard,
                                 CommandGroup, TakeIdentity, SetReady, Exit>;
using AgentActions = std::vector<AgentAction>;

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_VALUES_H_
