#include "tests/client/fake_service.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "base/steady_time.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "tests/client/fake_errors.h"

namespace annulus {
struct FakeService::Jobs : v1::Jobs::Service {
  explicit Jobs(FakeService* owner) : owner(owner) {}
  grpc::Status RunJob(grpc::ServerContext* context, const v1::RunJobRequest* request,
                      grpc::ServerWriter<v1::JobEvent>* writer) override {
    return owner->RunJob(context, *request, writer);
  }
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest*,
                      v1::Job* job) override {
    owner->Allow(&FakeService::asked_);
    const auto answers = [this]() NO_THREAD_SAFETY_ANALYSIS { return owner->job_answers_; };
    if (!owner->Await(context, answers)) return grpc::Status::CANCELLED;
    *job = owner->kept_.Get();
    return grpc::Status::OK;
  }
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest*, v1::Job* job) override {
    owner->kept_.Cancel();
    *job = owner->kept_.Get();
    return grpc::Status::OK;
  }
  grpc::Status ReleaseState(grpc::ServerContext*, const v1::ReleaseStateRequest*,
                            v1::Job*) override {
    owner->kept_.Release();
    return grpc::Status::OK;
  }
  FakeService* owner;
};

struct FakeService::DataPlane : v1::DataPlane::Service {
  explicit DataPlane(FakeService* owner) : owner(owner) {}
  grpc::Status PutShard(grpc::ServerContext* context,
                        grpc::ServerReader<v1::PutShardRequest>* reader,
                        v1::ShardStatus* response) override {
    const auto read = [reader](v1::PutShardRequest* request) { return reader->Read(request); };
    return owner->PutShard(context, read, response);
  }
  grpc::Status FetchShard(grpc::ServerContext* context, const v1::FetchShardRequest* request,
                          grpc::ServerWriter<v1::FetchShardResponse>* writer) override {
    const auto write = [writer](const v1::FetchShardResponse& one) { writer->Write(one); };
    return owner->FetchShard(context, request->ticket(), write);
  }
  grpc::Status ExchangeShards(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::FetchShardResponse, v1::PutShardRequest>* stream) override {
    return owner->ExchangeShards(context, stream);
  }
  FakeService* owner;
};

struct FakeService::Attention : v1::Attention::Service {
  explicit Attention(FakeService* owner) : owner(owner) {}
  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    const auto answers = [this]() NO_THREAD_SAFETY_ANALYSIS { return owner->info_answers_; };
    if (!owner->Await(context, answers)) return grpc::Status::CANCELLED;
    for (int rank = 0; rank < owner->options_.world; ++rank) {
      v1::WorkerInfo* worker = info->add_workers();
      worker->set_state(v1::WorkerInfo::STATE_READY);
      worker->set_data_endpoint(owner->options_.hide_workers ? "127.0.0.1:1" : owner->address_);
    }
    return grpc::Status::OK;
  }
  grpc::Status MergePartials(grpc::ServerContext*, const v1::MergePartialsRequest*,
                             v1::Partial* answer) override {
    answer->set_lse_base(v1::Outputs::LSE_BASE_E);
    if (!owner->RefuseMerge()) return grpc::Status::OK;
    return RefusalOf(Act::kQueueFull);
  }
  grpc::Status Attend(grpc::ServerContext* context, AttendStream* stream) override {
    return owner->Attend(
        context, [stream](v1::AttendRequest* request) { return stream->Read(request); },
        [stream](const v1::AttendResponse& response) { stream->Write(response); });
  }
  grpc::Status AttendMany(grpc::ServerContext* context, AttendStream* stream) override {
    return owner->AttendMany(context, stream);
  }
  FakeService* owner;
};

FakeService::FakeService(Options options)
    : options_(std::move(options)),
      kept_(options_.runs_when_asked),
      jobs_(std::make_unique<Jobs>(this)),
      data_plane_(std::make_unique<DataPlane>(this)),
      attention_(std::make_unique<Attention>(this)) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(jobs_.get());
  builder.RegisterService(data_plane_.get());
  builder.RegisterService(attention_.get());
  if (options_.headers != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(std::make_unique<HeaderLogFactory>(options_.headers));
    builder.experimental().SetInterceptorCreators(std::move(creators));
  }
  server_ = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
  if (!options_.silent_info) AnswerInfo();
  if (!options_.silent_jobs) AnswerJobs();
}

void FakeService::Allow(bool FakeService::*what) {
  MutexLock lock(&mutex_);
  this->*what = true;
  changed_.SignalAll();
}

// The attempt's workers end its streams.
void FakeService::EndAttempt() {
  MutexLock lock(&mutex_);
  ++placements_;
  changed_.SignalAll();
}

FakeService::~FakeService() { server_->Shutdown(std::chrono::system_clock::now()); }

bool FakeService::RefuseMerge() {
  MutexLock lock(&mutex_);
  return ++merges_ <= options_.refused_merges;
}

bool FakeService::AwaitAsked() {
  const absl::Time end = SteadyNow() + absl::Seconds(20);
  MutexLock lock(&mutex_);
  while (!asked_ && SteadyNow() < end) changed_.WaitFor(&mutex_, end - SteadyNow());
  return asked_;
}

bool FakeService::Await(grpc::ServerContext* context, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  MutexLock lock(&mutex_);
  while (!condition()) {
    if (context->IsCancelled() || std::chrono::steady_clock::now() > end) return false;
    // The cancellation of a call does not signal changed_.
    changed_.WaitFor(&mutex_, absl::Milliseconds(10));
  }
  return true;
}

v1::Plan FakeService::Place(const v1::AttentionSpec& proto, int attempt) {
  const AttentionSpec spec = *SpecFromProto(proto, "spec");
  v1::Plan plan;
  plan.set_attempt(attempt);
  MutexLock lock(&mutex_);
  ++placements_;
  table_ = TensorTable(spec);
  shards_.clear();
  for (int rank = 0; rank < options_.world; ++rank) {
    shards_.push_back(std::make_shared<Shard>());
    Shard& shard = *shards_.back();
    const int64_t stripe = options_.stripe + attempt;
    shard.rows = {Striped(spec.q_rows(), rank, options_.world, stripe),
                  Striped(spec.kv_rows(), rank, options_.world, stripe)};
    v1::ShardPlan* placed = plan.add_shards();
    placed->set_rank(rank);
    placed->set_endpoint(address_);
    placed->set_ticket(absl::StrCat(placements_, "/", rank));
    RowMapToProto(shard.rows.q, placed->mutable_q_rows());
    RowMapToProto(shard.rows.kv, placed->mutable_kv_rows());
    for (const TensorInfo& tensor : table_) {
      const int64_t bytes = shard.rows.of(tensor).rows() * tensor.row_bytes();
      if (tensor.direction == Direction::kOutput) {
        placed->set_output_bytes(placed->output_bytes() + bytes);
      }
      if (tensor.direction != Direction::kInput) continue;
      placed->set_input_bytes(placed->input_bytes() + bytes);
      shard.memory[tensor.id].resize(bytes);
    }
    shard.missing = placed->input_bytes();
    shard.fetched = placed->output_bytes() == 0;
    shard.lost = (now_ == Act::kPlaceAgain || now_ == Act::kPlaceAgainLate) && attempt == 1;
  }
  changed_.SignalAll();
  return plan;
}

grpc::Status FakeService::RunJob(grpc::ServerContext* context, const v1::RunJobRequest& request,
                                 grpc::ServerWriter<v1::JobEvent>* writer) {
  Act act;
  {
    MutexLock lock(&mutex_);
    act = now_ = options_.act(++run_jobs_);
    job_over_ = false;
    downloads_ = 0;
  }
  const grpc::Status refusal = RefusalOf(act);
  if (!refusal.ok()) return refusal;
  int placed = 1;
  v1::JobEvent event;
  event.set_job_id("job-1");
  event.mutable_state_changed()->set_state(v1::Job::STATE_QUEUED);
  writer->Write(event);
  if (act != Act::kNeverPlace) {
    *event.mutable_placed() = Place(request.spec(), 1);
    writer->Write(event);
  }
  if (act == Act::kGroupLost) return Error(absl::StatusCode::kAborted, "GROUP_LOST");
  const auto may_end = [this]() NO_THREAD_SAFETY_ANALYSIS { return may_end_; };
  if (act == Act::kUploadsCut) return Await(context, may_end), Gone();
  if (act == Act::kPlaceAgain || act == Act::kPlaceAgainLate) {
    const auto some = [this]() NO_THREAD_SAFETY_ANALYSIS { return shards_[0]->missing == 0; };
    if (!Await(context, some)) return grpc::Status::CANCELLED;
    event.mutable_state_changed()->set_state(v1::Job::STATE_QUEUED);
    writer->Write(event);
    EndAttempt();
    if (act == Act::kPlaceAgainLate && !Await(context, may_end)) return grpc::Status::CANCELLED;
    *event.mutable_placed() = Place(request.spec(), placed = 2);
    writer->Write(event);
  }
  const auto fetched = [this]() NO_THREAD_SAFETY_ANALYSIS {
    return !shards_.empty() && std::all_of(shards_.begin(), shards_.end(),
                                           [](const auto& s) { return s->fetched && !s->missing; });
  };
  if (act == Act::kNeverPlace) return Await(context, [] { return false; }), grpc::Status::CANCELLED;
  if (!Await(context, fetched)) return grpc::Status::CANCELLED;
  kept_.Keep(request.spec());
  if (act == Act::kAnswerLost || act == Act::kWordLost) return Gone();
  const auto ended = [this]() NO_THREAD_SAFETY_ANALYSIS { return downloads_ == options_.world; };
  if (act == Act::kEndsFirst && !Await(context, ended)) return grpc::Status::CANCELLED;
  event.mutable_state_changed()->mutable_stats()->set_attempts(placed);
  if (act == Act::kSaysSoLate) {
    if (!options_.reports) {
      event.mutable_state_changed()->set_state(v1::Job::STATE_DRAINING);
      writer->Write(event);
    }
    if (!Await(context, may_end)) return grpc::Status::CANCELLED;
  }
  event.mutable_state_changed()->set_state(v1::Job::STATE_SUCCEEDED);
  if (!writer->Write(event)) return grpc::Status::CANCELLED;
  MutexLock lock(&mutex_);
  ++ended_well_;
  job_over_ = true;  // Not signalled: workers see it at their next poll, when this call has ended.
  return grpc::Status::OK;
}

grpc::Status FakeService::Store(const google::protobuf::RepeatedPtrField<v1::Chunk>& chunks,
                                Shard* shard) {
  MutexLock lock(&mutex_);
  for (const v1::Chunk& chunk : chunks) {
    const absl::Status status = StoreChunk(chunk, table_, shard);
    if (!status.ok()) return ToGrpcStatus(status);
  }
  changed_.SignalAll();
  return grpc::Status::OK;
}

grpc::Status FakeService::EndAfterJob(grpc::ServerContext* context) {
  Await(context, [this]() NO_THREAD_SAFETY_ANALYSIS { return job_over_; });
  return Error(absl::StatusCode::kAborted, "JOB_ENDED");
}

grpc::Status FakeService::PutShard(grpc::ServerContext* context, const ReadRequest& read,
                                   v1::ShardStatus* response) {
  v1::PutShardRequest request;
  if (!read(&request) || request.ticket().empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "STREAM_SEQUENCE");
  }
  const std::vector<std::string> ticket = absl::StrSplit(request.ticket(), '/');
  std::shared_ptr<Shard> shard;
  {
    MutexLock lock(&mutex_);
    if (placements_ != std::stoi(ticket[0])) return Error(absl::StatusCode::kAborted, "JOB_ENDED");
    shard = shards_[std::stoi(ticket[1])];
    if (now_ == Act::kWorkersGone) return Gone();
  }
  do {
    {
      MutexLock lock(&mutex_);
      if (placements_ != std::stoi(ticket[0]))
        return Error(absl::StatusCode::kAborted, "JOB_ENDED");
    }
    const grpc::Status status = Store(request.chunks(), shard.get());
    if (!status.ok()) return status;
  } while (read(&request));
  {
    MutexLock lock(&mutex_);
    if (now_ != Act::kEndsLate && now_ != Act::kEndsEarly) context = nullptr;
  }
  if (context != nullptr) return EndAfterJob(context);
  MutexLock lock(&mutex_);
  if (now_ == Act::kUploadsCut) return Gone();
  if (options_.complete_by_others) shard->missing = 0;
  response->set_complete(shard->missing == 0);
  return shard->missing == 0 ? grpc::Status::OK
                             : Error(absl::StatusCode::kInvalidArgument, "MISSING_ROWS");
}

std::vector<v1::Chunk> FakeService::OutputsOf(const Shard& shard) {
  MutexLock lock(&mutex_);
  return FakeOutputs(shard, table_, /*corrupt=*/now_ == Act::kCorrupt);
}

grpc::Status FakeService::FetchShard(grpc::ServerContext* context, const std::string& shard_ticket,
                                     const WriteResponse& write) {
  const std::vector<std::string> ticket = absl::StrSplit(shard_ticket, '/');
  const int placement = std::stoi(ticket[0]);
  const auto ready = [this, placement]() NO_THREAD_SAFETY_ANALYSIS {
    if (placement != placements_ || now_ == Act::kWorkersGone) return true;
    return now_ != Act::kGroupLost && (now_ != Act::kUploadsCut || may_send_) &&
           std::all_of(shards_.begin(), shards_.end(),
                       [](const auto& s) { return !s->missing && !s->lost; });
  };
  if (!Await(context, ready)) return grpc::Status::CANCELLED;
  std::shared_ptr<Shard> shard;
  Act act;
  {
    MutexLock lock(&mutex_);
    act = now_;
    if (act == Act::kWorkersGone) return Gone();
    if (placement != placements_) return Error(absl::StatusCode::kAborted, "JOB_ENDED");
    shard = shards_[std::stoi(ticket[1])];
    shard->fetched = act == Act::kNeverSends;
  }
  std::vector<v1::Chunk> outputs = OutputsOf(*shard);
  if (act == Act::kNeverSends) return Await(context, [] { return false; }), grpc::Status::CANCELLED;
  const bool first = act == Act::kEndsFirst || act == Act::kAnswerLost;
  if (act == Act::kEndsEarly || first) outputs.pop_back();
  v1::FetchShardResponse response;
  for (v1::Chunk& chunk : outputs) {
    if (!options_.whole_shards) response.clear_chunks();
    *response.add_chunks() = std::move(chunk);
    if (!options_.whole_shards) write(response);
  }
  {
    MutexLock lock(&mutex_);
    shard->fetched = true;
    changed_.SignalAll();
  }
  if (act == Act::kEndsLate || act == Act::kEndsEarly) return EndAfterJob(context);
  if (first) {
    MutexLock lock(&mutex_);
    ++downloads_;
    return Error(absl::StatusCode::kAborted, "JOB_ENDED");
  }
  if (options_.reports) {
    if (!options_.whole_shards) response.clear_chunks();
    response.mutable_report()->set_bytes_sent(shard->rows.q.rows());
    write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeService::ExchangeShards(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::FetchShardResponse, v1::PutShardRequest>* stream) {
  {
    MutexLock lock(&mutex_);
    ++exchanges_;
  }
  v1::PutShardRequest request;
  for (int shard = 1; stream->Read(&request); ++shard) {
    if (const grpc::Status end = options_.ends_exchange(shard); !end.ok()) return end;
    bool more = true;
    const auto read = [&](v1::PutShardRequest* one) {
      *one = request;
      return std::exchange(more, false);
    };
    v1::ShardStatus stored;
    grpc::Status status = PutShard(nullptr, read, &stored);
    if (status.ok()) {
      status = FetchShard(context, request.ticket(),
                          [stream](const v1::FetchShardResponse& one) { stream->Write(one); });
    }
    if (!status.ok() || !options_.reports) return status;
  }
  return grpc::Status::OK;
}

}  // namespace annulus
