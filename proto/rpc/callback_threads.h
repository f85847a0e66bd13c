#ifndef ANNULUS_PROTO_RPC_CALLBACK_THREADS_H_
#define ANNULUS_PROTO_RPC_CALLBACK_THREADS_H_

namespace annulus {

// Keeps gRPC's callback threads until the process ends. Call it before the first callback stream of
// a client. Otherwise the last channel to go takes the threads with it, and when one of them drops
// that channel, say with the last reference to a stream, gRPC 1.51 waits for the thread inside
// itself and corrupts its memory.
void KeepCallbackThreads();

// For a process that is ours alone, at its start, once signals are blocked and before other threads
// are there: as many of gRPC's callback threads as half of the CPUs that the process may run on (a
// quota of their time does not count), at least one, and never a deaf one. By itself gRPC 1.51
// takes two at least, of which each has to wake the other for every event, and lets them sleep for
// a tenth of a second after one without events. Returns how many are left.
int LimitCallbackThreads();

// The same with a number, for tests. More than gRPC has started are not added.
int LimitCallbackThreads(int threads);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_CALLBACK_THREADS_H_
