#include "worker/backend/start_rates.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "worker/backend/backend.h"

namespace annulus {
namespace {

// Ends the measurements at the call with number `last`.
struct Teller {
  int last = 0;
  int asked = 0;
};

absl::StatusOr<WorkerRates> Measure(Teller* teller) {
  BackendOptions backend;
  backend.comm_host = "127.0.0.1";
  StartRatesOptions options;
  options.time = absl::Milliseconds(1);
  options.stop_requested = [teller] { return ++teller->asked == teller->last; };
  return MeasureStartRates(*MakeEngine(backend), options);
}

TEST(StartRatesTest, EndsBeforeTheNextMeasurementWhenItIsTold) {
  Teller whole;
  const auto rates = Measure(&whole);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(whole.asked, static_cast<int>(rates->kernels.size()) + 2);  // A step and the link.
  for (const int last : {1, 2, whole.asked}) {
    Teller teller{last};
    EXPECT_TRUE(absl::IsCancelled(Measure(&teller).status()));
    EXPECT_EQ(teller.asked, last);
  }
}

}  // namespace
}  // namespace annulus
