#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_IMAGE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "worker/kernel/cuda/launch/launch_plan.h"

namespace annulus::cuda {

Element ElementOf(DataType dtype);
ChangeRule ChangeRuleOf(const KernelJob& job);
// Where a block lies; its rows and heads fit in 32 bits.
BlockAt BlockAtOf(const BlockLayout& layout, const BlockView& view);

// Whether sixteen bytes at a time may be copied from every row and head of a section.
bool IsWhole(const BlockAt& block, int64_t offset, int64_t head_bytes);

// Adds a table at the next multiple of 16 bytes, and says where.
template <class T>
int64_t AppendTable(const std::vector<T>& table, std::vector<std::byte>* bytes) {
  bytes->resize((bytes->size() + 15) / 16 * 16);
  const size_t at = bytes->size();
  const auto* const from = reinterpret_cast<const std::byte*>(table.data());
  bytes->insert(bytes->end(), from, from + table.size() * sizeof(T));
  return static_cast<int64_t>(at);
}

// Those of ForwardTables that may be large.
struct TableLists {
  std::vector<ForwardItem> items;
  std::vector<int32_t> units, firsts, unit_runs;
  std::vector<KeyTileRun> key_runs;
  std::vector<KeySpan32> spans;
  void Clear();
};

// The tables of one launch (ForwardTables), as they are filled.
class TableImage {
 public:
  // Keeps both; what `lists` hold is of no account.
  TableImage(const KernelJob& job, TableLists* lists);

  // Rows of a task, the next of ForwardTables::tasks.
  void AddTask(const KernelTask& bound, const TaskPiece& piece, const VisibleRows& visible);
  // `units`: tasks in the order in which they were added. Where they lie is filled in.
  void AddItem(ForwardItem item, absl::Span<const int32_t> units);

  // Of the next unit of items, in the order in which AddItem gets them, before or after it; for the
  // kernel of sm_90a.
  void AddRuns(absl::Span<const KeyTileRun> runs);
  // Room for so many tensor maps, and the count of items that are taken.
  void AddMaps(int64_t count) {
    maps_ = count;
    next_item_ = {0};
  }

  // All but the address and the offsets of the tables.
  ForwardArgs args() const;
  // All tables, one after the other, and where each begins. `bytes` become them.
  void Take(ForwardTables* at, std::vector<std::byte>* bytes);

 private:
  void AddSequences(ForwardTables* at, std::vector<std::byte>* bytes) const;
  // Where the runs of a row map are.
  int32_t RunsOf(const RowMap& rows);
  void AddSpans(const KernelTask& bound, const TaskPiece& piece, const VisibleRows& visible);

  const KernelJob& job_;
  const ChangeRule change_;
  const bool changes_;  // Some of it is asked for.
  TableLists& lists_;
  std::vector<ForwardTask> tasks_;
  std::vector<int32_t> class_of_head_, classes_, next_item_;
  int64_t maps_ = 0;
  std::vector<RowRun> runs_;
  std::map<const RowMap*, int32_t> runs_of_map_;
  std::vector<float> slopes_;
  absl::flat_hash_set<int64_t> sequences_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_IMAGE_H_
