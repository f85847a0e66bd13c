#include "proto/grace.h"

#include <grpc/support/time.h>

namespace annulus {

void Grace::Begin() {
  if (alarm_ != nullptr) return;
  alarm_ = std::make_unique<grpc::Alarm>();
  passed_ = std::make_shared<std::atomic<bool>>(false);
  const gpr_timespec length = gpr_time_from_nanos(absl::ToInt64Nanoseconds(length_), GPR_TIMESPAN);
  // The alarm keeps its function for as long as it lives itself.
  alarm_->Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), length),
              [passed = passed_, over = over_](bool expired) {
                if (!expired) return;
                *passed = true;
                over();
              });
}

}  // namespace annulus
