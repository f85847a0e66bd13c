#include <cmath>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "server/coordinator/state/event.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

TEST(RegistrationTest, RefusesWorkersThatDoNotFit) {
  CoordinatorHarness harness;
  struct Case {
    const char* reason;
    std::function<void(control::v1::Register*)> spoil;
  };
  const Case cases[] = {
      {"INVALID_REGISTRATION", [](auto* r) { r->clear_slot(); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->set_slot(std::string(300, 'x')); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->clear_incarnation(); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->set_ticket_key("short"); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->set_staging_limit_bytes(-1); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->clear_rates(); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->clear_data_endpoint(); }},
      {"INVALID_REGISTRATION", [](auto* r) { r->add_lacks(); }},
      {"INVALID_REGISTRATION",
       [](auto* r) {
         for (int i = 0; i < 101; ++i) r->add_lacks()->set_feature("mask/full");
       }},
      {"INCOMPATIBLE_WORKER", [](auto* r) { r->set_protocol_version(99); }},
      {"INCOMPATIBLE_WORKER", [](auto* r) { r->set_schedule_version(99); }},
  };
  for (const Case& c : cases) {
    control::v1::WorkerEvent event = harness.RegisterEvent("w0", "i0");
    c.spoil(event.mutable_register_());
    auto& worker = harness.worker("w0");
    worker = {};
    harness.Connect(worker, event);
    ASSERT_TRUE(worker.closed.has_value());
    EXPECT_EQ(ReasonOf(*worker.closed), c.reason);
    EXPECT_EQ(harness.Info().workers_size(), 0);
  }
}

}  // namespace
}  // namespace annulus
