#include "tests/worker/agent/mute_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr int kLookMs = 20;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

bool Readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, kLookMs) > 0;
}

bool PassOn(int from, int to) {
  char bytes[65536];
  const ssize_t count = read(from, bytes, sizeof(bytes));
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t more = send(to, bytes + sent, count - sent, MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return count > 0;
}

// In both directions, until one end closes.
void Pump(int near, int far, const std::atomic<bool>& mute, const std::atomic<bool>& stop) {
  for (bool open = true; open && !stop;) {
    if (mute) {
      poll(nullptr, 0, kLookMs);
      continue;
    }
    pollfd both[2] = {{near, POLLIN, 0}, {far, POLLIN, 0}};
    if (poll(both, 2, kLookMs) <= 0 || mute) continue;
    if (both[0].revents != 0) open = PassOn(near, far);
    if (open && both[1].revents != 0) open = PassOn(far, near);
  }
  close(near);
  close(far);
}

}  // namespace

MuteProxy::MuteProxy(const std::string& target)
    : target_port_(std::stoi(target.substr(target.rfind(':') + 1))),
      listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0) std::abort();
  if (listen(listener_, 16) != 0) std::abort();
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  accepts_ = std::thread([this] { Accept(); });
}

MuteProxy::~MuteProxy() {
  stop_ = true;
  accepts_.join();
  MutexLock lock(&mutex_);
  for (std::thread& pump : pumps_) pump.join();
  close(listener_);
}

std::string MuteProxy::address() const { return absl::StrCat("127.0.0.1:", port_); }

void MuteProxy::Mute() {
  MutexLock lock(&mutex_);
  for (const auto& mute : mute_) *mute = true;
}

int MuteProxy::connections() {
  MutexLock lock(&mutex_);
  return static_cast<int>(mute_.size());
}

void MuteProxy::Accept() {
  while (!stop_) {
    if (!Readable(listener_)) continue;
    const int near = accept(listener_, nullptr, nullptr), far = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(target_port_);
    if (connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(near);
      close(far);
      continue;
    }
    auto mute = std::make_shared<std::atomic<bool>>(false);
    MutexLock lock(&mutex_);
    mute_.push_back(mute);
    pumps_.emplace_back([this, near, far, mute] { Pump(near, far, *mute, stop_); });
  }
}

}  // namespace annulus
