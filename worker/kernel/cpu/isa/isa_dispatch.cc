#include "worker/kernel/cpu/isa/isa_dispatch.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {
namespace {

struct Candidate {
  const TileIsa* isa;
  bool available;
};

// AMX tiles with bf16 products. A process may use them only after it has asked Linux for
// permission.
bool HasAmx() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22;
    if ((d & kTile) == 0 || (d & kBf16) == 0) return false;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & (1u << 5)) == 0) return false;
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}

// True if the instruction for pairs of bf16 numbers is faster than two multiply-adds. Intel's CPUs
// with AMX start one such instruction in the time of four multiply-adds.
bool PairsAreFast() { return __builtin_cpu_is("amd") != 0; }

// Fastest first. __builtin_cpu_supports also checks that the operating system saves the registers.
std::array<Candidate, 5> Candidates() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  const bool parts = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl");
  Candidate whole{&kAvx512Isa, avx512};
  Candidate pairs{&kAvx512Bf16Isa, avx512 && parts && __builtin_cpu_supports("avx512bf16")};
  if (PairsAreFast()) std::swap(whole, pairs);
  return {Candidate{&kAmxIsa, avx512 && parts && HasAmx()}, whole, pairs,
          Candidate{&kAvx2Isa, avx2 && f16c}, Candidate{&kPortableIsa, true}};
}

absl::Status PathError(absl::StatusCode code, absl::string_view message, absl::string_view name) {
  ErrorDetail detail;
  detail.reason = code == absl::StatusCode::kInvalidArgument ? "KERNEL_PATH_UNKNOWN"
                                                             : "KERNEL_PATH_NOT_ON_THIS_CPU";
  detail.metadata = {{"path", std::string(name)}, {"cpu", CpuModel()}};
  return MakeError(code, message, detail);
}

}  // namespace

std::vector<const TileIsa*> AvailableIsas() {
  std::vector<const TileIsa*> isas;
  for (const Candidate& candidate : Candidates())
    if (candidate.available) isas.push_back(candidate.isa);
  return isas;
}

absl::StatusOr<const TileIsa*> SelectIsa(absl::string_view name) {
  if (name == "auto") return AvailableIsas().front();
  for (const Candidate& candidate : Candidates()) {
    if (name != candidate.isa->name) continue;
    if (candidate.available) return candidate.isa;
    return PathError(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat("kernel path \"", name,
                                  "\" needs instructions that this CPU lacks (", CpuModel(), ")"),
                     name);
  }
  return PathError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("unknown kernel path \"", name,
                   "\": one of auto, amx, avx512bf16, avx512, avx2, portable is expected"),
      name);
}

std::string CpuModel() {
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000u, nullptr)) < 0x80000004u)
    return "unknown CPU";
  unsigned words[12];
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                &words[4 * i + 3]);
  char name[sizeof(words) + 1] = {};
  std::memcpy(name, words, sizeof(words));
  return std::string(absl::StripAsciiWhitespace(name));
}

}  // namespace annulus
