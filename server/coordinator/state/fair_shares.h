#ifndef ANNULUS_SERVER_COORDINATOR_STATE_FAIR_SHARES_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_FAIR_SHARES_H_

#include <cstddef>
#include <map>
#include <string>

namespace annulus {

// Decides whose segment is next. It counts the rank-seconds that principals have been served, by
// start-time fair queueing. A principal that was idle starts level with the others: unused service
// is not saved up.
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

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_FAIR_SHARES_H_
