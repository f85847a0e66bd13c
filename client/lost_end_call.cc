#include "client/lost_end_call.h"

#include <utility>

#include "base/steady_time.h"
#include "grpcpp/client_context.h"
#include "proto/callback_threads.h"
#include "proto/grpc_time.h"

namespace annulus {

LostEndCall::LostEndCall(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata,
                         std::string job_id, bool rows_are_here)
    : stub_(std::move(coordinator)),
      metadata_(std::move(metadata)),
      job_id_(std::move(job_id)),
      may_be_used_(rows_are_here) {
  ask_.set_job_id(job_id_);
  cancel_.set_job_id(job_id_);
  release_.set_job_id(job_id_);
}

void LostEndCall::Start(absl::Duration limit, Done done) {
  KeepCallbackThreads();
  deadline_ = SteadyNow() + limit;
  done_ = std::move(done);
  Do(Step::kAsk);
}

void LostEndCall::Cancel() {
  MutexLock lock(&mutex_);
  may_be_used_ = false;
}

bool LostEndCall::MayBeUsed() {
  MutexLock lock(&mutex_);
  return may_be_used_;
}

void LostEndCall::Do(Step step) {
  const auto context = std::make_shared<grpc::ClientContext>();
  // The connection broke just now, and a new one is on its way.
  context->set_wait_for_ready(true);
  context->set_deadline(absl::ToChronoTime(TimeOfDay(deadline_)));
  for (const auto& [key, value] : metadata_) context->AddMetadata(key, value);
  job_.Clear();
  const auto answered = [self = shared_from_this(), context, step](const grpc::Status& status) {
    self->OnAnswer(step, status.ok());
  };
  switch (step) {
    case Step::kAsk:
      return stub_.async()->GetJob(context.get(), &ask_, &job_, answered);
    case Step::kCancel:
      return stub_.async()->CancelJob(context.get(), &cancel_, &job_, answered);
    case Step::kRelease:
      return stub_.async()->ReleaseState(context.get(), &release_, &job_, answered);
  }
}

void LostEndCall::OnAnswer(Step step, bool ok) {
  if (!ok || step == Step::kRelease) return Finish(std::nullopt);
  switch (AfterLostEnd(job_, MayBeUsed())) {
    case LostEnd::kUse:
      return Finish(std::move(job_));
    case LostEnd::kRelease:
      return Do(Step::kRelease);
    case LostEnd::kCancel:
      return step == Step::kAsk ? Do(Step::kCancel) : Finish(std::nullopt);
    case LostEnd::kNothing:
      return Finish(std::nullopt);
  }
}

void LostEndCall::Finish(std::optional<v1::Job> job) {
  const Done done = std::move(done_);
  done(std::move(job));
}

}  // namespace annulus
