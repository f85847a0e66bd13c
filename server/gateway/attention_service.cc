#include "server/gateway/attention_service.h"

#include <utility>

#include "proto/rpc/request_fields.h"
#include "proto/rpc/unary_call.h"
#include "server/gateway/attend_many_call.h"
#include "server/gateway/gateway_call.h"
#include "server/gateway/inline_call.h"
#include "server/gateway/merge_call.h"

namespace annulus {

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* arrived,
                                                          grpc::ByteBuffer* response) {
  auto* const call = AnswerCall<v1::ServerInfo>::Start(context, options_.answer_patience, response);
  v1::GetServerInfoRequest request;
  if (absl::Status s = TakeQuestion(arrived, &request); !s.ok()) {
    call->End(s);
    return call;
  }
  options_.server_info([call](absl::StatusOr<v1::ServerInfo> info) {
    if (info.ok()) call->answer = *std::move(info);
    call->End(info.status());
  });
  return call;
}

grpc::ServerUnaryReactor* AttentionService::AttendInline(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* arrived,
                                                         grpc::ByteBuffer* response) {
  return StartInlineCall(context, arrived, response, options_,
                         {&gate_, &queue_, options_.answer_patience});
}

grpc::ServerUnaryReactor* AttentionService::MergePartials(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* arrived,
                                                          grpc::ByteBuffer* response) {
  return StartMergeCall(context, arrived, response, {&gate_, &queue_, options_.answer_patience});
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::Attend(
    grpc::CallbackServerContext* context) {
  return GatewayCall::Start(context, options_, &gate_);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::AttendMany(
    grpc::CallbackServerContext* context) {
  return AttendManyCall::Start(context, options_, &gate_, &resting_);
}

}  // namespace annulus
