#ifndef ANNULUS_SERVER_COORDINATOR_QUERIES_H_
#define ANNULUS_SERVER_COORDINATOR_QUERIES_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Requests of clients about jobs and the service. Another principal's job is not found, like a job
// that does not exist. At present there is one principal for all calls (kAnonymous,
// state/submission.h).

void OnWatchJob(CoordinatorTables& tables, const event::WatchJob& event);
void OnGetJob(CoordinatorTables& tables, const event::GetJob& event);
void OnCancelJob(CoordinatorTables& tables, const event::CancelJob& event);
// Pages follow the order of submission, newest first. A page token stays valid while jobs come and
// go.
void OnListJobs(CoordinatorTables& tables, const event::ListJobs& event);
void OnGetServerInfo(CoordinatorTables& tables, const event::GetServerInfo& event);

// If the call was the last owner of a job that is not detached, the job is cancelled.
void OnCallGone(CoordinatorTables& tables, int64_t call);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_QUERIES_H_
