#include "client/grace.h"

#include "absl/time/clock.h"

namespace annulus {

void Grace::Begin() {
  if (alarm_ != nullptr) return;
  alarm_ = std::make_unique<grpc::Alarm>();
  passed_ = std::make_shared<std::atomic<bool>>(false);
  // The alarm keeps its function for as long as it lives itself.
  alarm_->Set(absl::ToChronoTime(absl::Now() + length_),
              [passed = passed_, over = over_](bool expired) {
                if (!expired) return;
                *passed = true;
                over();
              });
}

}  // namespace annulus
