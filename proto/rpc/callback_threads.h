#ifndef ANNULUS_PROTO_RPC_CALLBACK_THREADS_H_
#define ANNULUS_PROTO_RPC_CALLBACK_THREADS_H_

namespace annulus {

// Keeps gRPC's callback threads until the process ends. Call it before the first callback stream of
// a client. Otherwise the last channel to be destroyed stops the threads. If one of the threads
// destroys that channel, for example with the last reference to a stream, gRPC 1.51 waits for the
// thread inside itself and corrupts its memory.
void KeepCallbackThreads();

// Limits gRPC's callback threads to half of the CPUs that the process may run on, at least one. A
// quota of CPU time is not taken into account. Call it in a program's own process, at the start:
// after signals are blocked and before other threads exist. Every remaining thread answers events.
// By default, gRPC 1.51 uses at least two threads. Each of them wakes the other for every event,
// and they sleep for a tenth of a second after one without events. Returns the number of remaining
// threads.
int LimitCallbackThreads();

// Same with a number of threads, for tests. It does not add threads beyond those that gRPC has
// started.
int LimitCallbackThreads(int threads);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_CALLBACK_THREADS_H_
