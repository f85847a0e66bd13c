#ifndef ANNULUS_TESTS_SERVER_RAW_CALL_H_
#define ANNULUS_TESTS_SERVER_RAW_CALL_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace annulus {

// A synchronous call of any method, in bytes, with a deadline of 30 s.
class RawCall {
 public:
  // `method`: "/annulus.v1.Jobs/GetJob".
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    call_ = grpc::GenericStub(channel).PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Next();
  }
  ~RawCall() {
    context_.TryCancel();
    if (!ended_) Finish();
    queue_.Shutdown();
    Next();
  }

  bool Write(const grpc::ByteBuffer& message) {
    call_->Write(message, this);
    return Next();
  }
  bool WriteLast(const grpc::ByteBuffer& message) {
    call_->WriteLast(message, grpc::WriteOptions(), this);
    return Next();
  }
  bool Read(grpc::ByteBuffer* message) {
    call_->Read(message, this);
    return Next();
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    ended_ = true;
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool ended_ = false;
};

// A message that detects when its bytes are released: in a call within this process
// (InProcessChannel), they are the caller's.
class WatchedMessage {
 public:
  explicit WatchedMessage(const google::protobuf::MessageLite& message) {
    auto* const bytes = new Bytes{message.SerializeAsString(), gone_};
    const grpc::Slice slice(bytes->text.data(), bytes->text.size(), &Destroy, bytes);
    message_ = grpc::ByteBuffer(&slice, 1);
  }

  // Call once.
  grpc::ByteBuffer Take() { return std::exchange(message_, grpc::ByteBuffer()); }
  // False if the bytes are not released within 20 s.
  bool AwaitGone() {
    MutexLock lock(&gone_->mutex);
    while (!gone_->gone) {
      if (!gone_->changed.WaitFor(&gone_->mutex, absl::Seconds(20))) return gone_->gone;
    }
    return true;
  }

 private:
  struct Gone {
    Mutex mutex;
    CondVar changed;
    bool gone GUARDED_BY(mutex) = false;
  };
  struct Bytes {
    std::string text;
    std::shared_ptr<Gone> gone;
  };
  static void Destroy(void* bytes) {
    const std::unique_ptr<Bytes> owner(static_cast<Bytes*>(bytes));
    MutexLock lock(&owner->gone->mutex);
    owner->gone->gone = true;
    owner->gone->changed.SignalAll();
  }

  const std::shared_ptr<Gone> gone_ = std::make_shared<Gone>();
  grpc::ByteBuffer message_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_RAW_CALL_H_
