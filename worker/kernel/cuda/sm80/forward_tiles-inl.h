#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_TILES_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_TILES_INL_H_

#include <climits>

#include "worker/kernel/cuda/launch/table_reader.h"
#include "worker/kernel/cuda/sm80/forward_config.h"

// Visibility and loads of the portable kernels: the slots of a tile, the tiles of keys that they
// see, and asynchronous copies of rows to shared memory. Included by forward_scores-inl.h,
// forward_softmax-inl.h and gradient_rows-inl.h. Start at SlotFinder::Find, KeyTiles::Next, and
// LoadKeys and LoadValues.
namespace annulus::cuda {

// A thread's view of the slot with its number: the current span of visible keys, and the spans
// after it.
struct SlotSpans {
  int32_t begin = 0, end = 0;
  int32_t next = 0, last = 0;  // Indexes in ForwardTables::spans.
};

// Finds the keys of a task that the thread's slot of a tile sees, and puts the result in shared
// memory for the other threads.
template <class GPU, class CONFIG>
struct SlotFinder {
  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  TableReader<GPU> tables{gpu, args};

  ANNULUS_GPU void Put(int field, int slot, int32_t value) const {
    gpu.template StoreShared<int32_t>(SlotAt<CONFIG>(field, slot), value);
  }
  ANNULUS_GPU void PutFloat(int field, int slot, float value) const {
    gpu.template StoreShared<float>(SlotAt<CONFIG>(field, slot), value);
  }

  ANNULUS_GPU SlotSpans Find(int64_t tile, int32_t kv_head, int slot) const {
    const int64_t number = tile * kTileSlots + slot;
    const int64_t row = number / args.group;
    const auto head = static_cast<int32_t>(kv_head * args.group + number % args.group);
    SlotSpans spans;
    bool one = true;
    const bool mine =
        row >= task.q_begin && row < task.q_end && head >= task.head_begin && head < task.head_end;
    if (mine && task.class_at < 0) {
      spans.begin = task.k_begin;
      spans.end = task.k_end;
    } else if (mine) {
      const auto of_head = tables.template Get<int32_t>(args.at.class_of_head, head);
      const int64_t first = tables.template Get<int32_t>(args.at.classes, task.class_at + of_head) +
                            row - task.q_begin;
      spans.next = tables.template Get<int32_t>(args.at.firsts, first);
      spans.last = tables.template Get<int32_t>(args.at.firsts, first + 1);
      one = spans.last - spans.next == 1;
    }
    int32_t end = spans.end;
    if (spans.next < spans.last) {
      end = tables.template Get<KeySpan32>(args.at.spans, spans.last - 1).end;
      Advance(&spans);
    }
    const bool sees = spans.begin < spans.end;
    PutHull(slot, sees ? static_cast<int32_t>(row) : -1, spans, end, one);
    Put(kSlotHead, slot, head);
    if constexpr (CONFIG::kChanges) FindChanges(slot, static_cast<int32_t>(row), head, sees);
    return spans;
  }

  // `row`: −1, or the row of a slot that sees keys from spans.begin on, before `end`. `one`: it has
  // one span, and sees all of it.
  ANNULUS_GPU void PutHull(int slot, int32_t row, const SlotSpans& spans, int32_t end,
                           bool one) const {
    const bool sees = row >= 0;
    Put(kSlotRow, slot, row);
    Put(kSlotBegin, slot, sees ? spans.begin : INT_MAX);
    Put(kSlotEnd, slot, sees ? end : INT_MIN);
    Put(kSlotAllBegin, slot, !sees ? INT_MIN : one ? spans.begin : INT_MAX);
    Put(kSlotAllEnd, slot, !sees ? INT_MAX : one ? spans.end : INT_MIN);
  }

  ANNULUS_GPU void Advance(SlotSpans* spans) const {
    const auto span = tables.template Get<KeySpan32>(args.at.spans, spans->next++);
    spans->begin = span.begin;
    spans->end = span.end;
  }

  // Puts the slot's data for the job's ChangeRule. It is not read if the slot sees no key.
  ANNULUS_GPU void FindChanges(int slot, int32_t row, int32_t head, bool sees) const {
    int32_t sequence = 0, sequence_row = 0, first_key = 0, position = 0;
    uint64_t bias = 0, bits = 0;
    float slope = 0, offset = 0;
    if (sees) {
      const int32_t q_row = tables.PackedRow(task.q_run, task.q_runs, row);
      const int32_t entry =
          tables.LastNotAbove(args.at.sequences, sizeof(SequenceAt), args.sequences, q_row);
      const auto found = tables.template Get<SequenceAt>(args.at.sequences, entry);
      sequence = found.number;
      sequence_row = q_row - found.q_begin;
      first_key = found.k_begin;
      const int64_t of_class = static_cast<int64_t>(entry) * args.classes +
                               tables.template Get<int32_t>(args.at.class_of_head, head);
      if (args.change.alibi) {
        slope = tables.template Get<float>(args.at.slopes, head);
        position =
            first_key + sequence_row + tables.template Get<int32_t>(args.at.shifts, of_class);
      }
      const ChangeRule& change = args.change;
      if (change.bias) {
        bias = Address(At(task.pairs, row, change.bias_per_head ? head : task.pairs.head_begin, 0,
                          change.bias_bytes));
      }
      if (change.bits && tables.template Get<int32_t>(args.at.has_bits, of_class) != 0) {
        bits = Address(At(task.pairs, row, change.bits_per_head ? head : task.pairs.head_begin,
                          task.bits_offset, change.bit_bytes));
      }
      if (change.offset)
        offset = gpu.template Load<float>(At(task.pairs, row, head, task.shift_offset, 4));
    }
    PutFloat(kSlotSlope, slot, slope);
    Put(kSlotPosition, slot, position);
    PutFloat(kSlotOffset, slot, offset);
    Put(kSlotFirstKey, slot, first_key);
    Put(kSlotSequence, slot, sequence);
    Put(kSlotSequenceRow, slot, sequence_row);
    gpu.template StoreShared<uint64_t>(SlotAt<CONFIG>(kSlotBias, 0) + slot * 8, bias);
    gpu.template StoreShared<uint64_t>(SlotAt<CONFIG>(kSlotBits, 0) + slot * 8, bits);
  }

  ANNULUS_GPU static uint64_t Address(const std::byte* at) {
    return reinterpret_cast<uint64_t>(at);
  }
};

// Columns that the products read: whole steps of 16.
ANNULUS_GPU int32_t Columns(int32_t dim) { return (dim + 15) / 16 * 16; }

// Loads rows of a tensor into shared memory, with zeros for missing rows and columns. Asynchronous
// if 16-byte copies are possible. All threads of a block call it together.
template <class GPU, class CONFIG>
struct RowLoader {
  GPU& gpu;
  const ForwardArgs& args;
  int32_t dim;
  bool whole;

  // `row_of` returns the address of a row, or nullptr.
  template <class ROW_OF>
  ANNULUS_GPU void Load(uint32_t to, int rows, const ROW_OF& row_of) const {
    if (whole)
      CopyChunks(to, rows, row_of);
    else
      CopyWords(to, rows, row_of);
  }

 private:
  template <class ROW_OF>
  ANNULUS_GPU void CopyChunks(uint32_t to, int rows, const ROW_OF& row_of) const {
    constexpr int kChunks = CONFIG::kDim * CONFIG::kBytes / 16;
    const int chunk = gpu.Thread() % kChunks;
    if (chunk * 16 >= Columns(dim) * CONFIG::kBytes) return;
    for (int row = gpu.Thread() / kChunks; row < rows; row += kThreads / kChunks) {
      const std::byte* from = row_of(row);
      const bool there = from != nullptr && chunk * 16 < dim * CONFIG::kBytes;
      gpu.CopyChunkLater(to + row * CONFIG::kRowBytes + chunk * 16,
                         there ? from + chunk * 16 : args.tables, there);
    }
  }

  template <class ROW_OF>
  ANNULUS_GPU void CopyWords(uint32_t to, int rows, const ROW_OF& row_of) const {
    constexpr int kWords = CONFIG::kDim * CONFIG::kBytes / 4;
    for (int i = gpu.Thread(); i < rows * kWords; i += kThreads) {
      const int row = i / kWords, word = i % kWords;
      if (word * 4 >= Columns(dim) * CONFIG::kBytes) continue;
      const std::byte* from = row_of(row);
      gpu.template StoreShared<uint32_t>(to + row * CONFIG::kRowBytes + word * 4,
                                         from == nullptr ? 0 : Word(from, word));
    }
  }

  // Columns past the last are 0.
  ANNULUS_GPU uint32_t Word(const std::byte* row, int word) const {
    if constexpr (CONFIG::kWide) {
      return word < dim ? gpu.template Load<uint32_t>(row + word * 4) : 0;
    } else {
      uint32_t value = 0;
      if (2 * word < dim) value = gpu.template Load<uint16_t>(row + word * 4);
      if (2 * word + 1 < dim)
        value |= static_cast<uint32_t>(gpu.template Load<uint16_t>(row + word * 4 + 2)) << 16;
      return value;
    }
  }
};

template <class GPU, class CONFIG>
ANNULUS_GPU void LoadQueries(GPU& gpu, const ForwardArgs& args, const ForwardTask& task) {
  const RowLoader<GPU, CONFIG> loader{gpu, args, args.head_dim, task.q_whole};
  loader.Load(CONFIG::kQueriesAt, kTileSlots, [&](int slot) -> const std::byte* {
    const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
    if (row < 0) return nullptr;
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    return At(task.q, row, head, 0, int64_t{args.head_dim} * CONFIG::kBytes);
  });
}

template <class GPU, class CONFIG>
ANNULUS_GPU void LoadKeys(GPU& gpu, const ForwardArgs& args, const ForwardTask& task,
                          int32_t kv_head, int32_t tile) {
  const RowLoader<GPU, CONFIG> loader{gpu, args, args.head_dim, task.k_whole};
  loader.Load(CONFIG::kKeysAt, CONFIG::kKeys, [&](int i) -> const std::byte* {
    const int32_t key = tile * CONFIG::kKeys + i;
    if (key < task.k_begin || key >= task.k_end) return nullptr;
    return At(task.kv, key, kv_head, 0, int64_t{args.head_dim} * CONFIG::kBytes);
  });
}

template <class GPU, class CONFIG>
ANNULUS_GPU const std::byte* ValueRow(const ForwardArgs& args, const ForwardTask& task,
                                      int32_t kv_head, int32_t key) {
  return At(task.kv, key, kv_head, task.value_offset, int64_t{args.value_dim} * CONFIG::kBytes);
}

template <class GPU, class CONFIG>
ANNULUS_GPU void LoadValues(GPU& gpu, const ForwardArgs& args, const ForwardTask& task,
                            int32_t kv_head, int32_t tile) {
  const RowLoader<GPU, CONFIG> loader{gpu, args, args.value_dim, task.v_whole};
  loader.Load(CONFIG::kValuesAt, CONFIG::kKeys, [&](int i) -> const std::byte* {
    const int32_t key = tile * CONFIG::kKeys + i;
    if (key < task.k_begin || key >= task.k_end) return nullptr;
    return ValueRow<GPU, CONFIG>(args, task, kv_head, key);
  });
}

// The visible keys of a tile's slots in a task: all are between begin and end; all slots see every
// key between all_begin and all_end.
struct TileHull {
  int32_t begin, end, all_begin, all_end;
};

// The hull over all slots that SlotFinder has put. Call after a barrier; all threads get the same.
template <class GPU, class CONFIG>
ANNULUS_GPU TileHull FindHull(GPU& gpu) {
  TileHull hull = {INT_MAX, INT_MIN, INT_MIN, INT_MAX};
  const auto get = [&](int field, int slot) {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(field, slot));
  };
  for (int slot = gpu.Thread() % 32; slot < kTileSlots; slot += 32) {
    hull.begin = Least(hull.begin, get(kSlotBegin, slot));
    hull.end = Most(hull.end, get(kSlotEnd, slot));
    hull.all_begin = Most(hull.all_begin, get(kSlotAllBegin, slot));
    hull.all_end = Least(hull.all_end, get(kSlotAllEnd, slot));
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    hull.begin = Least(hull.begin, gpu.ShuffleXor(hull.begin, lanes));
    hull.end = Most(hull.end, gpu.ShuffleXor(hull.end, lanes));
    hull.all_begin = Most(hull.all_begin, gpu.ShuffleXor(hull.all_begin, lanes));
    hull.all_end = Least(hull.all_end, gpu.ShuffleXor(hull.all_end, lanes));
  }
  return hull;
}

// A tile of keys of which some slot sees at least one.
struct KeyTile {
  int32_t tile = -1;  // −1: none.
  bool masked = false;
  int parity = 0;  // Selects the tile's mask and list of key rows, of the two in shared memory.
};

// Iterates over the tiles of a task's keys, and skips those that no slot sees.
template <class GPU, class CONFIG>
struct KeyTiles {
  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  TileHull hull;
  SlotSpans spans;  // For the slot with the thread's number.
  SlotFinder<GPU, CONFIG> finder{gpu, args, task};

  // The bits of the tile's keys that the thread's slot sees.
  ANNULUS_GPU uint64_t MaskOf(int32_t tile) {
    const int32_t first = tile * CONFIG::kKeys, last = first + CONFIG::kKeys;
    uint64_t mask = 0;
    for (;;) {
      while (spans.end <= first && spans.next < spans.last) finder.Advance(&spans);
      if (spans.end <= first || spans.begin >= last) return mask;
      const int32_t begin = Most(spans.begin, first) - first, end = Least(spans.end, last) - first;
      mask |= (~uint64_t{0} >> (64 - (end - begin))) << begin;
      if (spans.end >= last || spans.next == spans.last) return mask;
      finder.Advance(&spans);
    }
  }

  // Requires: all tiles before `tile` are done. Returns the next tile of which some slot sees a
  // key. Takes two barriers.
  ANNULUS_GPU int32_t Jump(int32_t tile) {
    const bool sees = spans.end > tile * CONFIG::kKeys && spans.begin < spans.end;
    int32_t next =
        gpu.Thread() < kTileSlots && sees ? Most(spans.begin / CONFIG::kKeys, tile) : INT_MAX;
    for (int lanes = 16; lanes > 0; lanes /= 2) next = Least(next, gpu.ShuffleXor(next, lanes));
    const int warp = gpu.Thread() / 32;
    if (warp < 2 && gpu.Thread() % 32 == 0)
      gpu.template StoreShared<int32_t>(CONFIG::kNextAt + warp * 4, next);
    gpu.Sync();
    const int32_t least = Least(gpu.template LoadShared<int32_t>(CONFIG::kNextAt),
                                gpu.template LoadShared<int32_t>(CONFIG::kNextAt + 4));
    gpu.Sync();
    return least;
  }

  ANNULUS_GPU void PutKeyRows(int32_t tile, int parity) {
    const int key = gpu.Thread();
    if (key >= CONFIG::kKeys) return;
    const int32_t local = tile * CONFIG::kKeys + key;
    int32_t row = 0;
    if (local >= task.k_begin && local < task.k_end)
      row = TableReader<GPU>{gpu, args}.PackedRow(task.k_run, task.k_runs, local);
    gpu.template StoreShared<int32_t>(CONFIG::kKeyRowsAt + (parity * CONFIG::kKeys + key) * 4, row);
  }

  // Returns the first tile from `tile` on. Read its mask only after another barrier.
  ANNULUS_GPU KeyTile Next(int32_t tile, int parity) {
    const bool hides = CONFIG::kChanges && (args.change.bias || args.change.bits);
    while (tile < (hull.end + CONFIG::kKeys - 1) / CONFIG::kKeys) {
      const int32_t first = tile * CONFIG::kKeys;
      const bool whole = first >= hull.all_begin && first + CONFIG::kKeys <= hull.all_end;
      if (CONFIG::kChanges) PutKeyRows(tile, parity);
      if (whole && !hides) return {tile, false, parity};
      uint64_t mask = 0;
      if (gpu.Thread() < kTileSlots) {
        mask = MaskOf(tile);
        gpu.template StoreShared<uint64_t>(
            CONFIG::kMasksAt + (parity * kTileSlots + gpu.Thread()) * 8, mask);
      }
      if (gpu.SyncOr(mask != 0)) return {tile, true, parity};
      tile = Jump(tile + 1);
    }
    return {-1, false, parity};
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_TILES_INL_H_
