#ifndef ANNULUS_TESTS_WORKER_AGENT_MUTE_PROXY_H_
#define ANNULUS_TESTS_WORKER_AGENT_MUTE_PROXY_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace annulus {

// A TCP proxy for another port of 127.0.0.1. Its connections can fall silent without being closed,
// like connections to a host without power. Thread-safe.
class MuteProxy {
 public:
  explicit MuteProxy(const std::string& target);  // 127.0.0.1:PORT
  ~MuteProxy();

  std::string address() const;
  // Stops all traffic of existing connections. Later connections work.
  void Mute() EXCLUDES(mutex_);
  int connections() EXCLUDES(mutex_);

 private:
  void Accept() EXCLUDES(mutex_);

  const int target_port_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  // One for each connection.
  std::vector<std::shared_ptr<std::atomic<bool>>> mute_ GUARDED_BY(mutex_);
  std::vector<std::thread> pumps_ GUARDED_BY(mutex_);
  std::thread accepts_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_AGENT_MUTE_PROXY_H_
