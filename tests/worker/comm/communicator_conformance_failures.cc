// Behaviour after failures.

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/steady_time.h"
#include "tests/worker/comm/communicator_conformance.h"
#include "worker/comm/communicator_base.h"

namespace annulus {
namespace {

using absl::StatusCode;

// One rank's memory for steps whose content does not matter.
struct Memory {
  std::vector<std::byte> in = std::vector<std::byte>(1 << 20);
  std::vector<std::byte> out = std::vector<std::byte>(1 << 20);

  absl::Status Send(Communicator& comm, int32_t peer) {
    return comm.Start({SendMessage{peer, out.data(), static_cast<int64_t>(out.size())}}, {});
  }
  absl::Status Receive(Communicator& comm, int32_t peer) {
    return comm.Start({}, {ReceiveMessage{peer, in.data(), static_cast<int64_t>(in.size())}});
  }
};

void ExpectPoisoned(Communicator& comm) {
  EXPECT_EQ(comm.Bootstrap().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(comm.Connect({}, TestDeadline()).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(comm.Start({}, {}).code(), StatusCode::kFailedPrecondition);
  const absl::Status join = comm.Join(TestDeadline());
  EXPECT_EQ(join.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailOf(join).reason, kReasonPoisoned);
}

// True if a thread of this process sleeps, as in a blocking call.
bool Sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.compare(name_end, 3, ") S") == 0;
}

TEST_P(CommunicatorConformance, AbortWakesABlockedJoin) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  Memory memory;
  ASSERT_TRUE(memory.Receive(*group[0], 1).ok());
  std::atomic<pid_t> joining{0};
  absl::Status joined;
  std::thread lane([&] {
    joining = gettid();
    joined = group[0]->Join(SteadyNow() + absl::Minutes(10));
  });
  const absl::Time deadline = TestDeadline();
  while ((joining == 0 || !Sleeps(joining)) && SteadyNow() < deadline) std::this_thread::yield();
  EXPECT_LT(SteadyNow(), deadline) << "it does not wait";
  const absl::Time start = SteadyNow();
  group[0]->Abort();
  group[0]->Abort();
  lane.join();
  EXPECT_LT(SteadyNow() - start, absl::Seconds(5));
  EXPECT_EQ(joined.code(), StatusCode::kAborted) << joined;
  EXPECT_EQ(DetailOf(joined).reason, kReasonAborted);
  ExpectPoisoned(*group[0]);
}

TEST_P(CommunicatorConformance, AbortBetweenVerbsFailsTheNext) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  group[0]->Abort();
  EXPECT_EQ(group[0]->Start({}, {}).code(), StatusCode::kAborted);
  ExpectPoisoned(*group[0]);
  Memory memory;
  ASSERT_TRUE(memory.Send(*group[1], 0).code() != StatusCode::kAborted);
  group[1]->Abort();
  EXPECT_FALSE(group[1]->Join(TestDeadline()).ok());
  ExpectPoisoned(*group[1]);
}

// The peers of a rank that aborts detect it long before their deadline: both ranks that wait for it
// and ranks that wait for those.
TEST_P(CommunicatorConformance, AnAbortReachesAllWhoWait) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  std::vector<Memory> memory(w);
  const absl::Time start = SteadyNow();
  const auto statuses = RunRanks(w, [&](int32_t r) {
    if (r == 0) {
      group[0]->Abort();
      return group[0]->Start({}, {});
    }
    const absl::Status status = memory[r].Receive(*group[r], r - 1);
    return status.ok() ? group[r]->Join(SteadyNow() + absl::Minutes(10)) : status;
  });
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
  EXPECT_EQ(statuses[0].code(), StatusCode::kAborted) << statuses[0];
  for (int32_t r = 1; r < w; ++r) {
    EXPECT_EQ(statuses[r].code(), StatusCode::kUnavailable) << r << ": " << statuses[r];
    EXPECT_EQ(DetailOf(statuses[r]).reason, kReasonPeerLost);
  }
  EXPECT_EQ(DetailOf(statuses[1]).metadata["peer"], "0");
}

TEST_P(CommunicatorConformance, AVanishedPeerIsNamed) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  std::vector<Memory> memory(w);
  const auto statuses = RunRanks(w, [&](int32_t r) {
    if (r == w - 1) {
      group[r].reset();
      return absl::OkStatus();
    }
    const absl::Status status = memory[r].Receive(*group[r], w - 1);
    return status.ok() ? group[r]->Join(SteadyNow() + absl::Minutes(10)) : status;
  });
  for (int32_t r = 0; r < w - 1; ++r) {
    EXPECT_EQ(statuses[r].code(), StatusCode::kUnavailable) << statuses[r];
    EXPECT_EQ(DetailOf(statuses[r]).metadata["peer"], std::to_string(w - 1)) << statuses[r];
    ExpectPoisoned(*group[r]);
  }
}

// The peer disappears during a step that both have started: no rank hangs, and no memory is touched
// afterwards. In every second round the peer still owes a message.
TEST_P(CommunicatorConformance, APeerVanishesInMidTransfer) {
  // Two ranks take part: forming large groups takes most of the time.
  for (int round = 0; round < (ranks() > 2 ? 4 : 10); ++round) {
    const bool owes = round % 2 == 0;
    Group group = Connected();
    ASSERT_FALSE(group.empty());
    std::vector<std::byte> in(6 << 20), out(6 << 20), owed(1 << 20);
    std::atomic<bool> started{false};
    const auto statuses = RunRanks(2, [&](int32_t r) {
      const int64_t bytes = static_cast<int64_t>(out.size());
      if (r == 0) {
        const absl::Status status = group[0]->Start({SendMessage{1, out.data(), bytes}}, {});
        while (!started) std::this_thread::yield();
        group[0].reset();
        return status;
      }
      std::vector<ReceiveMessage> receives = {{0, in.data(), bytes}};
      if (owes) receives.push_back({0, owed.data(), static_cast<int64_t>(owed.size())});
      absl::Status status = group[1]->Start({}, receives);
      started = true;
      if (status.ok()) status = group[1]->Join(SteadyNow() + absl::Minutes(10));
      group[1].reset();
      return status;
    });
    // If the peer owes nothing, all messages may have moved before it went.
    if (statuses[1].ok() && !owes) continue;
    EXPECT_EQ(statuses[1].code(), StatusCode::kUnavailable) << statuses[1];
    EXPECT_EQ(DetailOf(statuses[1]).metadata["peer"], "0") << statuses[1];
    // A client may get the message.
    for (const char* internal : {".cc", ".h:", "127.0.0.1", "::1"}) {
      EXPECT_EQ(statuses[1].message().find(internal), std::string::npos) << statuses[1];
    }
  }
}

TEST_P(CommunicatorConformance, ADeadlineExpires) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  Memory memory;
  ASSERT_TRUE(memory.Receive(*group[0], 1).ok());
  const absl::Time start = SteadyNow();
  const absl::Status late = group[0]->Join(start + absl::Milliseconds(60));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(DetailOf(late).reason, kReasonStepTimeout);
  EXPECT_EQ(DetailOf(late).metadata["peer"], "1");
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(60));
  EXPECT_LT(SteadyNow() - start, absl::Seconds(5));
  ExpectPoisoned(*group[0]);
  ASSERT_TRUE(memory.Send(*group[1], 0).code() != StatusCode::kDeadlineExceeded);
}

TEST_P(CommunicatorConformance, ADeadlineInThePastFailsAtOnce) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  Memory memory;
  ASSERT_TRUE(memory.Receive(*group[0], 1).ok());
  EXPECT_EQ(group[0]->Join(absl::InfinitePast()).code(), StatusCode::kDeadlineExceeded);
}

TEST_P(CommunicatorConformance, ANewGroupHeals) {
  for (int generation = 0; generation < 4; ++generation) {
    Group group = Connected();
    ASSERT_FALSE(group.empty());
    const int32_t w = ranks();
    std::vector<Memory> memory(w);
    const auto statuses = RunRanks(w, [&](int32_t r) {
      const int64_t bytes = 1000;
      absl::Status status =
          group[r]->Start({SendMessage{(r + 1) % w, memory[r].out.data(), bytes}},
                          {ReceiveMessage{(r + w - 1) % w, memory[r].in.data(), bytes}});
      status.Update(group[r]->Join(TestDeadline()));
      return status;
    });
    EXPECT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
    ASSERT_TRUE(memory[0].Receive(*group[0], 1).ok());
    group[0]->Abort();
    EXPECT_EQ(group[0]->Join(TestDeadline()).code(), StatusCode::kAborted);
  }
}

TEST_P(CommunicatorConformance, ConnectGivesUpOnARankThatNeverComes) {
  Group group = GiveUpSoon();
  std::vector<std::string> bootstraps;
  for (auto& comm : group) bootstraps.push_back(*comm->Bootstrap());
  const int32_t missing = ranks() - 1;
  group[missing].reset();
  const auto statuses = RunRanks(missing, [&](int32_t r) {
    return group[r]->Connect(bootstraps, SteadyNow() + absl::Milliseconds(500));
  });
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(status.code() == StatusCode::kUnavailable ||
                status.code() == StatusCode::kDeadlineExceeded)
        << status;
  }
  ExpectPoisoned(*group[0]);
}

TEST_P(CommunicatorConformance, AForeignBootstrapIsRefused) {
  Group group = GetParam().make(ranks());
  std::vector<std::string> bootstraps;
  for (auto& comm : group) bootstraps.push_back(*comm->Bootstrap());
  bootstraps[1] = "something else";
  EXPECT_EQ(group[0]->Connect(bootstraps, TestDeadline()).code(), StatusCode::kInvalidArgument);
  ExpectPoisoned(*group[0]);
}

TEST_P(CommunicatorConformance, WrongArgumentsAreRefused) {
  std::byte data[8] = {};
  const int32_t w = ranks();
  const std::vector<SendMessage> wrong = {
      {0, data, 8}, {-1, data, 8}, {w, data, 8}, {1, data, -1}, {1, nullptr, 8}};
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  EXPECT_EQ(group[0]->Start({wrong[0]}, {}).code(), StatusCode::kInvalidArgument);
  ExpectPoisoned(*group[0]);
  for (size_t i = 1; i < wrong.size() && w == 2; ++i) {
    Group another = Connected();
    ASSERT_FALSE(another.empty());
    EXPECT_EQ(another[0]->Start({wrong[i]}, {}).code(), StatusCode::kInvalidArgument) << i;
  }
}

TEST_P(CommunicatorConformance, VerbsOutOfOrderAreRefused) {
  Group unconnected = GetParam().make(ranks());
  EXPECT_EQ(unconnected[0]->Start({}, {}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(unconnected[1]->Join(TestDeadline()).code(), StatusCode::kFailedPrecondition);
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  EXPECT_EQ(group[0]->Join(TestDeadline()).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(group[1]->Start({}, {}).ok());
  EXPECT_EQ(group[1]->Start({}, {}).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace annulus
