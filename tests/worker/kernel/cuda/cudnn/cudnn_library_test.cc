// Functions of the real library that need no GPU, and unsuitable libraries.

#include "worker/kernel/cuda/cudnn/cudnn_library.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#if __has_include(<cudnn_backend.h>)
#include <cudnn.h>
#include <cudnn_backend.h>
#endif

namespace annulus::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

#ifdef CUDNN_MAJOR
template <class A, class B>
constexpr bool Same(A ours, B theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(Same(kCudnnSuccess, CUDNN_STATUS_SUCCESS));
static_assert(Same(CudnnKind::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
static_assert(Same(CudnnKind::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
static_assert(Same(CudnnKind::kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
static_assert(Same(CudnnKind::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
static_assert(Same(CudnnKind::kPointwiseOp, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
static_assert(Same(CudnnKind::kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
static_assert(Same(CudnnKind::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(Same(CudnnKind::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
static_assert(Same(CudnnKind::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR));
static_assert(Same(CudnnKind::kMatmulOp, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
static_assert(Same(CudnnKind::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
static_assert(Same(CudnnKind::kReductionOp, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
static_assert(Same(CudnnKind::kKernelCache, CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR));
static_assert(Same(CudnnKind::kDeviceProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
static_assert(Same(CudnnName::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE));
static_assert(Same(CudnnName::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC));
static_assert(Same(CudnnName::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE));
static_assert(Same(CudnnName::kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
static_assert(Same(CudnnName::kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS));
static_assert(Same(CudnnName::kHeuristicsDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP));
static_assert(Same(CudnnName::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
static_assert(Same(CudnnName::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(Same(CudnnName::kPlanKernelCache, CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE));
static_assert(Same(CudnnName::kPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
static_assert(Same(CudnnName::kPointwiseOpDescriptor,
                   CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
static_assert(Same(CudnnName::kPointwiseOpX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
static_assert(Same(CudnnName::kPointwiseOpB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
static_assert(Same(CudnnName::kPointwiseOpY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
static_assert(Same(CudnnName::kGraphOps, CUDNN_ATTR_OPERATIONGRAPH_OPS));
static_assert(Same(CudnnName::kGraphDynamicShape,
                   CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED));
static_assert(Same(CudnnName::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
static_assert(Same(CudnnName::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE));
static_assert(Same(CudnnName::kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS));
static_assert(Same(CudnnName::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES));
static_assert(Same(CudnnName::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID));
static_assert(Same(CudnnName::kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL));
static_assert(Same(CudnnName::kTensorByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE));
static_assert(Same(CudnnName::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS));
static_assert(Same(CudnnName::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(Same(CudnnName::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
static_assert(Same(CudnnName::kMatmulPrecision, CUDNN_ATTR_MATMUL_COMP_TYPE));
static_assert(Same(CudnnName::kMatmulOpA, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
static_assert(Same(CudnnName::kMatmulOpB, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
static_assert(Same(CudnnName::kMatmulOpC, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
static_assert(Same(CudnnName::kMatmulOpDescriptor, CUDNN_ATTR_OPERATION_MATMUL_DESC));
static_assert(Same(CudnnName::kReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR));
static_assert(Same(CudnnName::kReductionPrecision, CUDNN_ATTR_REDUCTION_COMP_TYPE));
static_assert(Same(CudnnName::kReductionOpX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
static_assert(Same(CudnnName::kReductionOpY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
static_assert(Same(CudnnName::kReductionOpDescriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC));
static_assert(Same(CudnnName::kCacheGraph, CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH));
static_assert(Same(CudnnName::kDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION));
static_assert(Same(CudnnType::kHandle, CUDNN_TYPE_HANDLE));
static_assert(Same(CudnnType::kDataType, CUDNN_TYPE_DATA_TYPE));
static_assert(Same(CudnnType::kBoolean, CUDNN_TYPE_BOOLEAN));
static_assert(Same(CudnnType::kInt64, CUDNN_TYPE_INT64));
static_assert(Same(CudnnType::kPointer, CUDNN_TYPE_VOID_PTR));
static_assert(Same(CudnnType::kHeuristicsMode, CUDNN_TYPE_HEUR_MODE));
static_assert(Same(CudnnType::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE));
static_assert(Same(CudnnType::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(Same(CudnnType::kReduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE));
static_assert(Same(CudnnType::kChar, CUDNN_TYPE_CHAR));
static_assert(Same(kCudnnFloat, CUDNN_DATA_FLOAT) && Same(kCudnnHalf, CUDNN_DATA_HALF));
static_assert(Same(kCudnnBfloat16, CUDNN_DATA_BFLOAT16));
static_assert(Same(kCudnnMul, CUDNN_POINTWISE_MUL) && Same(kCudnnDiv, CUDNN_POINTWISE_DIV));
static_assert(Same(kCudnnSub, CUDNN_POINTWISE_SUB) && Same(kCudnnExp, CUDNN_POINTWISE_EXP));
static_assert(Same(kCudnnAdd, CUDNN_REDUCE_TENSOR_ADD) && Same(kCudnnMax, CUDNN_REDUCE_TENSOR_MAX));
static_assert(Same(kCudnnModeA, CUDNN_HEUR_MODE_A));
#endif

TEST(CudnnLibrary, TellsItsVersion) {
  const auto cudnn = LoadCudnn("libcudnn.so.9");
  if (!cudnn.ok()) GTEST_SKIP() << cudnn.status().message();
  EXPECT_GE((*cudnn)->Version(), 91900);
  EXPECT_EQ(CudnnVersionText(91900), "9.19.0");
}

TEST(CudnnLibrary, OneThatIsNotThereIsOneLine) {
  const auto status = LoadCudnn("libcudnn_of_nobody.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no cuDNN: libcudnn_of_nobody.so"), Not(HasSubstr("\n"))));
}

TEST(CudnnLibrary, OneThatIsTooOldIsOneLine) {
  EXPECT_EQ(
      LoadCudnn("tests/worker/kernel/cuda/cudnn/libcudnn_old.so").status().message(),
      "tests/worker/kernel/cuda/cudnn/libcudnn_old.so is cuDNN 8.9.7: 9.19.0 or newer is needed");
}

TEST(CudnnLibrary, AnotherLibraryIsOneLine) {
  EXPECT_EQ(LoadCudnn("libm.so.6").status().message(),
            "libm.so.6 is no cuDNN: it has no cudnnGetVersion");
}

}  // namespace
}  // namespace annulus::cuda
