#include "proto/rpc/callback_threads.h"

#include <grpc/support/cpu.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"

namespace annulus {
namespace {

// gRPC's threads sleep after a second without events.
constexpr absl::Duration kBeat = absl::Milliseconds(400);
// How long a callback thread may take to answer at the start of a process.
constexpr absl::Duration kPatience = absl::Seconds(2);

// A channel without credentials connects nowhere. It holds the callback threads from its first
// callback call on.
class Anchor {
 public:
  // A callback thread calls `done`.
  void Call(std::function<void()> done) {
    auto call = std::make_shared<EmptyCall>();
    stub_.UnaryCall(&call->context, "/annulus/None", grpc::StubOptions(), &call->request,
                    &call->response,
                    [call, done = std::move(done)](const grpc::Status&) { done(); });
  }

 private:
  struct EmptyCall {
    grpc::ClientContext context;
    grpc::Slice empty;
    grpc::ByteBuffer request{&empty, 1}, response;
  };
  grpc::GenericStub stub_{grpc::CreateChannel("", nullptr)};
};

Anchor* TheAnchor() {
  static Anchor* const anchor = [] {
    auto* made = new Anchor();
    made->Call([] {});
    return made;
  }();
  return anchor;
}

// A one-time event that a thread can wait for.
class Moment {
 public:
  void Come() EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      come_ = true;
    }
    changed_.SignalAll();
  }
  // True if the event comes within `timeout`.
  bool Wait(absl::Duration timeout) EXCLUDES(mutex_) {
    const absl::Time deadline = SteadyNow() + timeout;
    MutexLock lock(&mutex_);
    while (!come_) {
      if (!changed_.WaitFor(&mutex_, deadline - SteadyNow())) return come_;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool come_ GUARDED_BY(mutex_) = false;
};

bool AThreadAnswers() {
  auto answered = std::make_shared<Moment>();
  TheAnchor()->Call([answered] { answered->Come(); });
  return answered->Wait(kPatience);
}

// Takes a callback thread out of service, unless it is the last one.
bool ParkThread() {
  auto parked = std::make_shared<Moment>();
  auto leave = std::make_shared<Moment>();
  TheAnchor()->Call([parked, leave] {
    parked->Come();
    leave->Wait(absl::InfiniteDuration());
  });
  if (parked->Wait(kPatience) && AThreadAnswers()) return true;
  leave->Come();
  return false;
}

// The number of threads that gRPC 1.51 starts.
int StartedThreads() { return std::clamp(static_cast<int>(gpr_cpu_num_cores()) / 2, 2, 16); }

int UsableCpus() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(gpr_cpu_num_cores());  // There are more CPUs than the set can hold.
}

// Regular events for threads that would otherwise fall asleep.
class Beat {
 public:
  Beat() : thread_([this] { Loop(); }) {}
  void Stop() {
    stop_.Come();
    thread_.join();
  }

 private:
  void Loop() {
    while (!stop_.Wait(kBeat)) TheAnchor()->Call([] {});
  }
  Moment stop_;
  std::thread thread_;
};

void KeepAwake() {
  static Beat* beat = nullptr;
  if (beat != nullptr) return;
  beat = new Beat();
  std::atexit([] { beat->Stop(); });  // Before gRPC's own globals are destroyed.
}

}  // namespace

void KeepCallbackThreads() { (void)TheAnchor(); }

int LimitCallbackThreads() { return LimitCallbackThreads(std::max(1, UsableCpus() / 2)); }

int LimitCallbackThreads(int threads) {
  // Debian's Abseil searches for deadlocks at every lock of gRPC, under one lock of the process.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  static int left = StartedThreads();
  while (left > threads && ParkThread()) --left;
  KeepAwake();
  return left;
}

}  // namespace annulus
