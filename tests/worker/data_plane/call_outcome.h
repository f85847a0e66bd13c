#ifndef ANNULUS_TESTS_WORKER_DATA_PLANE_CALL_OUTCOME_H_
#define ANNULUS_TESTS_WORKER_DATA_PLANE_CALL_OUTCOME_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "worker/data_plane/exchange_call.h"
#include "worker/data_plane/fetch_call.h"
#include "worker/data_plane/put_call.h"

namespace annulus {

// The recorded results of one call. Thread-safe.
class Outcome {
 public:
  struct State {
    int reads = 0;
    std::vector<std::vector<LeavingChunk>> messages;
    std::optional<absl::Status> status;  // Set when the call has ended.
    v1::ShardStatus shard;
    v1::ShardReport report;
    bool cancelled = false;
    std::optional<int64_t> unread;  // Bytes of the message that CancelUnread applies to.
  };

  template <typename Fn>
  void Change(Fn fn) {
    MutexLock lock(&mutex_);
    fn(state_);
    changed_.SignalAll();
  }
  State Get() {
    MutexLock lock(&mutex_);
    return state_;
  }
  template <typename Condition>
  bool Await(Condition condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (!condition(state_)) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }
  // Wait until the given number of reads was requested, or of messages written.
  bool AwaitRead(int reads) {
    return Await([&](const State& state) { return state.reads >= reads; });
  }
  bool AwaitMessages(size_t messages) {
    return Await([&](const State& state) { return state.messages.size() >= messages; });
  }
  absl::Status AwaitEnd() {
    Await([](const State& state) { return state.status.has_value(); });
    return Get().status.value_or(absl::DeadlineExceededError("the call has not ended"));
  }
  std::string AwaitReason() { return DetailOf(AwaitEnd()).reason; }
  bool ended() { return Get().status.has_value(); }

 private:
  Mutex mutex_;
  CondVar changed_;
  State state_ GUARDED_BY(mutex_);
};

inline void End(Outcome* outcome, const absl::Status& status, const v1::ShardStatus& shard) {
  outcome->Change([&](Outcome::State& state) {
    EXPECT_FALSE(state.status.has_value()) << "finished twice";
    state.status = status;
    state.shard = shard;
  });
}

class PutStream final : public PutCall::Stream {
 public:
  void ReadNext() override {
    outcome.Change([](Outcome::State& state) { ++state.reads; });
  }
  void Finish(const absl::Status& status, const v1::ShardStatus& shard) override {
    End(&outcome, status, shard);
  }
  Outcome outcome;
};

class FetchStream final : public FetchCall::Stream {
 public:
  void Write(const std::vector<LeavingChunk>& chunks) override {
    outcome.Change([&](Outcome::State& state) { state.messages.push_back(chunks); });
  }
  void WriteLast(const std::vector<LeavingChunk>& chunks, const v1::ShardReport& report) override {
    outcome.Change([&](Outcome::State& state) {
      state.messages.push_back(chunks);
      state.report = report;
    });
    End(&outcome, absl::OkStatus(), {});
  }
  void Finish(const absl::Status& status) override { End(&outcome, status, {}); }
  void Cancel() override {
    outcome.Change([](Outcome::State& state) { state.cancelled = true; });
  }
  void CancelUnread(int64_t bytes) override {
    outcome.Change([&](Outcome::State& state) { state.unread = bytes; });
  }
  Outcome outcome;
};

class ExchangeTestStream final : public ExchangeCall::Stream {
 public:
  void ReadNext() override {
    outcome.Change([](Outcome::State& state) { ++state.reads; });
    on_read();
  }
  void Write(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report) override {
    outcome.Change([&](Outcome::State& state) {
      state.messages.push_back(chunks);
      if (report != nullptr) state.report = *report;
    });
  }
  void Finish(const absl::Status& status) override { End(&outcome, status, {}); }
  void Cancel() override {
    outcome.Change([](Outcome::State& state) { state.cancelled = true; });
  }
  void CancelUnread(int64_t bytes) override {
    outcome.Change([&](Outcome::State& state) { state.unread = bytes; });
  }
  std::function<void()> on_read = [] {};  // Called under the call's lock.
  Outcome outcome;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_DATA_PLANE_CALL_OUTCOME_H_
