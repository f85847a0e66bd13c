#ifndef ANNULUS_TESTS_WORKER_AGENT_AGENT_HARNESS_H_
#define ANNULUS_TESTS_WORKER_AGENT_AGENT_HARNESS_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/agent/agent_state.h"

namespace annulus {

// An AgentState with a manual clock and a scripted coordinator. Actions of the last event are in
// `last`.
class AgentHarness {
 public:
  using Command = control::v1::WorkerCommand;
  using Event = control::v1::WorkerEvent;

  AgentHarness() : state_(MakeOptions(&incarnations_)) { Take(state_.Start(now)); }

  void Advance(absl::Duration duration) { now += duration; }
  void Handle(const AgentEvent& event) { Take(state_.Handle(event, now)); }
  // The control stream ends.
  void Lose(absl::Status status) { Handle(LinkClosed{stream, std::move(status)}); }
  void Tick() { Handle(Ticked{}); }
  void Report(const Event& fact) { Handle(Reported{fact}); }

  void Welcome(int64_t term, int64_t ack = 0) {
    Command command;
    command.set_term(term);
    command.set_ack(ack);
    command.mutable_welcome()->mutable_lease()->set_seconds(3);
    command.mutable_welcome()->mutable_beat_interval()->set_seconds(1);
    this->term = term;
    next_id = 1;
    Handle(CommandArrived{stream, command});
  }
  // Sends `command` with the next id.
  void Order(Command command) {
    command.set_term(term);
    command.set_id(next_id++);
    Handle(CommandArrived{stream, command});
  }
  void AnswerBeat(int64_t sequence) {
    Command command;
    command.set_term(term);
    command.mutable_beat_answer()->set_sequence(sequence);
    Handle(CommandArrived{stream, command});
  }
  // Beats every second for `duration`, and answers each at once.
  void Live(absl::Duration duration) {
    for (const absl::Time end = now + duration; now < end; Advance(absl::Seconds(1))) {
      Tick();
      for (const Event& event : Sent()) {
        if (event.has_beat()) AnswerBeat(event.beat().sequence());
      }
    }
  }

  static control::v1::ShardKey Key(int n) {
    control::v1::ShardKey key;
    key.set_job_id(absl::StrCat("job-", n));
    key.set_attempt(1);
    return key;
  }
  static ShardId Id(int n) { return IdOf(Key(n)); }
  void Reserve(int n, bool solo = false, bool keep = false) {
    Command command;
    *command.mutable_reserve()->mutable_shard() = Key(n);
    command.mutable_reserve()->set_solo(solo);
    command.mutable_reserve()->set_keep(keep);
    Order(command);
  }
  void Drop(int n) {
    Command command;
    *command.mutable_drop()->mutable_shard() = Key(n);
    Order(command);
  }
  void Complete(int n) {
    Event fact;
    *fact.mutable_shard_complete()->mutable_shard() = Key(n);
    Report(fact);
  }

  template <typename Action>
  std::vector<Action> All() const {
    std::vector<Action> found;
    for (const AgentAction& action : last) {
      if (const auto* typed = std::get_if<Action>(&action)) found.push_back(*typed);
    }
    return found;
  }
  std::vector<Event> Sent() const {
    std::vector<Event> events;
    for (const Send& send : All<Send>()) events.push_back(send.event);
    return events;
  }
  // Names of the events just sent, without beats: "register dropped".
  std::string SentNames() const {
    std::string names;
    for (const Event& event : Sent()) {
      if (event.has_beat()) continue;
      const auto* field = Event::descriptor()->FindFieldByNumber(event.event_case());
      absl::StrAppend(&names, names.empty() ? "" : " ", field->name());
    }
    return names;
  }

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  int64_t term = 0;
  int64_t next_id = 1;
  int64_t stream = 0;  // The stream that was opened last.
  AgentActions last;
  AgentState& state() { return state_; }

 private:
  static AgentState::Options MakeOptions(int* incarnations) {
    AgentState::Options options;
    options.self = [] {
      control::v1::Register self;
      self.set_slot("worker-0");
      return self;
    };
    options.link.random = [] { return 0.5; };
    options.new_identity = [incarnations] {
      const std::string name = absl::StrCat("incarnation-", ++*incarnations);
      return Identity{name, absl::StrCat("key of ", name)};
    };
    return options;
  }
  void Take(AgentActions actions) {
    last = std::move(actions);
    EXPECT_GT(state_.NextWake(), now) << "its clock would tick without a pause";
    for (const Connect& connect : All<Connect>()) stream = connect.stream;
  }

  int incarnations_ = 0;
  AgentState state_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_AGENT_AGENT_HARNESS_H_
