#ifndef ANNULUS_SERVER_COORDINATOR_QUERIES_H_
#define ANNULUS_SERVER_COORDINATOR_QUERIES_H_

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// What clients ask of jobs and of the service. Another principal's job is not found, like one that
// does not exist.

void OnWatchJob(CoordinatorTables& tables, const event::WatchJob& event);
void OnGetJob(CoordinatorTables& tables, const event::GetJob& event);
void OnCancelJob(CoordinatorTables& tables, const event::CancelJob& event);
// Pages follow the order of submission, newest first; a page token stays good while jobs come and
// go.
void OnListJobs(CoordinatorTables& tables, const event::ListJobs& event);
void OnGetServerInfo(CoordinatorTables& tables, const event::GetServerInfo& event);

// The last owner's end cancels a job that is not detached.
void OnCallGone(CoordinatorTables& tables, int64_t call);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_QUERIES_H_
