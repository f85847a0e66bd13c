#ifndef ANNULUS_TESTS_SERVER_GATEWAY_MANY_CALL_H_
#define ANNULUS_TESTS_SERVER_GATEWAY_MANY_CALL_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/error.h"
#include "proto/wire/convert.h"
#include "tests/server/gateway/gateway_case.h"

namespace annulus {

// A client's AttendMany call.
struct ManyCall {
  explicit ManyCall(v1::Attention::Stub* stub) {
    if (stub == nullptr) return;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream = stub->AttendMany(&context);
  }
  // The messages of one job's answer, up to its last: A for accepted, C for chunks, D for done, E
  // for an error.
  std::string Answer() {
    std::vector<std::string> messages;
    v1::AttendResponse response;
    error = absl::OkStatus();
    while (stream->Read(&response)) {
      std::string& message = messages.emplace_back(response.has_accepted() ? "A" : "");
      message += response.chunks_size() > 0 ? "C" : "";
      if (response.has_done()) message += "D";
      if (response.has_error()) {
        message += "E";
        error = ErrorFromProto(response.error());
      }
      if (response.has_done() || response.has_error()) break;
    }
    return absl::StrJoin(messages, " ");
  }
  std::string AnswerTo(const v1::AttendRequest& job) {
    if (!stream->Write(job)) return "the call has ended";
    return Answer();
  }
  // The status of a call without further jobs, whether or not the client has closed its side.
  absl::Status End() {
    v1::AttendResponse response;
    EXPECT_FALSE(stream->Read(&response));
    return FromGrpcStatus(stream->Finish());
  }
  std::string reason() const { return DetailOf(error).reason; }
  std::string field() const {
    const ErrorDetail detail = DetailOf(error);
    return detail.fields.empty() ? "" : detail.fields[0].field;
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> stream;
  absl::Status error;  // The error of the last job.
};

class AttendManyTest : public GatewayCallTest {
 protected:
  using Act = FakeService::Act;
  static constexpr absl::Duration kLong = absl::Minutes(10);

  void StartWith(GatewayServiceOptions options) {
    options.small_answer_wait = kLong;
    Start(std::move(options));
  }
  static GatewayServiceOptions Patient() {
    GatewayServiceOptions options;
    options.first_message_wait = kLong;
    return options;
  }
  // Serves short jobs, with the given acts in order.
  void Serve(std::vector<Act> acts, GatewayServiceOptions options = Patient()) {
    predicted_ = absl::Milliseconds(1);
    behind_ = std::make_unique<FakeService>(Script(std::move(acts)));
    StartWith(std::move(options));
  }
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_GATEWAY_MANY_CALL_H_
