#ifndef ANNULUS_SERVER_COORDINATOR_STATE_FAIR_SHARES_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_FAIR_SHARES_H_

#include <cstddef>
#include <map>
#include <string>

namespace annulus {

// Whose segment is next: what principals have been served, in rank-seconds, by start-time fair
// queueing. Who was idle starts level with the others: unused service is not saved up.
class FairShares {
 public:
  // The smallest is served next. Never decreases.
  double Served(const std::string& principal) const;
  // The principal is served, for this many rank-seconds.
  void Charge(const std::string& principal, double rank_seconds);

  // Principals that are remembered. Bounded: with a thousand and more of them those that have been
  // served least count as level.
  size_t size() const { return finish_.size(); }

 private:
  void ForgetHalf();

  double level_ = 0;                      // Of the one served last, when it was.
  std::map<std::string, double> finish_;  // After the last service.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_FAIR_SHARES_H_
