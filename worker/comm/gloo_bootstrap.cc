#include "worker/comm/gloo_bootstrap.h"

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr absl::string_view kMagic = "annulus.gloo.2";
constexpr int kIntegerBytes = 4;

void AppendInteger(uint32_t value, std::string& out) {
  for (int i = 0; i < kIntegerBytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Removes an integer from the front of `bytes`. False if `bytes` is too short.
bool TakeInteger(absl::string_view& bytes, uint32_t& value) {
  if (bytes.size() < kIntegerBytes) return false;
  value = 0;
  for (int i = 0; i < kIntegerBytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  bytes.remove_prefix(kIntegerBytes);
  return true;
}

bool TakeText(absl::string_view& bytes, std::string& text) {
  uint32_t length = 0;
  if (!TakeInteger(bytes, length) || length > bytes.size()) return false;
  text = std::string(bytes.substr(0, length));
  bytes.remove_prefix(length);
  return true;
}

}  // namespace

std::string EncodeGlooBootstrap(const GlooBootstrap& bootstrap) {
  std::string bytes(kMagic);
  AppendInteger(static_cast<uint32_t>(bootstrap.rank), bytes);
  AppendInteger(static_cast<uint32_t>(bootstrap.addresses.size()), bytes);
  for (const std::string& address : bootstrap.addresses) {
    AppendInteger(static_cast<uint32_t>(address.size()), bytes);
    bytes += address;
  }
  return bytes;
}

absl::StatusOr<GlooBootstrap> DecodeGlooBootstrap(absl::string_view bytes, int32_t rank,
                                                  int32_t size) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "the bytes given for rank ", rank, " are not its bootstrap in a group of ", size));
  if (bytes.substr(0, kMagic.size()) != kMagic) return wrong;
  bytes.remove_prefix(kMagic.size());
  uint32_t encoded_rank = 0, encoded_size = 0;
  if (!TakeInteger(bytes, encoded_rank) || !TakeInteger(bytes, encoded_size)) return wrong;
  if (encoded_rank != static_cast<uint32_t>(rank) || encoded_size != static_cast<uint32_t>(size)) {
    return wrong;
  }
  GlooBootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.addresses.resize(size);
  for (int32_t peer = 0; peer < size; ++peer) {
    std::string& address = bootstrap.addresses[peer];
    if (!TakeText(bytes, address) || address.empty() != (peer == rank)) return wrong;
  }
  if (!bytes.empty()) return wrong;
  return bootstrap;
}

uint64_t GroupFingerprint(absl::Span<const std::string> bootstraps) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::string& bytes : bootstraps) {
    for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace annulus
