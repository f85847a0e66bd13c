#ifndef ANNULUS_PROTO_RPC_MESSAGE_LIMITS_H_
#define ANNULUS_PROTO_RPC_MESSAGE_LIMITS_H_

namespace annulus {

// Of one message between the coordinator and who talks to it; those with tensors alone have their
// own (proto/wire/tensor_stream.h).

// That it receives: a request holds a spec and no tensor, and Attend's chunks are at most 1 MiB.
inline constexpr int kMaxCoordinatorMessageBytes = 8 << 20;

// The same of a question: about jobs, the service or its health. Many of them may wait.
inline constexpr int kMaxQuestionBytes = 4 << 10;

// That it sends, and so what others must receive: a spec as large as it took with what belongs to
// it, a plan in GetJob's answer, a command's other fields to a worker.
inline constexpr int kMaxCoordinatorAnswerBytes = 16 << 20;

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_MESSAGE_LIMITS_H_
