#include "proto/rpc/callback_threads.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "base/mutex.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/sanitized.h"

namespace annulus {
namespace {

// Callbacks that wait for each other.
class Callbacks {
 public:
  // Starts a call whose callback reports that it runs, and then waits until it may end.
  void Start() {
    auto call = std::make_shared<EmptyCall>();
    stub_.UnaryCall(&call->context, "/annulus/None", grpc::StubOptions(), &call->request,
                    &call->response, [this, call](const grpc::Status&) { Run(); });
  }
  bool AwaitRunning(int count, absl::Time deadline) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (running_ < count && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return running_ >= count;
  }
  bool AwaitEnded(int count, absl::Time deadline) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (ended_ < count && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return ended_ >= count;
  }
  void LetEnd() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    may_end_ = true;
    changed_.SignalAll();
  }

 private:
  struct EmptyCall {
    grpc::ClientContext context;
    grpc::Slice empty;
    grpc::ByteBuffer request{&empty, 1}, response;
  };
  void Run() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    ++running_;
    changed_.SignalAll();
    while (!may_end_) changed_.Wait(&mutex_);
    --running_;
    ++ended_;
    changed_.SignalAll();
  }

  grpc::GenericStub stub_{grpc::CreateChannel("", nullptr)};
  Mutex mutex_;
  CondVar changed_;
  int running_ GUARDED_BY(mutex_) = 0, ended_ GUARDED_BY(mutex_) = 0;
  bool may_end_ GUARDED_BY(mutex_) = false;
};

absl::Time Soon() { return absl::Now() + absl::Milliseconds(300); }
absl::Time Late() { return absl::Now() + absl::Seconds(20); }

// All in one test, because a process limits its threads only once.
TEST(CallbackThreadsTest, OneIsLeftAndIsNeverDeaf) {
  KeepCallbackThreads();
  {
    Callbacks before;
    before.Start();
    before.Start();
    EXPECT_TRUE(before.AwaitRunning(2, Late())) << "gRPC starts two threads at least";
    before.LetEnd();
    ASSERT_TRUE(before.AwaitEnded(2, Late()));
  }
  ASSERT_EQ(LimitCallbackThreads(1), 1);
  EXPECT_EQ(LimitCallbackThreads(1), 1);
  Callbacks after;
  after.Start();
  after.Start();
  EXPECT_TRUE(after.AwaitRunning(1, Late()));
  EXPECT_FALSE(after.AwaitRunning(2, Soon()));
  after.LetEnd();
  ASSERT_TRUE(after.AwaitEnded(2, Late()));

  if (kSanitized) return;  // The rest measures time.
  // One second after an event, a gRPC thread would sleep for a tenth of a second.
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < 5; ++i) {
    Callbacks idle;
    EXPECT_FALSE(idle.AwaitRunning(1, absl::Now() + absl::Milliseconds(1030)));
    idle.LetEnd();
    const absl::Time begin = absl::Now();
    idle.Start();
    ASSERT_TRUE(idle.AwaitEnded(1, Late()));
    best = std::min(best, absl::Now() - begin);
  }
  EXPECT_LT(best, absl::Milliseconds(40));
}

}  // namespace
}  // namespace annulus
