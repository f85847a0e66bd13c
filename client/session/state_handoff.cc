#include "client/session/state_handoff.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/error.h"
#include "base/steady_time.h"
#include "client/transport/session_errors.h"
#include "grpcpp/client_context.h"
#include "proto/rpc/callback_threads.h"
#include "proto/rpc/grpc_time.h"

namespace annulus {

bool AwaitsEndOfCall(const v1::RunJobRequest& request, const AttentionSpec& spec) {
  return !request.request_id().empty() || spec.keeps_state() || spec.gradients.release_state;
}

bool MayBeJoined(const v1::RunJobRequest& request) { return !request.request_id().empty(); }

bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error) {
  if (spec.keeps_state()) return absl::IsUnavailable(error);
  return spec.gradients.release_state && CoordinatorDecides(error);
}

bool KeptStateIsUnknown(const AttentionSpec& spec, const absl::Status& error) {
  return spec.keeps_state() && absl::IsUnavailable(error);
}

bool StateIsGone(const absl::Status& status) {
  constexpr absl::string_view kReasons[] = {"STATE_LOST", "STATE_EXPIRED", "STATE_RELEASED",
                                            "STATE_NOT_FOUND"};
  return absl::IsNotFound(status) &&
         std::count(std::begin(kReasons), std::end(kReasons), DetailOf(status).reason) > 0;
}

AttentionSpec WithoutState(AttentionSpec spec) {
  spec.gradients.state.clear();
  spec.gradients.release_state = false;
  return spec;
}

bool MayHaveReleased(const AttentionSpec& spec, const absl::Status& lost,
                     const absl::Status& status) {
  return spec.gradients.release_state && !lost.ok() && absl::IsNotFound(status) &&
         DetailOf(status).reason == "STATE_RELEASED";
}

HandoffStep ResolveUnconfirmedJob(const v1::Job& job, bool rows_are_here) {
  if (job.state() < v1::Job::STATE_SUCCEEDED) return HandoffStep::kCancel;
  if (job.kept_state().status() != v1::KeptState::STATUS_HELD) return HandoffStep::kNothing;
  return rows_are_here ? HandoffStep::kUse : HandoffStep::kRelease;
}

StateHandoffCall::StateHandoffCall(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata,
                                   std::string job_id, bool rows_are_here)
    : stub_(std::move(coordinator)),
      metadata_(std::move(metadata)),
      job_id_(std::move(job_id)),
      may_be_used_(rows_are_here) {
  ask_.set_job_id(job_id_);
  cancel_.set_job_id(job_id_);
  release_.set_job_id(job_id_);
}

void StateHandoffCall::Start(absl::Duration limit, Done done) {
  KeepCallbackThreads();
  deadline_ = SteadyNow() + limit;
  done_ = std::move(done);
  Do(Step::kAsk);
}

void StateHandoffCall::Cancel() {
  MutexLock lock(&mutex_);
  may_be_used_ = false;
}

bool StateHandoffCall::MayBeUsed() {
  MutexLock lock(&mutex_);
  return may_be_used_;
}

void StateHandoffCall::Do(Step step) {
  const auto context = std::make_shared<grpc::ClientContext>();
  // The connection has just broken; wait for the new one.
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

void StateHandoffCall::OnAnswer(Step step, bool ok) {
  if (!ok || step == Step::kRelease) return Finish(std::nullopt);
  switch (ResolveUnconfirmedJob(job_, MayBeUsed())) {
    case HandoffStep::kUse:
      return Finish(std::move(job_));
    case HandoffStep::kRelease:
      return Do(Step::kRelease);
    case HandoffStep::kCancel:
      return step == Step::kAsk ? Do(Step::kCancel) : Finish(std::nullopt);
    case HandoffStep::kNothing:
      return Finish(std::nullopt);
  }
}

void StateHandoffCall::Finish(std::optional<v1::Job> job) {
  const Done done = std::move(done_);
  done(std::move(job));
}

}  // namespace annulus
