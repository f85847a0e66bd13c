// What the driver is told of a tensor, and where: a stand-in takes its place.
#include "worker/kernel/cuda/encode_map.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "worker/kernel/cuda/hopper_config.h"

namespace annulus::cuda {
namespace {

CUresult g_result = CUDA_SUCCESS;
bool g_aligned = false;

CUresult Encode(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  g_aligned = reinterpret_cast<uintptr_t>(map) % alignof(CUtensorMap) == 0;
  if (!g_aligned) return CUDA_ERROR_INVALID_VALUE;
  if (g_result == CUDA_SUCCESS) std::memset(static_cast<void*>(map), 7, sizeof(*map));
  return g_result;
}

TEST(EncodeMapTest, AMapGoesToAnyAddress) {
  g_result = CUDA_SUCCESS;
  for (const int odd : {0, 1, 16, 63}) {
    std::vector<std::byte> to(kMapBytes + 64, std::byte{1});
    int refusal = -1;
    EXPECT_EQ(EncodeTensorMapBy(reinterpret_cast<void*>(&Encode), {}, to.data() + odd, &refusal),
              kCudaSuccess);
    EXPECT_TRUE(g_aligned);
    EXPECT_EQ(refusal, 0);
    for (int64_t i = 0; i < static_cast<int64_t>(to.size()); ++i)
      EXPECT_EQ(to[i], std::byte(i >= odd && i < odd + kMapBytes ? 7 : 1)) << odd << " " << i;
  }
}

TEST(EncodeMapTest, ARefusalIsTold) {
  g_result = CUDA_ERROR_NOT_SUPPORTED;
  std::byte to[kMapBytes] = {};
  int refusal = 0;
  EXPECT_NE(EncodeTensorMapBy(reinterpret_cast<void*>(&Encode), {}, to, &refusal), kCudaSuccess);
  EXPECT_EQ(refusal, static_cast<int>(CUDA_ERROR_NOT_SUPPORTED));
}

}  // namespace
}  // namespace annulus::cuda
