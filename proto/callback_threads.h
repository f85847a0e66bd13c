#ifndef ANNULUS_PROTO_CALLBACK_THREADS_H_
#define ANNULUS_PROTO_CALLBACK_THREADS_H_

namespace annulus {

// Keeps gRPC's callback threads until the process ends. Call it before the first callback stream of
// a client. Otherwise the last channel to go takes the threads with it, and when one of them drops
// that channel, say with the last reference to a stream, gRPC 1.51 waits for the thread inside
// itself and corrupts its memory.
void KeepCallbackThreads();

// gRPC starts a callback thread for every two cores, and never less than two. On two or three cores
// each of the two wakes the other for every event; this puts one of them to rest until the process
// ends. Once, from a program's main: a library leaves the threads of its program alone. Callbacks
// must not wait for one another, here less than ever.
void RestSurplusCallbackThread();

}  // namespace annulus

#endif  // ANNULUS_PROTO_CALLBACK_THREADS_H_
