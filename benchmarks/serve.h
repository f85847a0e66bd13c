#ifndef ANNULUS_BENCHMARKS_SERVE_H_
#define ANNULUS_BENCHMARKS_SERVE_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace annulus::bench {

// A running `annulus serve` with its coordinator and workers, from the programs that the benchmark
// was built with. Ends the process with a message when the service does not start: a benchmark has
// no other use.
class Serve {
 public:
  // `flags` follow `serve --workers N --address 127.0.0.1:0`.
  Serve(int workers, std::vector<std::string> flags);
  // Interrupts it and waits for its end; ends the process with its log where it, or a child by
  // itself, ended badly.
  ~Serve();
  Serve(const Serve&) = delete;
  Serve& operator=(const Serve&) = delete;

  // host:port of the coordinator.
  const std::string& address() const { return address_; }
  // Of `annulus serve`, whose children are the coordinator and the workers.
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::string address_;
  std::FILE* log_ = nullptr;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_SERVE_H_
