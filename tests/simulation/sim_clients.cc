#include "tests/simulation/sim_clients.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "proto/wire/convert.h"

namespace annulus {

SimClients::SimClients(const CoordinatorOptions& options, int workers, Agenda* agenda,
                       ClientSurroundings* around)
    : options_(options), workers_(workers), agenda_(agenda), around_(around) {}

v1::RunJobRequest SimClients::NewRequest() {
  v1::RunJobRequest request;
  v1::AttentionSpec& spec = *request.mutable_spec();
  spec.set_dtype(v1::DATA_TYPE_FP32);
  spec.set_q_heads(1);
  spec.set_kv_heads(1);
  spec.set_head_dim(2);
  // Many sequences make a request that is planned elsewhere.
  const int64_t sequences = agenda_->Chance(0.15) ? options_.inline_plan_sequences + 1 : 1;
  for (int64_t i = 0; i < sequences; ++i) {
    v1::Sequence* sequence = spec.add_sequences();
    const int64_t rows = agenda_->Chance(0.1) ? 0 : 1 + agenda_->Below(i == 0 ? 60 : 2);
    sequence->set_q_len(rows);
    sequence->set_kv_len(rows);
  }
  if (agenda_->Chance(0.6)) {
    request.mutable_execution()->set_world_size(1 + static_cast<int32_t>(agenda_->Below(workers_)));
  }
  request.mutable_execution()->set_priority(static_cast<int32_t>(agenda_->Below(3)));
  request.set_detached(agenda_->Chance(0.15));
  request.set_single_attempt(agenda_->Chance(0.3));
  if (request.detached()) *request.mutable_result_ttl() = DurationToProto(absl::Seconds(5));
  if (agenda_->Chance(0.3)) {
    *request.mutable_timeout() = DurationToProto(absl::Milliseconds(1 + agenda_->Below(8000)));
  }
  if (agenda_->Chance(0.2)) {
    request.mutable_spec()->set_arithmetic(v1::AttentionSpec::ARITHMETIC_BF16X3);
  }
  if (agenda_->Chance(0.25)) {
    *request.mutable_spec()->mutable_forward()->mutable_keep_state() =
        DurationToProto(absl::Milliseconds(1 + agenda_->Below(10000)));
  }
  return request;
}

// Gradients of a job that keeps, has kept or will keep its state.
v1::RunJobRequest SimClients::NewGradients() {
  const auto& [job_id, forward] = kept_[agenda_->Below(kept_.size())];
  v1::RunJobRequest request = forward;
  request.mutable_spec()->clear_arithmetic();
  v1::Gradients& gradients = *request.mutable_spec()->mutable_gradients();
  gradients.set_state(job_id);
  gradients.set_release_state(agenda_->Chance(0.4));
  if (agenda_->Chance(0.9)) request.mutable_execution()->clear_world_size();
  if (agenda_->Chance(0.05)) request.mutable_spec()->set_scale(2);
  return request;
}

void SimClients::Submit() {
  v1::RunJobRequest request;
  if (!kept_.empty() && agenda_->Chance(0.5)) {
    request = NewGradients();
  } else if (!named_.empty() && agenda_->Chance(0.3)) {
    request = named_[agenda_->Below(named_.size())];
    // Sometimes with other content.
    if (agenda_->Chance(0.1)) request.mutable_spec()->mutable_sequences(0)->set_q_len(61);
  } else {
    request = NewRequest();
    if (agenda_->Chance(0.3)) {
      request.set_request_id(absl::StrCat("r", ++last_request_));
      named_.push_back(request);
    }
  }
  Send(request);
  // Some do not wait for an answer: they repeat a request whose job is running.
  if (request.request_id().empty() || behave_ || !agenda_->Chance(0.3)) return;
  agenda_->After(agenda_->Delay(absl::Milliseconds(600)), [this, request] { Send(request); });
}

void SimClients::Send(const v1::RunJobRequest& request) {
  auto submission = MakeSubmission(request, options_);
  if (!submission.ok()) return around_->ClientViolation(std::string(submission.status().message()));
  const int64_t number = ++last_call_;
  Call& call = calls_[number];
  call.owner = true;
  call.submission = *submission;
  call.lazy = !behave_ && agenda_->Chance(0.15);
  absl::Time deadline = absl::InfiniteFuture();
  if (agenda_->Chance(0.2)) deadline = agenda_->now() + agenda_->Delay(absl::Seconds(4));
  around_->Tell(event::RunJob{number, "anonymous", *std::move(submission), deadline});
  if (!behave_) Disturb(number);
}

std::string SimClients::AnyJob() {
  return jobs_.empty() || agenda_->Chance(0.1) ? "job-unknown"
                                               : jobs_[agenda_->Below(jobs_.size())];
}

// Random operations of clients on their own jobs and on each other's.
void SimClients::Disturb(int64_t number) {
  if (agenda_->Chance(0.25)) {
    agenda_->After(agenda_->Delay(absl::Milliseconds(1500)), [this, number] {
      if (calls_.erase(number) != 0) around_->Tell(event::CallGone{number});
    });
  }
  if (agenda_->Chance(0.25)) {
    agenda_->After(agenda_->Delay(absl::Milliseconds(1500)), [this] {
      Ask(event::CancelJob{++last_call_, "anonymous", AnyJob()});
    });
  }
  if (agenda_->Chance(0.2)) {
    agenda_->After(agenda_->Delay(absl::Milliseconds(1500)), [this] {
      const bool known = !kept_.empty() && agenda_->Chance(0.7);
      Ask(event::ReleaseState{++last_call_, "anonymous",
                              known ? kept_[agenda_->Below(kept_.size())].first : AnyJob()});
    });
  }
  if (agenda_->Chance(0.3)) {
    agenda_->After(agenda_->Delay(absl::Milliseconds(1500)), [this] { Watch(AnyJob()); });
  }
  if (agenda_->Chance(0.3)) {
    agenda_->After(agenda_->Delay(absl::Milliseconds(1500)), [this] {
      Ask(event::GetJob{++last_call_, "anonymous", AnyJob()});
      LookAround();
    });
  }
}

void SimClients::Ask(Event question) {
  const int64_t number = last_call_;
  asked_.insert(number);
  if (!around_->Tell(std::move(question))) asked_.erase(number);
}

void SimClients::LookAround() {
  Ask(event::ListJobs{++last_call_, "anonymous", {}});
  Ask(event::GetServerInfo{++last_call_});
  PlanJob();
}

// Plans a job, or gradients of one that keeps its state.
void SimClients::PlanJob() {
  const bool gradients = !kept_.empty() && agenda_->Chance(0.5);
  const v1::RunJobRequest request = gradients ? NewGradients() : NewRequest();
  auto submission = MakeSubmission(request, options_);
  if (!submission.ok()) return around_->ClientViolation(std::string(submission.status().message()));
  const int64_t number = ++last_call_;
  Ask(event::PlanJob{number, "anonymous", *std::move(submission)});
  if (behave_ || !agenda_->Chance(0.3)) return;
  // The plan may be in transit to a client that is gone.
  agenda_->After(agenda_->Delay(absl::Milliseconds(100)), [this, number] {
    asked_.erase(number);
    around_->Tell(event::CallGone{number});
  });
}

void SimClients::Watch(const std::string& job_id) {
  const int64_t number = ++last_call_;
  calls_[number] = Call();
  around_->Tell(event::WatchJob{number, "anonymous", job_id});
  if (!agenda_->Chance(0.5)) return;
  agenda_->After(agenda_->Delay(absl::Milliseconds(500)), [this, number] {
    if (calls_.erase(number) != 0) around_->Tell(event::CallGone{number});
  });
}

void SimClients::LoseCalls() {
  calls_.clear();
  asked_.clear();
}

void SimClients::SendShards(int64_t number, Call& call, const v1::Plan& plan) {
  call.attempt = plan.attempt();
  call.endpoints.assign(plan.shards_size(), "");
  for (const v1::ShardPlan& shard : plan.shards()) {
    call.endpoints[shard.rank()] = shard.endpoint();
    if (shard.input_bytes() == 0) continue;
    const ShardId id{call.job_id, plan.attempt(), shard.rank()};
    absl::Duration delay = agenda_->Delay(absl::Milliseconds(300));
    if (call.lazy) delay *= 20;
    const bool abandon = call.lazy && agenda_->Chance(0.5);
    agenda_->After(delay, [this, number, id, abandon, endpoint = shard.endpoint()] {
      if (calls_.count(number) == 0) return;  // A client that is gone sends nothing.
      abandon ? around_->Abandon(endpoint, id) : around_->Upload(endpoint, id);
    });
  }
}

void SimClients::OnEvent(int64_t number, const v1::JobEvent& event) {
  auto it = calls_.find(number);
  if (it == calls_.end()) return;
  Call& call = it->second;
  if (call.terminal)
    return around_->ClientViolation("invariant 11: an event after the terminal state");
  if (call.job_id.empty()) {
    if (!event.has_state_changed() && !event.has_placed()) {
      return around_->ClientViolation("the first event is neither the state nor the placement");
    }
    jobs_.push_back(event.job_id());
    call.job_id = event.job_id();
    if (call.owner && call.submission->spec.keeps_state()) {
      v1::RunJobRequest request = call.submission->request;
      request.clear_request_id();
      kept_.emplace_back(call.job_id, std::move(request));
    }
  }
  if (event.has_state_changed()) {
    call.terminal = event.state_changed().state() >= v1::Job::STATE_SUCCEEDED;
  }
  if (!call.owner) return;
  if (event.has_placed()) SendShards(number, call, event.placed());
  if (!event.has_rows_ready() || event.rows_ready().attempt() != call.attempt) return;
  const int32_t rank = event.rows_ready().rank();
  absl::Duration delay = agenda_->Delay(absl::Milliseconds(200));
  if (call.lazy) delay *= 20;
  const ShardId id{call.job_id, call.attempt, rank};
  agenda_->After(delay, [this, number, id, endpoint = call.endpoints[rank]] {
    if (calls_.count(number) != 0) around_->Fetch(endpoint, id);
  });
}

void SimClients::OnFinish(int64_t number, const absl::Status& status) {
  auto it = calls_.find(number);
  if (it == calls_.end()) return;
  if (it->second.owner) {
    ++ends_[status.ok() ? "OK" : DetailOf(status).reason];
    if (status.ok() && !it->second.terminal) {
      around_->ClientViolation("a job ended well without its terminal state");
    }
  }
  calls_.erase(it);
}

void SimClients::OnAnswer(int64_t number) {
  if (asked_.erase(number) == 0) around_->ClientViolation("an answer that nobody waits for");
}

}  // namespace annulus
