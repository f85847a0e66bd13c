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

// The lock is normally held for a few microseconds, and one attempt takes one.
constexpr int kLooks = 20;
// About 70 us in practice, because of Linux's timer slack.
constexpr std::chrono::microseconds kPause(20);

// The number of failed lock attempts in sequence on this event loop's thread. It cannot be a member
// of the pair: Gloo's constructor registers the pair with the loop before members are initialized.
thread_local int looks = 0;

class PatientPair final : public tcp::Pair {
 public:
  using Pair::Pair;

  // Closes the pair while the loop still finds this class, not its base.
  ~PatientPair() override {
    const std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED) PatientPair::changeState(CLOSED);
  }

  // Gloo's loop calls this again while events are pending. It must not block on the lock, because a
  // thread that closes a pair holds the lock and waits for the loop.
  void handleEvents(int events) override {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock.owns_lock()) {
      if (++looks > kLooks) std::this_thread::sleep_for(kPause);
      return;
    }
    looks = 0;
    // An exception here would end the process. A stranger can cause one: this pair may have got the
    // port of a lost worker.
    try {
      Serve(events);
    } catch (const std::exception& error) {
      if (ex_ == nullptr) signalException(error.what());
    }
  }

 protected:
  // Gloo removes a socket from its loop before it closes it. If the loop does not have the socket,
  // Gloo ends the process. This happens if a peer left before its connection was accepted, so the
  // socket is registered first.
  void changeState(state next) noexcept override {
    if (next == CLOSED && state_ != CLOSED && fd_ >= 0) {
      try {
        device_->registerDescriptor(fd_, 0, this);
      } catch (const std::exception&) {
        ::close(std::exchange(fd_, -1));
      }
    }
    // Gloo does not check for a socket when it closes a connected pair. If a stranger connected
    // before this pair's own socket was created, there is none.
    if (next == CLOSED && state_ == CONNECTED && fd_ < 0) state_ = CONNECTING;
    if (next == CONNECTING) rx_ = tcp::Op();  // Drops bytes of a stranger that connected first.
    Pair::changeState(next);
  }

  // No rank uses Gloo's registered buffers. Without this check Gloo would retry such a message for
  // ever.
  bool read() override {
    const bool more = Pair::read();
    if (ex_ == nullptr && rx_.nread >= sizeof(rx_.preamble) &&
        rx_.getOpcode() == tcp::Op::SEND_BUFFER) {
      signalException("not a valid peer: it sends to a buffer");
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

// Gloo's own resolver crashes on an unknown host and leaks on an address of another machine.
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
