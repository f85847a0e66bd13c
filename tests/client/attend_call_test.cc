#include "client/attend_call.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "client/transport/callback_thread.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

using Act = FakeService::Act;

// An event that happens once and can be awaited.
class Event {
 public:
  void Set() {
    MutexLock lock(&mutex_);
    set_ = true;
    changed_.SignalAll();
  }
  bool Await() {
    MutexLock lock(&mutex_);
    while (!set_) {
      if (!changed_.WaitFor(&mutex_, absl::Seconds(20))) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ GUARDED_BY(mutex_) = false;
};

TEST(AttendCallTest, CancelEndsThePauseBeforeTheNextAttempt) {
  FakeService service(Script({Act::kRestarted}));
  CallbackThread callbacks;
  Event failed;
  AttendContext context;
  context.callbacks = &callbacks;
  context.forget_path = [&] { failed.Set(); };  // The last callback before the pause of 5 minutes.
  context.channel = [](const std::string& address) {
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  };
  context.address = service.address();
  ClientJob job(20);
  AttendOutcome outcome;
  const auto call = std::make_shared<AttendCall>(context, job.Arguments(DataPath::kDirect),
                                                 SteadyNow() + absl::Hours(1), outcome.Function());
  call->Start();
  ASSERT_TRUE(failed.Await());
  call->Cancel();
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(AttendCallTest, WithoutItsStateAJobIsSentWhole) {
  FakeService service(Script({Act::kStateGone, Act::kServe}));
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    Client client(At(service));
    StateJob job;
    const auto result = client.Attend(job.Gradients(path));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->state_gone, "STATE_LOST");
    EXPECT_EQ(result->attempts, 2);
    EXPECT_EQ(job.dq.back(), 19);
    EXPECT_EQ(job.dk.back(), 32);
  }
  EXPECT_EQ(service.run_jobs(), 2);
  EXPECT_EQ(service.attends(), 2);
}

TEST(AttendCallTest, AJobThatIsToHaveItsStateIsNotSentWhole) {
  FakeService service(Script({Act::kStateGone}));
  Client client(At(service));
  StateJob job;
  AttendArguments arguments = job.GradientsOfState(DataPath::kDirect);
  const absl::Status status = client.Attend(arguments).status();
  EXPECT_EQ(DetailOf(status).reason, "STATE_LOST");
  EXPECT_EQ(service.run_jobs(), 1);
  // The inputs for such an upload must be set, and a state must be named.
  arguments.upload_without_state = true;
  EXPECT_EQ(DetailOf(client.Attend(arguments).status()).reason, "MISSING_TENSOR");
  arguments = job.Gradients(DataPath::kDirect);
  arguments.spec.gradients.state.clear();
  EXPECT_EQ(DetailOf(client.Attend(arguments).status()).fields.at(0).field, "spec.gradients.state");
  EXPECT_EQ(service.run_jobs(), 1);
}

// An answer that is lost after its job has released the state that it used.
TEST(AttendCallTest, WhoseAnswerIsLostWithItsStateIsToldSo) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    FakeService service(Script({Act::kAnswerLost, Act::kReleased}));
    Client client(At(service));
    StateJob job;
    AttendArguments arguments = job.GradientsOfState(path);
    arguments.spec.gradients.release_state = true;
    const absl::Status status = client.Attend(arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(DetailOf(status).reason, "STATE_RELEASED");
    EXPECT_EQ(DetailOf(status).metadata["earlier_attempt"], "UNAVAILABLE: gone");
    EXPECT_NE(status.message().find("answer was lost (UNAVAILABLE: gone)"), std::string::npos)
        << status;
    EXPECT_EQ(service.run_jobs() + service.attends(), 2);
  }
}

TEST(AttendCallTest, WithEverythingAtHandALostAnswerIsComputedAgain) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    FakeService service(Script({Act::kAnswerLost, Act::kReleased, Act::kServe}));
    Client client(At(service));
    StateJob job;
    AttendArguments arguments = job.Gradients(path);
    arguments.spec.gradients.release_state = true;
    const auto result = client.Attend(arguments);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->state_gone, "STATE_RELEASED");
    EXPECT_EQ(result->attempts, 3);
    EXPECT_EQ(job.dq.back(), 19);
    EXPECT_EQ(job.dk.back(), 32);
  }
}

TEST(AttendCallTest, AStateThatOthersReleasedIsNoLostAnswer) {
  const struct {
    Act first;
    bool release;
    DataPath path;
  } kCases[] = {{Act::kReleased, true, DataPath::kDirect},
                {Act::kQueueFull, true, DataPath::kDirect},
                {Act::kAnswerLost, false, DataPath::kGateway}};
  for (const auto& [first, release, path] : kCases) {
    FakeService service(Script({first, Act::kReleased}));
    Client client(At(service));
    StateJob job;
    AttendArguments arguments = job.GradientsOfState(path);
    arguments.spec.gradients.release_state = release;
    const absl::Status status = client.Attend(arguments).status();
    EXPECT_EQ(DetailOf(status).reason, "STATE_RELEASED");
    EXPECT_EQ(status.message().find("answer was lost"), absl::string_view::npos) << status;
    EXPECT_EQ(DetailOf(status).metadata["attempts"], first == Act::kReleased ? "" : "2") << status;
  }
}

class SilentServiceTest : public testing::Test {
 protected:
  SilentServiceTest() : service_(Options()), client_(Patient(service_)) {}
  static FakeService::Options Options() {
    FakeService::Options options;
    options.silent_info = true;
    return options;
  }
  static ClientOptions Patient(const FakeService& service) {
    ClientOptions options = At(service);
    options.connect_timeout = absl::Seconds(20);
    return options;
  }

  ClientJob job_{30}, other_{40};
  AttendOutcome outcome_;
  FakeService service_;
  Client client_;
};

TEST_F(SilentServiceTest, LookingForAPathHoldsNoOtherJobUp) {
  client_.AttendAsync(job_.Arguments(DataPath::kAuto), outcome_.Function());
  AttendOutcome other;
  client_.AttendAsync(other_.Arguments(DataPath::kDirect), other.Function());
  EXPECT_TRUE(other.Wait().ok());
  other_.ExpectServed();
  service_.AnswerInfo();
  EXPECT_TRUE(outcome_.Wait().ok());
  job_.ExpectServed();
}

TEST_F(SilentServiceTest, LookingForAPathEndsWithTheDeadline) {
  AttendArguments arguments = job_.Arguments(DataPath::kAuto);
  arguments.timeout = absl::Milliseconds(100);
  EXPECT_EQ(client_.Attend(std::move(arguments)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  service_.AnswerInfo();
}

TEST_F(SilentServiceTest, LookingForAPathEndsWithCancel) {
  const auto call = client_.AttendAsync(job_.Arguments(DataPath::kAuto), outcome_.Function());
  call->Cancel();
  EXPECT_EQ(outcome_.Wait().code(), absl::StatusCode::kCancelled);
  service_.AnswerInfo();
  EXPECT_EQ(service_.run_jobs(), 0);
}

TEST(AttendCallTest, ACallThatWaitsNeedsNoCallbackThread) {
  FakeService service({});
  Client client(At(service));
  Event busy, served;
  AttendOutcome outcome;
  ClientJob first(20), second(30);
  client.AttendAsync(first.Arguments(DataPath::kDirect), [&](auto result) {
    busy.Set();
    EXPECT_TRUE(served.Await());
    outcome.Function()(std::move(result));
  });
  ASSERT_TRUE(busy.Await());
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    EXPECT_TRUE(client.Attend(second.Arguments(path)).ok());
  }
  served.Set();
  EXPECT_TRUE(outcome.Wait().ok());
}

TEST(AttendCallTest, PlacedAndProgressTellHowFarAJobIs) {
  FakeService service({});
  Client client(At(service));
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    ClientJob job(400);
    AttendArguments arguments = job.Arguments(path);
    // One call at a time, but from several threads.
    std::vector<std::string> placed;
    std::vector<JobProgress> steps;
    int shards = 0;
    arguments.placed = [&](const std::string& job_id, const v1::Plan& plan) {
      placed.push_back(job_id);
      shards = plan.shards_size();
    };
    arguments.progress = [&](const JobProgress& progress) { steps.push_back(progress); };
    ASSERT_TRUE(client.Attend(std::move(arguments)).ok());
    EXPECT_EQ(placed, std::vector<std::string>{"job-1"});
    EXPECT_EQ(shards, path == DataPath::kDirect ? 3 : 0);
    ASSERT_FALSE(steps.empty());
    for (size_t i = 1; i < steps.size(); ++i) {
      EXPECT_GE(steps[i].bytes_sent, steps[i - 1].bytes_sent);
      EXPECT_GE(steps[i].bytes_received, steps[i - 1].bytes_received);
    }
    const JobProgress& last = steps.back();
    EXPECT_EQ(last.attempt, 1);
    EXPECT_EQ(last.bytes_to_send, static_cast<int64_t>((400 + 2 * 33) * 16 * sizeof(float)));
    EXPECT_EQ(last.bytes_sent, last.bytes_to_send);
    EXPECT_EQ(last.bytes_to_receive, static_cast<int64_t>(400 * (16 + 2) * sizeof(float)));
    EXPECT_EQ(last.bytes_received, last.bytes_to_receive);
  }
}

}  // namespace
}  // namespace annulus
