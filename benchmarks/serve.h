#ifndef ANNULUS_BENCHMARKS_SERVE_H_
#define ANNULUS_BENCHMARKS_SERVE_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace annulus::bench {

// A running `annulus serve` with coordinator and workers, from the binaries built with the
// benchmark. Ends the process with a message if the service does not start.
class Serve {
 public:
  // `flags` follow `serve --workers N --address 127.0.0.1:0`.
  Serve(int workers, std::vector<std::string> flags);
  // Interrupts the service and waits for its end. Ends the process with the service's log if the
  // service failed, or if a child ended by itself.
  ~Serve();
  Serve(const Serve&) = delete;
  Serve& operator=(const Serve&) = delete;

  // host:port of the coordinator.
  const std::string& address() const { return address_; }
  // Process id of `annulus serve`, whose children are the coordinator and the workers.
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::string address_;
  std::FILE* log_ = nullptr;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_SERVE_H_
