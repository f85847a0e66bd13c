#ifndef ANNULUS_TESTS_CLIENT_FAKE_ACT_H_
#define ANNULUS_TESTS_CLIENT_FAKE_ACT_H_

namespace annulus {

// What the n-th job of a FakeService, by RunJob, Attend or AttendMany, meets, n from 1.
enum class FakeAct {
  kServe,
  kQueueFull,       // RESOURCE_EXHAUSTED / QUEUE_FULL with a delay of 20 ms
  kRestarted,       // UNAVAILABLE / STARTING with a delay of 5 minutes
  kGroupLost,       // after placing, ABORTED / GROUP_LOST
  kStateGone,       // NOT_FOUND / STATE_LOST
  kReleased,        // NOT_FOUND / STATE_RELEASED
  kAnswerLost,      // UNAVAILABLE when the job has been computed: its last rows do not come
  kWordLost,        // UNAVAILABLE when all rows have been sent
  kPlaceAgain,      // the first attempt is lost while it uploads, the second is served
  kPlaceAgainLate,  // the same, the second placed after LetJobsEnd
  kNeverPlace,      // waits for the end of the call
  kCorrupt,         // serves outputs with a wrong CRC
  kEndsLate,        // the workers end their streams with ABORTED / JOB_ENDED after the job has
                    // succeeded
  kEndsEarly,       // the same, and the last output of each shard is missing
  kEndsFirst,       // as kEndsEarly, and the streams end before the job says that it has succeeded
  kSaysSoLate,      // says that it succeeded only after LetJobsEnd
  kNeverSends,      // the job succeeds, and the outputs are lost on their way
  kWorkersGone,     // the workers' streams end with UNAVAILABLE, the coordinator says nothing
  kUploadsCut,  // uploads end with UNAVAILABLE when their rows are here, RunJob after LetJobsEnd;
                // outputs are sent after SendOutputs
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_FAKE_ACT_H_
