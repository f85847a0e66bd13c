#ifndef ANNULUS_WORKER_DATA_PLANE_SHARD_BOARD_H_
#define ANNULUS_WORKER_DATA_PLANE_SHARD_BOARD_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/received_ranges.h"
#include "base/mutex.h"
#include "proto/wire/ticket.h"
#include "worker/agent/agent_values.h"
#include "worker/data_plane/ended_shards.h"
#include "worker/data_plane/rate_floor.h"
#include "worker/staging/shard_id.h"
#include "worker/staging/staged_shard.h"

namespace annulus {

// A client's call, as ShardBoard uses it. The board holds a reference from Enter or Join to Leave.
// It calls these functions without holding its lock.
class DataCall {
 public:
  virtual ~DataCall() = default;
  // The shard, or its outputs, that the call waits for are there. `report` is set with outputs.
  virtual void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
                       const v1::ShardReport& report) = 0;
  // Ends the call now: the job has ended, or a wait took too long. May be called at any time and
  // more than once.
  virtual void End(const absl::Status& why) = 0;
  // An error if the client keeps this worker waiting too long; otherwise nullopt.
  virtual std::optional<absl::Status> Stalled(absl::Time now) = 0;
};

// The shards of this worker, and the clients' calls on them. The agent's commands (Open, Publish,
// Close) and the calls (DataCall) meet here.
//
// Life of a shard:
// 1. Open, when the worker has executed a Reserve. The deadline of the upload starts.
// 2. PutCalls write inputs to its StagedShard. The call that completes them calls Completed; the
//    board reports ShardComplete to the coordinator.
// 3. A lane runs the shard. Publish makes its outputs available. The deadline of the download
//    starts.
// 4. FetchCalls read outputs and call Delivered. When all are delivered, the board reports
//    OutputDrained.
// 5. Close, when the coordinator releases the shard or the job ends. Remaining calls end; the last
//    reference frees the memory.
// If a deadline passes, or the last active client stalls, the board reports ShardAbandoned once.
//
// Life of a call:
// 1. Enter: no ticket yet; the call is a "stranger". DEADLINE_EXCEEDED / UPLOAD_STALLED after
//    ticket_wait.
// 2. Present: the ticket is verified (signature, incarnation). If there is no such shard yet, the
//    call waits for reserve_wait: a client may be faster than the coordinator's Reserve.
// 3. OnShard: the board gives the call its shard (Stage::kReserved) or its outputs
//    (Stage::kOutputs; waits for Publish without a limit).
// 4. Leave.
//
// Errors of a ticket, in the order of checks: BAD_TICKET (signature or incarnation), for an ended
// shard TICKET_EXPIRED or JOB_ENDED, TOO_MANY_CALLS at one shard, BAD_TICKET (principal or size
// differs), and after the wait TICKET_EXPIRED or SHARD_NOT_FOUND.
//
// Example: worker with rank 1 of job J. PutShard with a ticket of (J, attempt 1, rank 1) arrives 5
// ms before the Reserve. Its call waits. Open(J, 1, 1) gives it the shard. After the last chunk,
// Completed reports ShardComplete. A FetchShard arrives early and waits for Publish.
//
// Bounded in calls, waits and memory of ended shards. Thread-safe; never blocks. Actions on calls
// run after the lock is released (Later).
class ShardBoard {
 public:
  struct Options {
    std::function<absl::Time()> now;  // A monotonic clock.
    // The time of day. It may differ from the coordinator's: it only decides the error of a ticket
    // that opens nothing.
    std::function<absl::Time()> wall;
    // Receives ShardComplete, ShardAbandoned and OutputDrained, each once per shard. Called without
    // a lock, on any thread.
    std::function<void(control::v1::WorkerEvent)> report;
    RateLimits rate;
    absl::Duration ticket_wait = absl::Seconds(10);   // Longest wait of a call for its ticket.
    absl::Duration reserve_wait = absl::Seconds(10);  // Longest wait of a ticket for its Reserve.
    // Longest wait of outputs for a client, in addition to their transfer time at the floor rate.
    absl::Duration download_lease = absl::Seconds(60);
    size_t max_calls = 1024;
    // Limit of calls on one shard: two for each of the 64 clients that may follow a job.
    size_t max_shard_calls = 128;
    // Limit of calls without a valid ticket. One more call ends the oldest of them.
    size_t max_strangers = 256;
  };
  enum class Stage { kReserved, kOutputs };

  explicit ShardBoard(Options options);

  // For the agent. Tickets are verified against the latest identity.
  void SetIdentity(const Identity& identity);
  struct Times {
    absl::Duration upload;  // Limit of the upload.
    // Limit of the download after Publish. nullopt: Options::download_lease.
    std::optional<absl::Duration> download;
  };
  void Open(const ShardId& id, const std::string& principal, std::shared_ptr<StagedShard> shard,
            const Times& times);
  // Makes the outputs available, with `report` of the run.
  void Publish(const ShardId& id, const v1::ShardReport& report);
  // Ends the shard's calls. The memory is freed when they have released it.
  void Close(const ShardId& id, const absl::Status& why);
  // Ends calls whose client stalls or whose wait is over. Call about once a second.
  void Tick();
  // Ends all calls and refuses new ones, because the process ends.
  void Shutdown(const absl::Status& why);

  // For calls. Admits a call that will present its ticket later. RESOURCE_EXHAUSTED /
  // TOO_MANY_CALLS; DEADLINE_EXCEEDED / UPLOAD_STALLED if no ticket comes in time.
  void Enter(std::shared_ptr<DataCall> call);
  // Presents the call's ticket. Answers as Join does. No effect if the call has left.
  void Present(DataCall* call, absl::string_view ticket, Stage stage);
  // Enter and Present in one. Answers with OnShard or End, possibly before it returns.
  // PERMISSION_DENIED / BAD_TICKET, FAILED_PRECONDITION / TICKET_EXPIRED, NOT_FOUND /
  // SHARD_NOT_FOUND, ABORTED / JOB_ENDED, RESOURCE_EXHAUSTED / TOO_MANY_CALLS.
  void Join(std::shared_ptr<DataCall> call, absl::string_view ticket, Stage stage);
  void Leave(DataCall* call);
  // All inputs of the shard have arrived.
  void Completed(const ShardId& id);
  // A client has received these cells of output `tensor` (index in the shape).
  void Delivered(const ShardId& id, const std::vector<std::pair<size_t, CellRect>>& cells);

  const Options& options() const { return options_; }
  size_t calls() const;
  // True if more than half of the places are taken, for all calls or for calls without a ticket.
  bool crowded() const;

 private:
  struct Entry {
    std::string principal;
    std::shared_ptr<StagedShard> shard;
    absl::Time deadline;  // Deadline of the upload, then of the download.
    absl::Duration download_time;
    bool completed = false, published = false, drained = false, abandoned = false;
    v1::ShardReport report;                 // The report of Publish.
    std::vector<ReceivedRanges> delivered;  // Indexed by tensor.
  };
  struct Guest {
    std::shared_ptr<DataCall> call;
    bool has_ticket = false;  // If false, the members below are unset, except the deadline.
    ShardId id;
    TicketClaims claims;
    Stage stage = Stage::kReserved;
    bool waiting = true, stalled = false;
    // Deadline of the wait for the ticket, then for the Reserve.
    absl::Time deadline = absl::InfiniteFuture();
  };
  // A call that Tick found late. Checked again under the lock.
  struct Late {
    std::shared_ptr<DataCall> call;
    absl::Status why;
    // True if its wait for the ticket or Reserve is over; false if its client has stalled.
    bool waited = false;
  };
  using Later = std::vector<std::function<void()>>;  // Actions to run after the lock is released.

  absl::Status Admit(const std::shared_ptr<DataCall>& call, Later* later) REQUIRES(mutex_);
  // The number of calls on shard `id`. nullopt: calls without a ticket.
  size_t CallsAt(const std::optional<ShardId>& id) const REQUIRES(mutex_);
  // Ends the call without a ticket that has waited longest.
  void DismissStranger(Later* later) REQUIRES(mutex_);
  absl::Status TakeTicket(Guest* guest, absl::string_view ticket, Stage stage, Later* later)
      REQUIRES(mutex_);
  bool Expired(const TicketClaims& claims) const { return options_.wall() > claims.expiry; }
  absl::Status TooLate(const Guest& guest) const;
  // Calls OnShard if the guest's shard, or its outputs, are there.
  void Seat(Guest* guest, Later* later) REQUIRES(mutex_);
  void ReportLater(control::v1::WorkerEvent event, Later* later) const;
  void Abandon(const ShardId& id, Entry* entry, const absl::Status& why, Later* later)
      REQUIRES(mutex_);
  void Complete(const ShardId& id, Entry* entry, Later* later) REQUIRES(mutex_);
  std::vector<Late> FindLate(absl::Time now) const EXCLUDES(mutex_);
  void EndLate(const std::vector<Late>& late, absl::Time now, Later* later) REQUIRES(mutex_);
  bool GoesOn(const ShardId& id, Stage stage) const REQUIRES(mutex_);
  // Ends the entry's calls and abandons it: its deadline has passed.
  void Expire(const ShardId& id, Entry* entry, Later* later) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  Identity identity_ GUARDED_BY(mutex_);
  std::map<ShardId, Entry> entries_ GUARDED_BY(mutex_);
  std::map<DataCall*, Guest> guests_ GUARDED_BY(mutex_);
  EndedShards ended_ GUARDED_BY(mutex_);
  absl::Status shutdown_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_SHARD_BOARD_H_
