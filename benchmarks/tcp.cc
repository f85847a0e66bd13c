#include "benchmarks/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace annulus::bench {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;

void Check(bool ok) {
  if (ok) return;
  std::perror("bench: raw TCP");
  std::exit(1);
}

// A connected pair over 127.0.0.1.
struct Pair {
  int writer, reader;
};
Pair Connect() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Check(bind(listener, generic, size) == 0 && listen(listener, 1) == 0);
  Check(getsockname(listener, generic, &size) == 0);
  const int writer = socket(AF_INET, SOCK_STREAM, 0);
  Check(connect(writer, generic, size) == 0);
  const int reader = accept(listener, nullptr, nullptr);
  Check(reader >= 0);
  close(listener);
  return {writer, reader};
}

// CPU time of this process.
double CpuSeconds() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

TcpLoopback MeasureTcpLoopback(int64_t bytes) {
  const Pair pair = Connect();
  std::vector<char> source(static_cast<size_t>(bytes), 'x'), target(static_cast<size_t>(bytes), 0);
  const absl::Time begin = absl::Now();
  const double cpu_begin = CpuSeconds();
  std::thread writer([&] {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t n = write(pair.writer, source.data() + done, std::min(kPiece, bytes - done));
      Check(n > 0);
      done += n;
    }
  });
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = read(pair.reader, target.data() + done, std::min(kPiece, bytes - done));
    Check(n > 0);
    done += n;
  }
  writer.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const double cpu_seconds = CpuSeconds() - cpu_begin;
  close(pair.writer);
  close(pair.reader);
  const auto all = static_cast<double>(bytes);
  return {all / seconds, cpu_seconds / all};
}

}  // namespace annulus::bench
