#ifndef ANNULUS_TESTS_SIMULATION_SIM_CLIENTS_H_
#define ANNULUS_TESTS_SIMULATION_SIM_CLIENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/coordinator/state/event.h"
#include "tests/simulation/agenda.h"
#include "worker/staging/shard_id.h"

namespace annulus {

// The simulation as its clients use it.
class ClientSurroundings {
 public:
  virtual ~ClientSurroundings() = default;
  // Sends to the coordinator. False if none is running.
  virtual bool Tell(Event event) = 0;
  virtual void Upload(const std::string& endpoint, const ShardId& id) = 0;
  virtual void Abandon(const std::string& endpoint, const ShardId& id) = 0;
  virtual void Fetch(const std::string& endpoint, const ShardId& id) = 0;
  virtual void ClientViolation(const std::string& what) = 0;
};

// Clients of all kinds: patient and impatient, detached, retrying with one request_id, keeping and
// using state, watching, cancelling, requesting plans, vanishing, slow. They check their events:
// numbered, one end, nothing after it, one answer to each unary call.
class SimClients {
 public:
  SimClients(const CoordinatorOptions& options, int workers, Agenda* agenda,
             ClientSurroundings* around);

  // A new job, or the request of an old one again.
  void Submit();
  // Calls about all jobs, the service, and a possible job.
  void LookAround();
  // From now on clients behave correctly.
  void Behave() { behave_ = true; }
  // The coordinator and all calls are gone.
  void LoseCalls();

  void OnEvent(int64_t call, const v1::JobEvent& event);
  void OnFinish(int64_t call, const absl::Status& status);
  void OnAnswer(int64_t call);

  // Calls that have not ended.
  size_t open() const { return calls_.size() + asked_.size(); }
  // Number of jobs by the reason of their end, including "OK".
  const std::map<std::string, int>& ends() const { return ends_; }

 private:
  struct Call {
    bool owner = false;
    std::shared_ptr<const Submission> submission;
    int64_t last_sequence = 0;
    bool terminal = false;
    std::string job_id;
    int32_t attempt = 0;
    std::vector<std::string> endpoints;  // By rank.
    bool lazy = false;                   // Uploads and fetches late or never.
  };

  v1::RunJobRequest NewRequest();
  v1::RunJobRequest NewGradients();
  void Send(const v1::RunJobRequest& request);
  void Disturb(int64_t call);
  // `question` is a unary call of number last_call_.
  void Ask(Event question);
  void PlanJob();
  void SendShards(int64_t number, Call& call, const v1::Plan& plan);
  void Watch(const std::string& job_id);
  std::string AnyJob();

  const CoordinatorOptions& options_;
  const int workers_;
  Agenda* const agenda_;
  ClientSurroundings* const around_;
  bool behave_ = false;
  int64_t last_call_ = 0;
  int64_t last_request_ = 0;
  std::map<int64_t, Call> calls_;
  std::set<int64_t> asked_;  // Unary calls without an answer yet.
  std::vector<std::string> jobs_;
  std::vector<v1::RunJobRequest> named_;
  // Jobs with kept state, and their requests.
  std::vector<std::pair<std::string, v1::RunJobRequest>> kept_;
  std::map<std::string, int> ends_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_SIM_CLIENTS_H_
