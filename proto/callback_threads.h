#ifndef ANNULUS_PROTO_CALLBACK_THREADS_H_
#define ANNULUS_PROTO_CALLBACK_THREADS_H_

namespace annulus {

// Keeps gRPC's callback threads until the process ends. Call it before the first callback stream of
// a client. Otherwise the last channel to go takes the threads with it, and when one of them drops
// that channel, say with the last reference to a stream, gRPC 1.51 waits for the thread inside
// itself and corrupts its memory.
void KeepCallbackThreads();

}  // namespace annulus

#endif  // ANNULUS_PROTO_CALLBACK_THREADS_H_
