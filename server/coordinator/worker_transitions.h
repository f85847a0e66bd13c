#ifndef ANNULUS_SERVER_COORDINATOR_WORKER_TRANSITIONS_H_
#define ANNULUS_SERVER_COORDINATOR_WORKER_TRANSITIONS_H_

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Membership: registration, leases, fencing, leaving.

// The decision about a Register, without its effects.
struct RegistrationVerdict {
  enum class Kind : uint8_t {
    kRefuse,     // End the connection with `refusal`.
    kReconnect,  // A live incarnation has a new stream.
    kReplace,    // A new incarnation; the live one of its slot is lost.
    kAccept,     // A new incarnation in a free slot.
  };
  Kind kind = Kind::kRefuse;
  absl::Status refusal;
  int64_t present = 0;  // The live worker of the slot; 0: none.
};

// `event` carries a Register.
RegistrationVerdict JudgeRegistration(const CoordinatorTables& tables,
                                      const control::v1::WorkerEvent& event);

// The highest term that the worker has seen, by its Register.
int64_t HighestTermOf(const control::v1::WorkerEvent& event);

// Handles a message of a worker. The first message of a connection must be Register. Events of
// another term and repeated numbers change nothing. A number that skips one ends the connection,
// and the worker sends again.
void OnWorkerReported(CoordinatorTables& tables, const event::WorkerReported& said);

// The stream is over. The worker is suspect at once, and lost when its lease runs out.
void OnWorkerGone(CoordinatorTables& tables, int64_t connection);

// Checks the lease.
void OnWorkerTimer(CoordinatorTables& tables, int64_t worker);

// The incarnation is lost: its groups abort, its jobs run again, its connection ends with
// `farewell`.
void LoseWorker(CoordinatorTables& tables, int64_t worker, absl::string_view cause,
                const absl::Status& farewell);

// Sends Drain to leaving workers that hold nothing any more. Called at the end of every event.
void ReleaseLeaving(CoordinatorTables& tables);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_WORKER_TRANSITIONS_H_
