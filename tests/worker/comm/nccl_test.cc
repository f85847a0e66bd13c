// The NCCL communicator on stand-ins of NCCL and CUDA.

#include "worker/comm/nccl.h"

#include <atomic>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/steady_time.h"
#include "gmock/gmock.h"
#include "tests/worker/comm/communicator_conformance.h"
#include "tests/worker/comm/nccl_world.h"
#include "worker/comm/communicator_base.h"

namespace annulus {
namespace {

using absl::StatusCode;

// Each rank has five threads here, so two sizes are enough.
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance,
                         testing::Values(ConformanceCase{"2", GroupInItsOwnWorld, 2},
                                         ConformanceCase{"4", GroupInItsOwnWorld, 4}),
                         ConformanceName);

TEST(Nccl, ErrorsWhileAGroupFormsAreSeenAndNothingIsLeft) {
  const struct {
    NcclResult NcclStandIn::Options::*where;
    NcclResult result;
    StatusCode code;
  } cases[] = {
      {&NcclStandIn::Options::init, kNcclInternalError, StatusCode::kInternal},
      {&NcclStandIn::Options::init, kNcclSystemError, StatusCode::kUnavailable},
      {&NcclStandIn::Options::init_later, kNcclInternalError, StatusCode::kInternal},
      {&NcclStandIn::Options::init_later, kNcclRemoteError, StatusCode::kUnavailable},
      {&NcclStandIn::Options::group_end, kNcclInternalError, StatusCode::kInternal},
  };
  for (const auto& c : cases) {
    const auto world = std::make_shared<NcclWorld>(With(c.where, c.result));
    Group group = GroupIn(world, 2);
    const auto statuses = ConnectAll(group, TestDeadline());
    // Both fail, but one may first detect that the other is gone.
    EXPECT_FALSE(statuses[0].ok());
    EXPECT_FALSE(statuses[1].ok());
    const absl::Status& status = statuses[statuses[0].code() == c.code ? 0 : 1];
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_EQ(DetailOf(status).reason == kReasonPeerLost, c.code == StatusCode::kUnavailable);
    EXPECT_EQ(world->nccl->live(), 0);
  }
}

// Imitates a thread of NCCL's that fails before the call returns.
TEST(Nccl, ACommunicatorThatFailsAtOnceIsNotLeftBehind) {
  NcclStandIn::Options options = With(&NcclStandIn::Options::init, kNcclInternalError);
  options.init_leaves = true;
  const auto world = std::make_shared<NcclWorld>(options);
  Group group = GroupIn(world, 2);
  for (const absl::Status& status : ConnectAll(group, TestDeadline()))
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status;
  EXPECT_EQ(world->nccl->live(), 0);
  EXPECT_EQ(world->nccl->aborts(), 2);
}

TEST(Nccl, AnIdThatCannotBeMadeFailsTheBootstrap) {
  const auto world = std::make_shared<NcclWorld>(With(&NcclStandIn::Options::id, kNcclSystemError));
  Group group = GroupIn(world, 2);
  // No peer is involved.
  EXPECT_EQ(group[0]->Bootstrap().status().code(), StatusCode::kInternal);
  EXPECT_TRUE(group[1]->Bootstrap().ok());
}

// A bootstrap runs on a separate thread; the device belongs to the lane's.
TEST(Nccl, ABootstrapAsksNothingOfTheDevice) {
  const auto world =
      std::make_shared<NcclWorld>(With(&NcclStandIn::Options::id, kNcclUnhandledCudaError));
  Group group = GroupIn(world, 2);
  world->cuda.Break(CudaStandIn::kIllegalAddress);
  const absl::Status status = group[0]->Bootstrap().status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), testing::HasSubstr("NCCL: cannot make an id"));
}

TEST(Nccl, ARankWithAnotherVersionIsNamedByAll) {
  const auto world = std::make_shared<NcclWorld>();
  NcclStandIn::Options old;
  old.cuda = &world->cuda;
  old.version = 22705;
  NcclStandIn older(old);
  Group group = GroupIn(world, 3);
  group[2] = std::make_unique<NcclWithDevice>(world, &older, 2, 3);
  const auto statuses = ConnectAll(group, TestDeadline());
  for (const absl::Status& status : statuses)
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      statuses[0].message(),
      "rank 2 has NCCL 2.27.5, but rank 0 has 2.28.9: all ranks of a group need the same version");
}

// A step fails in transit: the error is visible only by polling.
TEST(Nccl, AnErrorInATransferIsSeen) {
  for (const auto& [result, code] : {std::pair(kNcclRemoteError, StatusCode::kUnavailable),
                                     std::pair(kNcclSystemError, StatusCode::kUnavailable),
                                     std::pair(kNcclInternalError, StatusCode::kInternal),
                                     std::pair(kNcclUnhandledCudaError, StatusCode::kInternal)}) {
    NcclStandIn::Options options;
    options.group = 2;
    options.group_later = result;
    const auto world = std::make_shared<NcclWorld>(options);
    Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
    ASSERT_FALSE(group.empty());
    std::byte data[8] = {};
    // Start polls too while the step is queued, so either may return the error.
    absl::Status seen = group[0]->Start({SendMessage{1, data, 8}}, {});
    if (seen.ok()) seen = group[0]->Join(TestDeadline());
    EXPECT_EQ(seen.code(), code) << seen;
    EXPECT_THAT(std::string(seen.message()), testing::HasSubstr("the stand-in's last word"));
    EXPECT_EQ(world->nccl->aborts(), 1);
  }
}

// Lost NVLink peers cause no error: the kernel waits.
TEST(Nccl, AHangEndsByTheDeadlineOrTheAbort) {
  NcclStandIn::Options options;
  options.group = 2;
  options.group_later = kNcclInProgress;
  const auto world = std::make_shared<NcclWorld>(options);
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 3);
  ASSERT_FALSE(group.empty());
  std::byte data[8] = {};
  ASSERT_TRUE(group[0]->Start({SendMessage{1, data, 8}}, {ReceiveMessage{2, data, 8}}).ok());
  const absl::Status late = group[0]->Join(SteadyNow() + absl::Milliseconds(30));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(DetailOf(late).reason, kReasonStepTimeout);
  EXPECT_EQ(DetailOf(late).metadata.count("peer"), 0u) << "two peers: nobody knows which";
  ASSERT_TRUE(group[1]->Start({SendMessage{0, data, 8}}, {}).ok());
  std::thread other([&] { group[1]->Abort(); });
  EXPECT_EQ(group[1]->Join(absl::InfiniteFuture()).code(), StatusCode::kAborted);
  other.join();
  EXPECT_EQ(world->nccl->aborts(), 2);
}

// Running transfers may still write to the caller's memory, so Join returns after they have ended.
TEST(Nccl, AnAbortWaitsUntilItsQueueIsEmpty) {
  NcclStandIn::Options options;
  options.group = 2;
  options.group_later = kNcclInProgress;
  const auto world = std::make_shared<NcclWorld>(options);
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
  ASSERT_FALSE(group.empty());
  CudaDevice* const device = static_cast<NcclWithDevice&>(*group[0]).device();
  ASSERT_TRUE(device->MakeCurrent().ok());
  std::atomic<bool> over{false};
  const auto lingering = [&over, nccl = world->nccl.get()] {
    while (nccl->aborts() == 0) std::this_thread::yield();
    const absl::Time end = SteadyNow() + absl::Milliseconds(50);
    while (SteadyNow() < end) std::this_thread::yield();
    over = true;
  };
  ASSERT_EQ(world->cuda.Launch(device->transfers(), lingering), 0);
  std::byte data[8] = {};
  ASSERT_TRUE(group[0]->Start({SendMessage{1, data, 8}}, {}).ok());
  EXPECT_FALSE(group[0]->Join(SteadyNow() + absl::Milliseconds(30)).ok());
  EXPECT_TRUE(over);
}

// Loading code may have to wait for messages, and messages wait for other ranks.
TEST(Nccl, NothingIsLoadedWhileAStepIsOpen) {
  NcclStandIn::Options options;
  options.group = 3;
  options.group_later = kNcclInProgress;
  const auto world = std::make_shared<NcclWorld>(options);
  LoadGate* const gate = world->context->load_gate();
  const auto loads = [gate] {
    const bool may = gate->BeginLoad(absl::ZeroDuration());
    if (may) gate->EndLoad();
    return may;
  };
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
  ASSERT_FALSE(group.empty());
  EXPECT_TRUE(loads()) << "all have met";
  std::byte out[8] = {}, in[8] = {};
  ASSERT_TRUE(group[0]->Start({SendMessage{1, out, 8}}, {}).ok());
  ASSERT_TRUE(group[1]->Start({}, {ReceiveMessage{0, in, 8}}).ok());
  EXPECT_FALSE(loads());
  ASSERT_TRUE(group[0]->Join(TestDeadline()).ok());
  EXPECT_FALSE(loads()) << "the other's";
  ASSERT_TRUE(group[1]->Join(TestDeadline()).ok());
  EXPECT_TRUE(loads());
  ASSERT_TRUE(group[0]->Start({}, {}).ok());
  EXPECT_TRUE(loads()) << "a step without messages";
  ASSERT_TRUE(group[0]->Join(TestDeadline()).ok());
  ASSERT_TRUE(group[0]->Start({SendMessage{1, out, 8}}, {}).ok());
  EXPECT_FALSE(loads());
  EXPECT_FALSE(group[0]->Join(SteadyNow() + absl::Milliseconds(30)).ok());
  EXPECT_TRUE(loads()) << "after an error, too";
}

// The device's earlier work is done first, and its time does not count against peers.
TEST(Nccl, ADeadlineBeginsWhenOwnWorkIsDone) {
  const auto world = std::make_shared<NcclWorld>();
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
  ASSERT_FALSE(group.empty());
  const auto device = [&](int32_t r) { return static_cast<NcclWithDevice&>(*group[r]).device(); };
  std::byte out[8] = {}, in[8] = {};
  const absl::Duration allowed = absl::Seconds(2);
  // The kernel ends after the deadline of Join, whenever that is.
  std::atomic<int64_t> deadline{std::numeric_limits<int64_t>::max()};
  ASSERT_EQ(world->cuda.Launch(*device(0)->Compute(),
                               [&deadline, &out] {
                                 const auto late = absl::Milliseconds(100);
                                 while (absl::ToUnixNanos(SteadyNow() - late) < deadline)
                                   std::this_thread::yield();
                                 out[0] = std::byte{7};
                               }),
            0);
  const auto statuses = RunRanks(2, [&](int32_t r) {
    const absl::Status started = r == 0 ? group[0]->Start({SendMessage{1, out, 8}}, {})
                                        : group[1]->Start({}, {ReceiveMessage{0, in, 8}});
    const absl::Time ends = r == 0 ? SteadyNow() + allowed : TestDeadline();
    if (r == 0) deadline = absl::ToUnixNanos(ends);
    return started.ok() ? group[r]->Join(ends) : started;
  });
  EXPECT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
  EXPECT_EQ(in[0], std::byte{7}) << "sent before the kernel wrote it";
}

// NCCL puts a group on its stream some time after the call. Until then the stream's state proves
// nothing.
TEST(Nccl, AStepThatIsLaunchedLateIsAwaited) {
  NcclStandIn::Options options;
  options.launch_time = absl::Milliseconds(4);
  const auto world = std::make_shared<NcclWorld>(options);
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
  ASSERT_FALSE(group.empty());
  for (int round = 1; round <= 5; ++round) {
    std::byte out[2] = {std::byte(round), std::byte(round + 100)}, in[2] = {};
    const auto statuses = RunRanks(2, [&](int32_t r) {
      const SendMessage send{1 - r, &out[r], 1};
      const ReceiveMessage receive{1 - r, &in[r], 1};
      const absl::Status started = group[r]->Start({&send, 1}, {&receive, 1});
      return started.ok() ? group[r]->Join(TestDeadline()) : started;
    });
    EXPECT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
    EXPECT_EQ(in[0], out[1]);
    EXPECT_EQ(in[1], out[0]);
  }
}

TEST(Nccl, AFaultOfTheDeviceIsToldAsOne) {
  const auto world = std::make_shared<NcclWorld>();
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
  ASSERT_FALSE(group.empty());
  std::byte data[8] = {};
  ASSERT_TRUE(group[0]->Start({SendMessage{1, data, 8}}, {}).ok());
  world->cuda.Break(CudaStandIn::kIllegalAddress);
  const absl::Status joined = group[0]->Join(TestDeadline());
  EXPECT_TRUE(IsDeviceFault(joined)) << joined;
}

TEST(Nccl, AGroupOfOneNeedsNoCommunicator) {
  const auto world = std::make_shared<NcclWorld>();
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 1);
  ASSERT_FALSE(group.empty());
  EXPECT_EQ(world->nccl->live(), 0);
  EXPECT_TRUE(group[0]->Start({}, {}).ok());
  EXPECT_TRUE(group[0]->Join(TestDeadline()).ok());
}

// NCCL connects a pair and allocates its memory at the first message, so all pairs exchange one
// before a job.
TEST(Nccl, EveryOrderedPairMeetsWhileAGroupForms) {
  for (const int32_t size : {2, 3, 5}) {
    const auto world = std::make_shared<NcclWorld>();
    Group group = ConnectedGroup([&](int32_t n) { return GroupIn(world, n); }, size);
    ASSERT_FALSE(group.empty());
    EXPECT_EQ(world->nccl->groups(), size);
    EXPECT_EQ(world->nccl->sends().size(), static_cast<size_t>(size * (size - 1)));
    EXPECT_EQ(world->nccl->receives(), world->nccl->sends());
  }
}

TEST(Nccl, AStepIsOneGroupWhateverItMoves) {
  constexpr int32_t kRanks = 3;
  const auto world = std::make_shared<NcclWorld>();
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, kRanks);
  ASSERT_FALSE(group.empty());
  const int64_t before = world->nccl->groups();
  std::byte out[kRanks][4] = {}, in[kRanks][4] = {};
  const auto statuses = RunRanks(kRanks, [&](int32_t r) {
    std::vector<SendMessage> sends;
    std::vector<ReceiveMessage> receives;
    for (int32_t i = 0; i < 4; ++i) {
      sends.push_back({(r + 1 + i % 2) % kRanks, &out[r][i], 1});
      receives.push_back({(r + 2 - i % 2) % kRanks, &in[r][i], 1});
    }
    const absl::Status started = group[r]->Start(sends, receives);
    return started.ok() ? group[r]->Join(TestDeadline()) : started;
  });
  EXPECT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
  EXPECT_EQ(world->nccl->groups() - before, kRanks);
}

TEST(Nccl, AHealthyGroupIsFlushedAndNotAborted) {
  const auto world = std::make_shared<NcclWorld>();
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 3);
  EXPECT_EQ(world->nccl->live(), 3);
  group.clear();
  EXPECT_EQ(world->nccl->live(), 0);
  EXPECT_EQ(world->nccl->aborts(), 0);
}

// Since 2.24, NCCL leaves the thread in a group after such an error: later calls of the thread
// would never run.
TEST(Nccl, ACommunicatorThatIsNotDestroyedIsAbortedAndItsThreadGoesOn) {
  for (const int version : {21903, 22809}) {
    NcclStandIn::Options options = With(&NcclStandIn::Options::destroy, kNcclRemoteError);
    options.version = version;
    const auto world = std::make_shared<NcclWorld>(options);
    Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
    ASSERT_FALSE(group.empty());
    group.clear();
    EXPECT_EQ(world->nccl->live(), 0) << version;
    EXPECT_EQ(world->nccl->aborts(), 2) << version;
    EXPECT_EQ(NcclStandIn::group_depth(), 0) << version;
    EXPECT_TRUE(world->context->load_gate()->BeginLoad(absl::ZeroDuration()));
    world->context->load_gate()->EndLoad();
  }
}

TEST(Nccl, WhatNcclMayHaveFreedIsNotAborted) {
  const auto world =
      std::make_shared<NcclWorld>(With(&NcclStandIn::Options::destroy, kNcclUnhandledCudaError));
  Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
  ASSERT_FALSE(group.empty());
  group.clear();
  EXPECT_EQ(world->nccl->live(), 0);
  EXPECT_EQ(world->nccl->aborts(), 0);
}

// NCCL waits for the ranks of an id until the process ends.
TEST(Nccl, IdsOfGroupsThatDoNotFormAreCounted) {
  const auto world = std::make_shared<NcclWorld>();
  Group healthy = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 3);
  Group alone = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 1);
  ASSERT_FALSE(healthy.empty() || alone.empty());
  Group unconnected = GroupIn(world, 2);
  for (const auto& rank : unconnected) ASSERT_TRUE(rank->Bootstrap().ok());
  Group aborted = GroupIn(world, 2);
  std::vector<std::string> bootstraps;
  for (const auto& rank : aborted) bootstraps.push_back(*rank->Bootstrap());
  EXPECT_EQ(aborted[0]->Connect(bootstraps, SteadyNow() + absl::Milliseconds(20)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(world->lost_ids.count(), 0) << "the others may still come";
  healthy.clear();
  alone.clear();
  EXPECT_EQ(world->lost_ids.count(), 0);
  unconnected.clear();
  EXPECT_EQ(world->lost_ids.count(), 1) << "rank 0's";
  aborted.clear();
  EXPECT_EQ(world->lost_ids.count(), 2);
}

TEST(Nccl, ManyLostIdsAreAReasonForAnotherProcess) {
  NcclLostIds ids;
  for (int i = 0; i < NcclLostIds::kMost; ++i) {
    EXPECT_EQ(ids.Complaint(), "");
    ids.Add();
  }
  EXPECT_EQ(ids.Complaint(), "NCCL still waits for the ranks of 256 groups that did not form");
}

TEST(Nccl, RanksOutOfRangeAreRefused) {
  const NcclWorld world;
  const auto device = *CudaDevice::Create(world.context);
  NcclOptions options;
  options.api = world.nccl.get();
  options.device = device.get();
  for (const auto& [rank, size] : {std::pair(0, 0), std::pair(-1, 2), std::pair(2, 2)}) {
    options.rank = rank;
    options.size = size;
    EXPECT_EQ(MakeNcclCommunicator(options).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace annulus
