#include "client/cli/made_job.h"

#include <utility>

#include "base/status_macros.h"
#include "client/cli/verify/lse_probe.h"

namespace annulus {

absl::StatusOr<AttendJob> MakeJob(JobRequest request) {
  if (request.synthetic.has_value()) return AttendJob::Synthetic(request.spec, *request.synthetic);
  ASSIGN_OR_RETURN(AttendJob job,
                   AttendJob::FromFile(*std::move(request.file), request.spec, request.shape));
  if (job.LeavesLseBaseOpen() && !request.says_lse_base) {
    RETURN_IF_ERROR(CheckLseOfFew(job.spec(), job.tensors()));
  }
  return job;
}

}  // namespace annulus
