#include "tests/worker/kernel/cuda/emulator/hopper_shared.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace annulus::cuda {
namespace {

constexpr uint32_t kCell = 4;

bool Behind(const Clock& clock, int actor, uint32_t time) { return clock[actor] >= time; }

std::string At(uint32_t at, int actor) { return absl::StrCat(" at ", at, " by ", actor); }

}  // namespace

void Join(Clock& into, const Clock& other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

HopperShared::HopperShared(uint32_t bytes, int threads)
    : bytes_(bytes, std::byte{0xff}), cells_((bytes + kCell - 1) / kCell), fences_(threads) {}

std::string HopperShared::Range(uint32_t at, uint32_t size) const {
  if (at % size != 0) return absl::StrCat("misaligned shared access of ", size, " bytes at ", at);
  if (uint64_t{at} + size > bytes_.size())
    return absl::StrCat("shared access of ", size, " bytes at ", at, " past the end");
  return "";
}

std::string HopperShared::Read(uint32_t at, uint32_t size, const Actor& actor) {
  if (std::string fault = Range(at, size); !fault.empty()) return fault;
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    Cell& cell = cells_[i];
    if (cell.writer < 0)
      return absl::StrCat("uninitialised shared memory read", At(at, actor.number));
    if (cell.coming)
      return absl::StrCat("a copy that is not waited for read", At(at, actor.number));
    if (!Behind(*actor.clock, cell.writer, cell.time))
      return absl::StrCat("read that is not ordered behind a write of ", cell.writer,
                          At(at, actor.number));
    const uint32_t now = (*actor.clock)[actor.number];
    const auto mine = std::find_if(cell.readers.begin(), cell.readers.end(),
                                   [&](const Reader& r) { return r.actor == actor.number; });
    if (mine != cell.readers.end())
      mine->time = now;
    else
      cell.readers.push_back({actor.number, now});
  }
  return "";
}

std::string HopperShared::CheckWrite(uint32_t at, Cell& cell, const Actor& actor) {
  const Clock& clock = *actor.clock;
  if (cell.coming) return absl::StrCat("write under a copy that is coming", At(at, actor.number));
  if (cell.writer >= 0 && !Behind(clock, cell.writer, cell.time))
    return absl::StrCat("write that is not ordered behind a write of ", cell.writer,
                        At(at, actor.number));
  for (const Reader& reader : cell.readers)
    if (reader.actor != actor.number && !Behind(clock, reader.actor, reader.time))
      return absl::StrCat("write that is not ordered behind a read of ", reader.actor,
                          At(at, actor.number));
  for (std::shared_ptr<ProductReads>& reads : cell.products) {
    if (reads == nullptr || (reads.get() == over_ && over_for_ == actor.clock)) continue;
    for (size_t t = 0; t < reads->waited.size(); ++t)
      if (reads->waited[t] == 0 ||
          !Behind(clock, reads->first_thread + static_cast<int>(t), reads->waited[t]))
        return absl::StrCat("write that is not ordered behind a product of thread ",
                            reads->first_thread + static_cast<int>(t), At(at, actor.number));
    over_ = reads.get();
    over_for_ = actor.clock;
  }
  return "";
}

std::string HopperShared::Write(uint32_t at, uint32_t size, const Actor& actor) {
  if (std::string fault = Range(at, size); !fault.empty()) return fault;
  over_ = nullptr;
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    Cell& cell = cells_[i];
    if (std::string fault = CheckWrite(at, cell, actor); !fault.empty()) return fault;
    cell = Cell();
    cell.writer = actor.number;
    cell.time = (*actor.clock)[actor.number];
    cell.by_thread = true;
    cell.fences = static_cast<uint32_t>(fences_[actor.number].size());
  }
  return "";
}

void HopperShared::Fence(const Actor& actor) {
  fences_[actor.number].push_back((*actor.clock)[actor.number]);
}

bool HopperShared::Fenced(const Cell& cell, const Clock& clock) const {
  if (!cell.by_thread) return true;
  const std::vector<uint32_t>& fences = fences_[cell.writer];
  return fences.size() > cell.fences && Behind(clock, cell.writer, fences[cell.fences]);
}

std::string HopperShared::BeginCopy(uint32_t at, uint32_t size, const Actor& actor) {
  if (std::string fault = Range(at, size); !fault.empty()) return fault;
  over_ = nullptr;
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    Cell& cell = cells_[i];
    if (std::string fault = CheckWrite(at, cell, actor); !fault.empty()) return fault;
    if (!Fenced(cell, *actor.clock))
      return absl::StrCat("a copy over what a thread wrote without a fence", At(at, actor.number));
    cell = Cell();
    cell.coming = true;
  }
  std::memset(bytes_.data() + at, 0xff, size);
  return "";
}

void HopperShared::Land(uint32_t at, uint32_t size, int actor, uint32_t time) {
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    Cell& cell = cells_[i];
    cell.coming = false;
    cell.writer = actor;
    cell.time = time;
  }
}

std::string HopperShared::ReadByProduct(uint32_t at, uint32_t size, const Clock& clock, int group,
                                        const std::shared_ptr<ProductReads>& reads) {
  if (uint64_t{at} + size > bytes_.size()) return absl::StrCat("a product past the end at ", at);
  for (uint32_t i = at / kCell; i * kCell < at + size; ++i) {
    Cell& cell = cells_[i];
    if (cell.writer < 0 || cell.coming)
      return absl::StrCat("a product reads what has not come at ", at);
    if (!Behind(clock, cell.writer, cell.time))
      return absl::StrCat("a product that is not ordered behind a write of ", cell.writer, " at ",
                          at);
    if (!Fenced(cell, clock))
      return absl::StrCat("a product reads what thread ", cell.writer, " wrote without a fence at ",
                          at);
    cell.products[group] = reads;
  }
  return "";
}

}  // namespace annulus::cuda
