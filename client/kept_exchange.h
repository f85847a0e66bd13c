#ifndef ANNULUS_CLIENT_KEPT_EXCHANGE_H_
#define ANNULUS_CLIENT_KEPT_EXCHANGE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "client/chunk_writer.h"
#include "client/exchange_stream.h"
#include "grpcpp/support/byte_buffer.h"

namespace annulus {

// One message, and what answers it, on a call that others had before and will have again. A kept
// call that turns out to have ended before it answered is replaced by a new one, once. Thread-safe.
class KeptExchange : public ExchangeStream::User,
                     public std::enable_shared_from_this<KeptExchange> {
 public:
  struct End {
    absl::Status status;  // OK: the last answer has come.
    // How the kept call ended that was replaced and may have taken the message; else OK.
    absl::Status stale;
    bool answered = false;  // Something came back.
  };
  // The functions are called from threads of gRPC and must not wait.
  struct Options {
    std::shared_ptr<ExchangePool> pool;
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
    grpc::ByteBuffer message;
    std::vector<Credit> credits;  // Go with the first answer.
    std::function<void()> sent;   // Once, when the message has left.
    // For each answer, one at a time: whether it is the last. The next is read when `next` goes; an
    // error cancels the call.
    std::function<absl::StatusOr<bool>(const grpc::ByteBuffer& message, const Credit& next)>
        receive;
    std::function<void(const End&)> done;  // Last, once.
  };
  static std::shared_ptr<KeptExchange> Start(Options options);

  // The call is nobody's any more, and its end follows, unless the last answer is here.
  void Cancel() EXCLUDES(mutex_);

 private:
  explicit KeptExchange(Options options);
  void SendLocked(bool may_be_kept) REQUIRES(mutex_);
  void ReadNext() EXCLUDES(mutex_);
  void OnMessage(const grpc::ByteBuffer& message) override EXCLUDES(mutex_);
  void OnWritten() override EXCLUDES(mutex_);
  void OnEnded(const absl::Status& status) override EXCLUDES(mutex_);
  // Gives the call back when both directions are through with it.
  void FinishIfThrough() EXCLUDES(mutex_);
  void Finish(const End& end) EXCLUDES(mutex_);

  const std::shared_ptr<ExchangePool> pool_;
  const std::string endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
  // Until the end: what they hold may hold this.
  std::function<void()> sent_;
  std::function<absl::StatusOr<bool>(const grpc::ByteBuffer&, const Credit&)> receive_;
  std::function<void(const End&)> done_;

  Mutex mutex_;
  std::shared_ptr<ExchangeStream> stream_ GUARDED_BY(mutex_);
  grpc::ByteBuffer message_ GUARDED_BY(mutex_);  // Until the first answer.
  std::vector<Credit> credits_ GUARDED_BY(mutex_);
  bool kept_ GUARDED_BY(mutex_) = false;  // The call is not new.
  absl::Status stale_ GUARDED_BY(mutex_);
  bool reading_ GUARDED_BY(mutex_) = true;  // A read is under way.
  bool answered_ GUARDED_BY(mutex_) = false;
  bool told_ GUARDED_BY(mutex_) = false;  // `sent` has been called.
  bool written_ GUARDED_BY(mutex_) = false;
  bool last_ GUARDED_BY(mutex_) = false;  // The last answer is here: nothing more is read.
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_KEPT_EXCHANGE_H_
