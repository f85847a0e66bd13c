#include "tests/worker/comm/group.h"

#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "gtest/gtest.h"
#include "tests/worker/comm/in_process.h"
#include "worker/comm/gloo.h"

namespace annulus {
namespace {

Group MakeGlooGroup(int32_t size, absl::Duration connect_timeout) {
  Group group;
  for (int32_t r = 0; r < size; ++r) {
    GlooOptions options;
    options.rank = r;
    options.size = size;
    options.host = "127.0.0.1";
    options.connect_timeout = connect_timeout;
    auto communicator = MakeGlooCommunicator(options);
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    group.push_back(*std::move(communicator));
  }
  return group;
}

}  // namespace

Group InProcessGroup(int32_t size, absl::Duration max_delay, uint64_t seed) {
  InProcessHub hub({size, max_delay, seed});
  Group group;
  for (int32_t r = 0; r < size; ++r) group.push_back(hub.MakeCommunicator(r));
  return group;
}

Group GlooGroup(int32_t size) { return MakeGlooGroup(size, absl::Seconds(10)); }
Group GlooGroupThatGivesUpSoon(int32_t size) {
  return MakeGlooGroup(size, absl::Milliseconds(400));
}

absl::Time TestDeadline() { return SteadyNow() + absl::Seconds(60); }

std::vector<absl::Status> RunRanks(int32_t ranks,
                                   const std::function<absl::Status(int32_t)>& body) {
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { statuses[r] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<absl::Status> ConnectAll(Group& group, absl::Time deadline) {
  std::vector<std::string> bootstraps;
  for (auto& communicator : group) {
    auto bytes = communicator->Bootstrap();
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    bootstraps.push_back(bytes.value_or(""));
  }
  return RunRanks(static_cast<int32_t>(group.size()),
                  [&](int32_t r) { return group[r]->Connect(bootstraps, deadline); });
}

Group ConnectedGroup(const GroupFactory& make, int32_t size) {
  Group group = make(size);
  const absl::Status status = FirstError(ConnectAll(group, TestDeadline()));
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? std::move(group) : Group();
}

absl::Status FirstError(const std::vector<absl::Status>& statuses) {
  for (size_t r = 0; r < statuses.size(); ++r) {
    if (statuses[r].ok()) continue;
    return absl::Status(statuses[r].code(), absl::StrCat("rank ", r, ": ", statuses[r].message()));
  }
  return absl::OkStatus();
}

Group& DelayedGroup(int32_t size) {
  static auto* groups = new std::map<int32_t, Group>;
  Group& group = (*groups)[size];
  if (group.empty()) {
    group = ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::Microseconds(300), 7); },
                           size);
  }
  return group;
}

}  // namespace annulus
