#ifndef ANNULUS_SERVER_COORDINATOR_STATE_FAIR_QUEUE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_FAIR_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace annulus {

// Decides which principal's segment is issued next. It counts the rank-seconds that principals have
// been served, by start-time fair queueing. A principal that was idle starts level with the others:
// unused service is not saved up.
class FairShares {
 public:
  // The service of a principal; the smallest is served next. Never decreases.
  double Served(const std::string& principal) const;
  // Adds rank-seconds to the service of a principal.
  void Charge(const std::string& principal, double rank_seconds);

  // The number of remembered principals. It is bounded: above a thousand, the less served half
  // counts as level.
  size_t size() const { return finish_.size(); }

 private:
  void ForgetHalf();

  double level_ = 0;                      // Service of the principal served last, at that time.
  std::map<std::string, double> finish_;  // Service after the latest charge.
};

// Jobs that wait for room. Principals share by deficit: the principal that has received the fewest
// rank-seconds is served next. Over time all receive the same amount, whatever the sizes of their
// jobs. Among the jobs of a principal, priority and waiting time add up: kPriorityStep of waiting
// counts as 1 of priority, so that a stream of important jobs starves none.
class FairQueue {
 public:
  struct Entry {
    int64_t job = 0;
    std::string principal;
    int32_t priority = 0;
    double rank_seconds = 0;  // Predicted.
    absl::Time submitted;
    bool stands_aside = false;  // Others need not wait for it.
    double factor = 1;          // Factor of rank_seconds: JobPlan::factor.
    bool gradients = false;
    int32_t ranks = 1;
  };

  void Push(Entry entry);
  void Remove(int64_t job);
  bool Contains(int64_t job) const { return index_.count(job) != 0; }
  size_t size() const { return index_.size(); }
  // Rank-seconds of the jobs that will be served before `newcomer`, which is not in the queue. This
  // counts jobs of its principal that precede it by priority and waiting time. It leaves out:
  // - jobs of one rank for a newcomer of several ranks, and vice versa, as they use other lanes;
  // - jobs that others need not wait for.
  // Each job counts with the fraction that `share` returns. `share` must not call the queue.
  double WorkAhead(const Entry& newcomer, absl::FunctionRef<double(const Entry&)> share) const;

  // Offers waiting jobs in order. If `take` returns true, the job leaves the queue and is charged
  // to its principal. Each job is offered at most once. `take` must not call the queue.
  void Serve(absl::FunctionRef<bool(int64_t job)> take);

 private:
  // Smaller is earlier: the time of submission in seconds, minus the seconds that the priority is
  // worth.
  using Key = std::pair<double, int64_t>;
  struct Principal {
    double served = 0;  // Rank-seconds.
    std::map<Key, Entry> waiting;
  };
  struct Place {
    std::string principal;
    Key key;
  };
  static Key KeyOf(const Entry& entry);
  double LeastServed() const;

  std::map<std::string, Principal> principals_;  // Principals with waiting jobs.
  std::map<int64_t, Place> index_;
  // Service of principals without waiting jobs; removed when the others have caught up.
  std::map<std::string, double> remembered_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_FAIR_QUEUE_H_
