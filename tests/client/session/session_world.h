#ifndef ANNULUS_TESTS_CLIENT_SESSION_SESSION_WORLD_H_
#define ANNULUS_TESTS_CLIENT_SESSION_SESSION_WORLD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/session/session_state_machine.h"
#include "tests/simulation/agenda.h"

namespace annulus {

// A job of `ranks` equal shards, its inputs and outputs.
AttentionSpec SpecOfRanks(int ranks);
v1::Plan PlanOfRanks(int ranks, int attempt);
v1::JobEvent StateEvent(v1::Job::State state, const absl::Status& error = absl::OkStatus());
v1::JobEvent PlacedEvent(const v1::Plan& plan);

// The environment of a SessionStateMachine, generated from a seed: a coordinator that sends its
// job's states in order, places the job again or loses it; calls and streams that succeed, break,
// or hang until they are cancelled; and a caller that may give up. Checks each answer against its
// own record of what it sent.
class SessionWorld {
 public:
  explicit SessionWorld(uint64_t seed);

  // Runs to the end.
  void Run();
  // Errors of the session, in words. Empty: none.
  const std::vector<std::string>& wrongs() const { return wrongs_; }
  // Events that occurred, for coverage.
  const std::set<std::string>& seen() const { return seen_; }

 private:
  using Stream = SessionStateMachine::Stream;
  using StreamId = std::pair<int, Stream>;  // Rank and direction.
  enum class Standing { kLive, kWell, kBroken };

  void Wrong(std::string what);
  void Alarm();
  void Do(SessionStateMachine::Actions actions);
  void Start(const SessionStateMachine::Placement& placement);
  void JudgeEnd(const SessionStateMachine::End& end);
  void JudgeAnswer(const SessionStateMachine::End& end);
  // For a job that succeeded for another call with the same request id.
  void JudgeRetry(const absl::Status& error);

  void TellNext();  // Sends the coordinator's next event.
  void Tell(const v1::JobEvent& event);
  void EndCall(const absl::Status& status);
  void Broke(const absl::Status& error);  // The job or its call has failed.
  void PlanStream(int attempt, StreamId stream);
  void EndStream(int attempt, StreamId stream, const absl::Status& status);
  absl::Status RandomError();
  bool AllWell(Stream direction) const;

  Agenda agenda_;
  const int ranks_;
  const double trouble_;  // Probability of faults.
  AttentionSpec spec_;
  SessionStateMachine::Options options_;
  std::optional<SessionStateMachine> machine_;
  v1::Job::State told_ = v1::Job::STATE_UNSPECIFIED;
  int attempt_ = 0;  // The last placed attempt.
  bool requeued_ = false, stats_told_ = false, call_open_ = true, call_cancelled_ = false;
  absl::Status job_error_, call_status_;   // Errors that were sent to the session.
  std::map<StreamId, Standing> streams_;   // Streams of the attempt that was started last.
  int started_ = 0;                        // The number of that attempt.
  std::set<int> reported_;                 // Ranks of that attempt.
  std::vector<absl::Status> told_errors_;  // Errors that the session may end with.
  // The time at which the attempt's first stream broke, and at which the job or its call broke.
  absl::Time first_error_ = absl::InfiniteFuture(), broke_ = absl::InfiniteFuture();
  bool stands_ = false;  // Rows that still arrive are the answer.
  bool patient_ = true;  // True unless the session has failed by its alarm.
  // The answer was a stream's error; the answer was the caller's.
  bool hard_ = false, caller_left_ = false;
  std::optional<SessionStateMachine::End> end_;
  std::vector<std::string> wrongs_;
  std::set<std::string> seen_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_SESSION_SESSION_WORLD_H_
