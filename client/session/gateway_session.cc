#include "client/session/gateway_session.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "attention/spec/tensor_bytes.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/session/state_handoff.h"
#include "client/transport/session_errors.h"
#include "client/transport/shard_streams.h"
#include "client/transport/strand.h"
#include "client/transport/stream_pool.h"
#include "proto/rpc/shared_timer.h"
#include "proto/wire/convert.h"
#include "proto/wire/field_paths.h"
#include "proto/wire/job_stats.h"

namespace annulus {
namespace {

// True if the job may run twice. A call that breaks leaves open if the service has taken its job.
bool MayBeSentTwice(const GatewayOptions& job) {
  return job.start.request_id().empty() && !job.spec.keeps_state() && !job.spec.uses_state();
}

}  // namespace

class GatewaySession::Impl : public std::enable_shared_from_this<GatewaySession::Impl> {
 public:
  Impl(GatewayOptions options, JobObserver* observer)
      : options_(std::move(options)),
        observer_(observer),
        table_(TensorTable(options_.spec)),
        receiver_(table_, WholeJob(options_.spec)) {}

  void Start() { Post(&Impl::Begin); }
  void Cancel(absl::Status status) {
    Post([status = std::move(status)](Impl* impl) { impl->CancelWith(status); });
  }

 private:
  void Post(std::function<void(Impl*)> function) {
    strand_.Post(
        [self = shared_from_this(), function = std::move(function)] { function(self.get()); });
  }
  void Begin();
  // Starts the job on a pooled call. False if the job cannot use one.
  bool StartExchange();
  void SetDeadline();
  void StartCall();
  void CancelWith(const absl::Status& status);
  void OnWritten();
  void MayWrite();
  absl::Status OnRead(const grpc::ByteBuffer& message);
  void OnAccepted(v1::AttendResponse::Accepted accepted);
  void OnOutputs(int64_t bytes);
  void Moved(int64_t JobProgress::*counter, int64_t bytes);
  // The exchange has ended; the Attend call has ended.
  void OnExchanged(const PooledRequest::End& end);
  void OnEnded(absl::Status status);
  void OnDone(absl::Status status, bool all_here);

  const GatewayOptions options_;
  JobObserver* const observer_;
  const std::vector<TensorInfo> table_;
  std::shared_ptr<RawStream> stream_;
  std::unique_ptr<ChunkWriter> writer_;
  // For a job that is not small. Chunks are written after both events: `start` has been written,
  // and the job was accepted.
  std::atomic<int> gates_{2};
  bool small_ = false;          // All inputs go with the first message.
  bool start_written_ = false;  // Belongs to the stream's write callback.
  uint64_t tag_ = 0;            // For a job on a pooled call.
  // These belong to the callback that reads.
  ChunkReceiver receiver_;
  bool accepted_ = false;
  bool last_ = false;   // The job's last message has arrived.
  absl::Status error_;  // The job's error, or the error of a wrong message.

  Strand strand_;
  // These belong to the strand.
  std::shared_ptr<PooledRequest> exchange_;
  JobProgress progress_;
  v1::JobStats seen_;  // Known before the gateway sends the stats.
  std::optional<v1::JobStats> stats_;
  std::optional<absl::Status> cancelled_;
  // For a job on a pooled call, which has no deadline of its own.
  std::optional<SharedTimer> deadline_;
};

void GatewaySession::Impl::Begin() {
  progress_.attempt = 1;
  progress_.state = v1::Job::STATE_QUEUED;
  progress_.bytes_to_send = TensorBytes(table_, options_.spec, Direction::kInput);
  progress_.bytes_to_receive = TensorBytes(table_, options_.spec, Direction::kOutput);
  if (!StartExchange()) StartCall();
}

bool GatewaySession::Impl::StartExchange() {
  if (options_.calls == nullptr || !options_.calls->MayAsk(SteadyNow()) ||
      !MayBeSentTwice(options_) || progress_.bytes_to_send > kMaxWithTicket ||
      progress_.bytes_to_receive > kMaxChunkBytes) {
    return false;
  }
  ChunkBatch inputs;
  MemorySource(table_, WholeJob(options_.spec), options_.inputs).Next(&inputs);
  if (inputs.bytes != progress_.bytes_to_send) return false;
  v1::AttendRequest request;
  *request.mutable_start() = options_.start;
  tag_ = options_.calls->NewTag();
  request.mutable_start()->set_tag(tag_);
  if (options_.deadline != absl::InfiniteFuture()) {
    *request.mutable_start()->mutable_timeout() =
        DurationToProto(std::max(options_.deadline - SteadyNow(), absl::Nanoseconds(1)));
  }
  const std::shared_ptr<Impl> self = shared_from_this();
  PooledRequest::Options exchange;
  exchange.pool = options_.calls->pool();
  exchange.channel = options_.channel;
  exchange.message = EncodeChunks(inputs.chunks, &request);
  exchange.credits = std::move(inputs.credits);
  exchange.sent = [self, bytes = inputs.bytes] {
    self->Post([bytes](Impl* impl) { impl->Moved(&JobProgress::bytes_sent, bytes); });
  };
  exchange.receive = [self](const grpc::ByteBuffer& message,
                            const Credit&) -> absl::StatusOr<bool> {
    self->error_ = self->OnRead(message);
    // An error in the job's answer is its last message; the call stays usable for other jobs.
    if (!self->error_.ok() && !self->last_) return self->error_;
    return self->last_;
  };
  exchange.done = [self](const PooledRequest::End& end) { self->OnExchanged(end); };
  exchange_ = PooledRequest::Start(std::move(exchange));
  SetDeadline();
  return true;
}

void GatewaySession::Impl::SetDeadline() {
  if (options_.deadline == absl::InfiniteFuture()) return;
  deadline_.emplace(options_.deadline - SteadyNow(), [weak = weak_from_this()] {
    const std::shared_ptr<Impl> self = weak.lock();
    if (self == nullptr) return;
    self->Post([](Impl* impl) {
      const absl::Status late =
          absl::DeadlineExceededError("the deadline passed before the job ended");
      impl->CancelWith(NameExpiry(late, impl->progress_.state <= v1::Job::STATE_QUEUED));
    });
  });
  deadline_->Begin();
}

void GatewaySession::Impl::OnExchanged(const PooledRequest::End& end) {
  // The gateway is of an earlier version, without AttendMany.
  const bool unknown =
      !end.answered && absl::IsUnimplemented(end.status) && DetailOf(end.status).reason.empty();
  if (!unknown) return OnEnded(end.status);
  options_.calls->IsUnknown(SteadyNow());
  Post([](Impl* impl) {
    impl->tag_ = 0;
    impl->progress_.bytes_sent = 0;
    impl->deadline_.reset();
    impl->cancelled_.has_value() ? impl->OnEnded(*impl->cancelled_) : impl->StartCall();
  });
}

void GatewaySession::Impl::StartCall() {
  auto request = std::make_unique<v1::AttendRequest>();
  *request->mutable_start() = options_.start;
  small_ = progress_.bytes_to_send <= kMaxChunkBytes;
  const grpc::ByteBuffer start = small_ ? grpc::ByteBuffer() : EncodeProto(*request);
  writer_ = std::make_unique<ChunkWriter>(
      small_ ? std::move(request) : nullptr,
      std::make_shared<MemorySource>(table_, WholeJob(options_.spec), options_.inputs),
      [this](int64_t bytes) {
        Post([bytes](Impl* impl) { impl->Moved(&JobProgress::bytes_sent, bytes); });
      });
  RawStream::Handlers handlers;
  handlers.on_written = [self = shared_from_this()] { self->OnWritten(); };
  handlers.on_read = [self = shared_from_this()](const grpc::ByteBuffer& message) {
    self->error_ = self->OnRead(message);
    self->error_.ok() ? self->stream_->Read() : self->stream_->Cancel();
  };
  handlers.on_done = [self = shared_from_this()](const absl::Status& status) {
    self->OnEnded(status);
  };
  stream_ = RawStream::Start(
      {options_.channel, "/annulus.v1.Attention/Attend", options_.deadline, options_.metadata},
      std::move(handlers));
  stream_->Read();
  small_ ? writer_->OnWritable(stream_.get()) : stream_->Write(start);
}

void GatewaySession::Impl::OnWritten() {
  if (small_ || std::exchange(start_written_, true)) {
    writer_->OnWritable(stream_.get());
  } else {
    MayWrite();
  }
}

void GatewaySession::Impl::MayWrite() {
  if (!small_ && --gates_ == 0) writer_->OnWritable(stream_.get());
}

absl::Status GatewaySession::Impl::OnRead(const grpc::ByteBuffer& message) {
  auto response = std::make_shared<v1::AttendResponse>();
  ASSIGN_OR_RETURN(std::vector<TensorChunk> chunks, DecodeChunks(message, response.get()));
  if (response->tag() != tag_) {
    return MakeError(absl::StatusCode::kInternal,
                     "the gateway sent the answer of another job on this call",
                     {"UNEXPECTED_OUTPUT", {}, {}, {}});
  }
  if (response->has_accepted() && !std::exchange(accepted_, true)) {
    Post([response](Impl* impl) { impl->OnAccepted(std::move(*response->mutable_accepted())); });
    MayWrite();
  }
  int64_t bytes = 0;
  for (TensorChunk& chunk : chunks) {
    RETURN_IF_ERROR(receiver_.Receive(&chunk));
    bytes += static_cast<int64_t>(chunk.data.size());
  }
  PlaceChunks(table_, receiver_.rows(), chunks, options_.outputs);
  if (bytes > 0) Post([bytes](Impl* impl) { impl->OnOutputs(bytes); });
  last_ = response->has_done() || response->has_error();
  if (response->has_error()) return ErrorFromProto(response->error());
  if (response->has_done()) {
    Post([response](Impl* impl) { impl->stats_ = std::move(*response->mutable_done()); });
  }
  return absl::OkStatus();
}

void GatewaySession::Impl::OnEnded(absl::Status status) {
  if (!error_.ok()) status = error_;
  const absl::Status complete = receiver_.Complete();
  if (status.ok()) status = complete;
  Post([status, here = complete.ok()](Impl* impl) { impl->OnDone(status, here); });
}

void GatewaySession::Impl::OnOutputs(int64_t bytes) {
  progress_.state = v1::Job::STATE_DRAINING;
  Moved(&JobProgress::bytes_received, bytes);
}

void GatewaySession::Impl::OnAccepted(v1::AttendResponse::Accepted accepted) {
  progress_.state = v1::Job::STATE_UPLOADING;
  seen_.set_job_id(accepted.job_id());
  seen_.set_attempts(1);
  *seen_.mutable_execution() = accepted.plan().execution();
  seen_.set_balance(accepted.plan().balance());
  seen_.set_lse_base(AnsweredLseBase(options_.spec));
  observer_->OnPlaced(accepted.job_id(), accepted.plan());
  observer_->OnProgress(progress_);
}

void GatewaySession::Impl::Moved(int64_t JobProgress::*counter, int64_t bytes) {
  progress_.*counter += bytes;
  const bool all_sent = progress_.bytes_sent == progress_.bytes_to_send;
  if (all_sent && progress_.state == v1::Job::STATE_UPLOADING) {
    progress_.state = v1::Job::STATE_RUNNING;
  }
  observer_->OnProgress(progress_);
}

void GatewaySession::Impl::OnDone(absl::Status status, bool all_here) {
  deadline_.reset();
  if (!status.ok() && cancelled_.has_value()) status = *cancelled_;
  if (status.ok() && !stats_.has_value()) {
    status = absl::UnavailableError("the gateway ended the call before the job ended");
  }
  if (all_here && !cancelled_.has_value() && StandsUnconfirmed(options_.spec, status)) {
    if (!stats_.has_value()) observer_->OnUnconfirmed(status, /*all_reported=*/false);
    status = absl::OkStatus();
  }
  // The server names fields of the start message, but the caller has only the spec: drop the
  // prefix.
  status = WithFieldPaths(status, [](absl::string_view path) {
    return std::string(absl::StripPrefix(path, "start."));
  });
  observer_->OnDone(status, stats_.value_or(seen_));
}

void GatewaySession::Impl::CancelWith(const absl::Status& status) {
  if (!cancelled_.has_value()) cancelled_ = status;
  if (exchange_ != nullptr) exchange_->Cancel();
  if (stream_ != nullptr) stream_->Cancel();
}

std::shared_ptr<GatewaySession> GatewaySession::Start(GatewayOptions options,
                                                      JobObserver* observer) {
  auto impl = std::make_shared<Impl>(std::move(options), observer);
  std::shared_ptr<GatewaySession> session(new GatewaySession(impl));
  impl->Start();
  return session;
}

void GatewaySession::Cancel(absl::Status status) { impl_->Cancel(std::move(status)); }

}  // namespace annulus
