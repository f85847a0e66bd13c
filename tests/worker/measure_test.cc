#include "worker/measure.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "worker/comm/communicator.h"
#include "worker/device/host.h"

namespace annulus {
namespace {

// Time that passes only when rank 0 is at work.
struct Clock {
  absl::Time now = absl::UnixEpoch();
};

struct Link {
  double bytes_per_second = 0;
  absl::Duration connect, first_message;                      // The latter beside its bytes.
  absl::Duration wait_of_every_other = absl::ZeroDuration();  // Message, beside its own time.
};

// One of two ranks that exchange nothing, and take as long as a link would.
class SlowCommunicator final : public Communicator {
 public:
  SlowCommunicator(int32_t rank, const Link& link, Clock* clock)
      : rank_(rank), link_(link), clock_(clock) {}

  absl::StatusOr<std::string> Bootstrap() override { return std::string("here"); }
  absl::Status Connect(absl::Span<const std::string>, absl::Time) override {
    Pass(link_.connect);
    return absl::OkStatus();
  }
  absl::Status Start(absl::Span<const SendMessage> sends,
                     absl::Span<const ReceiveMessage>) override {
    bytes_ = sends[0].bytes;
    return absl::OkStatus();
  }
  absl::Status Join(absl::Time) override {
    if (joins_++ == 0) Pass(link_.first_message);
    Pass(absl::Seconds(static_cast<double>(bytes_) / link_.bytes_per_second));
    if (joins_ % 2 == 0) Pass(link_.wait_of_every_other);
    return absl::OkStatus();
  }
  void Abort() override {}
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return 2; }
  int64_t bytes_received() const override { return 0; }

 private:
  void Pass(absl::Duration time) {
    if (rank_ == 0) clock_->now += time;
  }

  const int32_t rank_;
  const Link link_;
  Clock* const clock_;
  int64_t bytes_ = 0;
  int joins_ = 0;
};

Engine EngineOf(const Link& link, Clock* clock) {
  Engine engine;
  engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeHostDevice(); };
  engine.make_communicator = [link, clock](
                                 Device*, int32_t rank,
                                 int32_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return std::make_unique<SlowCommunicator>(rank, link, clock);
  };
  return engine;
}

double Measured(const Link& link, absl::Duration budget) {
  Clock clock;
  const Engine engine = EngineOf(link, &clock);
  const auto rate = MeasureLink(engine, budget, [&] { return clock.now; });
  return rate.ok() ? *rate : -1;
}

TEST(MeasureTest, TheRateOfALinkIsThatOfItsMessages) {
  const absl::Duration budget = absl::Milliseconds(50);
  for (const double rate : {1e6, 1e8, 1e9, 2e10}) {
    for (const absl::Duration cost :
         {absl::ZeroDuration(), absl::Milliseconds(5), absl::Seconds(3)}) {
      EXPECT_NEAR(Measured({rate, cost, cost}, budget), rate, rate * 1e-3) << cost;
    }
  }
}

// As where other workers measure on the same CPUs.
TEST(MeasureTest, AStepIsAMessageThatWaitsForNoCpu) {
  Clock clock;
  Link link{1024 / 150e-6, absl::ZeroDuration(), absl::ZeroDuration()};
  link.wait_of_every_other = absl::Milliseconds(4);
  const auto seconds =
      MeasureStep(EngineOf(link, &clock), absl::ZeroDuration(), [&] { return clock.now; });
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_NEAR(*seconds, 150e-6, 1e-6);
}

}  // namespace
}  // namespace annulus
