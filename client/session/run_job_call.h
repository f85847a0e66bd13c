#ifndef ANNULUS_CLIENT_SESSION_RUN_JOB_CALL_H_
#define ANNULUS_CLIENT_SESSION_RUN_JOB_CALL_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"
#include "client/transport/raw_stream.h"
#include "grpcpp/channel.h"

namespace annulus {

// An open RunJob call, to a remote coordinator or one in this process. Thread-safe. Lives until
// on_done has returned.
class RunJobCall {
 public:
  // Called one at a time from any thread, perhaps before RunJobStarter has returned. on_done is the
  // last call and comes once, also after Cancel(). They must not block.
  struct Handlers {
    std::function<void(v1::JobEvent)> on_event;
    std::function<void(absl::Status)> on_done;
  };

  virtual ~RunJobCall() = default;
  // Cancels the call and its job.
  virtual void Cancel() = 0;
};

// Starts a call. `deadline` is on the clock of base/steady_time.h.
using RunJobStarter = std::function<std::shared_ptr<RunJobCall>(
    const v1::RunJobRequest& request, absl::Time deadline, RunJobCall::Handlers handlers)>;

// Starts calls of annulus.v1.Jobs on `coordinator`, with `metadata`.
RunJobStarter RemoteRunJob(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_RUN_JOB_CALL_H_
