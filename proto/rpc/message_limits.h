#ifndef ANNULUS_PROTO_RPC_MESSAGE_LIMITS_H_
#define ANNULUS_PROTO_RPC_MESSAGE_LIMITS_H_

namespace annulus {

// Limits of one message between the coordinator and its clients and workers. Messages with tensors
// have limits of their own (proto/wire/tensor_stream.h).

// Bytes of a message that the coordinator receives. A request holds a spec and no tensor; Attend's
// chunks have at most 1 MiB.
inline constexpr int kMaxCoordinatorMessageBytes = 8 << 20;

// Bytes of a small request: about jobs, the service or its health. Many of these may wait.
inline constexpr int kMaxQuestionBytes = 4 << 10;

// Bytes of a message that the coordinator sends, and so of a message that its peers must receive.
// It covers the largest accepted spec and its surroundings: a plan in the answer of GetJob, the
// other fields of a command to a worker.
inline constexpr int kMaxCoordinatorAnswerBytes = 16 << 20;

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_MESSAGE_LIMITS_H_
