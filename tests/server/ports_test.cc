// Limits of the memory that any peer can occupy at a port of the coordinator.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "base/error.h"
#include "base/steady_time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "proto/rpc/listen.h"
#include "proto/wire/status.h"
#include "tests/server/raw_call.h"
#include "tests/server/server_case.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

int PortOf(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  return port;
}

class PortsTest : public ServerCase {
 protected:
  std::vector<std::string> Addresses() const {
    return {server_->address(), server_->control_address(), server_->health_address()};
  }
};

// A reflection stream, and the services that it lists.
struct Reflection : RawCall {
  explicit Reflection(const std::shared_ptr<grpc::Channel>& channel)
      : RawCall(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo") {}
  std::string Services() {
    const grpc::Slice list_services("\x3a\x00", 2);
    grpc::ByteBuffer answer;
    std::vector<grpc::Slice> slices;
    if (!Write(grpc::ByteBuffer(&list_services, 1)) || !Read(&answer)) return "";
    EXPECT_TRUE(answer.Dump(&slices).ok());
    std::string text;
    for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
    return text;
  }
};

TEST_F(PortsTest, StreamsOfReflectionAreBoundedAndOtherCallsGoOn) {
  for (const std::string& address : Addresses()) {
    const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    std::vector<std::unique_ptr<Reflection>> streams;
    for (int i = 0; i < kMaxBlockingCalls; ++i) {
      streams.push_back(std::make_unique<Reflection>(channel));
      ASSERT_TRUE(absl::StrContains(streams.back()->Services(), "grpc.health.v1.Health"))
          << address << " " << i;
    }
    Reflection refused(channel);
    EXPECT_EQ(refused.Services(), "");
    EXPECT_EQ(refused.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << address;
    const auto health = grpc::health::v1::Health::NewStub(channel);
    HealthCheckResponse response;
    EXPECT_TRUE(health->Check(Context().get(), {}, &response).ok()) << address;
    streams.pop_back();
    std::string services;
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (services.empty() && SteadyNow() < deadline) services = Reflection(channel).Services();
    EXPECT_TRUE(absl::StrContains(services, "grpc.health.v1.Health")) << address;
  }
}

TEST_F(PortsTest, QuestionsAreSmall) {
  const std::string long_name(5000, 'x');
  for (const std::string& address : Addresses()) {
    const auto health = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    HealthCheckRequest request;
    request.set_service(long_name);
    HealthCheckResponse response;
    EXPECT_EQ(DetailOf(FromGrpcStatus(health->Check(Context().get(), request, &response))).reason,
              "LIMIT_EXCEEDED");
    const auto context = Context();
    const auto watch = health->Watch(context.get(), request);
    EXPECT_FALSE(watch->Read(&response));
    EXPECT_EQ(DetailOf(FromGrpcStatus(watch->Finish())).reason, "LIMIT_EXCEEDED");
  }
  v1::GetJobRequest get;
  get.set_job_id(long_name);
  v1::WatchJobRequest watch;
  watch.set_job_id(long_name);
  v1::ListJobsRequest list;
  list.set_page_token(long_name);
  v1::Job job;
  v1::ListJobsResponse jobs;
  const auto reason = [](const grpc::Status& status) {
    return DetailOf(FromGrpcStatus(status)).reason;
  };
  EXPECT_EQ(reason(jobs_->GetJob(Context().get(), get, &job)), "LIMIT_EXCEEDED");
  EXPECT_EQ(reason(jobs_->ListJobs(Context().get(), list, &jobs)), "LIMIT_EXCEEDED");
  EXPECT_EQ(reason(jobs_->WatchJob(Context().get(), watch)->Finish()), "LIMIT_EXCEEDED");
}

TEST_F(PortsTest, ClientsAndProbesThatAreGoneLoseTheirConnections) {
  CoordinatorServer::Options options;
  options.keepalive_time = options.keepalive_timeout = absl::Milliseconds(100);
  Start(options);
  for (const std::string& address : {server_->address(), server_->health_address()}) {
    UnreadCall watch(PortOf(address), "/grpc.health.v1.Health/Watch", HealthCheckRequest(),
                     UnreadCall::Manner::kIsDeaf);
    EXPECT_TRUE(watch.EndsWithin(absl::Seconds(20))) << address;
  }
}

}  // namespace
}  // namespace annulus
