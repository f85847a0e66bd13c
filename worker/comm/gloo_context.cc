#include "worker/comm/gloo_context.h"

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace annulus {
namespace {

namespace tcp = ::gloo::transport::tcp;

// A lock is mostly held for some microseconds, a look takes one.
constexpr int kLooks = 20;
constexpr std::chrono::microseconds kPause(20);  // Some 70 by the timers of Linux.

// Looks in vain, one after the other, of the loop that this thread is. (A pair's own count would be
// set after the loop knows the pair: Gloo tells it in the constructor.)
thread_local int looks = 0;

class PatientPair final : public tcp::Pair {
 public:
  using Pair::Pair;

  // Closed while it is still this class that the loop finds.
  ~PatientPair() override {
    const std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED) PatientPair::changeState(CLOSED);
  }

  // Gloo's loop calls it again as long as something is to be done. It must not wait for the lock:
  // who closes a pair holds it and waits for the loop.
  void handleEvents(int events) override {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock.owns_lock()) {
      if (++looks > kLooks) std::this_thread::sleep_for(kPause);
      return;
    }
    looks = 0;
    // What it throws there would end the process, and strangers can make it: a port that was a
    // lost worker's may be this pair's.
    try {
      Serve(events);
    } catch (const std::exception& error) {
      if (ex_ == nullptr) signalException(error.what());
    }
  }

 protected:
  // Gloo takes a socket back from its loop before it closes it, and a loop that does not have it
  // ends the process. The one of a peer who was gone when it was let in has not come there.
  void changeState(state next) noexcept override {
    if (next == CLOSED && state_ != CLOSED && fd_ >= 0) {
      try {
        device_->registerDescriptor(fd_, 0, this);
      } catch (const std::exception&) {
        ::close(std::exchange(fd_, -1));
      }
    }
    // Of a pair that was connected, by a stranger before its own socket could not be made, it does
    // not ask whether there is one.
    if (next == CLOSED && state_ == CONNECTED && fd_ < 0) state_ = CONNECTING;
    if (next == CONNECTING) rx_ = tcp::Op();  // The words of a stranger who came first.
    Pair::changeState(next);
  }

  // Nobody here has buffers of this kind. Gloo would ask for one again and again.
  bool read() override {
    const bool more = Pair::read();
    if (ex_ == nullptr && rx_.nread >= sizeof(rx_.preamble) &&
        rx_.getOpcode() == tcp::Op::SEND_BUFFER) {
      signalException("a peer that is none: it sends to a buffer");
    }
    return more && ex_ == nullptr;
  }

 private:
  void Serve(int events) {
    if (state_ == CONNECTED)
      handleReadWrite(events);
    else if (state_ == LISTENING)
      handleListening();
    else if (state_ == CONNECTING)
      handleConnecting();
  }
};

class PatientContext final : public tcp::Context {
 public:
  using Context::Context;

  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override {
    pairs_[rank] = std::make_unique<PatientPair>(this, device_.get(), rank, getTimeout());
    return pairs_[rank];
  }
};

}  // namespace

// Gloo's own look-up crashes on an unknown host and leaks on an address of another machine.
std::shared_ptr<tcp::Device> MakeGlooDevice(const BindAddress& address) {
  tcp::attr where;
  where.ai_family = address.storage.ss_family;
  where.ai_socktype = SOCK_STREAM;
  where.ai_protocol = 0;
  where.ai_addr = address.storage;
  where.ai_addrlen = static_cast<int>(address.length);
  return std::make_shared<tcp::Device>(where);
}

std::shared_ptr<::gloo::transport::Context> MakeGlooContext(std::shared_ptr<tcp::Device> device,
                                                            int32_t rank, int32_t size) {
  return std::make_shared<PatientContext>(std::move(device), rank, size);
}

}  // namespace annulus
