#ifndef ANNULUS_SERVER_COORDINATOR_REGISTRATION_H_
#define ANNULUS_SERVER_COORDINATOR_REGISTRATION_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// The decision about a Register, without its effects.
struct RegistrationVerdict {
  enum class Kind : uint8_t {
    kRefuse,     // End the connection with `refusal`.
    kReconnect,  // A live incarnation has a new stream.
    kReplace,    // A new incarnation; the live one of its slot is lost.
    kAccept,     // A new incarnation in a free slot.
  };
  Kind kind = Kind::kRefuse;
  absl::Status refusal;
  int64_t present = 0;  // The live worker of the slot; 0: none.
};

// `event` carries a Register.
RegistrationVerdict JudgeRegistration(const CoordinatorTables& tables,
                                      const control::v1::WorkerEvent& event);

// The highest term that the worker has seen, by its Register.
int64_t HighestTermOf(const control::v1::WorkerEvent& event);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_REGISTRATION_H_
