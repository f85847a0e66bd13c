// Content and order of messages.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "tests/sanitized.h"
#include "tests/worker/comm/communicator_conformance.h"

namespace annulus {
namespace {

using Bytes = std::vector<std::byte>;

// Bytes that differ between senders, receivers and messages.
Bytes Pattern(int64_t bytes, int32_t from, int32_t to, int64_t n) {
  constexpr int64_t kWord = sizeof(uint64_t);
  Bytes data((bytes + kWord - 1) / kWord * kWord);
  uint64_t state = 2654435761u * (static_cast<uint32_t>(from * 31 + to + 1) ^ (n << 8));
  for (int64_t at = 0; at < bytes; at += kWord) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state ^ (state >> 29);
    std::memcpy(&data[at], &word, kWord);
  }
  data.resize(bytes);
  return data;
}

// One rank's side of a step; checked after Join.
class StepData {
 public:
  void Send(int32_t from, int32_t to, int64_t bytes, int64_t n) {
    sent_.push_back({to, Pattern(bytes, from, to, n)});
  }
  void Receive(int32_t from, int32_t to, int64_t bytes, int64_t n) {
    expected_.push_back({from, Pattern(bytes, from, to, n)});
    received_.push_back(Bytes(bytes));
  }
  absl::Status Start(Communicator& comm) {
    std::vector<SendMessage> sends;
    for (const auto& [to, data] : sent_) {
      sends.push_back({to, data.data(), static_cast<int64_t>(data.size())});
    }
    std::vector<ReceiveMessage> receives;
    for (size_t i = 0; i < received_.size(); ++i) {
      receives.push_back(
          {expected_[i].first, received_[i].data(), static_cast<int64_t>(received_[i].size())});
    }
    return comm.Start(sends, receives);
  }
  absl::Status Run(Communicator& comm) {
    RETURN_IF_ERROR(Start(comm));
    RETURN_IF_ERROR(comm.Join(TestDeadline()));
    for (size_t i = 0; i < received_.size(); ++i) {
      const Bytes &got = received_[i], &expected = expected_[i].second;
      if (!got.empty() && std::memcmp(got.data(), expected.data(), got.size()) != 0) {
        return absl::DataLossError(absl::StrCat("message ", i, " from ", expected_[i].first));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::pair<int32_t, Bytes>> sent_, expected_;
  std::vector<Bytes> received_;
};

TEST_P(CommunicatorConformance, RingOfEverySize) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  const std::vector<int64_t> sizes = {
      0, 1, 3, 13, 127, 4096, 65537, 1 << 20, (4 << 20), (4 << 20) + 1, 8 << 20};
  const absl::Status status = FirstError(RunRanks(w, [&](int32_t r) {
    int64_t total = 0;
    const int64_t before = group[r]->bytes_received();
    for (const int64_t bytes : sizes) {
      StepData step;
      step.Send(r, (r + 1) % w, bytes, bytes);
      step.Receive((r + w - 1) % w, r, bytes, bytes);
      RETURN_IF_ERROR(step.Run(*group[r]));
      total += bytes;
    }
    if (group[r]->bytes_received() - before != total) return absl::DataLossError("wrong count");
    return absl::OkStatus();
  }));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorConformance, AllToAllInOneStep) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  const absl::Status status = FirstError(RunRanks(w, [&](int32_t r) {
    for (const int64_t bytes : {0, 1, 999, 300001}) {
      StepData step;
      for (int32_t p = 0; p < w; ++p) {
        if (p == r) continue;
        step.Send(r, p, bytes + p, bytes);
        step.Receive(p, r, bytes + r, bytes);
      }
      RETURN_IF_ERROR(step.Run(*group[r]));
    }
    return absl::OkStatus();
  }));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorConformance, MessagesOfAPairKeepTheirOrder) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  const absl::Status status = FirstError(RunRanks(w, [&](int32_t r) {
    for (int64_t round = 0; round < 20; ++round) {
      StepData step;
      for (int64_t n = 0; n < 12; ++n) {
        const int64_t bytes = n % 3 == 0 ? 0 : 1 + (n * 7919) % 5000;
        step.Send(r, (r + 1) % w, bytes, round * 100 + n);
        step.Receive((r + w - 1) % w, r, bytes, round * 100 + n);
      }
      RETURN_IF_ERROR(step.Run(*group[r]));
    }
    return absl::OkStatus();
  }));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorConformance, EmptyStepsAreSteps) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  for (auto& comm : group) {
    EXPECT_TRUE(comm->Start({}, {}).ok());
    EXPECT_TRUE(comm->Join(TestDeadline()).ok());
  }
}

// Ranks take part in different steps and compute for different times, so that they drift apart.
TEST_P(CommunicatorConformance, DriftingRanksFindTheirMessages) {
  constexpr uint64_t kSeed = 20240607;
  RecordProperty("seed", std::to_string(kSeed));
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  const absl::Status status = FirstError(RunRanks(w, [&](int32_t r) {
    std::mt19937_64 shared(kSeed), own(kSeed + 1 + r);
    for (int64_t n = 0; n < 200; ++n) {
      StepData step;
      for (int32_t a = 0; a < w; ++a) {
        for (int32_t b = 0; b < w; ++b) {
          const uint64_t draw = shared();
          if (a == b || draw % 4 != 0) continue;
          const int64_t bytes = (draw >> 8) % 3000;
          if (a == r) step.Send(a, b, bytes, n);
          if (b == r) step.Receive(a, b, bytes, n);
        }
      }
      const absl::Time busy_until = SteadyNow() + absl::Microseconds(own() % 300);
      while (SteadyNow() < busy_until) {
      }
      RETURN_IF_ERROR(step.Run(*group[r]));
    }
    return absl::OkStatus();
  }));
  EXPECT_TRUE(status.ok()) << status << " seed " << kSeed;
}

TEST_P(CommunicatorConformance, ThousandsOfRounds) {
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  const int32_t w = ranks();
  const absl::Status status = FirstError(RunRanks(w, [&](int32_t r) {
    for (int64_t n = 0; n < (kSanitized ? 2000 : 6000) / w; ++n) {
      StepData step;
      step.Send(r, (r + 1) % w, 1 + n % 97, n);
      step.Receive((r + w - 1) % w, r, 1 + n % 97, n);
      RETURN_IF_ERROR(step.Run(*group[r]));
    }
    return absl::OkStatus();
  }));
  EXPECT_TRUE(status.ok()) << status;
}

// Messages of a joined step arrive, even if its sender leaves at once.
TEST_P(CommunicatorConformance, LeavingAfterTheLastJoinLosesNothing) {
  for (int round = 0; round < 5; ++round) {
    Group group = Connected();
    ASSERT_FALSE(group.empty());
    const int32_t w = ranks();
    const absl::Status status = FirstError(RunRanks(w, [&](int32_t r) {
      StepData step;
      if (r == 0) {
        for (int32_t p = 1; p < w; ++p) step.Send(0, p, 1 << 20, round);
      } else {
        step.Receive(0, r, 1 << 20, round);
      }
      RETURN_IF_ERROR(step.Run(*group[r]));
      group[r].reset();
      return absl::OkStatus();
    }));
    EXPECT_TRUE(status.ok()) << status;
  }
}

// A rank that has finished may leave while others still wait for a third rank.
TEST_P(CommunicatorConformance, LeavingEarlyFailsNobodyWhoHasItAll) {
  if (ranks() < 3) GTEST_SKIP() << "needs three ranks";
  Group group = Connected();
  ASSERT_FALSE(group.empty());
  std::atomic<bool> gone{false};
  const absl::Status status = FirstError(RunRanks(3, [&](int32_t r) {
    StepData step;
    if (r == 1) {
      step.Receive(2, 1, 1000, 0);
      step.Receive(0, 1, 1000, 0);
      return step.Run(*group[1]);
    }
    step.Send(r, 1, 1000, 0);
    while (r == 2 && !gone) std::this_thread::yield();
    const absl::Time late = SteadyNow() + absl::Milliseconds(r == 2 ? 150 : 0);
    while (SteadyNow() < late) std::this_thread::yield();
    RETURN_IF_ERROR(step.Run(*group[r]));
    if (r == 0) group[0].reset();
    if (r == 0) gone = true;
    return absl::OkStatus();
  }));
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace annulus
