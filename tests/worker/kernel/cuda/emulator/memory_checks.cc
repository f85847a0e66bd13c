#include "tests/worker/kernel/cuda/emulator/memory_checks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::cuda {
namespace {

// True if an access at `then` is complete for an actor at `now`: a barrier of both is between them.
bool Ordered(const Moment& then, const Moment& now) {
  if (then.thread < 0 || then.thread == now.thread || then.barriers != now.barriers) return true;
  return (then.thread ^ now.thread) < 32 && then.warp_barriers != now.warp_barriers;
}

std::string At(uint32_t at, const Moment& moment) {
  return absl::StrCat(" at ", at, " by thread ", moment.thread);
}

}  // namespace

SharedMemory::SharedMemory(uint32_t bytes)
    : bytes_(bytes, std::byte{0xff}), cells_((bytes + kCell - 1) / kCell) {}

bool SharedMemory::Refuse(std::string fault) {
  fault_ = std::move(fault);
  return false;
}

bool SharedMemory::RefuseRange(uint32_t at, uint32_t size) {
  if (at % size != 0)
    return Refuse(absl::StrCat("misaligned shared access of ", size, " bytes at ", at));
  return Refuse(absl::StrCat("shared access of ", size, " bytes at ", at, " past the end"));
}

bool SharedMemory::ReadCell(uint32_t at, Cell& cell, const Moment& moment) {
  if (cell.write.thread < 0)
    return Refuse(absl::StrCat("uninitialised shared memory read", At(at, moment)));
  if (cell.coming)
    return Refuse(absl::StrCat("a copy that is not waited for read", At(at, moment)));
  if (!Ordered(cell.write, moment))
    return Refuse(absl::StrCat("read without a barrier after a write by thread ", cell.write.thread,
                               At(at, moment)));
  if (cell.read.thread < 0 || cell.read.barriers != moment.barriers) {
    cell.read_by_many = cell.read_by_warps = false;
  } else {
    cell.read_by_many |= cell.read.thread != moment.thread;
    cell.read_by_warps |= cell.read.thread / 32 != moment.thread / 32;
  }
  cell.read = moment;
  return true;
}

bool SharedMemory::MayWrite(uint32_t at, const Cell& cell, const Moment& moment) {
  if (cell.coming) return Refuse(absl::StrCat("write under a copy that is coming", At(at, moment)));
  if (!Ordered(cell.write, moment))
    return Refuse(absl::StrCat("write without a barrier after a write by thread ",
                               cell.write.thread, At(at, moment)));
  const bool same = cell.read.thread >= 0 && cell.read.barriers == moment.barriers;
  Moment read = cell.read;
  // The last of several readers stands for those of its warp.
  if (same && cell.read_by_many && read.thread == moment.thread) read.thread ^= 1;
  if (!Ordered(read, moment) || (same && cell.read_by_warps))
    return Refuse(absl::StrCat("write without a barrier after a read by thread ", cell.read.thread,
                               At(at, moment)));
  return true;
}

bool SharedMemory::Write(uint32_t at, uint32_t size, const Moment& moment) {
  if (!IsInside(at, size)) return RefuseRange(at, size);
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    Cell& cell = cells_[i];
    if (!MayWrite(at, cell, moment)) return false;
    cell.write = moment;
    cell.read = {-1, 0, 0};
  }
  return true;
}

bool SharedMemory::BeginCopy(uint32_t at, uint32_t size, const Moment& moment) {
  if (!Write(at, size, moment)) return false;
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) cells_[i].coming = true;
  std::memset(bytes_.data() + at, 0xff, size);
  return true;
}

void SharedMemory::Land(uint32_t at, uint32_t size, const Moment& moment) {
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    cells_[i].coming = false;
    cells_[i].write = moment;
  }
}

void GlobalMemory::Add(const std::byte* begin, int64_t bytes, bool writable) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  for (Range& range : ranges_) {
    if (range.begin != at || range.end != at + bytes) continue;
    if (writable && range.writer.empty()) {
      range.reader.resize((bytes + 1) / 2);
      range.writer.resize((bytes + 1) / 2);
    }
    return;
  }
  Range range;
  range.begin = at;
  range.end = at + bytes;
  if (writable) {
    range.reader.resize((bytes + 1) / 2);
    range.writer.resize((bytes + 1) / 2);
  }
  ranges_.push_back(std::move(range));
}

void GlobalMemory::NewLaunch() {
  for (Range& range : ranges_) {
    std::fill(range.reader.begin(), range.reader.end(), 0);
    std::fill(range.writer.begin(), range.writer.end(), 0);
  }
}

GlobalMemory::Range* GlobalMemory::Find(const void* at, int64_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (size_t i = 0; i < ranges_.size(); ++i) {
    Range& range = ranges_[(last_ + i) % ranges_.size()];
    if (begin < range.begin || begin + size > range.end) continue;
    last_ = (last_ + i) % ranges_.size();
    return &range;
  }
  return nullptr;
}

std::string GlobalMemory::Read(const void* at, int64_t size, int64_t block) {
  Range* const range = Find(at, size);
  if (range == nullptr) return absl::StrCat("global read of ", size, " bytes out of range");
  if (range->writer.empty()) return "";
  const size_t first = (reinterpret_cast<uintptr_t>(at) - range->begin) / 2;
  for (size_t i = first; i < first + (size + 1) / 2; ++i) {
    if (range->writer[i] != 0 && range->writer[i] != block + 1)
      return "global read of what another block writes";
    range->reader[i] = static_cast<int32_t>(block + 1);
  }
  return "";
}

std::string GlobalMemory::Write(const void* at, int64_t size, int64_t block) {
  Range* const range = Find(at, size);
  if (range == nullptr || range->writer.empty())
    return absl::StrCat("global write of ", size, " bytes out of range");
  const size_t first = (reinterpret_cast<uintptr_t>(at) - range->begin) / 2;
  for (size_t i = first; i < first + (size + 1) / 2; ++i) {
    for (const std::vector<int32_t>* by : {&range->writer, &range->reader})
      if ((*by)[i] != 0 && (*by)[i] != block + 1)
        return "global write of what another block touches";
    range->writer[i] = static_cast<int32_t>(block + 1);
  }
  return "";
}

}  // namespace annulus::cuda
