#ifndef ANNULUS_TESTS_BENCH_TCP_H_
#define ANNULUS_TESTS_BENCH_TCP_H_

#include <cstdint>

namespace annulus::bench {

// Bytes per second of one raw TCP connection over loopback, `bytes` in all: one thread writes 1 MiB
// at a time, another reads into memory that it then owns. The ceiling of any data path on this
// machine.
double TcpLoopbackGoodput(int64_t bytes);

}  // namespace annulus::bench

#endif  // ANNULUS_TESTS_BENCH_TCP_H_
