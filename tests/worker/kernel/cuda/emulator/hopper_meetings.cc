// Barriers at which threads of a block wait, or only arrive.
#include "tests/worker/kernel/cuda/emulator/hopper_machine.h"
#include "tests/worker/kernel/cuda/emulator/warp_acts.h"

namespace annulus::cuda {
namespace {

constexpr int kGroup = 128;
constexpr int kTurnName = 100;  // No other barrier has this name, or the next one.

}  // namespace

bool HopperMachine::Come(int thread, int name, int first, int count) {
  Meeting& meeting = meetings_[name];
  if (thread < first || thread >= first + count) Fail(thread, "a barrier of other threads");
  if (meeting.clock.empty()) meeting.clock.assign(threads_[0]->clock.size(), 0);
  if (meeting.here.empty()) meeting.here.assign(count, false);
  if (meeting.here[thread - first])
    Fail(thread, "a barrier that a thread comes to twice before others have come");
  meeting.here[thread - first] = true;
  Clock& mine = threads_[thread]->clock;
  Join(meeting.clock, mine);
  ++mine[thread];
  return ++meeting.come == count;
}

// The waiting threads and the last one continue. Threads that only arrived are not affected.
void HopperMachine::EndMeeting(Meeting& meeting) {
  meeting.come = 0;
  meeting.here.clear();
  meeting.result = meeting.any;
  meeting.any = false;
  for (const int t : meeting.waiting) {
    Thread& other = *threads_[t];
    other.strayed = other.waiting = false;
    Join(other.clock, meeting.clock);
  }
  meeting.waiting.clear();
}

bool HopperMachine::Meet(int thread, int name, int first, int count, bool value) {
  const bool last = Come(thread, name, first, count);
  Meeting& meeting = meetings_[name];
  meeting.any |= value;
  meeting.waiting.push_back(thread);
  if (last)
    EndMeeting(meeting);
  else
    Pause(thread, false);
  return meeting.result;
}

void HopperMachine::AwaitTurn(int thread, int group) {
  turns_ = true;
  if (thread / kGroup != group) Fail(thread, "another group's turn");
  Meet(thread, kTurnName + group, kGroup, 2 * kGroup, false);
  threads_[thread]->turn = true;
}

void HopperMachine::PassTurn(int thread, int group) {
  turns_ = true;
  if (thread / kGroup != group) Fail(thread, "another group's turn");
  threads_[thread]->turn = false;
  const int name = kTurnName + 3 - group;
  if (Come(thread, name, kGroup, 2 * kGroup)) EndMeeting(meetings_[name]);
}

void HopperMachine::Together(int thread, EmulatedBlock::WarpAct act, int detail, void* mine) {
  Warp& warp = warps_[thread / kWarp];
  if (warp.come > 0 && (warp.act != act || warp.detail != detail))
    Fail(thread,
         "the threads of a warp do different things where they must do "
         "one together");
  warp.act = act;
  warp.detail = detail;
  warp.lanes[thread % kWarp] = mine;
  if (++warp.come < kWarp) return Pause(thread, false);
  act(warp.lanes);
  warp.come = 0;
  const int first = thread / kWarp * kWarp;
  for (int t = first; t < first + kWarp; ++t) threads_[t]->waiting = false;
}

int HopperMachine::Uniform(int thread, int value) {
  SameArgs args = {value, false};
  Together(thread, ActSame, 0, &args);
  if (!args.same) Fail(thread, "a warp's lanes differ in what they all have to have");
  return value;
}

}  // namespace annulus::cuda
