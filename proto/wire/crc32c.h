#ifndef ANNULUS_PROTO_WIRE_CRC32C_H_
#define ANNULUS_PROTO_WIRE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace annulus {

// CRC-32C (Castagnoli) of bytes, as in iSCSI and RFC 3720. The CRC of "123456789" is 0xE3069283.
// ExtendCrc32c takes the CRC of the preceding bytes (0 for none): ExtendCrc32c(Crc32c(a), b) is the
// CRC of a followed by b.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size);
inline uint32_t Crc32c(const void* data, size_t size) { return ExtendCrc32c(0, data, size); }

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_CRC32C_H_
