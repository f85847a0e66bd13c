#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_API_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_API_H_

#include <cstdint>
#include <string>

#include "worker/device/cuda_api.h"

namespace annulus::cuda {

// cudnnHandle_t and cudnnBackendDescriptor_t, opaque.
using CudnnHandle = void*;
using CudnnDescriptor = void*;

// cudnnStatus_t.
using CudnnStatus = int;
inline constexpr CudnnStatus kCudnnSuccess = 0;

// The parts of cuDNN's backend enumerations that we use, with cuDNN's values.
// tests/worker/kernel/cuda/cudnn/cudnn_graph_test.cc checks them: it makes graphs with the real
// library.

// cudnnBackendDescriptorType_t.
enum class CudnnKind : int {
  kPointwise = 0,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kPointwiseOp = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOp = 19,
  kReduction = 21,
  kReductionOp = 22,
  kKernelCache = 34,
  kDeviceProperties = 38,
};

// cudnnBackendAttributeName_t.
enum class CudnnName : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kConfigWorkspace = 303,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanKernelCache = 406,
  kPlanDevice = 407,
  kPointwiseOpDescriptor = 750,
  kPointwiseOpX = 751,
  kPointwiseOpB = 752,
  kPointwiseOpY = 753,
  kGraphHandle = 800,
  kGraphOps = 801,
  kGraphDynamicShape = 803,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorVirtual = 907,
  kTensorByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kMatmulPrecision = 1500,
  kMatmulOpA = 1520,
  kMatmulOpB = 1521,
  kMatmulOpC = 1522,
  kMatmulOpDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionPrecision = 1601,
  kReductionOpX = 1610,
  kReductionOpY = 1611,
  kReductionOpDescriptor = 1612,
  kCacheGraph = 2400,
  kDeviceJson = 2702,
};

// cudnnBackendAttributeType_t.
enum class CudnnType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kPointer = 6,
  kHeuristicsMode = 8,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReduction = 18,
  kChar = 24,
};

// cudnnDataType_t, cudnnPointwiseMode_t, cudnnReduceTensorOp_t and cudnnBackendHeurMode_t.
inline constexpr int kCudnnFloat = 0, kCudnnHalf = 2, kCudnnBfloat16 = 9;
inline constexpr int kCudnnMul = 1, kCudnnDiv = 6, kCudnnSub = 9, kCudnnExp = 13;
inline constexpr int kCudnnAdd = 0, kCudnnMax = 3;
inline constexpr int kCudnnModeA = 3;

// The functions of cuDNN that we use, under cuDNN's names. cudnn_library.h has the real one; tests
// have a fake. Any thread may make and change descriptors. All calls with a handle come from one
// thread.
class CudnnApi {
 public:
  virtual ~CudnnApi() = default;

  // 91900 for 9.19.0.
  virtual int64_t Version() = 0;
  // The last error of this thread, for logs; may be empty.
  virtual std::string LastError() = 0;

  // For the thread's current device.
  virtual CudnnStatus CreateHandle(CudnnHandle* handle) = 0;
  virtual CudnnStatus DestroyHandle(CudnnHandle handle) = 0;
  virtual CudnnStatus SetStream(CudnnHandle handle, CudaStream stream) = 0;

  virtual CudnnStatus Create(CudnnKind kind, CudnnDescriptor* made) = 0;
  virtual CudnnStatus Destroy(CudnnDescriptor descriptor) = 0;
  virtual CudnnStatus Set(CudnnDescriptor descriptor, CudnnName name, CudnnType type, int64_t count,
                          const void* values) = 0;
  // `values` has room for `room` values. Sets *count to the number of values.
  virtual CudnnStatus Get(CudnnDescriptor descriptor, CudnnName name, CudnnType type, int64_t room,
                          int64_t* count, void* values) = 0;
  virtual CudnnStatus Finalize(CudnnDescriptor descriptor) = 0;
  // Queues the plan on the handle's stream.
  virtual CudnnStatus Execute(CudnnHandle handle, CudnnDescriptor plan,
                              CudnnDescriptor variant_pack) = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_API_H_
