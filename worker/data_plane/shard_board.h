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
#include "attention/spec/received_ranges.h"
#include "base/mutex.h"
#include "proto/wire/ticket.h"
#include "worker/agent/agent_values.h"
#include "worker/data_plane/data_call.h"
#include "worker/data_plane/ended_shards.h"
#include "worker/data_plane/rate_floor.h"
#include "worker/staging/staged_shard.h"

namespace annulus {

// Which shards this worker holds and which calls are at them: where the agent's commands and the
// clients' calls meet. A call may come before its Reserve and waits for it. Bounded in calls, waits
// and memory of what has ended. Thread-safe; never blocks.
class ShardBoard {
 public:
  struct Options {
    std::function<absl::Time()> now;  // Never set back or forward.
    // The time of day. It need not agree with the coordinator's: it only tells whether a ticket
    // that opens nothing is old.
    std::function<absl::Time()> wall;
    // ShardComplete, ShardAbandoned, OutputDrained; each once a shard. Called without a lock, on
    // any thread.
    std::function<void(control::v1::WorkerEvent)> report;
    RateLimits rate;
    absl::Duration ticket_wait = absl::Seconds(10);   // Longest wait of a call for its ticket.
    absl::Duration reserve_wait = absl::Seconds(10);  // Longest wait of a ticket for its Reserve.
    // How long outputs wait for a client, beside the time that they take at the rate's floor.
    absl::Duration download_lease = absl::Seconds(60);
    size_t max_calls = 1024;
    // Of them calls at one shard: two of each of the 64 that may follow a job.
    size_t max_shard_calls = 128;
    // Of them calls that have shown no good ticket yet; for one more the oldest of them ends.
    size_t max_strangers = 256;
  };
  enum class Stage { kReserved, kOutputs };

  explicit ShardBoard(Options options);

  // The agent's side. Tickets are judged by the newest identity.
  void SetIdentity(const Identity& identity);
  struct Times {
    absl::Duration upload;  // In which it must be complete.
    // Of outputs, from Publish; absent: Options::download_lease.
    std::optional<absl::Duration> download;
  };
  void Open(const ShardId& id, const std::string& principal, std::shared_ptr<StagedShard> shard,
            const Times& times);
  // The outputs are there. They took what `report` says.
  void Publish(const ShardId& id, const v1::ShardReport& report);
  // Ends the shard's calls; its memory goes when they have let go of it.
  void Close(const ShardId& id, const absl::Status& why);
  // Looks for clients that stall and waits that are over. To be called about once a second.
  void Tick();
  // Ends every call, and refuses new ones: the process is ending.
  void Shutdown(const absl::Status& why);

  // The calls' side. A call whose ticket comes later: counted, and ended where none comes in time.
  // RESOURCE_EXHAUSTED / TOO_MANY_CALLS, DEADLINE_EXCEEDED / UPLOAD_STALLED.
  void Enter(std::shared_ptr<DataCall> call);
  // Its ticket, answered as Join is; nothing where it has left meanwhile.
  void Present(DataCall* call, absl::string_view ticket, Stage stage);
  // Both at once. Answers with OnShard or End, perhaps before it returns. PERMISSION_DENIED /
  // BAD_TICKET, FAILED_PRECONDITION / TICKET_EXPIRED, NOT_FOUND / SHARD_NOT_FOUND, ABORTED /
  // JOB_ENDED, RESOURCE_EXHAUSTED / TOO_MANY_CALLS.
  void Join(std::shared_ptr<DataCall> call, absl::string_view ticket, Stage stage);
  void Leave(DataCall* call);
  // The shard's inputs are all there.
  void Completed(const ShardId& id);
  // A client has these cells of output `tensor` (index in the shape).
  void Delivered(const ShardId& id, const std::vector<std::pair<size_t, CellRect>>& cells);

  const Options& options() const { return options_; }
  size_t calls() const;
  // More than half of the places for calls, or for those without a ticket, are taken.
  bool crowded() const;

 private:
  struct Entry {
    std::string principal;
    std::shared_ptr<StagedShard> shard;
    absl::Time deadline;  // Of the upload, then of the download.
    absl::Duration download_time;
    bool completed = false, published = false, drained = false, abandoned = false;
    v1::ShardReport report;                 // Of what was published.
    std::vector<ReceivedRanges> delivered;  // By tensor.
  };
  struct Guest {
    std::shared_ptr<DataCall> call;
    bool has_ticket = false;  // Without one, what follows says nothing but the deadline.
    ShardId id;
    TicketClaims claims;
    Stage stage = Stage::kReserved;
    bool waiting = true, stalled = false;
    absl::Time deadline = absl::InfiniteFuture();  // Of a wait for the ticket, then for Reserve.
  };
  // A guest that Tick found too late, unless that has changed when it looks again.
  struct Late {
    std::shared_ptr<DataCall> call;
    absl::Status why;
    bool waited = false;  // For its ticket or Reserve; else its client has stalled.
  };
  using Later = std::vector<std::function<void()>>;  // When the lock is released.

  absl::Status Admit(const std::shared_ptr<DataCall>& call, Later* later) REQUIRES(mutex_);
  size_t CallsAt(const std::optional<ShardId>& id) const REQUIRES(mutex_);  // Or with no ticket.
  // Ends the one that has waited longest.
  void DismissStranger(Later* later) REQUIRES(mutex_);
  absl::Status TakeTicket(Guest* guest, absl::string_view ticket, Stage stage, Later* later)
      REQUIRES(mutex_);
  bool Expired(const TicketClaims& claims) const { return options_.wall() > claims.expiry; }
  absl::Status TooLate(const Guest& guest) const;
  // Gives a guest its shard where what it waits for is there.
  void Seat(Guest* guest, Later* later) REQUIRES(mutex_);
  void ReportLater(control::v1::WorkerEvent event, Later* later) const;
  void Abandon(const ShardId& id, Entry* entry, const absl::Status& why, Later* later)
      REQUIRES(mutex_);
  void Complete(const ShardId& id, Entry* entry, Later* later) REQUIRES(mutex_);
  std::vector<Late> FindLate(absl::Time now) const EXCLUDES(mutex_);
  void EndLate(const std::vector<Late>& late, absl::Time now, Later* later) REQUIRES(mutex_);
  bool GoesOn(const ShardId& id, Stage stage) const REQUIRES(mutex_);
  // The entry's deadline has passed.
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
