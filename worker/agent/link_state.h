#ifndef ANNULUS_WORKER_AGENT_LINK_STATE_H_
#define ANNULUS_WORKER_AGENT_LINK_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "worker/agent/agent_values.h"

namespace annulus {

// The worker's rules of the control stream, without a stream: terms, dense ids in both directions,
// acknowledgements, resending after a reconnect, beats, the lease, and retries. Pure: time and
// random numbers are arguments. Not thread-safe.
class LinkState {
 public:
  struct Options {
    // The wait between attempts doubles from `first_retry` to `last_retry`. Each wait is shortened
    // by up to half, at random.
    absl::Duration first_retry = absl::Milliseconds(100);
    absl::Duration last_retry = absl::Seconds(5);
    // Longest wait for a Welcome.
    absl::Duration welcome_timeout = absl::Seconds(30);
    // Limit of unacknowledged events. One more fences the worker.
    size_t max_pending = 65536;
    // Returns a number in [0, 1).
    std::function<double()> random;
  };
  enum class Verdict {
    kIgnore,   // Old, repeated, or handled by LinkState itself.
    kObey,     // The next command; execute it.
    kWelcome,  // The link is up.
    kBroken,   // The peer violated the protocol; close the stream.
  };

  explicit LinkState(Options options);

  // Checks a command. After kWelcome and kObey it counts as received.
  Verdict Receive(const control::v1::WorkerCommand& command, absl::Time now);
  // Numbers an event and keeps it until it is acknowledged. Returns the event to send now; nullopt
  // if the link is down.
  std::optional<control::v1::WorkerEvent> Number(control::v1::WorkerEvent fact);
  // All unacknowledged events, in order; to be sent after a Welcome.
  std::deque<control::v1::WorkerEvent> Pending() const;
  // Adds term and ack to an event that is never resent (Register, Beat).
  control::v1::WorkerEvent Stamp(control::v1::WorkerEvent event) const;

  // Call when a stream is requested.
  void Connecting(absl::Time now);
  void Closed(absl::Time now);
  // Resets the numbers of the term and the lease, because the worker has a new incarnation.
  void Reset(absl::Time now);

  bool up() const { return phase_ == Phase::kUp; }
  bool ShouldConnect(absl::Time now) const { return phase_ == Phase::kDown && now >= retry_at_; }
  // True if the Welcome is overdue.
  bool ShouldGiveUp(absl::Time now) const;
  // The next beat, or nullopt if none is due.
  std::optional<control::v1::WorkerEvent> Beat(absl::Time now);
  // True if the worker must count itself as lost.
  bool LeaseIsOver(absl::Time now) const { return now >= lease_end_ || overflowed_; }
  absl::Time NextWake() const;

  int64_t term() const { return term_; }
  absl::Duration lease() const { return lease_; }

 private:
  enum class Phase { kDown, kConnecting, kUp };

  Verdict ReceiveWelcome(const control::v1::WorkerCommand& command, absl::Time now);
  void Acknowledge(int64_t id);
  absl::Duration LeaseHere() const;

  const Options options_;
  Phase phase_ = Phase::kDown;
  absl::Time retry_at_ = absl::InfinitePast();
  int retries_ = 0;
  absl::Time connect_sent_ = absl::InfinitePast();

  int64_t term_ = 0;
  int64_t last_command_ = 0;
  int64_t last_event_ = 0;
  std::deque<control::v1::WorkerEvent> pending_;
  bool overflowed_ = false;

  absl::Duration lease_ = absl::InfiniteDuration();
  absl::Duration beat_interval_ = absl::Seconds(1);
  absl::Time lease_end_ = absl::InfiniteFuture();
  absl::Time next_beat_ = absl::InfiniteFuture();
  int64_t last_beat_ = 0;
  // Unanswered beats: sequence, time of sending.
  std::deque<std::pair<int64_t, absl::Time>> beats_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_LINK_STATE_H_
