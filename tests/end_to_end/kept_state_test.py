"""Gradients by the handle of a forward job: the bits of a job with everything uploaded, and what becomes of a state that is gone."""

import contextlib
import json
import os
import resource
import socket
import tempfile
import time
import unittest

import numpy

from tests.end_to_end.harness import cluster, processes, raw_client, service_case
from tests.end_to_end.harness.attend_case import PATHS, load_tensors, rounded, save_tensors
from tests.end_to_end.harness.raw_client import attention_pb2, jobs_pb2, types_pb2

WORKERS = 3
HAS_AMX = "amx_bf16" in open("/proc/cpuinfo").read().split()
CAUSAL = {"masks": [{"causal": True}]}
WINDOW = {"masks": [{"causal": True, "windowLeft": "40", "alwaysVisible": "3"}], "scale": -0.3}
SINKS = {"masks": [{"causal": True}], "modifiers": {"sinks": [1.0, -2.0, 0.5, 3.0], "softCap": 4.0}}
DROPOUT = {"dropout": {"rate": 0.3, "seed": "9"}, "outputs": {"maxLogit": True}}
PAIRS = {"modifiers": {"bias": {"heads": 4}, "lseOffset": True}}
BITS = {"bitMaskHeads": 4}
MASKS = {"masks": [{"ranges": [{"qEnd": 90, "kBegin": 20, "kEnd": 130, "kind": "KIND_BI_CAUSAL"},
                               {"qBegin": 60, "qEnd": 150, "kBegin": 5, "kEnd": 100, "kind": "KIND_INVERSE_CAUSAL"}]},
                   {"causal": True, "chunk": "50", "queryHeads": [1, 3]}]}
ALIBI = {"masks": [{"causal": True}], "modifiers": {"alibiSlopes": [0.5, 0.1, -0.05, 0.02]}, "outDtype": "DATA_TYPE_FP32"}
DETERMINISTIC = {**CAUSAL, "deterministic": True}
SPLIT = {**CAUSAL, "arithmetic": "ARITHMETIC_BF16X3"}
FORWARD_ONLY = ("outputs", "arithmetic")
PACKED = {"masks": [{"causal": True}], "sequences": [{"qLen": str(q), "kvLen": str(k)} for q, k in ((40, 60), (0, 5), (110, 105))]}
# Ranks, layout, strategies of both jobs, spec, type, batch, d_lse, path of both jobs.
JOBS = (
    (1, "auto", "auto", "auto", CAUSAL, "fp32", 2, True, "direct", "gateway"),
    (2, "zigzag", "ring-pass-kv", "ring-pass-q", CAUSAL, "bf16", None, True, "gateway", "direct"),
    (3, "striped", "all-gather-kv", "ulysses", WINDOW, "fp32", None, False, "direct", "direct"),
    (3, "by-area", "halo", "rotate-kv", PACKED, "fp16", None, True, "direct", "gateway"),
    (2, "zigzag-per-sequence", "tree", "double-ring", SINKS, "bf16", 2, False, "gateway", "gateway"),
    (3, "contiguous", "ulysses-ring", "halo", DROPOUT, "fp32", None, True, "direct", "direct"),
    (2, "contiguous", "rotate-kv", "ring-pass-kv", PAIRS, "fp32", None, True, "gateway", "direct"),
    (3, "zigzag", "ring-pass-q", "all-gather-kv", BITS, "fp16", 2, True, "direct", "direct"),
    (3, "striped", "ring-pass-kv", "halo", MASKS, "fp32", None, False, "gateway", "direct"),
    (2, "by-area", "double-ring", "rotate-kv", ALIBI, "bf16", None, True, "direct", "gateway"),
    (3, "zigzag", "all-gather-kv", "ring-pass-kv", DETERMINISTIC, "bf16", None, True, "gateway", "direct"),
    (3, "contiguous", "ulysses", "tree", SINKS, "fp16", None, True, "gateway", "direct"),
    (2, "striped", "ulysses", "ulysses-ring", MASKS, "bf16", None, True, "direct", "gateway"),
    *((2, "zigzag", "halo", "ring-pass-kv", SPLIT, "fp32", None, True, "direct", "direct") for _ in range(HAS_AMX)),
)


@contextlib.contextmanager
def files_of_at_most(count):
    """Programs that are started meanwhile may write no more bytes into a file, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class KeptStateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        flags = ("--kept-percent", "40", "--max-keep-state", "2m", "--beat-interval", "2s", "--lease", "10s")
        cls.service = cls.enterClassContext(processes.Processes(WORKERS, flags))
        cls.stubs = cls.enterClassContext(raw_client.Stubs(cls.service.address))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())

    def tearDown(self):
        service_case.await_idle(self.service)

    def annulus(self, verb, *flags, expect=0):
        done = self.service.annulus(verb, "--json", *flags)
        self.assertEqual(done.returncode, expect, f"{verb} {flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def path(self, name):
        return os.path.join(self.folder, name)

    def forward(self, spec=CAUSAL, dtype="fp32", batch=None, keep="60s", flags=(), more=None):
        """(facts of a forward job that keeps its state, its inputs and outputs and gradients into them)."""
        random = numpy.random.default_rng(3)
        shapes = {"q": (150, 4, 24), "k": (170, 2, 24), "v": (170, 2, 16)}
        lead = () if batch is None else (batch,)
        tensors = {name: rounded(random.standard_normal(lead + shape), dtype) for name, shape in shapes.items()}
        if spec is PAIRS:
            tensors["bias"] = random.standard_normal((4, 150, 170)).astype(numpy.float32)
            tensors["lse_offset"] = random.standard_normal((4, 150)).astype(numpy.float32)
        if spec is BITS:
            tensors["mask"] = random.random((4, 150, 170)) < 0.7
        tensors.update(more or {})
        save_tensors(self.path("in"), tensors, dtype)
        with open(self.path("spec"), "w", encoding="utf-8") as file:
            json.dump(spec, file)
        facts = self.annulus("attend", "--input", self.path("in"), "--output", self.path("out"), "--spec", self.path("spec"),
                             "--keep-for", keep, "--lse-rest", *flags)
        answer, _ = load_tensors(self.path("out"))
        tensors.update(output=answer["output"], lse=answer["lse"], lse_rest=answer["lse_rest"])
        tensors["d_out"] = rounded(random.standard_normal(answer["output"].shape), dtype)
        tensors["d_lse"] = random.standard_normal(answer["lse"].shape).astype(numpy.float32)
        return facts, tensors

    def kept_job(self, job_id):
        jobs = service_case.cluster_state(self.service)["jobs"]
        return next(job for job in jobs if job["job_id"] == job_id)["kept_state"]

    def kept_bytes(self):
        return sum(worker["kept"]["used_bytes"] for worker in service_case.cluster_state(self.service)["workers"])

    def by_handle(self, handle, tensors, dtype, *flags, expect=0):
        upstream = {name: tensors[name] for name in ("d_out", "d_lse") if name in tensors}
        save_tensors(self.path("upstream"), upstream, dtype, fp32=("d_lse",))
        return self.annulus("gradients", "--input", self.path("upstream"), "--output", self.path("by handle"), "--handle", handle,
                            *flags, expect=expect)

    def uploaded(self, tensors, spec, dtype, *flags):
        wide = ("output",) if "outDtype" in spec else ()
        save_tensors(self.path("all"), tensors, dtype, fp32=("lse", "lse_rest", "d_lse", *wide))
        with open(self.path("spec"), "w", encoding="utf-8") as file:
            json.dump({name: value for name, value in spec.items() if name not in FORWARD_ONLY}, file)
        return self.annulus("gradients", "--input", self.path("all"), "--output", self.path("uploaded"), "--spec", self.path("spec"),
                            *flags)

    def or_upload(self, handle, *flags):
        return self.annulus("gradients", "--input", self.path("all"), "--output", self.path("by handle"), "--handle", handle,
                            "--or-upload", "--spec", self.path("spec"), *flags)

    def assert_uploaded_instead(self, handle, reason, whole, *flags):
        """--or-upload, where the state is gone, runs the job with everything."""
        for path in PATHS:
            back = self.or_upload(handle, *flags, "--path", path, "--verify", "20", "--release")
            self.assertEqual(back["state"], {"job_id": handle, "used": False, "reason": reason})
            self.assertEqual((back["input_bytes"], back["sends"]), (whole["input_bytes"], 2))
            self.assert_same_bits()

    def assert_same_bits(self):
        got, got_types = load_tensors(self.path("by handle"))
        right, right_types = load_tensors(self.path("uploaded"))
        self.assertEqual(got_types, right_types)
        self.assertEqual(set(got), set(right))
        for name, array in right.items():
            self.assertGreater(numpy.abs(array).max(), 0, name)
            self.assertEqual(got[name].tobytes(), array.tobytes(), name)

    def test_gradients_are_those_of_a_job_with_everything_uploaded(self):
        for ranks, layout, first, second, spec, dtype, batch, d_lse, path, path_back in JOBS:
            with self.subTest(ranks=ranks, layout=layout, strategies=(first, second), dtype=dtype):
                place = ("--world-size", str(ranks), "--layout", layout)
                facts, tensors = self.forward(spec, dtype, batch, flags=(*place, "--strategy", first, "--path", path, "--verify", "20"))
                if not d_lse:
                    del tensors["d_lse"]
                handle = facts["job_id"]
                state = self.kept_job(handle)
                self.assertEqual((state["status"], state["users"]), ("held", 0))
                self.assertGreaterEqual(state["held_bytes"], facts["input_bytes"] + facts["output_bytes"])
                self.assertEqual(self.kept_bytes(), state["held_bytes"])
                d_bias = ("--d-bias",) if spec is PAIRS else ()
                back = self.by_handle(handle, tensors, dtype, "--strategy", second, "--path", path_back, "--release", *d_bias)
                whole = self.uploaded(tensors, spec, dtype, *place, "--strategy", second, *d_bias)
                self.assertEqual((back["world_size"], back["strategy"], back["layout"]),
                                 (whole["world_size"], whole["strategy"], whole["layout"]))
                self.assertEqual(back["input_bytes"], sum(tensors[name].size * (4 if name == "d_lse" or dtype == "fp32" else 2)
                                                          for name in ("d_out", "d_lse") if name in tensors))
                self.assertLess(back["input_bytes"], whole["input_bytes"])
                self.assert_same_bits()
                self.assertEqual(self.kept_job(handle)["status"], "released")
                service_case.await_idle(self.service)

    def test_a_state_serves_until_it_is_released(self):
        facts, tensors = self.forward(flags=("--world-size", "2"))
        handle = facts["job_id"]
        self.assertEqual(facts["kept_for_seconds"], 60)
        place = ("--world-size", "2", "--layout", facts["layout"], "--strategy", "rotate-kv")
        whole = self.uploaded(tensors, CAUSAL, "fp32", *place)
        for _ in range(2):
            self.by_handle(handle, tensors, "fp32", "--strategy", "rotate-kv")
            self.assert_same_bits()
        back = self.or_upload(handle, "--path", "direct")
        self.assertEqual(back["state"], {"job_id": handle, "used": True})
        self.assertLess(back["input_bytes"], whole["input_bytes"])
        self.assertEqual(self.kept_job(handle)["status"], "held")
        self.assertEqual(self.annulus("release", "--handle", handle)["status"], "released")
        service_case.await_idle(self.service)
        self.assertEqual(self.kept_bytes(), 0)
        self.assertEqual(self.kept_job(handle)["held_bytes"], 0)
        error = self.by_handle(handle, tensors, "fp32", expect=3)["error"]
        self.assertEqual((error["code"], error["reason"]), ("NOT_FOUND", "STATE_RELEASED"))
        self.assert_uploaded_instead(handle, "STATE_RELEASED", whole, *place)
        self.assertEqual(self.annulus("release", "--handle", "job-of-nobody", expect=3)["error"]["reason"], "JOB_NOT_FOUND")

    def test_a_state_stays_until_the_gradients_are_written(self):
        facts, tensors = self.forward(flags=("--world-size", "1"))
        handle = facts["job_id"]
        self.by_handle(handle, tensors, "fp32")
        with files_of_at_most(1024):
            told = self.annulus("gradients", "--input", self.path("upstream"), "--output", self.path("none"), "--handle", handle,
                                "--release", expect=3)
        self.assertEqual(told["error"]["reason"], "FILE_ERROR")
        self.assertFalse(os.path.exists(self.path("none")))
        self.assertEqual(self.kept_job(handle)["status"], "held")
        self.by_handle(handle, tensors, "fp32", "--release")
        self.assertEqual(self.kept_job(handle)["status"], "released")

    def test_no_state_stays_of_an_answer_that_is_not_taken(self):
        before = {job["job_id"] for job in service_case.cluster_state(self.service)["jobs"]}
        with files_of_at_most(64 * 2 * (16 + 1) * 4):  # Room for the tensors, which is taken first, and not for the header.
            error = self.annulus("attend", "--synthetic", "1,64,64,2,1,16,fp32,3", "--output", self.path("none"), "--keep-for", "60s", expect=3)
        self.assertEqual(error["error"]["reason"], "FILE_ERROR")
        (job,) = [job for job in service_case.cluster_state(self.service)["jobs"] if job["job_id"] not in before]
        self.assertEqual((job["state"], job["kept_state"]["status"]), ("succeeded", "released"))

    def test_the_gradient_of_a_shared_bias_is_whole_and_says_so(self):
        """The state does not record that a number of the file's bias was shared by several rows, so the
        gradient is whole. A job with all tensors adds it up."""
        facts, tensors = self.forward(flags=("--world-size", "1"), more={"bias": numpy.linspace(-1, 1, 170, dtype=numpy.float32)[None]})
        self.assertTrue(self.by_handle(facts["job_id"], tensors, "fp32", "--d-bias", "--release")["d_bias_whole"])
        self.assertNotIn("d_bias_whole", self.uploaded(tensors, CAUSAL, "fp32", "--world-size", "1", "--d-bias"))
        whole, summed = (load_tensors(self.path(name))[0]["d_bias"] for name in ("by handle", "uploaded"))
        self.assertEqual((whole.shape, summed.shape), ((1, 150, 170), (1, 170)))
        numpy.testing.assert_allclose(whole.sum(axis=1, dtype=float), summed, rtol=0, atol=1e-5 * numpy.abs(summed).max())

    def test_what_the_state_has_is_refused_in_the_input(self):
        facts, tensors = self.forward(PAIRS, flags=("--world-size", "1"))
        handle = facts["job_id"]
        for name in ("bias", "mask", "lse_offset", "q", "lse", "bit_mask"):
            with self.subTest(name=name):
                save_tensors(self.path("upstream"), {"d_out": tensors["d_out"], name: tensors["d_lse"]}, "fp32")
                flags = ("--input", self.path("upstream"), "--handle", handle)
                error = self.annulus("gradients", *flags, expect=3)["error"]
                self.assertEqual(error["reason"], "UNKNOWN_TENSOR")
                self.assertIn(f"{name}, but this job takes only d_out, d_lse: the kept state has the other inputs", error["message"])
                self.annulus("gradients", *flags, "--ignore-tensors", name)
        self.annulus("release", "--handle", handle)

    def test_a_state_expires(self):
        place = ("--world-size", "2", "--layout", "zigzag")
        facts, tensors = self.forward(keep="1s", flags=place)
        handle = facts["job_id"]
        service_case.await_idle(self.service)
        self.assertEqual(self.kept_job(handle)["status"], "expired")
        error = self.by_handle(handle, tensors, "fp32", expect=3)["error"]
        self.assertEqual((error["code"], error["reason"]), ("NOT_FOUND", "STATE_EXPIRED"))
        place += ("--strategy", "rotate-kv")
        self.assert_uploaded_instead(handle, "STATE_EXPIRED", self.uploaded(tensors, CAUSAL, "fp32", *place), *place)

    def test_a_state_is_lost_with_a_worker_and_its_tensors_give_the_same(self):
        flags = ("--world-size", str(WORKERS), "--layout", "zigzag")
        facts, tensors = self.forward(flags=flags)
        handle = facts["job_id"]
        self.by_handle(handle, tensors, "fp32", "--strategy", "all-gather-kv")
        self.service.worker(1).kill()
        service_case.wait_for(lambda: self.kept_job(handle)["status"] == "lost", 60, "the loss of the state")
        error = self.by_handle(handle, tensors, "fp32", expect=3)["error"]
        self.assertEqual((error["code"], error["reason"]), ("NOT_FOUND", "STATE_LOST"))
        service_case.await_idle(self.service)
        self.service.start_worker(1)
        self.service.await_workers(WORKERS)
        # The answer of before the loss is that of a job by everything, on a worker that was replaced.
        flags += ("--strategy", "all-gather-kv")
        save_tensors(self.path("all"), tensors, "fp32")
        done = {}

        def again():
            done["end"] = self.service.annulus("gradients", "--json", "--input", self.path("all"), "--output", self.path("uploaded"), "--spec",
                                               self.path("spec"), *flags)
            return done["end"].returncode == 0

        service_case.wait_for(again, 30, lambda: f"a group of {WORKERS}; {done}")
        self.assert_same_bits()
        self.assert_uploaded_instead(handle, "STATE_LOST", json.loads(done["end"].stdout), *flags)

    def refused(self, code, reason, field, handle, **execution):
        spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_FP32, q_heads=2, kv_heads=1, head_dim=8,
                                       gradients=types_pb2.Gradients(state=handle))
        spec.sequences.add(q_len=8, kv_len=8)

        def attend():
            with raw_client.Attend(self.stubs, 30) as call:
                call.start(spec, types_pb2.Execution(**execution))
                call.accepted()

        def run_job():
            request = jobs_pb2.RunJobRequest(spec=spec, execution=types_pb2.Execution(**execution))
            with raw_client.Stream(self.stubs.jobs.RunJob, 30, request) as call:
                call.read()

        def plan_job():
            request = jobs_pb2.PlanJobRequest(spec=spec, execution=types_pb2.Execution(**execution))
            raw_client.call(self.stubs.jobs.PlanJob, request, 30)

        for entry in (attend, run_job, plan_job):
            with self.subTest(entry=entry.__name__, reason=reason):
                with self.assertRaises(raw_client.CallError) as caught:
                    entry()
                error = caught.exception
                self.assertEqual((error.code, error.reason), (code, reason), str(error))
                path = f"start.{field}" if entry is attend else field
                self.assertEqual(list(error.fields), [path], str(error))

    def test_what_does_not_fit_is_refused_at_every_entry(self):
        spec = types_pb2.AttentionSpec(dtype=types_pb2.DATA_TYPE_FP32, q_heads=2, kv_heads=1, head_dim=8)
        spec.forward.keep_state.FromSeconds(60)
        spec.sequences.add(q_len=8, kv_len=8)
        request = attention_pb2.AttendInlineRequest(spec=spec, execution=types_pb2.Execution(world_size=2),
                                                    synthetic=attention_pb2.SyntheticInputs(seed=1))
        handle = raw_client.call(self.stubs.attention.AttendInline, request, 30).stats.job_id
        self.assertEqual(self.kept_job(handle)["status"], "held")
        self.refused("NOT_FOUND", "STATE_NOT_FOUND", "spec.gradients.state", "job-of-nobody")
        self.refused("INVALID_ARGUMENT", "INVALID_REQUEST", "spec.gradients.state", "a b")
        self.refused("INVALID_ARGUMENT", "STATE_MISMATCH", "execution.world_size", handle, world_size=3)
        spec.sequences[0].kv_len = 9
        request.spec.CopyFrom(spec)
        other = raw_client.call(self.stubs.attention.AttendInline, request, 30).stats.job_id
        self.refused("INVALID_ARGUMENT", "STATE_MISMATCH", "spec", other)
        for job in (handle, other):
            raw_client.call(self.stubs.jobs.ReleaseState, jobs_pb2.ReleaseStateRequest(job_id=job))
        for keep in (0, 121):
            request.spec.forward.keep_state.FromSeconds(keep)
            with self.assertRaises(raw_client.CallError) as caught:
                raw_client.call(self.stubs.attention.AttendInline, request, 30)
            self.assertEqual(caught.exception.reason, "INVALID_REQUEST")


class SilentCoordinatorTest(unittest.TestCase):
    def test_asking_for_the_handle_takes_a_question_s_time_and_not_the_job_s(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            began = time.monotonic()
            done = cluster.run("annulus", "gradients", "--address", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "2m",
                               "--handle", "job-x", "--input", "upstream")
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertLess(time.monotonic() - began, 50)


if __name__ == "__main__":
    unittest.main()
