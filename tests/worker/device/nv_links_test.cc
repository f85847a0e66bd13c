#include "worker/device/nv_links.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace annulus {
namespace {

constexpr char kFake[] = "tests/worker/device/libnvml_fake.so";

std::string TextOf(const std::string& place) {
  const auto ends = FindNvLinks(kFake, place);
  return ends.has_value() ? NvLinksText(*ends) : "unknown";
}

TEST(NvLinksTest, LinksAreToldByWhatTheyLeadTo) {
  EXPECT_EQ(TextOf("0000:01:00.0"), "4 NVLinks to 0000:02:00.0, 1 to 0001:af:00.0, 1 to others");
  EXPECT_EQ(TextOf("0000:02:00.0"), "18 NVLinks to switches");
  EXPECT_EQ(TextOf("0000:03:00.0"), "no NVLink");
  EXPECT_EQ(NvLinksText({{NvLinkEnd::Kind::kSwitch, ""}}), "1 NVLink to switches");
}

TEST(NvLinksTest, WhatIsNotSaidIsUnknown) {
  EXPECT_EQ(TextOf("0000:04:00.0"), "unknown");
  EXPECT_EQ(TextOf("0000:09:00.0"), "unknown");
  EXPECT_FALSE(FindNvLinks("libno-such-nvml.so", "0000:01:00.0").has_value());
  EXPECT_FALSE(FindNvLinks("libdl.so.2", "0000:01:00.0").has_value());
}

TEST(NvLinksTest, WhatWasOpenedIsClosed) {
  (void)TextOf("0000:04:00.0");
  void* const library = dlopen(kFake, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(*static_cast<const int*>(dlsym(library, "fake_nvml_open")), 0);
  EXPECT_GT(*static_cast<const int*>(dlsym(library, "fake_nvml_inits")), 0);
}

}  // namespace
}  // namespace annulus
