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

// Everything that a session's machine hears and does, made up from a seed: a coordinator that tells
// its job's states in their order, places it again or loses it, calls and streams that end well,
// break, or hang until they are cancelled, and a caller that may lose patience. Judges each answer
// by what it has told, which it keeps in its own way.
class SessionWorld {
 public:
  explicit SessionWorld(uint64_t seed);

  // Plays to the end.
  void Run();
  // What the session did wrong, in words. Empty: nothing.
  const std::vector<std::string>& wrongs() const { return wrongs_; }
  // What happened, for coverage.
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
  // Of a job that ended well for another call with its request id.
  void JudgeRetry(const absl::Status& error);

  void TellNext();  // The coordinator's next word.
  void Tell(const v1::JobEvent& event);
  void EndCall(const absl::Status& status);
  void Broke(const absl::Status& error);  // The job, or its call.
  void PlanStream(int attempt, StreamId stream);
  void EndStream(int attempt, StreamId stream, const absl::Status& status);
  absl::Status RandomError();
  bool AllWell(Stream direction) const;

  Agenda agenda_;
  const int ranks_;
  const double trouble_;  // How likely anything is to go wrong.
  AttentionSpec spec_;
  SessionStateMachine::Options options_;
  std::optional<SessionStateMachine> machine_;
  v1::Job::State told_ = v1::Job::STATE_UNSPECIFIED;
  int attempt_ = 0;  // The last that was placed.
  bool requeued_ = false, stats_told_ = false, call_open_ = true, call_cancelled_ = false;
  absl::Status job_error_, call_status_;   // As told.
  std::map<StreamId, Standing> streams_;   // Of the attempt whose streams were started last.
  int started_ = 0;                        // That attempt.
  std::set<int> reported_;                 // Ranks of it.
  std::vector<absl::Status> told_errors_;  // Any that the session may end with.
  // When the attempt's first stream broke, and when the job or its call did.
  absl::Time first_error_ = absl::InfiniteFuture(), broke_ = absl::InfiniteFuture();
  bool stands_ = false;                      // Rows that come all the same are the answer.
  bool patient_ = true;                      // It has not failed by its alarm.
  bool hard_ = false, caller_left_ = false;  // A stream's error was the answer; the caller's was.
  std::optional<SessionStateMachine::End> end_;
  std::vector<std::string> wrongs_;
  std::set<std::string> seen_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_SESSION_SESSION_WORLD_H_
