"""AttendMany on plain stubs: small jobs one after the other on one call."""

import os
import random
import unittest

from tests.end_to_end.harness import cluster, raw_client, raw_job, service_case

JOBS = 60


def random_job(draw, seed):
    """A job of up to four sequences, some without queries or keys."""
    lengths = [(draw.randrange(40), draw.randrange(60)) for _ in range(draw.randrange(1, 5))]
    kv_heads = draw.choice([1, 2, 3])
    shape = {"q_heads": kv_heads * draw.choice([1, 2]), "kv_heads": kv_heads}
    return raw_job.Job(lengths, head_dim=draw.choice([8, 16, 40]), causal=draw.random() < 0.5, seed=seed, **shape)


class AttendManyTest(service_case.ServiceCase):
    FLAGS = ("--threads", "1")

    def answer_to(self, call, job, **how):
        """Its JobStats; its outputs are checked."""
        outputs = raw_job.Outputs(job)
        call.job(job, **how)
        answer = call.answer(outputs)
        self.assertTrue(answer.HasField("done"), answer.error)
        outputs.check()
        return answer.done

    def test_one_call_serves_jobs_of_all_kinds(self):
        seed = int(os.environ.get("ANNULUS_TEST_SEED", random.randrange(1 << 30)))
        print(f"ANNULUS_TEST_SEED={seed}")
        draw = random.Random(seed)
        names = set()
        with raw_client.AttendMany(self.stubs) as call:
            for number in range(JOBS):
                execution = raw_client.types_pb2.Execution(world_size=draw.choice([0, 1, 2]))
                names.add(self.answer_to(call, random_job(draw, number), execution=execution).job_id)
            call.half_close()
            self.assertIsNone(call.read())
        self.assertEqual(len(names), JOBS)

    def test_a_refusal_is_an_answer(self):
        good = raw_job.Job([(20, 30)])
        wrong = raw_job.Job([(20, 30)])
        wrong.spec.q_heads = 3
        large = raw_job.Job([(1, 20000)])
        with raw_client.AttendMany(self.stubs) as call:
            for job, reason, field in (
                (wrong, "SHAPE_MISMATCH", "start.spec.q_heads"),
                (large, "LIMIT_EXCEEDED", "chunks"),
            ):
                call.job(job)
                error = call.answer().error
                self.assertEqual((error.code, error.reason), (3, reason), error)
                self.assertIn(field, [each.field for each in error.field_violations])
                self.answer_to(call, good)
            call.job(good, execution=raw_client.types_pb2.Execution(world_size=self.WORKERS + 1))
            self.assertEqual(call.answer().error.reason, "INSUFFICIENT_WORKERS")
            self.answer_to(call, good, request_id="same")
            self.answer_to(call, good, request_id="same")

    def test_a_caller_that_vanishes_takes_its_job_with_it(self):
        long = raw_job.Job([(2500, 2500)], q_heads=2, kv_heads=2)  # Not answered in one message.
        for each in range(20):
            with raw_client.AttendMany(self.stubs) as call:
                call.job(long)
                if each % 2 == 0:
                    self.assertTrue(call.read().HasField("accepted"))
                call.cancel()
        # tearDown: nothing is in use, and the next job is right.

    def test_calls_beside_each_other(self):
        calls = [self.enterContext(raw_client.AttendMany(self.stubs)) for _ in range(8)]
        jobs = [raw_job.Job([(30 + number, 50)], seed=number) for number in range(len(calls))]
        for _ in range(5):
            for call, job in zip(calls, jobs):
                call.job(job)
            for call, job in zip(calls, jobs):
                outputs = raw_job.Outputs(job)
                self.assertTrue(call.answer(outputs).HasField("done"))
                outputs.check()


class EndTest(unittest.TestCase):
    def test_a_service_that_ends_ends_calls_without_a_job_well(self):
        with cluster.Serve(1, "--threads", "1") as service, raw_client.Stubs(service.address) as stubs:
            job = raw_job.Job([(20, 30)])
            outputs = raw_job.Outputs(job)
            with raw_client.AttendMany(stubs) as call:
                call.job(job)
                call.answer(outputs)
                outputs.check()
                self.assertEqual(service.stop(), 0)
                self.assertIsNone(call.read())


if __name__ == "__main__":
    unittest.main()
