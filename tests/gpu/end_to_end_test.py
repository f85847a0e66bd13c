"""The jobs that run.sh sends to workers with GPUs, on workers with CPUs: their flags, their checks, their end."""

import contextlib
import io
import json
import os
import subprocess
import unittest
from unittest import mock

from tests.end_to_end.harness import processes
from tests.gpu import end_to_end, whole_jobs

FIGURE = {"name": "f", "value": 1.0, "ratio": 1.0}


class EndToEndTest(unittest.TestCase):
    def test_jobs_by_two_workers_are_told_of(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            end_to_end.main(["--workers", "2", "--device", "cpu"])
        self.assertEqual(len(said.getvalue().splitlines()), len(end_to_end.JOBS) + len(end_to_end.GRADIENT_JOBS))
        self.assertEqual(said.getvalue().count("off by"), len(end_to_end.GRADIENT_JOBS))
        for strategy in end_to_end.STRATEGIES:
            self.assertIn(strategy, said.getvalue())

    def test_whole_jobs_are_held_against_their_longer_part(self):
        file = os.path.join(os.environ["TEST_TMPDIR"], "whole_jobs.json")
        with contextlib.redirect_stdout(io.StringIO()):
            whole_jobs.main([file, "--device", "cpu", "--lengths", "300,700", "--upload-rows", "2000", "--repeats", "2"])
        with open(file, encoding="utf-8") as found:
            figures = json.load(found)
        self.assertEqual([figure["name"].split()[4] for figure in figures], ["S300", "S700"])
        for figure in figures:
            self.assertGreater(figure["ratio"], 0)
            self.assertEqual(figure["met"], figure["ratio"] <= whole_jobs.BAR)

    def test_whole_jobs_that_are_killed_leave_the_figures_before(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "killed.json")
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(whole_jobs, "measure", side_effect=[FIGURE, FIGURE, KeyboardInterrupt]))
            stack.enter_context(mock.patch.object(end_to_end, "GpuProcesses"))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            with self.assertRaises(KeyboardInterrupt):
                whole_jobs.main([path])
        with open(path, encoding="utf-8") as found:
            self.assertEqual(json.load(found), [FIGURE, FIGURE])

    def test_workers_have_the_time_of_their_part_for_a_start(self):
        with mock.patch.object(processes.Processes, "await_workers") as awaited:
            for flags, wanted in (({}, end_to_end.START_SECONDS), ({"start_seconds": 30}, 30)):
                end_to_end.GpuProcesses(2, {}, **flags).await_workers(2)
                awaited.assert_called_with(2, wanted)
        with mock.patch.object(end_to_end, "GpuProcesses", side_effect=KeyboardInterrupt) as made:
            for flags, wanted in (([], end_to_end.START_SECONDS), (["--start-seconds", "30"], 30)):
                with self.assertRaises(KeyboardInterrupt):
                    end_to_end.main(flags)
                self.assertEqual(made.call_args.args[2], wanted)

    def test_the_longer_part_counts(self):
        facts = {"input_bytes": 600, "output_bytes": 200, "uploading_seconds": 3.0, "seconds": 6.0, "running_seconds": 2.0}
        self.assertEqual(whole_jobs.goodput(facts), 200)
        self.assertEqual(whole_jobs.over_longer_part(facts, 200), 1.5)
        self.assertEqual(whole_jobs.over_longer_part({**facts, "running_seconds": 5.0}, 200), 1.2)

    def test_a_job_that_ran_elsewhere_is_a_failure(self):
        wrong = {"backend": "cpu/avx2 + gloo", "verified": {}}
        with self.assertRaises(SystemExit):
            end_to_end.check_device(wrong, "cuda:0", "a job")
        portable, hopper = {"backend": "cuda/mma + nccl 2.28.9"}, {"backend": "cuda/wgmma+mma + nccl 2.28.9"}
        end_to_end.check_device(portable, "cuda:0", "a job")
        end_to_end.check_device(portable, "cuda:0", "a job", "portable")
        end_to_end.check_device(hopper, "cuda:0", "a job")
        end_to_end.check_device(hopper, "cuda:0", "a job", "hopper")
        for facts, kernel in ((portable, "hopper"), (hopper, "portable")):
            with self.assertRaises(SystemExit):
                end_to_end.check_device(facts, "cuda:0", "a job", kernel)
        with self.assertRaises(SystemExit):
            end_to_end.check_device(portable, "cuda:0", "a job", cudnn=True)
        end_to_end.check_device({"backend": "cuda/mma + cudnn 9.19.0 + nccl 2.28.9"}, "cuda:0", "a job", cudnn=True)

    def test_a_job_that_is_refused_is_a_failure_whatever_it_is(self):
        class Refusing:
            def annulus(self, *_, **__):
                return subprocess.CompletedProcess([], 1, "", "UNIMPLEMENTED: NOT_SERVED")

            def tail(self):
                return "the log"

        for verb in ("attend", "gradients"):
            with self.assertRaises(SystemExit) as ended:
                end_to_end.ask(Refusing(), verb, "--synthetic", "x")
            self.assertIn("NOT_SERVED", str(ended.exception))


if __name__ == "__main__":
    unittest.main()
