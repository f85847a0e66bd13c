#include "proto/wire/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr size_t kBlockBytes = 64;

// OpenSSL's SHA256() and HMAC() look up their algorithms by name at every call. For a short text
// this costs ten times the hash, as code and tables are in no cache when a job comes.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "sha256", nullptr);
  return algorithm;
}

std::string Padded(absl::string_view key, char with) {
  std::string block(kBlockBytes, with);
  for (size_t i = 0; i < key.size(); ++i) block[i] = static_cast<char>(block[i] ^ key[i]);
  return block;
}

}  // namespace

std::string Sha256(absl::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  // All signatures would be equal if the digest stayed empty.
  if (EVP_Digest(text.data(), text.size(), digest, &size, Algorithm(), nullptr) != 1) std::abort();
  return std::string(reinterpret_cast<const char*>(digest), size);
}

std::string HmacSha256(absl::string_view key, absl::string_view text) {
  if (key.size() > kBlockBytes) return HmacSha256(Sha256(key), text);
  return Sha256(absl::StrCat(Padded(key, '\x5c'), Sha256(absl::StrCat(Padded(key, '\x36'), text))));
}

}  // namespace annulus
