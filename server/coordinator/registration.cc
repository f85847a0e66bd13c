#include "server/coordinator/registration.h"

#include <algorithm>
#include <utility>

#include "attention/schedule/schedule.h"
#include "proto/wire/rates.h"
#include "proto/wire/ticket.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

using Kind = RegistrationVerdict::Kind;
constexpr size_t kMaxName = 253;
constexpr size_t kMaxSentence = 1000;
constexpr int kMaxLacks = 100;
// A term is the microsecond at which it began. A term further ahead is an error or an attack: going
// past it would void all running work, and in the end no higher term would be left.
constexpr absl::Duration kMaxTermLead = absl::Hours(24);

absl::Status CheckName(const std::string& name, const char* what) {
  if (name.empty() || name.size() > kMaxName) return InvalidRegistrationError(what);
  return absl::OkStatus();
}

absl::Status CheckTerm(const CoordinatorTables& tables, const control::v1::WorkerEvent& event) {
  const int64_t latest =
      std::max(tables.term, absl::ToUnixMicros(tables.TimeOfDay(tables.now) + kMaxTermLead));
  if (HighestTermOf(event) <= latest) return absl::OkStatus();
  return InvalidRegistrationError("highest_term: is too far in the future");
}

absl::Status CheckRegister(const control::v1::Register& info) {
  if (absl::Status s = CheckName(info.slot(), "slot: must have 1 to 253 characters"); !s.ok())
    return s;
  if (absl::Status s = CheckName(info.incarnation(), "incarnation: must have 1 to 253 characters");
      !s.ok()) {
    return s;
  }
  if (absl::Status s =
          CheckName(info.data_endpoint(), "data_endpoint: must have 1 to 253 characters");
      !s.ok()) {
    return s;
  }
  if (info.protocol_version() != control::v1::PROTOCOL_VERSION_CURRENT) {
    return IncompatibleWorkerError("protocol_version", info.protocol_version(),
                                   control::v1::PROTOCOL_VERSION_CURRENT);
  }
  if (info.schedule_version() != kScheduleVersion) {
    return IncompatibleWorkerError("schedule_version", info.schedule_version(), kScheduleVersion);
  }
  if (info.ticket_key().size() != kTicketKeyBytes) {
    return InvalidRegistrationError("ticket_key: must have 32 bytes");
  }
  if (info.staging_limit_bytes() < 0 || info.device_limit_bytes() < 0 ||
      info.session_limit_bytes() < 0) {
    return InvalidRegistrationError("limits: must be 0 or more bytes");
  }
  if (info.lacks_size() > kMaxLacks) return InvalidRegistrationError("lacks: has too many entries");
  for (const control::v1::Lack& lack : info.lacks()) {
    if (lack.feature().empty() || lack.feature().size() > kMaxName ||
        lack.why_not().size() > kMaxSentence) {
      return InvalidRegistrationError(
          "lacks: each entry must have the name of a feature and a short sentence");
    }
  }
  const absl::Status rates = RatesFromProto(info.rates()).status();
  return rates.ok() ? rates : InvalidRegistrationError(rates.message());
}

// Workers that know no other kind send UNSPECIFIED.
absl::string_view DeviceOf(const control::v1::Register& info) {
  return info.device_kind() == control::v1::DEVICE_KIND_CUDA ? "a GPU" : "a CPU";
}

// Checks the operator's choice, independent of present workers.
absl::Status CheckWanted(const CoordinatorTables& tables, const control::v1::Register& info) {
  if (tables.options.worker_kind == WorkerKind::kAny) return absl::OkStatus();
  const absl::string_view wanted =
      tables.options.worker_kind == WorkerKind::kCuda ? "a GPU" : "a CPU";
  return DeviceOf(info) == wanted ? absl::OkStatus() : UnwantedDeviceError(DeviceOf(info), wanted);
}

// Ranks of two kinds cannot form a group. The worker whose slot is taken does not count. Nor does
// any worker if a higher term begins, as all are then lost.
absl::Status CheckDevice(const CoordinatorTables& tables, const control::v1::WorkerEvent& event,
                         const WorkerRecord* present) {
  const control::v1::Register& info = event.register_();
  if (HighestTermOf(event) > tables.term) return absl::OkStatus();
  for (const auto& [number, worker] : tables.workers.all()) {
    if (&worker != present && DeviceOf(worker.info) != DeviceOf(info)) {
      return OtherDeviceError(DeviceOf(info), worker.slot(), DeviceOf(worker.info));
    }
  }
  return absl::OkStatus();
}

// True if the incarnation was lost in this term: it has received commands of this term and is
// unknown, or it is remembered as lost.
bool WasLost(const CoordinatorTables& tables, const control::v1::WorkerEvent& event) {
  if (event.term() == tables.term && event.ack() > 0) return true;
  const auto& lost = tables.lost_incarnations;
  return std::find(lost.begin(), lost.end(), event.register_().incarnation()) != lost.end();
}

RegistrationVerdict Refuse(absl::Status refusal) { return {Kind::kRefuse, std::move(refusal), 0}; }

}  // namespace

int64_t HighestTermOf(const control::v1::WorkerEvent& event) {
  return std::max(event.register_().highest_term(), event.term());
}

RegistrationVerdict JudgeRegistration(const CoordinatorTables& tables,
                                      const control::v1::WorkerEvent& event) {
  const control::v1::Register& info = event.register_();
  if (absl::Status s = CheckRegister(info); !s.ok()) return Refuse(std::move(s));
  if (absl::Status s = CheckWanted(tables, info); !s.ok()) return Refuse(std::move(s));
  if (absl::Status s = CheckTerm(tables, event); !s.ok()) return Refuse(std::move(s));
  const WorkerRecord* present = tables.workers.BySlot(info.slot());
  if (present != nullptr && present->info.incarnation() == info.incarnation()) {
    return {Kind::kReconnect, absl::OkStatus(), present->number};
  }
  if (WasLost(tables, event)) {
    return Refuse(present != nullptr ? SlotTakenError(info.slot())
                                     : LeaseExpiredError(info.slot()));
  }
  if (absl::Status s = CheckDevice(tables, event, present); !s.ok()) return Refuse(std::move(s));
  if (tables.draining) return Refuse(DrainingError(tables.options.retry_after));
  if (present != nullptr) return {Kind::kReplace, absl::OkStatus(), present->number};
  if (tables.workers.all().size() >= static_cast<size_t>(tables.options.max_workers)) {
    return Refuse(TooManyWorkersError(tables.options.max_workers));
  }
  return {Kind::kAccept, absl::OkStatus(), 0};
}

}  // namespace annulus
