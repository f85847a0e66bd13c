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

// An open RunJob call, wherever the coordinator is. Thread-safe; lives on by itself until on_done
// has returned.
class RunJobCall {
 public:
  // Called one at a time from any thread, perhaps before the call's starter has returned; on_done
  // last and once, also after Cancel(). They must not wait.
  struct Handlers {
    std::function<void(v1::JobEvent)> on_event;
    std::function<void(absl::Status)> on_done;
  };

  virtual ~RunJobCall() = default;
  // The job ends with its call.
  virtual void Cancel() = 0;
};

// Starts a call. `deadline` by base/steady_time.h.
using RunJobStarter = std::function<std::shared_ptr<RunJobCall>(
    const v1::RunJobRequest& request, absl::Time deadline, RunJobCall::Handlers handlers)>;

// Calls of annulus.v1.Jobs on `coordinator`, with `metadata`.
RunJobStarter RemoteRunJob(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_RUN_JOB_CALL_H_
