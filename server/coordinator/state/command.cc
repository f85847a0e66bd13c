#include "server/coordinator/state/command.h"

#include <cstdint>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace annulus {
namespace {

using google::protobuf::io::CodedOutputStream;

// Tag of a field that has a length.
constexpr uint32_t TagOf(int field) { return static_cast<uint32_t>(field) << 3 | 2; }

}  // namespace

size_t Command::ByteSizeLong() const {
  return message.ByteSizeLong() + (spec == nullptr ? 0 : spec->size());
}

// protobuf merges a submessage that occurs twice: after the Reserve comes another Reserve that
// holds only the spec.
std::string Command::Opening() const {
  constexpr uint32_t kReserve = TagOf(control::v1::WorkerCommand::kReserveFieldNumber);
  constexpr uint32_t kSpec = TagOf(control::v1::Reserve::kSpecFieldNumber);
  std::string opening = message.SerializeAsString();
  if (spec == nullptr) return opening;
  const auto bytes = static_cast<uint32_t>(spec->size());
  google::protobuf::io::StringOutputStream stream(&opening);
  CodedOutputStream out(&stream);
  out.WriteTag(kReserve);
  out.WriteVarint32(static_cast<uint32_t>(CodedOutputStream::VarintSize32(kSpec) +
                                          CodedOutputStream::VarintSize32(bytes)) +
                    bytes);
  out.WriteTag(kSpec);
  out.WriteVarint32(bytes);
  out.Trim();
  return opening;
}

control::v1::WorkerCommand Whole(const Command& command) {
  control::v1::WorkerCommand whole = command.message;
  if (command.spec != nullptr) {
    whole.mutable_reserve()->mutable_spec()->ParseFromString(*command.spec);
  }
  return whole;
}

}  // namespace annulus
