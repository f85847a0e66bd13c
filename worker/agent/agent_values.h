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
// Of a command that is for a lane.
GroupId GroupOf(const control::v1::WorkerCommand& command);

// What is said of a shard: ShardEvent(&WorkerEvent::mutable_dropped, id).
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

// UNAVAILABLE / DRAINING: what ends the calls of a worker that goes away. Others may take the job.
inline absl::Status LeavingError() {
  return MakeError(absl::StatusCode::kUnavailable, "the worker is leaving",
                   {"DRAINING", {}, {}, absl::Seconds(1)});
}

// Who a worker process is to the coordinator and its clients, until it fences itself.
struct Identity {
  std::string incarnation;
  std::string ticket_key;  // Never logged.
};

// What happens to the agent. Everything that it knows of the world comes in one of these, one after
// the other.
struct CommandArrived {
  int64_t stream = 0;  // Connect::stream of the control stream that it came by.
  control::v1::WorkerCommand command;
};
// The control stream is gone, or could not be opened.
struct LinkClosed {
  int64_t stream = 0;
  absl::Status status;
};
// A fact from the data plane or the lanes: an event without term, ack and id.
struct Reported {
  control::v1::WorkerEvent fact;
};
// The last byte of a shard that was closed has been given back.
struct ShardFreed {
  ShardId id;
};
// Time has come: NextWake() has passed.
struct Ticked {};
// SIGTERM; a second one cuts the drain short.
struct Terminated {
  bool asked = true;  // Else the worker leaves by itself: who asks then asks for the first time.
};
using AgentEvent =
    std::variant<CommandArrived, LinkClosed, Reported, ShardFreed, Ticked, Terminated>;

// What the agent wants done, in this order. None is answered at once: answers come back as events.
// Opens a control stream; an older one is given up.
struct Connect {
  int64_t stream = 0;  // Its number: another one each time.
};
struct Disconnect {};
struct Send {  // On the open stream.
  control::v1::WorkerEvent event;
};
struct OpenShard {  // Answered by ShardComplete or ShardFailed, in time; then, where it is solo, by
                    // OutputReady or ShardFailed with no further word.
  control::v1::Reserve reserve;
};
struct PrepareShard {  // Answered by Prepared or ShardFailed.
  ShardId id;
};
struct CloseShard {  // Ends its calls and its run. Answered by ShardFreed.
  ShardId id;
  absl::Status why;
};
struct CommandGroup {  // OpenGroup, ConnectGroup, RunSegment, CloseGroup or AbortGroup: for the
                       // lane.
  control::v1::WorkerCommand command;
};
struct TakeIdentity {  // Tickets of the old one are void.
  Identity identity;
};
struct SetReady {  // What health checks say.
  bool ready = false;
};
struct Exit {  // What was sent before still goes out.
  int code = 0;
  std::string why;
};
using AgentAction = std::variant<Connect, Disconnect, Send, OpenShard, PrepareShard, CloseShard,
                                 CommandGroup, TakeIdentity, SetReady, Exit>;
using AgentActions = std::vector<AgentAction>;

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_VALUES_H_
