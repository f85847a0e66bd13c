// The real library, as far as it works without a GPU.

#include "worker/comm/nccl_library.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/comm/nccl.h"
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace annulus {
namespace {

#ifdef NCCL_MAJOR
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(kNcclSuccess == ncclSuccess && kNcclUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kNcclSystemError == ncclSystemError && kNcclInternalError == ncclInternalError);
static_assert(kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);

TEST(NcclLibrary, TheConfigBeginsAsItsOwn) {
  const ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, own.magic);
  EXPECT_EQ(NcclConfig().blocking, 0);
  EXPECT_EQ(NcclConfig().cluster_size, 0);
  EXPECT_GE(own.version, NcclConfig().version);
}
#endif

TEST(NcclLibrary, MakesIds) {
  const auto nccl = LoadNccl("libnccl.so.2");
  if (!nccl.ok()) GTEST_SKIP() << nccl.status().message();
  EXPECT_EQ((*nccl)->ErrorText(kNcclSuccess), "no error");
  std::string one, two;
  ASSERT_EQ((*nccl)->GetUniqueId(&one), kNcclSuccess);
  ASSERT_EQ((*nccl)->GetUniqueId(&two), kNcclSuccess);
  EXPECT_EQ(one.size(), 128u);
  EXPECT_NE(one, two);
}

// A blocking call would hang together with its peer.
TEST(NcclLibrary, CommunicatorsDoNotBlock) {
  constexpr char kFake[] = "tests/worker/comm/libnccl_fake.so";
  const auto nccl = LoadNccl(kFake);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  void* const library = dlopen(kFake, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto* const blocking = static_cast<const int*>(dlsym(library, "fake_nccl_blocking"));
  ASSERT_NE(blocking, nullptr);
  EXPECT_EQ(*blocking, -1);
  NcclComm comm = nullptr;
  ASSERT_EQ((*nccl)->CommInit(&comm, 2, std::string(kNcclIdBytes, 'x'), 1), kNcclSuccess);
  EXPECT_EQ(*blocking, 0);
  const auto* const ctas = static_cast<const int*>(dlsym(library, "fake_nccl_max_ctas"));
  ASSERT_NE(ctas, nullptr);
  EXPECT_EQ(*ctas, kNcclCtas);
}

int32_t CtasWith(const char* NcclEnvironment::*variable, const char* value) {
  NcclEnvironment environment;
  environment.*variable = value;
  return NcclCtasOf(environment);
}

TEST(NcclLibrary, ItsKernelsHaveAsManyBlocksAsAreKeptFreeForThem) {
  const auto max = [](const char* value) { return CtasWith(&NcclEnvironment::max_ctas, value); };
  EXPECT_EQ(max(nullptr), kNcclCtas);
  EXPECT_EQ(max("2"), 2);
  EXPECT_EQ(max("1000"), 64);
  EXPECT_EQ(max("010"), 8);
  EXPECT_EQ(max("0x10"), 16);
  EXPECT_EQ(max(""), kNcclCtas);
}

// Same rule as ncclTopoComputeP2pChannels.
TEST(NcclLibrary, ChannelsBetweenPeersAreAPowerOfTwo) {
  for (const auto& [told, blocks] : {std::pair("1", 1), std::pair("3", 4), std::pair("5", 8),
                                     std::pair("9", 16), std::pair("33", 64), std::pair("63", 64)})
    EXPECT_EQ(CtasWith(&NcclEnvironment::max_ctas, told), blocks) << told;
}

// NCCL's minimum overrides its maximum.
TEST(NcclLibrary, ChannelsThatTheEnvironmentWantsAreKeptFree) {
  for (const auto variable : {&NcclEnvironment::min_channels, &NcclEnvironment::min_rings,
                              &NcclEnvironment::min_p2p_channels}) {
    for (const auto& [told, blocks] :
         {std::pair("16", 16), std::pair("12 of them", 16), std::pair("1000", 64),
          std::pair("4", 8), std::pair("", 8), std::pair("-2", 8), std::pair("many", 8),
          std::pair("99999999999999999999", 8)})
      EXPECT_EQ(CtasWith(variable, told), blocks) << told;
  }
  NcclEnvironment environment;
  environment.max_ctas = "2";
  environment.min_p2p_channels = "3";
  EXPECT_EQ(NcclCtasOf(environment), 4);
  environment.min_rings = "32";
  EXPECT_EQ(NcclCtasOf(environment), 32);
  environment.min_channels = "1";
  EXPECT_EQ(NcclCtasOf(environment), 4) << "goes before the older name";
}

TEST(NcclLibrary, AnEnvironmentThatWouldNotBeMetIsRefused) {
  const auto check = [](const char* NcclEnvironment::*variable, const char* value) {
    NcclEnvironment environment;
    environment.*variable = value;
    return CheckNcclEnvironment(environment);
  };
  for (const char* fine : {static_cast<const char*>(nullptr), "", "0", "no", "2"})
    EXPECT_TRUE(check(&NcclEnvironment::comm_blocking, fine).ok()) << fine;
  for (const char* fine : {static_cast<const char*>(nullptr), "", "1", "1000"})
    EXPECT_TRUE(check(&NcclEnvironment::max_ctas, fine).ok()) << fine;
  const auto refuse = [&](const char* NcclEnvironment::*variable, const char* value,
                          const std::string& name) {
    const absl::Status status = check(variable, value);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name << "=" << value;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(name + "=" + value));
  };
  for (const char* blocks : {"1", "01", "0x1", " 1", "1x"})
    refuse(&NcclEnvironment::comm_blocking, blocks, "NCCL_COMM_BLOCKING");
  for (const char* nonsense : {"0", "-3", "many", "0x", "8 blocks"})
    refuse(&NcclEnvironment::max_ctas, nonsense, "NCCL_MAX_CTAS");
  for (const char* address : {"", "10.0.0.7:4711"})
    refuse(&NcclEnvironment::comm_id, address, "NCCL_COMM_ID");
}

// 2.18.6 never reports that a peer on another machine is gone, and 2.14 to 2.17 crash if a
// communicator is aborted while it forms.
TEST(NcclLibrary, AnOlderOneIsRefused) {
  constexpr char kFake[] = "tests/worker/comm/libnccl_fake.so";
  void* const library = dlopen(kFake, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* const version = static_cast<int*>(dlsym(library, "fake_nccl_version"));
  ASSERT_NE(version, nullptr);
  const int own = *version;
  for (const int old : {21403, 21701, 21806, 21899}) {
    *version = old;
    const absl::Status status = LoadNccl(kFake).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << old;
    EXPECT_EQ(status.message(), absl::StrCat(kFake, " is NCCL ", NcclVersionText(old),
                                             ": 2.19.0 or newer is needed"));
  }
  *version = 21901;
  EXPECT_TRUE(LoadNccl(kFake).ok());
  *version = own;
}

TEST(NcclLibrary, SaysInOneLineWhyItCannotBeLoaded) {
  EXPECT_THAT(std::string(LoadNccl("libno-such-nccl.so").status().message()),
              testing::StartsWith("no NCCL: libno-such-nccl.so"));
  EXPECT_EQ(LoadNccl("libdl.so.2").status().message(),
            "libdl.so.2 is no NCCL: it has no ncclGetVersion");
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  EXPECT_EQ(LoadNccl("libnccl.so.2").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(LoadNccl("libnccl.so.2").status().message()),
              testing::HasSubstr("NCCL_COMM_BLOCKING"));
  unsetenv("NCCL_COMM_BLOCKING");
  setenv("NCCL_COMM_ID", "10.0.0.7:4711", 1);
  EXPECT_THAT(std::string(LoadNccl("libnccl.so.2").status().message()),
              testing::HasSubstr("NCCL_COMM_ID"));
  unsetenv("NCCL_COMM_ID");
  setenv("NCCL_MIN_P2P_NCHANNELS", "32", 1);
  EXPECT_EQ(NcclCtasOf(NcclEnvironment::OfProcess()), 32);
  unsetenv("NCCL_MIN_P2P_NCHANNELS");
}

TEST(NcclLibrary, VersionsAreReadable) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21900), "2.19.0");
}

}  // namespace
}  // namespace annulus
