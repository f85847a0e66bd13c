// Requests that cost more to read than to send are refused before they are read.
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>

#include "annulus/v1/attention.grpc.pb.h"
#include "base/error.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "proto/rpc/request_fields.h"
#include "proto/wire/status.h"
#include "tests/server/server_case.h"

namespace annulus {
namespace {

using CostlyRequestsTest = ServerCase;

TEST_F(CostlyRequestsTest, NothingCompressedIsTakenAtAnyPort) {
  for (const std::string& address :
       {server_->address(), server_->control_address(), server_->health_address()}) {
    auto stub = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    const auto context = Context();
    context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(std::string(1000, 'x'));
    grpc::health::v1::HealthCheckResponse answer;
    EXPECT_EQ(stub->Check(context.get(), request, &answer).error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << address;
  }
}

TEST_F(CostlyRequestsTest, RequestsOfManyPartsAreRefusedAtEveryEntry) {
  v1::AttentionSpec spec;
  for (int64_t i = 0; i < kMaxRequestParts; ++i) spec.add_sequences();
  const auto attention = v1::Attention::NewStub(channel_);
  std::map<std::string, grpc::Status> ends;
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = spec;
  v1::Plan planned;
  ends["PlanJob"] = jobs_->PlanJob(Context().get(), plan, &planned);
  v1::RunJobRequest run;
  *run.mutable_spec() = spec;
  ends["RunJob"] = jobs_->RunJob(Context().get(), run)->Finish();
  v1::AttendInlineRequest inlined;
  *inlined.mutable_spec() = spec;
  v1::AttendInlineResponse answer;
  ends["AttendInline"] = attention->AttendInline(Context().get(), inlined, &answer);
  v1::MergePartialsRequest merge;
  for (int64_t i = 0; i <= kMaxRequestParts; ++i) merge.add_partials();
  v1::Partial merged;
  ends["MergePartials"] = attention->MergePartials(Context().get(), merge, &merged);
  const auto context = Context();
  const auto attend = attention->Attend(context.get());
  v1::AttendRequest start;
  *start.mutable_start()->mutable_spec() = spec;
  attend->Write(start);
  ends["Attend"] = attend->Finish();
  for (const auto& [method, status] : ends) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(DetailOf(FromGrpcStatus(status)).reason, "LIMIT_EXCEEDED") << method;
  }
}

}  // namespace
}  // namespace annulus
