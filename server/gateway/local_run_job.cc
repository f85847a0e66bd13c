#include "server/gateway/local_run_job.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "base/steady_time.h"
#include "client/transport/strand.h"
#include "server/coordinator/state/submission.h"

namespace annulus {
namespace {

class LocalCall final : public RunJobCall,
                        public CallSink,
                        public std::enable_shared_from_this<LocalCall> {
 public:
  LocalCall(CoordinatorLoop* loop, Handlers handlers)
      : loop_(loop), number_(loop->NewNumber()), handlers_(std::move(handlers)) {}

  void Start(const v1::RunJobRequest& request, absl::Time deadline,
             const CoordinatorOptions& options) {
    auto submission = MakeSubmission(request, options);
    if (!submission.ok()) return EndNow(submission.status());
    // The caller keeps the request and its spec until the job ends: about the same number of bytes
    // again.
    const int64_t caller_bytes = (*submission)->bytes;
    event::RunJob event{number_, kAnonymous, *std::move(submission),
                        loop_->Now() + (deadline - SteadyNow()), caller_bytes};
    const absl::Status posted = loop_->PostCall(number_, shared_from_this(), std::move(event));
    if (!posted.ok()) EndNow(posted);
  }

  void Cancel() override {
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
    }
    loop_->Post(event::CallGone{number_}).IgnoreError();
    EndNow(absl::CancelledError("the call was cancelled"));
  }

  // Called by the coordinator loop.
  void Send(v1::JobEvent event) override {
    if (Queue(std::move(event))) HandOverLater();
  }
  void Finish(const absl::Status& status) override {
    if (Queue(status)) HandOverLater();
  }
  void Answer(absl::StatusOr<Value> value) override { Finish(value.status()); }

 private:
  using Word = std::variant<v1::JobEvent, absl::Status>;  // A status is the end.

  // False after the end.
  bool Queue(Word word) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (ended_) return false;
    ended_ = std::holds_alternative<absl::Status>(word);
    words_.push_back(std::move(word));
    return true;
  }
  void EndNow(absl::Status status) {
    if (Queue(std::move(status))) HandOver();
  }
  void HandOverLater() {
    loop_->AfterTurn([self = shared_from_this()] { self->HandOver(); });
  }
  // Threads may overtake each other. Each hands over the oldest message.
  void HandOver() {
    strand_.Post([self = shared_from_this()] { self->HandOverNext(); });
  }
  void HandOverNext() EXCLUDES(mutex_) {
    std::optional<Word> word;
    {
      MutexLock lock(&mutex_);
      word = std::move(words_.front());
      words_.pop_front();
    }
    if (auto* event = std::get_if<v1::JobEvent>(&*word)) {
      return handlers_.on_event(std::move(*event));
    }
    const Handlers handlers = std::exchange(handlers_, {});
    handlers.on_done(std::get<absl::Status>(*std::move(word)));
  }

  CoordinatorLoop* const loop_;  // Not used after the end.
  const int64_t number_;
  Handlers handlers_;  // Used on the strand only.
  Strand strand_;
  Mutex mutex_;
  std::deque<Word> words_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;  // The last message has been queued.
};

}  // namespace

RunJobStarter LocalRunJob(CoordinatorLoop* loop, const CoordinatorOptions& options) {
  return [loop, options](const v1::RunJobRequest& request, absl::Time deadline,
                         RunJobCall::Handlers handlers) -> std::shared_ptr<RunJobCall> {
    auto call = std::make_shared<LocalCall>(loop, std::move(handlers));
    call->Start(request, deadline, options);
    return call;
  };
}

}  // namespace annulus
