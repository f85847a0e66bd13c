#ifndef ANNULUS_TESTS_CLIENT_FAKE_ACT_H_
#define ANNULUS_TESTS_CLIENT_FAKE_ACT_H_

namespace annulus {

// Behaviour of a FakeService in its n-th job (RunJob, Attend or AttendMany), n from 1.
enum class FakeAct {
  kServe,
  kQueueFull,       // RESOURCE_EXHAUSTED / QUEUE_FULL with a delay of 20 ms
  kRestarted,       // UNAVAILABLE / STARTING with a delay of 5 minutes
  kGroupLost,       // ABORTED / GROUP_LOST after placing
  kStateGone,       // NOT_FOUND / STATE_LOST
  kReleased,        // NOT_FOUND / STATE_RELEASED
  kAnswerLost,      // UNAVAILABLE after the job is computed: its last rows are missing
  kWordLost,        // UNAVAILABLE after all rows are sent
  kPlaceAgain,      // the first attempt is lost during the upload, the second is served
  kPlaceAgainLate,  // as kPlaceAgain, but the second attempt is placed after LetJobsEnd
  kNeverPlace,      // waits until the call ends
  kCorrupt,         // serves outputs with a wrong CRC
  kEndsLate,   // the workers end their streams with ABORTED / JOB_ENDED after the job has succeeded
  kEndsEarly,  // as kEndsLate, and the last output of each shard is missing
  kEndsFirst,  // as kEndsEarly, and the streams end before the job reports success
  kSaysSoLate,   // reports success only after LetJobsEnd
  kNeverSends,   // the job succeeds, but the outputs are lost in transit
  kWorkersGone,  // the workers' streams end with UNAVAILABLE, the coordinator sends nothing
  // uploads end with UNAVAILABLE after their rows have arrived, RunJob after LetJobsEnd; outputs
  // are sent after SendOutputs
  kUploadsCut,
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_FAKE_ACT_H_
