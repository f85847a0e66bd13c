// The machine's clock is set while a job runs.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "proto/rpc/grpc_time.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace {
std::atomic<int64_t> seconds_ahead{0};
}  // namespace

// Replaces the C library's function in this process.
extern "C" int clock_gettime(clockid_t id, timespec* time) noexcept {
  const long failed = syscall(SYS_clock_gettime, id, time);
  if (failed == 0 && id == CLOCK_REALTIME) time->tv_sec += seconds_ahead;
  return static_cast<int>(failed);
}

namespace annulus {
namespace {

// Waits half a second: afterwards clocks that count cycles between readings of this clock, such as
// absl::Now(), do so.
void AwaitClocksThatCountCycles() {
  const absl::Time end = SteadyNow() + absl::Milliseconds(700);
  while (SteadyNow() < end) absl::Now();
}

TEST(ClockIsSetTest, AJobThatWaitsOutlivesIt) {
  AwaitClocksThatCountCycles();
  for (const int64_t seconds : {3600, -3600}) {
    const absl::Time before = TimeOfDayNow();
    FakeService::Options options;
    options.act = [&](int) {
      seconds_ahead += seconds;  // While the job is queued.
      return FakeService::Act::kServe;
    };
    FakeService service(options);
    Client client(At(service));
    ClientJob job(30000);  // Uses separate calls, which have a deadline.
    const auto result = client.Attend(job.Arguments(DataPath::kDirect));
    ASSERT_TRUE(result.ok()) << result.status();
    job.ExpectServed();
    EXPECT_GT(absl::AbsDuration(TimeOfDayNow() - before), absl::Minutes(50)) << "it was set";
  }
}

}  // namespace
}  // namespace annulus
