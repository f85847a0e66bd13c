#include "tests/server/coordinator/coordinator_harness.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/validate/capability.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "proto/wire/rates.h"
#include "tests/server/coordinator/messages.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

CoordinatorHarness::CoordinatorHarness(CoordinatorOptions options) {
  state_ = std::make_unique<CoordinatorState>(
      std::move(options), [this] { return ++random_; },
      [this](const PlanRequest& request) {
        ++plans_made;
        return MakePlan(request);
      },
      now_);
}

PlanResult CoordinatorHarness::MakePlan(const PlanRequest& request) const {
  planned_pair_seconds = request.rates.pair_seconds;
  planned_device_limit = request.max_device_bytes;
  if (!plan_error.ok()) return plan_error;
  auto plan = std::make_shared<JobPlan>();
  const Submission& job = *request.submission;
  const Execution& asked = request.execution;
  int32_t size = asked.world_size;
  for (int32_t offered : request.sizes) {
    if (asked.world_size == 0 && offered <= auto_size) size = offered;
  }
  planned_size = size;
  // Like the planner: no worker serves it, or not in such a large group.
  if (size == 0 || std::count(request.sizes.begin(), request.sizes.end(), size) == 0)
    return MakeError(absl::StatusCode::kFailedPrecondition, "none",
                     {"INSUFFICIENT_WORKERS", {}, {}, {}});
  plan->execution = asked;
  plan->execution.world_size = size;
  plan->execution.strategy = Strategy::kRingPassKv;
  plan->execution.layout = Layout::kContiguous;
  plan->cost.seconds =
      plan_by_rate ? static_cast<double>(plan_pairs) * request.rates.pair_seconds : plan_seconds;
  plan->cost.job_seconds = size > 1 ? plan_job_seconds : 0;
  plan->cost.expected_seconds =
      plan->cost.seconds * request.ways.FactorOf(plan->execution, job.spec.operation,
                                                 plan->cost.seconds, request.factor);
  plan->pair_seconds = request.rates.pair_seconds;
  plan->factor = request.factor;
  plan->cost.peak_bytes_per_rank = device_bytes;
  plan->cost.bytes_sent.assign(size, 0);
  plan->cost.visible_pairs.assign(size, plan_pairs);
  plan->cost.task_rows.assign(size, 0);
  plan->cost.task_keys.assign(size, 0);
  plan->segments = segments;
  plan->longest_step = longest_step;
  auto shards = MakeShardPlan(job.spec, PlanOptionsOf(plan->execution, 1));
  if (!shards.ok()) return shards.status();
  plan->shards = *std::move(shards);
  plan->bytes = BytesOfShards(job.spec, plan->shards);
  return std::shared_ptr<const JobPlan>(std::move(plan));
}

void CoordinatorHarness::Handle(Event event) {
  for (Action& action : state_->Handle(std::move(event), now_)) Perform(std::move(action));
}

void CoordinatorHarness::Perform(Action action) {
  if (auto* send = std::get_if<action::SendCommand>(&action)) {
    for (auto& [slot, worker] : workers_) {
      if (worker.connection != send->connection) continue;
      const control::v1::WorkerCommand command = Whole(send->command);
      if (command.has_welcome()) worker.term = command.term();
      if (command.id() != 0) {
        if (command.id() <= worker.received) continue;
        EXPECT_EQ(command.id(), worker.received + 1) << "commands are dense";
        worker.received = command.id();
        worker.commands.push_back(command);
      }
      worker.history.push_back(command);
      if (command.has_reserve()) worker.spec = send->command.spec;
    }
  } else if (auto* close = std::get_if<action::CloseConnection>(&action)) {
    for (auto& [slot, worker] : workers_) {
      if (worker.connection != close->connection) continue;
      worker.connection = 0;
      worker.closed = close->status;
    }
  } else if (auto* event = std::get_if<action::SendEvent>(&action)) {
    EXPECT_FALSE(calls_[event->call].finished.has_value()) << "an event after the end";
    calls_[event->call].events.push_back(std::move(event->event));
  } else if (auto* finish = std::get_if<action::FinishCall>(&action)) {
    EXPECT_FALSE(calls_[finish->call].finished.has_value()) << "a call ends once";
    calls_[finish->call].finished = finish->status;
  } else if (auto* answer = std::get_if<action::Answer>(&action)) {
    calls_[answer->call].answer = std::move(answer->value);
  } else if (auto* plan = std::get_if<action::MakePlan>(&action)) {
    plans_wanted.emplace_back(plan->plan, std::move(plan->request));
    quick_plans.push_back(plan->quick);
  } else if (auto* forget = std::get_if<action::ForgetPlan>(&action)) {
    plans_forgotten.push_back(forget->plan);
  } else if (auto* ready = std::get_if<action::SetReady>(&action)) {
    readiness.push_back(ready->ready);
  } else if (auto* log = std::get_if<action::Log>(&action)) {
    logged.push_back(std::move(*log));
  } else if (std::get_if<action::Stopped>(&action) != nullptr) {
    stopped = true;
  }
}

void CoordinatorHarness::FillOutputReady(const control::v1::ShardKey& shard,
                                         WorkerEvent* event) const {
  *event->mutable_output_ready()->mutable_shard() = shard;
  v1::ShardReport* report = event->mutable_output_ready()->mutable_report();
  report->set_backend("cpu/test");
  *report->mutable_running() = DurationToProto(took);
  *report->mutable_exposed_communication() = DurationToProto(waited);
}

void CoordinatorHarness::Beat() {
  for (auto& [slot, worker] : workers_) {
    if (worker.connection == 0 || silent.count(slot) != 0) continue;
    WorkerEvent event;
    event.mutable_beat();
    event.set_term(worker.term);
    event.set_ack(worker.received);
    Handle(event::WorkerReported{worker.connection, std::move(event)});
  }
}

void CoordinatorHarness::Advance(absl::Duration duration) {
  const absl::Time end = now_ + duration;
  while (now_ < end) {
    const absl::Time beat = now_ + absl::Seconds(1);
    const absl::Time wakeup = std::max(state_->NextWakeup(), now_);
    if (wakeup <= std::min(beat, end)) {
      now_ = wakeup;
      Handle(event::Tick{});
      ASSERT_GT(state_->NextWakeup(), now_) << "a timer that does not go away";
      continue;
    }
    now_ = std::min(beat, end);
    Beat();
  }
}

WorkerEvent CoordinatorHarness::RegisterEvent(const std::string& slot,
                                              const std::string& incarnation) const {
  WorkerEvent event;
  control::v1::Register& info = *event.mutable_register_();
  info = SmallWorker(slot, incarnation);
  info.set_data_endpoint(slot + ":8004");
  info.set_backend("cpu/test");
  info.set_arithmetic(arithmetic);
  info.set_version("1.2.3");
  info.set_staging_limit_bytes(staging_limit);
  info.set_device_limit_bytes(device_limit);
  constexpr int32_t kAnyDim = 256;
  WorkerRates rates;
  rates.kernels = {{DataType::kFp32, Arithmetic::kOfType, {{kAnyDim, 1e-8, 0}}}};
  const auto add = [&](DataType dtype, Arithmetic arithmetic, double pair_seconds) {
    if (pair_seconds > 0)
      rates.kernels.push_back({dtype, arithmetic, {{kAnyDim, pair_seconds, 0}}});
  };
  add(DataType::kBf16, Arithmetic::kOfType, bf16_pair_seconds);
  add(DataType::kFp16, Arithmetic::kOfType, fp16_pair_seconds);
  add(DataType::kFp32, Arithmetic::kBf16x3, bf16x3_pair_seconds);
  rates.cpu_share = cpu_share;
  *info.mutable_rates() = RatesToProto(rates);
  if (bf16x3_pair_seconds == 0) {
    control::v1::Lack* lack = info.add_lacks();
    lack->set_feature(kBf16x3Feature);
    lack->set_why_not("It needs a CPU with AMX.");
  }
  return event;
}

void CoordinatorHarness::Connect(Worker& worker, WorkerEvent event) {
  worker.connection = ++last_connection_;
  worker.closed.reset();
  event.set_term(worker.term);
  event.set_ack(worker.received);
  Handle(event::WorkerReported{worker.connection, std::move(event)});
}

CoordinatorHarness::Worker& CoordinatorHarness::AddWorker(const std::string& slot) {
  Worker& worker = workers_[slot];
  worker = Worker();
  worker.slot = slot;
  worker.incarnation = absl::StrCat("i", ++last_incarnation_);
  Connect(worker, RegisterEvent(slot, worker.incarnation));
  return worker;
}

void CoordinatorHarness::Disconnect(Worker& worker) {
  Handle(event::WorkerGone{std::exchange(worker.connection, 0)});
}

void CoordinatorHarness::Say(Worker& worker, WorkerEvent event) {
  event.set_term(worker.term);
  event.set_ack(worker.received);
  event.set_id(++worker.sent);
  Handle(event::WorkerReported{worker.connection, std::move(event)});
}

bool CoordinatorHarness::ObeyOne(Worker& worker, const WorkerCommand& command) {
  std::optional<WorkerEvent> event = AnswerTo(command, steps);
  if (!event.has_value()) return true;
  if (event->has_group_opened()) {
    event->mutable_group_opened()->set_bootstrap("at " + worker.slot);
  }
  Say(worker, *std::move(event));
  if (command.run_segment().last()) {
    WorkerEvent ready;
    FillOutputReady(command.run_segment().shard(), &ready);
    Say(worker, std::move(ready));
  }
  return true;
}

void CoordinatorHarness::Execute() {
  for (bool again = true; again;) {
    again = false;
    for (auto& [slot, worker] : workers_) {
      for (size_t i = 0; worker.connection != 0 && i < worker.commands.size();) {
        if (hold.count(worker.commands[i].command_case()) != 0) {
          ++i;
          continue;
        }
        const WorkerCommand command = worker.commands[i];
        worker.commands.erase(worker.commands.begin() + i);
        again = ObeyOne(worker, command);
      }
    }
  }
}

bool CoordinatorHarness::RunOneSegment() {
  bool any = false;
  for (auto& [slot, worker] : workers_) {
    const std::optional<WorkerCommand> command = Take(worker, WorkerCommand::kRunSegment);
    any |= command.has_value() && ObeyOne(worker, *command);
  }
  return any;
}

void CoordinatorHarness::Start(int count) {
  for (int i = 0; i < count; ++i) AddWorker(absl::StrCat("w", i));
  Advance(tables().options.formation_delay);
  Execute();
}

void CoordinatorHarness::SayOfAll(
    const std::string& job_id, int32_t attempt,
    const std::function<void(const control::v1::ShardKey&, WorkerEvent*)>& fill) {
  for (auto& [slot, worker] : workers_) {
    for (size_t i = 0; i < worker.history.size(); ++i) {
      if (!worker.history[i].has_reserve()) continue;
      const control::v1::ShardKey shard = worker.history[i].reserve().shard();
      if (shard.job_id() != job_id || shard.attempt() != attempt) continue;
      WorkerEvent event;
      fill(shard, &event);
      Say(worker, std::move(event));
      break;
    }
  }
}

void CoordinatorHarness::Upload(const std::string& job_id, int32_t attempt) {
  SayOfAll(job_id, attempt, [](const control::v1::ShardKey& shard, WorkerEvent* event) {
    *event->mutable_shard_complete()->mutable_shard() = shard;
  });
}

void CoordinatorHarness::OutputsReady(const std::string& job_id, int32_t attempt) {
  SayOfAll(job_id, attempt, [this](const control::v1::ShardKey& shard, WorkerEvent* event) {
    FillOutputReady(shard, event);
  });
}

void CoordinatorHarness::Fetch(const std::string& job_id, int32_t attempt) {
  SayOfAll(job_id, attempt, [](const control::v1::ShardKey& shard, WorkerEvent* event) {
    *event->mutable_output_drained()->mutable_shard() = shard;
  });
}

void CoordinatorHarness::FetchAtOnce(const std::string& job_id, absl::Duration age) {
  SayOfAll(job_id, 1, [this, age](const control::v1::ShardKey& shard, WorkerEvent* event) {
    WorkerEvent ready;
    FillOutputReady(shard, &ready);
    *event->mutable_output_drained()->mutable_shard() = shard;
    *event->mutable_output_drained()->mutable_report() = ready.output_ready().report();
    *event->mutable_output_drained()->mutable_age() = DurationToProto(age);
  });
}

v1::RunJobRequest CoordinatorHarness::Request(int32_t world_size, int64_t rows) {
  return SmallRequest(world_size, rows, rows);
}

int64_t CoordinatorHarness::Run(v1::RunJobRequest request, const std::string& principal,
                                absl::Time deadline) {
  auto submission = MakeSubmission(std::move(request), tables().options);
  EXPECT_TRUE(submission.ok()) << submission.status();
  const int64_t call = NewCall();
  Handle(event::RunJob{call, principal, *submission, deadline});
  return call;
}

std::string CoordinatorHarness::JobOf(int64_t call) const {
  const Call& of = calls_.at(call);
  return of.events.empty() ? "" : of.events[0].job_id();
}

v1::Job::State CoordinatorHarness::StateOf(int64_t call) const {
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  auto it = calls_.find(call);
  if (it == calls_.end()) return state;
  for (const v1::JobEvent& event : it->second.events) {
    if (event.has_state_changed()) state = event.state_changed().state();
  }
  return state;
}

const v1::Plan& CoordinatorHarness::Placed(int64_t call) const {
  const v1::Plan* plan = &v1::Plan::default_instance();
  for (const v1::JobEvent& event : calls_.at(call).events) {
    if (event.has_placed()) plan = &event.placed();
  }
  return *plan;
}

v1::Job CoordinatorHarness::Get(const std::string& job_id) {
  const int64_t call = NewCall();
  Handle(event::GetJob{call, "anonymous", job_id});
  return calls_[call].answer->ok() ? std::get<v1::Job>(**calls_[call].answer) : v1::Job();
}

const v1::ServerInfo& CoordinatorHarness::Info() {
  const int64_t call = NewCall();
  Handle(event::GetServerInfo{call});
  return std::get<v1::ServerInfo>(**calls_[call].answer);
}

std::optional<WorkerCommand> CoordinatorHarness::Take(Worker& worker,
                                                      WorkerCommand::CommandCase which) {
  for (size_t i = 0; i < worker.commands.size(); ++i) {
    if (worker.commands[i].command_case() != which) continue;
    WorkerCommand command = worker.commands[i];
    worker.commands.erase(worker.commands.begin() + i);
    return command;
  }
  return std::nullopt;
}

}  // namespace annulus
