"""A TestCase around one service: after every case its budgets are at zero and the next job is right."""

import json
import unittest

from tests.end_to_end.harness import cluster, raw_client, raw_job
from tests.end_to_end.harness.waiting import wait_for

IDLE_SECONDS = 20


def cluster_state(service):
    """The output of `annulus cluster --all --json`."""
    done = service.annulus("cluster", "--all", "--json")
    if done.returncode != 0:
        raise AssertionError(f"annulus cluster ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def used_bytes(state):
    """Bytes in use by worker and budget, where there are any."""
    used = {}
    for worker in state["workers"]:
        for budget in ("staging", "device", "sessions"):
            if bytes_ := int(worker[budget]["used_bytes"]):
                used[f"{worker['slot']}/{budget}"] = bytes_
    return used


def await_idle(service, seconds=IDLE_SECONDS):
    """Waits until no job is there and no budget is touched."""
    state = {}

    def idle():
        state.update(cluster_state(service))
        return (
            not used_bytes(state) and not int(state["queued_jobs"]) and not int(state["running_jobs"])
        )

    wait_for(idle, seconds, lambda: f"an idle service; it says {state}")


def await_jobs(service, count, seconds=IDLE_SECONDS):
    """Waits until `count` jobs are queued or at work."""

    def there():
        state = cluster_state(service)
        return int(state["queued_jobs"]) + int(state["running_jobs"]) == count

    wait_for(there, seconds, f"{count} jobs")


def await_state(stubs, job_id, state, seconds=IDLE_SECONDS):
    """Waits until the job is in `state`, by its events; another end is an error."""
    seen = []
    request = raw_client.jobs_pb2.WatchJobRequest(job_id=job_id)
    with raw_client.Stream(stubs.jobs.WatchJob, seconds, request) as watch:
        try:
            for event in watch.read_all():
                if event.HasField("state_changed"):
                    seen.append(raw_client.jobs_pb2.Job.State.Name(event.state_changed.state))
                if state in seen:
                    return
        except raw_client.CallError as error:
            seen.append(str(error))
    raise AssertionError(f"{job_id} went through {seen} and not {state}")


def attend(stubs, job, execution=None, timeout=60):
    """Runs a job as it should be, with CRCs; its outputs are checked. Returns its JobStats."""
    outputs = raw_job.Outputs(job)
    with raw_client.Attend(stubs, timeout=timeout) as call:
        call.start(job.spec, execution)
        call.accepted()
        for chunk in job.chunks(crc=True):
            call.chunk(chunk)
        call.half_close()
        stats = call.outputs(outputs)
    outputs.check()
    return stats


class ServiceCase(unittest.TestCase):
    WORKERS = 2
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(cluster.Serve(cls.WORKERS, *cls.FLAGS))
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))

    def tearDown(self):
        await_idle(self.service)
        job = raw_job.Job([(33, 65), (0, 3), (5, 0)], causal=True, seed=7)
        execution = raw_client.types_pb2.Execution(world_size=self.WORKERS)
        attend(self.stubs, job, execution)

    def assert_refused(self, error, code, reason, *fields):
        """The code, the reason, the domain, and each of `fields` among the violations."""
        self.assertEqual((error.code, error.reason), (code, reason), str(error))
        self.assertEqual(error.domain, "annulus.v1", str(error))
        for field in fields:
            self.assertIn(field, error.fields, str(error))
        self.assertNotEqual(error.message, "")
