// The real library, as far as it goes without a GPU.

#include "worker/comm/nccl_library.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <string>

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
  EXPECT_GE(own.version, NcclConfig().version);
}
#endif

TEST(NcclLibrary, TellsItsVersionAndMakesIds) {
  const auto nccl = LoadNccl("libnccl.so.2");
  if (!nccl.ok()) GTEST_SKIP() << nccl.status().message();
  EXPECT_GE((*nccl)->Version(), 21400);
  EXPECT_EQ((*nccl)->ErrorText(kNcclSuccess), "no error");
  std::string one, two;
  ASSERT_EQ((*nccl)->GetUniqueId(&one), kNcclSuccess);
  ASSERT_EQ((*nccl)->GetUniqueId(&two), kNcclSuccess);
  EXPECT_EQ(one.size(), 128u);
  EXPECT_NE(one, two);
}

// A call that blocks would hang with its peer.
TEST(NcclLibrary, CommunicatorsDoNotBlock) {
  constexpr char kFake[] = "tests/comm/libnccl_fake.so";
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

TEST(NcclLibrary, ItsKernelsHaveAsManyBlocksAsAreKeptFreeForThem) {
  EXPECT_EQ(NcclCtasOf(22809, nullptr), kNcclCtas);
  EXPECT_EQ(NcclCtasOf(22809, "2"), 2);
  EXPECT_EQ(NcclCtasOf(22809, "1000"), 64);
  EXPECT_EQ(NcclCtasOf(22809, "010"), 8);
  EXPECT_EQ(NcclCtasOf(22809, "0x10"), 16);
  EXPECT_EQ(NcclCtasOf(22809, ""), kNcclCtas);
  EXPECT_EQ(NcclCtasOf(21699, "2"), 32);
}

TEST(NcclLibrary, AnEnvironmentThatWouldNotBeMetIsRefused) {
  for (const char* fine : {static_cast<const char*>(nullptr), "", "0", "no", "2"})
    EXPECT_TRUE(CheckNcclEnvironment(fine, nullptr).ok()) << fine;
  for (const char* blocks : {"1", "01", "0x1", " 1", "1x"}) {
    const absl::Status status = CheckNcclEnvironment(blocks, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << blocks;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("NCCL_COMM_BLOCKING"));
  }
  for (const char* fine : {static_cast<const char*>(nullptr), "", "1", "1000"})
    EXPECT_TRUE(CheckNcclEnvironment(nullptr, fine).ok()) << fine;
  for (const char* nonsense : {"0", "-3", "many", "0x", "8 blocks"}) {
    const absl::Status status = CheckNcclEnvironment("0", nonsense);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << nonsense;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("NCCL_MAX_CTAS"));
  }
}

// 2.14 copies as many bytes as it is told to.
TEST(NcclLibrary, AnOlderOneIsToldWhatItKnows) {
  const NcclConfig config = NcclConfigOf(22809, 8), old = NcclConfigOf(21400, 8);
  EXPECT_EQ(config.size, sizeof(NcclConfig));
  EXPECT_EQ(config.version, 21700u);
  EXPECT_EQ(config.blocking, 0);
  EXPECT_EQ(config.cluster_size, 0);
  EXPECT_EQ(config.max_ctas, 8);
  EXPECT_EQ(old.size, 24u);
  EXPECT_EQ(old.version, 21400u);
  EXPECT_EQ(old.blocking, 0);
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
}

TEST(NcclLibrary, VersionsAreReadable) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21400), "2.14.0");
}

}  // namespace
}  // namespace annulus
