#include "tests/worker/kernel/cuda/cudnn/cudnn_stand_in.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "attention/spec/dtype.h"

namespace annulus::cuda {

struct CudnnStandIn::Descriptor {
  CudnnKind kind;
  bool final = false;
  struct Value {
    CudnnType type;
    int64_t count = 0;
    std::vector<std::byte> bytes;
  };
  std::map<CudnnName, Value> values;

  template <class T>
  std::vector<T> All(CudnnName name) const {
    const auto at = values.find(name);
    if (at == values.end()) return {};
    std::vector<T> all(at->second.count);
    std::memcpy(all.data(), at->second.bytes.data(), at->second.count * sizeof(T));
    return all;
  }
  template <class T>
  T One(CudnnName name) const {
    T one = T();
    const auto at = values.find(name);
    if (at != values.end()) std::memcpy(&one, at->second.bytes.data(), sizeof(T));
    return one;
  }
  const Descriptor* Part(CudnnName name) const { return One<const Descriptor*>(name); }
};

namespace {

using Descriptor = CudnnStandIn::Descriptor;

constexpr CudnnStatus kBadParameter = 2000, kNotSupported = 3000, kFailed = 5000;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

int64_t BytesOf(CudnnType type) {
  switch (type) {
    case CudnnType::kBoolean:
    case CudnnType::kChar:
      return 1;
    case CudnnType::kDataType:
    case CudnnType::kHeuristicsMode:
    case CudnnType::kPointwiseMode:
    case CudnnType::kReduction:
      return 4;
    default:
      return 8;
  }
}

DataType DataTypeOf(int type) {
  return type == kCudnnFloat  ? DataType::kFp32
         : type == kCudnnHalf ? DataType::kFp16
                              : DataType::kBf16;
}

double Rounded(int type, double value) {
  const auto number = static_cast<float>(value);
  std::byte bytes[4];
  float back = 0;
  ConvertFromFp32(DataTypeOf(type), &number, 1, bytes);
  ConvertToFp32(DataTypeOf(type), bytes, 1, &back);
  return back;
}

// A tensor's numbers: heads, rows, columns.
struct Numbers {
  std::array<int64_t, 3> dims;
  std::vector<double> values;

  explicit Numbers(const Descriptor& tensor) {
    const std::vector<int64_t> all = tensor.All<int64_t>(CudnnName::kTensorDimensions);
    dims = {all[1], all[2], all[3]};
    values.resize(dims[0] * dims[1] * dims[2]);
  }
  // A dimension of size 1 stands for every index; heads are in groups.
  double& At(int64_t head, int64_t heads, int64_t row, int64_t column) {
    return values[(head * dims[0] / heads * dims[1] + (dims[1] == 1 ? 0 : row)) * dims[2] +
                  (dims[2] == 1 ? 0 : column)];
  }
  double& At(int64_t head, int64_t row, int64_t column) { return At(head, dims[0], row, column); }
};

// Executes the operations of one graph on the memory of one variant pack.
class Run {
 public:
  Run(const Descriptor& graph, const Descriptor& pack, bool lost_are_nan)
      : graph_(graph), lost_are_nan_(lost_are_nan) {
    const auto ids = pack.All<int64_t>(CudnnName::kPackIds);
    const auto pointers = pack.All<std::byte*>(CudnnName::kPackPointers);
    for (size_t i = 0; i < ids.size() && i < pointers.size(); ++i) memory_[ids[i]] = pointers[i];
  }

  // Empty, or the error.
  std::string Do() {
    for (const Descriptor* op : graph_.All<const Descriptor*>(CudnnName::kGraphOps)) {
      if (op->kind == CudnnKind::kMatmulOp) Multiply(*op);
      if (op->kind == CudnnKind::kPointwiseOp) Point(*op);
      if (op->kind == CudnnKind::kReductionOp) Reduce(*op);
    }
    return fault_;
  }

 private:
  std::byte* MemoryOf(const Descriptor& tensor) {
    const auto at = memory_.find(tensor.One<int64_t>(CudnnName::kTensorId));
    if (at == memory_.end()) fault_ = "a tensor is nowhere";
    if (at == memory_.end()) return nullptr;
    const auto alignment = tensor.One<int64_t>(CudnnName::kTensorAlignment);
    if (!tensor.One<bool>(CudnnName::kTensorByValue) &&
        reinterpret_cast<uintptr_t>(at->second) % alignment != 0)
      fault_ = "a tensor is not aligned";
    return at->second;
  }
  template <class Function>
  void ForEach(const Descriptor& tensor, Numbers* numbers, Function function) {
    const auto strides = tensor.All<int64_t>(CudnnName::kTensorStrides);
    for (int64_t head = 0; head < numbers->dims[0]; ++head)
      for (int64_t row = 0; row < numbers->dims[1]; ++row)
        for (int64_t column = 0; column < numbers->dims[2]; ++column)
          function(head * strides[1] + row * strides[2] + column * strides[3],
                   &numbers->At(head, row, column));
  }

  Numbers& Read(const Descriptor* tensor) {
    const auto id = tensor->One<int64_t>(CudnnName::kTensorId);
    const auto [at, added] = numbers_.try_emplace(id, *tensor);
    if (!added) return at->second;
    if (tensor->One<bool>(CudnnName::kTensorVirtual)) fault_ = "what is inside is read too early";
    const std::byte* const memory = MemoryOf(*tensor);
    if (!fault_.empty()) return at->second;
    const DataType type = DataTypeOf(tensor->One<int>(CudnnName::kTensorType));
    const int64_t bytes = type == DataType::kFp32 ? 4 : 2;
    ForEach(*tensor, &at->second, [&](int64_t offset, double* value) {
      float number = 0;
      ConvertToFp32(type, memory + offset * bytes, 1, &number);
      *value = number;
    });
    return at->second;
  }
  void Write(const Descriptor* tensor, Numbers made) {
    const int type = tensor->One<int>(CudnnName::kTensorType);
    Numbers& numbers =
        numbers_.insert_or_assign(tensor->One<int64_t>(CudnnName::kTensorId), std::move(made))
            .first->second;
    if (tensor->One<bool>(CudnnName::kTensorVirtual)) {
      for (double& value : numbers.values) {
        if (type != kCudnnFloat) value = Rounded(type, value);
        if (std::fabs(value) > std::numeric_limits<float>::max())
          value = std::copysign(kNothing, value);
      }
      return;
    }
    std::byte* const memory = MemoryOf(*tensor);
    if (!fault_.empty()) return;
    ForEach(*tensor, &numbers, [&](int64_t offset, const double* value) {
      const auto number = static_cast<float>(*value);
      std::memcpy(memory + offset * 4, &number, 4);
    });
  }

  void Multiply(const Descriptor& op) {
    Numbers &a = Read(op.Part(CudnnName::kMatmulOpA)), &b = Read(op.Part(CudnnName::kMatmulOpB));
    Numbers c(*op.Part(CudnnName::kMatmulOpC));
    for (int64_t head = 0; head < c.dims[0]; ++head) {
      for (int64_t row = 0; row < c.dims[1]; ++row) {
        for (int64_t i = 0; i < a.dims[2]; ++i) {
          const double left = a.At(head, c.dims[0], row, i);
          for (int64_t column = 0; column < c.dims[2]; ++column)
            c.At(head, row, column) += left * b.At(head, c.dims[0], i, column);
        }
      }
    }
    Write(op.Part(CudnnName::kMatmulOpC), std::move(c));
  }

  double Point(int mode, double x, double b) const {
    switch (mode) {
      case kCudnnMul:
        return x * b;
      case kCudnnDiv:
        return x / b;
      case kCudnnSub:
        return b == kNothing && !lost_are_nan_ ? x : x - b;
      default:
        return std::exp(x);
    }
  }
  void Point(const Descriptor& op) {
    const int mode =
        op.Part(CudnnName::kPointwiseOpDescriptor)->One<int>(CudnnName::kPointwiseMode);
    Numbers& x = Read(op.Part(CudnnName::kPointwiseOpX));
    const Descriptor* const b = op.Part(CudnnName::kPointwiseOpB);
    Numbers y(*op.Part(CudnnName::kPointwiseOpY));
    for (int64_t head = 0; head < y.dims[0]; ++head)
      for (int64_t row = 0; row < y.dims[1]; ++row)
        for (int64_t column = 0; column < y.dims[2]; ++column)
          y.At(head, row, column) =
              Point(mode, x.At(head, y.dims[0], row, column),
                    b == nullptr ? 0 : Read(b).At(head, y.dims[0], row, column));
    Write(op.Part(CudnnName::kPointwiseOpY), std::move(y));
  }

  void Reduce(const Descriptor& op) {
    const int operation =
        op.Part(CudnnName::kReductionOpDescriptor)->One<int>(CudnnName::kReductionOperator);
    Numbers& x = Read(op.Part(CudnnName::kReductionOpX));
    Numbers y(*op.Part(CudnnName::kReductionOpY));
    for (int64_t head = 0; head < y.dims[0]; ++head) {
      for (int64_t row = 0; row < y.dims[1]; ++row) {
        double& all = y.At(head, row, 0);
        all = operation == kCudnnMax ? kNothing : 0;
        for (int64_t column = 0; column < x.dims[2]; ++column) {
          const double value = x.At(head, row, column);
          all = operation == kCudnnMax ? std::fmax(all, value) : all + value;
        }
      }
    }
    Write(op.Part(CudnnName::kReductionOpY), std::move(y));
  }

  const Descriptor& graph_;
  const bool lost_are_nan_;
  std::map<int64_t, std::byte*> memory_;
  std::map<int64_t, Numbers> numbers_;
  std::string fault_;
};

Descriptor* AsDescriptor(CudnnDescriptor descriptor) {
  return static_cast<Descriptor*>(descriptor);
}

}  // namespace

CudnnStandIn::CudnnStandIn() = default;
CudnnStandIn::~CudnnStandIn() {
  for (Descriptor* descriptor : alive_) delete descriptor;
}

CudnnStatus CudnnStandIn::Refuse(const std::string& why) {
  error_ = why;
  return kBadParameter;
}

CudnnStatus CudnnStandIn::CreateHandle(CudnnHandle* handle) {
  ++handles_;
  *handle = this;
  return kCudnnSuccess;
}
CudnnStatus CudnnStandIn::DestroyHandle(CudnnHandle handle) {
  if (handle != this || handles_ == 0) return Refuse("not a handle");
  --handles_;
  return kCudnnSuccess;
}
CudnnStatus CudnnStandIn::SetStream(CudnnHandle handle, CudaStream stream) {
  if (handle != this) return Refuse("not a handle");
  if (!takes_streams_) return Refuse("no queue");
  stream_ = stream;
  return kCudnnSuccess;
}

CudnnStatus CudnnStandIn::Create(CudnnKind kind, CudnnDescriptor* made) {
  auto* const descriptor = new Descriptor{kind, false, {}};
  alive_.insert(descriptor);
  *made = descriptor;
  return kCudnnSuccess;
}
CudnnStatus CudnnStandIn::Destroy(CudnnDescriptor descriptor) {
  if (alive_.erase(AsDescriptor(descriptor)) == 0) return Refuse("destroyed twice");
  delete AsDescriptor(descriptor);
  return kCudnnSuccess;
}

CudnnStatus CudnnStandIn::Set(CudnnDescriptor descriptor, CudnnName name, CudnnType type,
                              int64_t count, const void* values) {
  Descriptor* const to = AsDescriptor(descriptor);
  if (alive_.count(to) == 0 || to->final) return Refuse("set when it is final");
  Descriptor::Value& value = to->values[name];
  value.type = type;
  value.count = count;
  value.bytes.resize(count * BytesOf(type));
  std::memcpy(value.bytes.data(), values, value.bytes.size());
  return kCudnnSuccess;
}

CudnnStatus CudnnStandIn::Get(CudnnDescriptor descriptor, CudnnName name, CudnnType, int64_t room,
                              int64_t* count, void* values) {
  const Descriptor* const from = AsDescriptor(descriptor);
  if (!from->final || room < 1) return Refuse("asked before it is final");
  *count = 1;
  if (name == CudnnName::kPlanWorkspace) {
    std::memcpy(values, &workspace_bytes_, sizeof(workspace_bytes_));
    return kCudnnSuccess;
  }
  if (name != CudnnName::kHeuristicsResults) return Refuse("asked for what is not there");
  Descriptor* config = nullptr;
  std::memcpy(&config, values, sizeof(config));
  config->values = from->values;
  config->final = true;
  return kCudnnSuccess;
}

CudnnStatus CudnnStandIn::Finalize(CudnnDescriptor descriptor) {
  Descriptor* const made = AsDescriptor(descriptor);
  if (alive_.count(made) == 0) return Refuse("finalized after its end");
  made->final = true;
  for (const auto& [name, value] : made->values) {
    if (value.type != CudnnType::kDescriptor) continue;
    for (Descriptor* part : made->All<Descriptor*>(name))
      if (alive_.count(part) == 0 || !part->final) return Refuse("made of what is not final");
  }
  if (made->kind != CudnnKind::kPlan) return kCudnnSuccess;
  ++plans_made_;
  const Descriptor* const graph =
      made->Part(CudnnName::kPlanConfig)->Part(CudnnName::kHeuristicsGraph);
  const Descriptor* const products =
      graph->All<const Descriptor*>(CudnnName::kGraphOps)[0]->Part(CudnnName::kMatmulOpC);
  const auto dims = products->All<int64_t>(CudnnName::kTensorDimensions);
  if (!serves_ || serves_(dims[2], dims[3])) return kCudnnSuccess;
  error_ = "not this shape";
  return kNotSupported;
}

CudnnStatus CudnnStandIn::Execute(CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack) {
  const Descriptor* const made = AsDescriptor(plan);
  if (handle != this || alive_.count(AsDescriptor(plan)) == 0 || !made->final)
    return Refuse("not a plan");
  if (broken_) {
    error_ = "broken";
    return kFailed;
  }
  ++runs_;
  const Descriptor* const graph =
      made->Part(CudnnName::kPlanConfig)->Part(CudnnName::kHeuristicsGraph);
  const std::string fault = Run(*graph, *AsDescriptor(pack), lost_are_nan_).Do();
  return fault.empty() ? kCudnnSuccess : Refuse(fault);
}

}  // namespace annulus::cuda
