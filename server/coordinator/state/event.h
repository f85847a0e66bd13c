#ifndef ANNULUS_SERVER_COORDINATOR_STATE_EVENT_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_EVENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/attention.pb.h"
#include "annulus/v1/jobs.pb.h"
#include "base/log.h"
#include "server/coordinator/state/command.h"
#include "server/coordinator/state/job_plan.h"
#include "server/coordinator/state/submission.h"

namespace annulus {

// Events and actions of the coordinator. They are plain values, so that gRPC, unit tests and the
// simulation drive the same state machine. `call` and `connection` are numbers above 0. The driver
// chooses them and never reuses them.
namespace event {

// A message of a worker's stream, or its end.
struct WorkerReported {
  int64_t connection = 0;
  control::v1::WorkerEvent event;
};
struct WorkerGone {
  int64_t connection = 0;
};

// Requests of clients. `deadline` is the call's own, by the clock that gives `now`.
struct RunJob {
  int64_t call = 0;
  std::string principal;
  std::shared_ptr<const Submission> submission;
  absl::Time deadline = absl::InfiniteFuture();
  int64_t caller_bytes = 0;  // Bytes of the request, kept by the caller while it follows the job.
};
struct PlanJob {
  int64_t call = 0;
  std::string principal;
  std::shared_ptr<const Submission> submission;
};
struct WatchJob {
  int64_t call = 0;
  std::string principal, job_id;
};
struct GetJob {
  int64_t call = 0;
  std::string principal, job_id;
};
struct CancelJob {
  int64_t call = 0;
  std::string principal, job_id;
};
struct ReleaseState {
  int64_t call = 0;
  std::string principal, job_id;
};
struct ListJobs {
  int64_t call = 0;
  std::string principal;
  v1::ListJobsRequest request;
};
struct GetServerInfo {
  int64_t call = 0;
};
// A streaming call was cancelled, or its client is gone or too slow.
struct CallGone {
  int64_t call = 0;
};

// The answer to action::MakePlan.
struct Planned {
  int64_t plan = 0;
  PlanResult result;
};
// Time has passed: NextWakeup() asked for a call of Handle.
struct Tick {};
// SIGTERM: no new jobs. action::Stopped follows when the last job is over.
struct Drain {};

}  // namespace event

using Event = std::variant<event::WorkerReported, event::WorkerGone, event::RunJob, event::PlanJob,
                           event::WatchJob, event::GetJob, event::CancelJob, event::ReleaseState,
                           event::ListJobs, event::GetServerInfo, event::CallGone, event::Planned,
                           event::Tick, event::Drain>;

namespace action {

// To a worker, in order.
struct SendCommand {
  int64_t connection = 0;
  Command command;
};
// Ends a worker's stream after everything that was sent before. Its later events are ignored.
struct CloseConnection {
  int64_t connection = 0;
  absl::Status status;
};

// To a RunJob or WatchJob call, in order. FinishCall is the last action of a call.
struct SendEvent {
  int64_t call = 0;
  v1::JobEvent event;
};
struct FinishCall {
  int64_t call = 0;
  absl::Status status;
};
// Ends a unary call.
using AnswerValue = std::variant<v1::Job, v1::ListJobsResponse, v1::Plan, v1::ServerInfo>;
struct Answer {
  int64_t call = 0;
  absl::StatusOr<AnswerValue> value;
};

// Make a plan elsewhere and answer with event::Planned. Plans of jobs go before dry runs; quick
// plans have their own thread.
struct MakePlan {
  int64_t plan = 0;
  PlanRequest request;
  bool dry_run = false, quick = false;
};
// The plan is not needed any more and need not be made.
struct ForgetPlan {
  int64_t plan = 0;
};
// True if the coordinator accepts jobs.
struct SetReady {
  bool ready = false;
};
struct Stopped {};
struct Log {
  LogLevel level = LogLevel::kInfo;
  std::string job, text;
  std::shared_ptr<const JobPlan> plan;  // Logged after `text`, at kDebug with rejections.
};

}  // namespace action

using Action = std::variant<action::SendCommand, action::CloseConnection, action::SendEvent,
                            action::FinishCall, action::Answer, action::MakePlan,
                            action::ForgetPlan, action::SetReady, action::Stopped, action::Log>;

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_EVENT_H_
