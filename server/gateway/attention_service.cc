#include "server/gateway/attention_service.h"

#include <utility>

#include "proto/convert.h"
#include "proto/status.h"
#include "server/gateway/gateway_call.h"
#include "server/gateway/inline_call.h"
#include "server/gateway/merge_call.h"

namespace annulus {

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest* request,
                                                          v1::ServerInfo* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (absl::Status s = CheckFieldsKnown(*request, ""); !s.ok()) {
    reactor->Finish(ToGrpcStatus(s));
    return reactor;
  }
  options_.server_info([reactor, response](absl::StatusOr<v1::ServerInfo> info) {
    if (info.ok()) *response = *std::move(info);
    reactor->Finish(ToGrpcStatus(info.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AttentionService::AttendInline(grpc::CallbackServerContext* context,
                                                         const v1::AttendInlineRequest* request,
                                                         v1::AttendInlineResponse* response) {
  return StartInlineCall(context, request, response, options_, {&gate_, &queue_});
}

grpc::ServerUnaryReactor* AttentionService::MergePartials(grpc::CallbackServerContext* context,
                                                          const v1::MergePartialsRequest* request,
                                                          v1::Partial* response) {
  return StartMergeCall(context, request, response, {&gate_, &queue_});
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::Attend(
    grpc::CallbackServerContext* context) {
  return GatewayCall::Start(context, options_, &gate_);
}

}  // namespace annulus
