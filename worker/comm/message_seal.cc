#include "worker/comm/message_seal.h"

#include "absl/strings/str_cat.h"
#include "proto/wire/crc32c.h"
#include "worker/comm/communicator_base.h"

namespace annulus {

void MessageSeal::Add(const std::byte* data, int64_t more) {
  bytes += static_cast<uint64_t>(more);
  crc32c = ExtendCrc32c(crc32c, data, static_cast<size_t>(more));
}

absl::Status CheckSeal(int32_t peer, const MessageSeal& arrived, const MessageSeal& sent) {
  if (arrived.bytes == sent.bytes && arrived.crc32c == sent.crc32c) return absl::OkStatus();
  return MessageDamaged(
      peer, absl::StrCat("a message arrived with ", arrived.bytes, " bytes and CRC-32C ",
                         absl::Hex(arrived.crc32c, absl::kZeroPad8), ", but was sent with ",
                         sent.bytes, " bytes and ", absl::Hex(sent.crc32c, absl::kZeroPad8)));
}

}  // namespace annulus
