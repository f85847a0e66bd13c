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

// The worker's side of the control stream's rules, without a stream: terms, dense ids both ways,
// acknowledgements, what is sent again after a reconnect, beats, the lease, and when to try again.
// Pure: time and chance come in. One thread.
class LinkState {
 public:
  struct Options {
    // Waits between attempts grow from `first_retry` to `last_retry`, each shortened by up to half.
    absl::Duration first_retry = absl::Milliseconds(100);
    absl::Duration last_retry = absl::Seconds(5);
    // Longest wait for a Welcome.
    absl::Duration welcome_timeout = absl::Seconds(30);
    // Events that may wait for an acknowledgement; one more fences the worker.
    size_t max_pending = 65536;
    // In [0, 1).
    std::function<double()> random;
  };
  enum class Verdict {
    kIgnore,   // Old, repeated, or for the link alone.
    kObey,     // The next command, to be carried out.
    kWelcome,  // The link is up.
    kBroken,   // The peer broke the protocol: give the stream up.
  };

  explicit LinkState(Options options);

  // Looks at what arrived. On kWelcome and kObey the command counts as received.
  Verdict Receive(const control::v1::WorkerCommand& command, absl::Time now);
  // Numbers a fact and keeps it until it is acknowledged. The event to send now, where the link is
  // up.
  std::optional<control::v1::WorkerEvent> Number(control::v1::WorkerEvent fact);
  // Everything not acknowledged, in order: to be sent after a Welcome.
  std::deque<control::v1::WorkerEvent> Pending() const;
  // An event that is never sent again (Register, Beat), with term and ack.
  control::v1::WorkerEvent Stamp(control::v1::WorkerEvent event) const;

  // A stream was asked for.
  void Connecting(absl::Time now);
  void Closed(absl::Time now);
  // Forgets term-bound numbers and the lease: the worker has a new incarnation.
  void Reset(absl::Time now);

  bool up() const { return phase_ == Phase::kUp; }
  bool ShouldConnect(absl::Time now) const { return phase_ == Phase::kDown && now >= retry_at_; }
  // The Welcome is overdue.
  bool ShouldGiveUp(absl::Time now) const;
  // The next beat, where one is due.
  std::optional<control::v1::WorkerEvent> Beat(absl::Time now);
  // The worker must count itself lost.
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
  std::deque<std::pair<int64_t, absl::Time>> beats_;  // Not answered: sequence, time of sending.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_LINK_STATE_H_
