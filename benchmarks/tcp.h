#ifndef ANNULUS_BENCHMARKS_TCP_H_
#define ANNULUS_BENCHMARKS_TCP_H_

#include <cstdint>

namespace annulus::bench {

// One raw TCP connection over loopback. One thread writes 1 MiB at a time; another reads into
// memory that has been touched before. The ceiling of any data path on this machine.
struct TcpLoopback {
  double bytes_per_second = 0;
  double cpu_seconds = 0;  // CPU time of both ends per byte.
};
TcpLoopback MeasureTcpLoopback(int64_t bytes);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_TCP_H_
