"""Tests the list of parts, their arguments and their order."""

import contextlib
import io
import os
import re
import subprocess
import unittest
from unittest import mock

from tests.gpu import end_to_end, parts, peers, run, runner
from tests.gpu.fake_parts import Case, Place


class PartsTest(Case):
    def test_every_part_has_a_name_of_its_own_and_fits_into_a_run(self):
        everything = parts.all_parts(Place)
        self.assertEqual(len({part.name for part in everything}), len(everything))
        self.assertTrue(all(part.seconds <= 120 < run.ALL_SECONDS for part in everything))
        self.assertEqual(run.chosen(everything, ["bench"])[0].name, "bench")
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
            run.chosen(everything, ["none"])
        self.assertEqual(ended.exception.code, runner.USAGE)

    def test_the_portable_kernel_comes_before_the_one_for_hopper(self):
        names = [part.name for part in parts.all_parts(Place)]
        portable = [name for name in names if name.startswith(("device", "kernel_", "virtual_ranks", "nccl_ranks", "jobs_"))]
        hopper = [name for name in names if name.startswith("hopper_")]
        self.assertEqual(names[:len(portable) + len(hopper)], portable + hopper)
        self.assertEqual(names[names.index("hopper_check") - 1], "jobs_2")
        for part in parts.all_parts(Place):
            if part.name in portable and "kernel" in part.name:
                self.assertEqual(part.command[-1], "--gtest_filter=-*/hopper:*/cudnn")
                self.assertIn("hopper_" + part.name, hopper)

    def test_a_kernel_that_hangs_spoils_no_verdict_on_another(self):
        everything = parts.all_parts(Place)
        stages = list(dict.fromkeys(part.stage for part in everything))
        self.assertEqual(stages, ["portable", "hopper_check", "hopper", "cudnn", "measurements", "checks", "hopper_checks"])
        # Each is one piece of the list: a stage is what stands together.
        self.assertEqual([part.stage for part in everything], sorted((part.stage for part in everything), key=stages.index))
        for part in everything:
            if "hopper" in part.name:
                self.assertEqual(part.doubted_after, "" if part.name == "hopper_check" else "hopper_check", part.name)
                self.assertIn(part.stage, ("hopper_check", "hopper", "measurements", "hopper_checks"))
            else:
                self.assertEqual(part.doubted_after, "")
        self.assertEqual([part.name for part in everything if part.stage == "hopper_check"], ["hopper_check"])

    def test_what_measures_runs_alone(self):
        alone = [part.name for part in parts.all_parts(Place) if part.alone]
        self.assertEqual(alone, ["bench", "bench_hopper", "bench_cudnn", "whole_jobs", "peers"])

    def test_workers_start_within_the_time_of_their_part(self):
        # The time limit of a worker's own check of the Hopper kernel.
        self.assertGreater(end_to_end.START_SECONDS, 60)
        for part in parts.all_parts(Place):
            if re.fullmatch("(hopper_|cudnn_)?jobs.*", part.name):
                seconds = int(part.command[part.command.index("--start-seconds") + 1])
                self.assertEqual(seconds, part.seconds - parts.OWN_SECONDS)
                if part.name.startswith("hopper"):
                    self.assertEqual(seconds, end_to_end.START_SECONDS)
        for name in ("whole_jobs", "torch_answers"):
            self.assertGreater(run.chosen(parts.all_parts(Place), [name])[0].seconds, end_to_end.START_SECONDS)

    def test_cudnn_is_handed_on_where_it_is_there(self):
        everything = {part.name: part for part in parts.all_parts(Place)}
        for name in ("bench_cudnn", *(f"cudnn_kernel_{suite}" for suite in parts.CUDNN_SUITES)):
            self.assertEqual(everything[name].environment, {"ANNULUS_CUDNN_LIBRARY": Place.cudnn})
        command = everything["cudnn_jobs"].command
        self.assertIn(Place.cudnn, command)
        self.assertEqual(command[command.index("--cuda-kernel") + 1], "portable")

        class Without(Place):
            cudnn = None

        done = subprocess.run(run.chosen(parts.all_parts(Without), ["cudnn_jobs"])[0].command, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (77, "no NCCL or no cuDNN here\n"))

    def test_another_gpu_skips_what_is_for_hopper(self):
        class Other(Place):
            hopper = False

        with mock.patch.object(parts, "find_sanitizer", return_value="/bin/compute-sanitizer"):
            skipped = [part for part in parts.all_parts(Other) if "hopper" in part.name]
        self.assertEqual(len(skipped), len(parts.KERNEL_SUITES) + 5 + 1 + 4)
        for part in skipped:
            done = subprocess.run(part.command, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (77, "the kernel for Hopper needs a GPU of sm_90\n"))

    def test_each_kernel_is_measured_by_a_process_of_its_own(self):
        commands = {part.name: part.command for part in parts.all_parts(Place) if part.name.startswith("bench")}
        self.assertEqual(list(commands), ["bench", "bench_hopper", "bench_cudnn"])
        for name, kernel in zip(commands, ("portable", "hopper", "cudnn")):
            self.assertEqual(commands[name], ["/programs/gpu_bench", kernel, f"{name}.json"])

    def test_a_report_names_versions(self):
        library = os.path.join(self.out, "no_library.so")
        self.assertEqual(run.library_text(None, "ncclGetVersion"), "none")
        self.assertEqual(run.library_text(library, "ncclGetVersion"), f"of unknown version, {library}")
        nccl = os.path.abspath("tests/worker/comm/libnccl_fake.so")
        self.assertEqual(run.library_text(nccl, "ncclGetVersion"), f"2.28.9, {nccl}")
        cudnn = os.path.abspath("tests/worker/kernel/cuda/cudnn/libcudnn_old.so")
        self.assertEqual(run.library_text(cudnn, "cudnnGetVersion"), f"8.9.7, {cudnn}")

    def test_backward_shapes_are_those_of_the_peer(self):
        with open("tests/gpu/gpu_bench.cc", encoding="utf-8") as file:
            text = file.read()
        for length, dim, _ in peers.BACKWARD_SHAPES:
            self.assertIn(f"Forward({length}, {dim}, {peers.HEADS}, causal);\n  spec.operation = Operation::kGradients", text)
            self.assertIn(f"NameOf({length}, {dim}, causal, /*forward=*/false)", text)

    def test_what_a_checker_runs_is_among_the_cases_of_its_suite(self):
        for suite, cases in parts.CHECKED_CASES.items():
            self.assertIn(suite, parts.KERNEL_SUITES)
            with open(f"tests/worker/kernel/{suite}_test.cc", encoding="utf-8") as file:
                names = re.findall(r"^TEST_P\(\w+, (\w+)\)", file.read(), re.MULTILINE)
            for case in cases:
                self.assertTrue([name for name in names if case in name], (suite, case))

    def test_a_checker_watches_our_kernels_alone(self):
        with mock.patch.object(parts, "find_sanitizer", return_value="/bin/compute-sanitizer"):
            checked = [part for part in parts.all_parts(Place) if part.name.startswith("sanitizer_")]
        self.assertEqual(len(checked), 4 * len(parts.CHECKED_CASES))
        for part in checked:
            # One kernel each: what is said of the one is not the other's.
            wanted = r"^--gtest_filter=([^-:]+\*/hopper(:|$))+$" if "hopper" in part.name else r"^--gtest_filter=[^-]+-\*/hopper:\*/cudnn$"
            self.assertRegex(part.command[-1], wanted)
            self.assertEqual(part.unable, "Device not supported")
        self.assertEqual(len([part for part in checked if "hopper" in part.name]), 4)


if __name__ == "__main__":
    unittest.main()
