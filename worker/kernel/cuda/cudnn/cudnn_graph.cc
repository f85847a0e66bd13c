#include "worker/kernel/cuda/cudnn/cudnn_graph.h"

#include <array>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace annulus::cuda {
namespace {

// The tensors of a graph: some are bound to memory, others are virtual.
enum TensorNumber : int64_t {
  kQ = 1,
  kK,
  kV,
  kScale,
  kOut,
  kMax,
  kWeight,
  kProducts,
  kScores,
  kDistances,
  kExponentials,
  kWeights,
};

constexpr int64_t kAlignment = 16;

auto Tied(const CudnnShape& s) {
  return std::tie(s.dtype, s.head_dim, s.value_dim, s.q_heads, s.kv_heads, s.rows, s.keys,
                  s.q_stride, s.kv_stride, s.out_stride);
}

// Makes and fills descriptors. After the first error it does nothing more.
class Maker {
 public:
  explicit Maker(CudnnApi* api) : api_(api) {}

  void Begin(CudnnKind kind) {
    CudnnDescriptor made = nullptr;
    Note(api_->Create(kind, &made));
    now_ = CudnnOwned(api_, made);
  }
  template <class T>
  void Set(CudnnName name, CudnnType type, const T& value) {
    Set(name, type, 1, &value);
  }
  void Set(CudnnName name, CudnnType type, int64_t count, const void* values) {
    if (status_.ok()) Note(api_->Set(now_.get(), name, type, count, values));
  }
  CudnnOwned End() {
    if (status_.ok()) Note(api_->Finalize(now_.get()));
    return std::move(now_);
  }
  const absl::Status& status() const { return status_; }

 private:
  void Note(CudnnStatus status) {
    if (status == kCudnnSuccess || !status_.ok()) return;
    status_ = absl::UnimplementedError(
        absl::StrCat("cuDNN refuses a graph (", status, "): ", api_->LastError()));
  }

  CudnnApi* const api_;
  CudnnOwned now_;
  absl::Status status_;
};

struct Tensor {
  TensorNumber number;
  int type;
  std::array<int64_t, 4> dims, strides;
  bool inside = false, by_value = false;
};

// The operations of a graph, as they are added.
class GraphMaker {
 public:
  GraphMaker(CudnnApi* api, const CudnnShape& shape) : maker_(api), s_(shape) {}

  void AddOperations() {
    const int io = s_.dtype == DataType::kFp16 ? kCudnnHalf : kCudnnBfloat16;
    const int64_t d = s_.head_dim, dv = s_.value_dim;
    const CudnnDescriptor q =
        Add({kQ, io, {1, s_.q_heads, s_.rows, d}, {s_.rows * s_.q_stride, d, s_.q_stride, 1}});
    const CudnnDescriptor k =
        Add({kK, io, {1, s_.kv_heads, d, s_.keys}, {s_.keys * s_.kv_stride, d, 1, s_.kv_stride}});
    const CudnnDescriptor v =
        Add({kV, io, {1, s_.kv_heads, s_.keys, dv}, {s_.keys * s_.kv_stride, dv, s_.kv_stride, 1}});
    const CudnnDescriptor scale =
        Add({kScale, kCudnnFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, false, /*by_value=*/true});
    const int64_t out_batch = s_.rows * s_.out_stride;
    const CudnnDescriptor out =
        Add({kOut, kCudnnFloat, {1, s_.q_heads, s_.rows, dv}, {out_batch, dv, s_.out_stride, 1}});
    const CudnnDescriptor max = AddOfRows(kMax), weight = AddOfRows(kWeight);
    const CudnnDescriptor products = AddPairs(kProducts), scores = AddPairs(kScores),
                          distances = AddPairs(kDistances), exponentials = AddPairs(kExponentials),
                          weights = AddPairs(kWeights, io);
    Multiply(q, k, products);
    Pointwise(kCudnnMul, products, scale, scores);
    Reduce(kCudnnMax, scores, max);
    Pointwise(kCudnnSub, scores, max, distances);
    Pointwise(kCudnnExp, distances, nullptr, exponentials);
    Reduce(kCudnnAdd, exponentials, weight);
    Pointwise(kCudnnDiv, exponentials, weight, weights);
    Multiply(weights, v, out);
  }

  CudnnOwned Graph(const CudnnTarget& target) {
    maker_.Begin(CudnnKind::kGraph);
    maker_.Set(CudnnName::kGraphOps, CudnnType::kDescriptor, static_cast<int64_t>(ops_.size()),
               ops_.data());
    if (target.handle != nullptr)
      maker_.Set(CudnnName::kGraphHandle, CudnnType::kHandle, target.handle);
    // One compiled kernel then serves other lengths, head counts and dimensions.
    maker_.Set(CudnnName::kGraphDynamicShape, CudnnType::kBoolean, true);
    return maker_.End();
  }

  const absl::Status& status() const { return maker_.status(); }
  std::vector<CudnnOwned> TakeParts() { return std::move(parts_); }

 private:
  CudnnDescriptor Keep(CudnnOwned made) {
    parts_.push_back(std::move(made));
    return parts_.back().get();
  }
  CudnnDescriptor Add(const Tensor& tensor) {
    maker_.Begin(CudnnKind::kTensor);
    maker_.Set(CudnnName::kTensorType, CudnnType::kDataType, tensor.type);
    maker_.Set(CudnnName::kTensorDimensions, CudnnType::kInt64, 4, tensor.dims.data());
    maker_.Set(CudnnName::kTensorStrides, CudnnType::kInt64, 4, tensor.strides.data());
    maker_.Set(CudnnName::kTensorId, CudnnType::kInt64, static_cast<int64_t>(tensor.number));
    maker_.Set(CudnnName::kTensorAlignment, CudnnType::kInt64, kAlignment);
    maker_.Set(CudnnName::kTensorVirtual, CudnnType::kBoolean, tensor.inside);
    maker_.Set(CudnnName::kTensorByValue, CudnnType::kBoolean, tensor.by_value);
    return Keep(maker_.End());
  }
  CudnnDescriptor AddOfRows(TensorNumber number) {
    return Add({number,
                kCudnnFloat,
                {1, s_.q_heads, s_.rows, 1},
                {s_.rows * s_.out_stride, 1, s_.out_stride, 1}});
  }
  CudnnDescriptor AddPairs(TensorNumber number, int type = kCudnnFloat) {
    const int64_t of_head = s_.rows * s_.keys;
    return Add({number,
                type,
                {1, s_.q_heads, s_.rows, s_.keys},
                {s_.q_heads * of_head, of_head, s_.keys, 1},
                /*inside=*/true});
  }

  void Multiply(CudnnDescriptor a, CudnnDescriptor b, CudnnDescriptor c) {
    maker_.Begin(CudnnKind::kMatmul);
    maker_.Set(CudnnName::kMatmulPrecision, CudnnType::kDataType, kCudnnFloat);
    const CudnnDescriptor matmul = Keep(maker_.End());
    maker_.Begin(CudnnKind::kMatmulOp);
    maker_.Set(CudnnName::kMatmulOpA, CudnnType::kDescriptor, a);
    maker_.Set(CudnnName::kMatmulOpB, CudnnType::kDescriptor, b);
    maker_.Set(CudnnName::kMatmulOpC, CudnnType::kDescriptor, c);
    maker_.Set(CudnnName::kMatmulOpDescriptor, CudnnType::kDescriptor, matmul);
    ops_.push_back(Keep(maker_.End()));
  }
  void Pointwise(int mode, CudnnDescriptor x, CudnnDescriptor b, CudnnDescriptor y) {
    maker_.Begin(CudnnKind::kPointwise);
    maker_.Set(CudnnName::kPointwiseMode, CudnnType::kPointwiseMode, mode);
    maker_.Set(CudnnName::kPointwisePrecision, CudnnType::kDataType, kCudnnFloat);
    const CudnnDescriptor pointwise = Keep(maker_.End());
    maker_.Begin(CudnnKind::kPointwiseOp);
    maker_.Set(CudnnName::kPointwiseOpDescriptor, CudnnType::kDescriptor, pointwise);
    maker_.Set(CudnnName::kPointwiseOpX, CudnnType::kDescriptor, x);
    if (b != nullptr) maker_.Set(CudnnName::kPointwiseOpB, CudnnType::kDescriptor, b);
    maker_.Set(CudnnName::kPointwiseOpY, CudnnType::kDescriptor, y);
    ops_.push_back(Keep(maker_.End()));
  }
  void Reduce(int operation, CudnnDescriptor x, CudnnDescriptor y) {
    maker_.Begin(CudnnKind::kReduction);
    maker_.Set(CudnnName::kReductionOperator, CudnnType::kReduction, operation);
    maker_.Set(CudnnName::kReductionPrecision, CudnnType::kDataType, kCudnnFloat);
    const CudnnDescriptor reduction = Keep(maker_.End());
    maker_.Begin(CudnnKind::kReductionOp);
    maker_.Set(CudnnName::kReductionOpX, CudnnType::kDescriptor, x);
    maker_.Set(CudnnName::kReductionOpY, CudnnType::kDescriptor, y);
    maker_.Set(CudnnName::kReductionOpDescriptor, CudnnType::kDescriptor, reduction);
    ops_.push_back(Keep(maker_.End()));
  }

  Maker maker_;
  const CudnnShape s_;
  std::vector<CudnnOwned> parts_;
  std::vector<CudnnDescriptor> ops_;
};

// The engine that the heuristics rank first among those that support the graph.
absl::StatusOr<CudnnOwned> ChooseEngine(const CudnnTarget& target, const CudnnOwned& graph,
                                        std::vector<CudnnOwned>* parts) {
  Maker maker(target.api);
  maker.Begin(CudnnKind::kHeuristics);
  maker.Set(CudnnName::kHeuristicsGraph, CudnnType::kDescriptor, graph.get());
  maker.Set(CudnnName::kHeuristicsMode, CudnnType::kHeuristicsMode, kCudnnModeA);
  if (target.handle == nullptr)
    maker.Set(CudnnName::kHeuristicsDevice, CudnnType::kDescriptor, target.device);
  CudnnOwned heuristics = maker.End();
  RETURN_IF_ERROR(maker.status());
  CudnnDescriptor made = nullptr;
  int64_t count = 0;
  if (target.api->Create(CudnnKind::kEngineConfig, &made) != kCudnnSuccess)
    return absl::InternalError(absl::StrCat("cuDNN: ", target.api->LastError()));
  CudnnOwned config(target.api, made);
  const CudnnStatus status =
      target.api->Get(heuristics.get(), CudnnName::kHeuristicsResults, CudnnType::kDescriptor,
                      /*room=*/1, &count, &made);
  if (status != kCudnnSuccess || count < 1) {
    return absl::UnimplementedError(
        absl::StrCat("no engine of cuDNN serves a graph: ", target.api->LastError()));
  }
  parts->push_back(std::move(heuristics));
  return config;
}

}  // namespace

bool operator==(const CudnnShape& a, const CudnnShape& b) { return Tied(a) == Tied(b); }
bool operator<(const CudnnShape& a, const CudnnShape& b) { return Tied(a) < Tied(b); }

absl::StatusOr<CudnnGraph> CudnnGraph::Make(const CudnnTarget& target, const CudnnShape& shape) {
  GraphMaker maker(target.api, shape);
  maker.AddOperations();
  CudnnGraph made;
  made.graph_ = maker.Graph(target);
  RETURN_IF_ERROR(maker.status());
  made.parts_ = maker.TakeParts();
  ASSIGN_OR_RETURN(made.config_, ChooseEngine(target, made.graph_, &made.parts_));
  return made;
}

absl::StatusOr<CudnnKernels> CudnnKernels::Make(CudnnApi* api, const CudnnGraph& first) {
  Maker maker(api);
  maker.Begin(CudnnKind::kKernelCache);
  maker.Set(CudnnName::kCacheGraph, CudnnType::kDescriptor, first.graph());
  CudnnKernels made;
  made.cache_ = maker.End();
  RETURN_IF_ERROR(maker.status());
  return made;
}

absl::StatusOr<CudnnPlan> CudnnPlan::Make(const CudnnTarget& target, CudnnGraph graph,
                                          const CudnnKernels& kernels) {
  CudnnPlan made(std::move(graph));
  Maker maker(target.api);
  maker.Begin(CudnnKind::kPlan);
  maker.Set(CudnnName::kPlanConfig, CudnnType::kDescriptor, made.graph_.config());
  if (target.handle != nullptr)
    maker.Set(CudnnName::kPlanHandle, CudnnType::kHandle, target.handle);
  else
    maker.Set(CudnnName::kPlanDevice, CudnnType::kDescriptor, target.device);
  maker.Set(CudnnName::kPlanKernelCache, CudnnType::kDescriptor, kernels.get());
  made.plan_ = maker.End();
  RETURN_IF_ERROR(maker.status());
  int64_t count = 0;
  const CudnnStatus status = target.api->Get(made.plan_.get(), CudnnName::kPlanWorkspace,
                                             CudnnType::kInt64, 1, &count, &made.workspace_bytes_);
  if (status != kCudnnSuccess || count != 1)
    return absl::InternalError(absl::StrCat("cuDNN: ", target.api->LastError()));
  return made;
}

absl::Status CudnnPlan::Run(const CudnnTarget& target, const CudnnTensors& tensors,
                            std::byte* workspace) const {
  const std::array<int64_t, 7> numbers = {kQ, kK, kV, kScale, kOut, kMax, kWeight};
  const std::array<const void*, 7> pointers = {
      tensors.q, tensors.k, tensors.v, tensors.scale, tensors.out, tensors.max, tensors.weight};
  Maker maker(target.api);
  maker.Begin(CudnnKind::kVariantPack);
  maker.Set(CudnnName::kPackIds, CudnnType::kInt64, static_cast<int64_t>(numbers.size()),
            numbers.data());
  maker.Set(CudnnName::kPackPointers, CudnnType::kPointer, static_cast<int64_t>(pointers.size()),
            pointers.data());
  maker.Set(CudnnName::kPackWorkspace, CudnnType::kPointer, workspace);
  const CudnnOwned pack = maker.End();
  RETURN_IF_ERROR(maker.status());
  if (target.api->Execute(target.handle, plan_.get(), pack.get()) == kCudnnSuccess)
    return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuDNN fails to run a plan: ", target.api->LastError()));
}

}  // namespace annulus::cuda
