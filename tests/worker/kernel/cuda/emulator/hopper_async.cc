// Asynchronous parts: copies of boxes, and products.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "attention/spec/dtype.h"
#include "tests/worker/kernel/cuda/emulator/hopper_machine.h"
#include "tests/worker/kernel/cuda/emulator/hopper_products.h"

namespace annulus::cuda {
namespace {

constexpr int kGroup = 128, kColumns = 64;
constexpr uint32_t kRowBytes = 128;
// A signalling NaN stands for sums that are not complete. Every result computed from one is quiet.
constexpr uint32_t kUnknown = 0x7fa5c3e1, kQuiet = 0x00400000;

float FloatOf(Element element, uint16_t bits) {
  return element == Element::kBf16 ? Bf16ToFp32(bits) : Fp16ToFp32(bits);
}

}  // namespace

bool GroupProduct::operator==(const GroupProduct& other) const {
  return element == other.element && columns == other.columns && a == other.a && b == other.b &&
         add == other.add;
}

void HopperMachine::LoadBox(int thread, uint32_t to, const void* map, int32_t column, int32_t head,
                            int32_t row, uint32_t barrier) {
  if (acquired_.count({thread, map}) == 0) Fail(thread, "a map that was not asked for");
  Find(thread, barrier);
  BoxCopy copy;
  std::memcpy(&copy.map, map, sizeof(copy.map));
  copy.to = to;
  copy.barrier = barrier;
  copy.column = column;
  copy.head = head;
  copy.row = row;
  const TensorMapSpec& spec = copy.map;
  if (to % 1024 != 0) Fail(thread, "a swizzled box that does not begin at a multiple of 1024");
  if ((reinterpret_cast<uintptr_t>(spec.base) | static_cast<uintptr_t>(spec.head_bytes) |
       static_cast<uintptr_t>(spec.row_bytes)) %
          16 !=
      0)
    Fail(thread, "a tensor that is not aligned to 16 bytes");
  if (spec.box_rows < 1 || spec.box_rows > 256 || spec.box_heads < 1 || spec.box_heads > 256)
    Fail(thread, "a box of so many rows");
  for (int r = 0; r < spec.box_rows * spec.box_heads; ++r)
    for (uint32_t at = 0; at < kRowBytes; at += 16)
      FailIf(thread, shared_->BeginCopy(to + r * kRowBytes + at, 16, Me(thread)));
  copies_.push_back(copy);
}

std::string HopperMachine::Land(const BoxCopy& copy) {
  const TensorMapSpec& map = copy.map;
  HopperMbarrier& barrier = barriers_.at(copy.barrier);
  const uint32_t time = ++barrier.landed;
  for (int r = 0; r < map.box_rows * map.box_heads; ++r) {
    const int64_t row = int64_t{copy.row} + r / map.box_heads;
    const int64_t head = int64_t{copy.head} + r % map.box_heads;
    const bool there = row >= 0 && row < map.rows && head >= 0 && head < map.heads;
    const int columns = there ? std::clamp(map.columns - copy.column, 0, kColumns) : 0;
    std::byte line[kRowBytes] = {};
    if (columns > 0) {
      const std::byte* from =
          map.base + row * map.row_bytes + head * map.head_bytes + copy.column * 2;
      if (std::string fault = global_->Read(from, columns * 2, number_); !fault.empty())
        return absl::StrCat("a box: ", fault);
      std::memcpy(line, from, columns * 2);
    }
    for (uint32_t chunk = 0; chunk < 8; ++chunk) {
      const uint32_t at = copy.to + r * kRowBytes + (chunk ^ (r & 7)) * 16;
      std::memcpy(shared_->data() + at, line + chunk * 16, 16);
      shared_->Land(at, 16, barrier.index, time);
    }
  }
  barrier.clock[barrier.index] = time;
  barrier.bytes -= int64_t{map.box_rows} * map.box_heads * kRowBytes;
  if (barrier.bytes < 0) return "more bytes came than a barrier expects";
  EndPhase(barrier);
  return "";
}

void HopperMachine::CheckKnown(int thread, const void* registers, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(registers);
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    uint32_t word;
    std::memcpy(&word, at + i, 4);
    if ((word | kQuiet) == (kUnknown | kQuiet))
      Fail(thread, "sums of a product were read before it was waited for");
  }
}

void HopperMachine::HoldForProducts(int thread, const void* registers, size_t bytes) {
  CheckKnown(thread, registers, bytes);
  Thread& mine = *threads_[thread];
  if (mine.fenced) mine.held.clear();
  mine.fenced = false;
  const auto* at = static_cast<const std::byte*>(registers);
  mine.held.push_back({at, {at, at + bytes}});
}

void HopperMachine::FenceProducts(int thread) { threads_[thread]->fenced = true; }

std::shared_ptr<SumsInFlight> HopperMachine::FlightOf(int thread, float* sums, int count) {
  Thread& mine = *threads_[thread];
  for (const std::shared_ptr<SumsInFlight>& flight : mine.open.flights)
    if (flight->sums == sums) return flight;
  const auto* at = reinterpret_cast<const std::byte*>(sums);
  const size_t bytes = count * sizeof(float);
  const auto held = std::find_if(mine.held.begin(), mine.held.end(), [&](const HeldRegisters& r) {
    return r.at == at && r.bytes.size() == bytes;
  });
  if (held == mine.held.end() || std::memcmp(held->bytes.data(), at, bytes) != 0)
    Fail(thread, "sums that were changed behind the fence before a product");
  auto flight = std::make_shared<SumsInFlight>();
  *flight = {sums, {sums, sums + count}};
  for (int i = 0; i < count; ++i) std::memcpy(sums + i, &kUnknown, sizeof(kUnknown));
  mine.open.flights.push_back(flight);
  return flight;
}

void HopperMachine::Multiply(int thread, const GroupProduct& product, const uint32_t* left,
                             float* sums) {
  Thread& mine = *threads_[thread];
  if (!mine.fenced) Fail(thread, "a product without a fence");
  if (turns_ && !mine.turn) Fail(thread, "a product out of turn");
  if (mine.strayed) Fail(thread, "products of a warp that has not met since it waited");
  const std::shared_ptr<SumsInFlight> flight = FlightOf(thread, sums, product.columns / 2);
  if (left != nullptr) {
    const auto* at = reinterpret_cast<const std::byte*>(left);
    const bool as_held =
        std::any_of(mine.held.begin(), mine.held.end(), [&](const HeldRegisters& r) {
          return at >= r.at && at + 16 <= r.at + r.bytes.size() &&
                 std::memcmp(r.bytes.data() + (at - r.at), at, 16) == 0;
        });
    if (!as_held) Fail(thread, "a left side that was changed behind the fence before a product");
    mine.open.lefts.push_back({left, {left, left + 4}});
  }
  GroupProducts& group = groups_[thread / kGroup];
  if (mine.issued == group.products.size()) {
    IssuedProduct issued;
    issued.product = product;
    issued.left = left != nullptr;
    issued.clock.assign(mine.clock.size(), ~uint32_t{0});
    issued.of_thread.resize(kGroup);
    issued.reads = std::make_shared<ProductReads>();
    issued.reads->first_thread = thread / kGroup * kGroup;
    issued.reads->waited.assign(kGroup, 0);
    group.products.push_back(std::move(issued));
  }
  IssuedProduct& issued = group.products[mine.issued++];
  if (!(issued.product == product) || issued.left != (left != nullptr))
    Fail(thread, "the threads of a group do different products");
  for (size_t i = 0; i < issued.clock.size(); ++i)
    issued.clock[i] = std::min(issued.clock[i], mine.clock[i]);
  issued.of_thread[thread % kGroup] = {flight, left};
  ++issued.come;
  mine.open.reads.push_back(issued.reads);
  mine.open.issued = mine.issued;
}

std::string HopperMachine::ReadOperands(int group, const IssuedProduct& issued,
                                        std::vector<float>* left, std::vector<float>* right) {
  const GroupProduct& product = issued.product;
  std::string fault;
  // Eight elements are adjacent in every layout of the matrix.
  const auto read = [&](uint32_t at, float* to, int stride) {
    uint16_t bits[8] = {};
    if (fault.empty())
      fault = shared_->ReadByProduct(at, sizeof(bits), issued.clock, group % 2, issued.reads);
    if (fault.empty()) std::memcpy(bits, shared_->data() + at, sizeof(bits));
    for (int i = 0; i < 8; ++i) to[i * stride] = FloatOf(product.element, bits[i]);
  };
  const MatrixLayout b = DecodeDescriptor(product.b);
  if (!b.fault.empty()) return b.fault;
  const int columns = product.columns;
  right->resize(kProductDepth * columns);
  left->resize(kProductRows * kProductDepth);
  if (issued.left) {
    for (int k = 0; k < kProductDepth; ++k)
      for (int n = 0; n < columns; n += 8)
        read(PlaceAcrossRows(b, n, k), &(*right)[k * columns + n], 1);
    for (int t = 0; t < kGroup; ++t) {
      for (int i = 0; i < 8; ++i) {
        const ProductPlace place = PlaceOfLeft(t, i);
        const uint32_t word = issued.of_thread[t].second[i / 2];
        (*left)[place.row * kProductDepth + place.column] =
            FloatOf(product.element, static_cast<uint16_t>(word >> (16 * (i % 2))));
      }
    }
    return fault;
  }
  const MatrixLayout a = DecodeDescriptor(product.a);
  if (!a.fault.empty()) return a.fault;
  for (int k = 0; k < kProductDepth; k += 8) {
    for (int n = 0; n < columns; ++n)
      read(PlaceAlongRows(b, n, k), &(*right)[k * columns + n], columns);
    for (int m = 0; m < kProductRows; ++m)
      read(PlaceAlongRows(a, m, k), &(*left)[m * kProductDepth + k], 1);
  }
  return fault;
}

std::string HopperMachine::Execute(int group) {
  const IssuedProduct& issued = groups_[group].products[groups_[group].done++];
  std::vector<float> left, right;
  if (std::string fault = ReadOperands(group, issued, &left, &right); !fault.empty()) return fault;
  const int columns = issued.product.columns;
  std::vector<float> sums(kProductRows * columns);
  const auto each = [&](const auto& act) {
    for (int t = 0; t < kGroup; ++t) {
      std::vector<float>& mine = issued.of_thread[t].first->now;
      for (int i = 0; i < columns / 2; ++i) {
        const ProductPlace place = PlaceOfSum(t, i);
        act(mine[i], sums[place.row * columns + place.column]);
      }
    }
  };
  if (issued.product.add) each([](float& mine, float& sum) { sum = mine; });
  for (int m = 0; m < kProductRows; ++m)
    AddProducts(&left[m * kProductDepth], right.data(), columns, &sums[m * columns]);
  each([](float& mine, float& sum) { mine = sum; });
  return "";
}

void HopperMachine::CommitProducts(int thread) {
  Thread& mine = *threads_[thread];
  mine.committed.push_back(std::move(mine.open));
  mine.open = ThreadProducts();
}

void HopperMachine::Settle(int thread, const ThreadProducts& products) {
  for (const auto& [at, was] : products.lefts)
    if (std::memcmp(at, was.data(), 16) != 0)
      Fail(thread, "the left side of a product was changed before it was waited for");
  for (const std::shared_ptr<SumsInFlight>& flight : products.flights) {
    for (size_t i = 0; i < flight->now.size(); ++i)
      if (std::memcmp(flight->sums + i, &kUnknown, sizeof(kUnknown)) != 0)
        Fail(thread, "sums of a product were changed before it was waited for");
    std::memcpy(flight->sums, flight->now.data(), flight->now.size() * sizeof(float));
  }
  for (const std::shared_ptr<ProductReads>& reads : products.reads)
    reads->waited[thread % kGroup] = threads_[thread]->clock[thread];
}

// Products complete in order.
void HopperMachine::AwaitProducts(int thread, size_t but) {
  Thread& mine = *threads_[thread];
  if (!mine.open.reads.empty()) Fail(thread, "products that are not committed");
  for (; mine.committed.size() > but; mine.committed.pop_front()) {
    while (groups_[thread / kGroup].done < mine.committed.front().issued) Pause(thread, true);
    Settle(thread, mine.committed.front());
  }
  mine.fenced = false;
  mine.held.clear();
}

}  // namespace annulus::cuda
