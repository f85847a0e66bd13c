#include "worker/data_plane/put_call.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"

namespace annulus {
namespace {

constexpr size_t kMaxMissing = 1000, kMostInMessage = 3;

absl::Status SequenceError(absl::string_view field, absl::string_view what) {
  return InvalidField("STREAM_SEQUENCE", field, what);
}

// For example "rows 4 to 10 of q, rows 0 to 10 of k".
std::string TextOf(const std::vector<MissingPiece>& pieces) {
  std::vector<std::string> texts;
  for (const MissingPiece& piece : pieces) {
    if (texts.size() == kMostInMessage)
      return absl::StrCat(absl::StrJoin(texts, ", "), " and more");
    texts.push_back(absl::StrCat("rows ", piece.rows.begin, " to ", piece.rows.end, " of ",
                                 TensorName(piece.tensor)));
  }
  return absl::StrJoin(texts, ", ");
}

absl::Status MissingRows(const StagedShard& shard) {
  ErrorDetail detail;
  detail.reason = "MISSING_ROWS";
  detail.metadata["received_bytes"] = absl::StrCat(shard.received_bytes());
  detail.metadata["expected_bytes"] = absl::StrCat(shard.expected_bytes());
  const std::vector<MissingPiece> pieces = shard.Missing(/*limit=*/16);
  for (const MissingPiece& piece : pieces) {
    detail.fields.push_back(
        {std::string(TensorName(piece.tensor)),
         absl::StrCat("rows ", piece.rows.begin, " to ", piece.rows.end, " are missing")});
  }
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the client closed its stream after ", shard.received_bytes(),
                                " of ", shard.expected_bytes(), " bytes: ", TextOf(pieces),
                                pieces.empty() ? "some" : "", " are missing"),
                   detail);
}

}  // namespace

int64_t PutMessage::bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts) {
    for (absl::string_view piece : part.pieces) bytes += static_cast<int64_t>(piece.size());
  }
  return bytes;
}

v1::ShardStatus StatusOfShard(const StagedShard& shard) {
  v1::ShardStatus status;
  status.set_complete(shard.complete());
  status.set_received_bytes(shard.received_bytes());
  status.set_expected_bytes(shard.expected_bytes());
  for (const MissingPiece& piece : shard.Missing(kMaxMissing)) {
    v1::MissingRows* missing = status.add_missing();
    missing->set_tensor(static_cast<v1::TensorId>(piece.tensor));
    missing->set_row_begin(piece.rows.begin);
    missing->set_row_count(piece.rows.length());
  }
  return status;
}

PutCall::PutCall(ShardBoard* board, CopyPool* pool, Stream* stream)
    : board_(board), pool_(pool), stream_(stream), rate_(board->options().rate) {}

void PutCall::ReadLocked() {
  rate_.Wait(board_->options().now());
  stream_->ReadNext();
}

void PutCall::FinishLocked(const absl::Status& status) {
  if (std::exchange(phase_, Phase::kFinished) == Phase::kFinished) return;
  stream_->Finish(status,
                  status.ok() && shard_ != nullptr ? StatusOfShard(*shard_) : v1::ShardStatus());
  shard_.reset();
  first_ = PutMessage();
}

void PutCall::Conclude(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    FinishLocked(status);
  }
  board_->Leave(this);
}

void PutCall::Start() {
  board_->Enter(shared_from_this());
  MutexLock lock(&mutex_);
  if (phase_ == Phase::kTicket) ReadLocked();
}

void PutCall::OnMessage(PutMessage message) {
  bool joins = false;
  std::string ticket;
  absl::Status broken;
  {
    MutexLock lock(&mutex_);
    joins = phase_ == Phase::kTicket;
    if (!joins && phase_ != Phase::kReading) return;
    if (joins && message.ticket.empty() && !message.parts.empty()) {
      broken = SequenceError("ticket", "the first message must hold the ticket");
    } else if (!joins && !message.ticket.empty()) {
      broken = SequenceError("ticket", "only the first message may have a ticket");
    } else if (joins) {
      phase_ = Phase::kJoining;
      presenting_ = true;
      ticket = std::move(message.ticket);
      first_ = std::move(message);
    } else if (message.parts.empty()) {
      broken = SequenceError("chunks", "a message of the stream has no chunk");
    } else {
      phase_ = Phase::kCopying;
    }
  }
  if (!broken.ok()) return Conclude(broken);
  if (!joins) return StartCopy(std::move(message));
  board_->Present(this, ticket, ShardBoard::Stage::kReserved);
  PutMessage first;
  {
    MutexLock lock(&mutex_);
    presenting_ = false;
    if (phase_ != Phase::kCopying) return;
    first = std::exchange(first_, PutMessage());
  }
  if (!first.parts.empty()) StartCopy(std::move(first));
}

void PutCall::StartCopy(PutMessage message) {
  const int64_t bytes = message.bytes();
  pool_->Run(bytes,
             [self = shared_from_this(), message = std::move(message)] { self->Copy(message); });
}

void PutCall::OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
                      const v1::ShardReport&) {
  PutMessage first;
  {
    MutexLock lock(&mutex_);
    if (phase_ != Phase::kJoining) return;
    id_ = id;
    shard_ = std::move(shard);
    if (!first_.parts.empty()) {
      phase_ = Phase::kCopying;
      // Time until now does not count against the client.
      rate_.Wait(board_->options().now());
      if (presenting_) return;  // OnMessage continues on its thread.
      first = std::exchange(first_, PutMessage());
    } else if (shard_->expected_bytes() > 0) {
      phase_ = Phase::kReading;
      return ReadLocked();
    }
  }
  if (first.parts.empty()) return Conclude(absl::OkStatus());  // The shard has no inputs.
  // This thread runs the agent's turn, so it must not copy.
  pool_->Queue([self = shared_from_this(), first = std::move(first)] { self->Copy(first); });
}

void PutCall::Copy(const PutMessage& message) {
  std::shared_ptr<StagedShard> shard;
  ShardId id;
  {
    MutexLock lock(&mutex_);
    if (phase_ != Phase::kCopying) return;
    shard = shard_;
    id = id_;
  }
  absl::Status status;
  for (const PutMessage::Part& part : message.parts) {
    if (status.ok()) status = shard->Write(&upload_, {part.header, part.pieces});
  }
  const bool over = !status.ok() || upload_.bytes == shard->expected_bytes();
  // Finished before Completed is reported: a complete upload returns OK even if the job ends at
  // once.
  if (over) Conclude(status);
  // Even if a chunk of this message was refused: the chunks before it stay and may complete the
  // shard.
  if (shard->complete()) board_->Completed(id);
  if (over) return;
  MutexLock lock(&mutex_);
  if (phase_ != Phase::kCopying) return;
  phase_ = Phase::kReading;
  rate_.Moved(message.bytes(), board_->options().now());
  ReadLocked();
}

void PutCall::OnMalformed(const absl::Status& status) { Conclude(status); }

void PutCall::OnHalfClose() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (phase_ == Phase::kFinished) return;
    if (shard_ == nullptr) {
      status = SequenceError("ticket", "the stream ended before a ticket");
    } else if (!shard_->complete()) {
      status = MissingRows(*shard_);
    }
  }
  Conclude(status);
}

void PutCall::OnCancelled() { Conclude(absl::CancelledError("the client cancelled the call")); }

void PutCall::End(const absl::Status& why) { Conclude(why); }

std::optional<absl::Status> PutCall::Stalled(absl::Time now) {
  MutexLock lock(&mutex_);
  if (phase_ != Phase::kReading || !rate_.Stalled(now)) return std::nullopt;
  return StallError("UPLOAD_STALLED", "upload", board_->options().rate);
}

}  // namespace annulus
