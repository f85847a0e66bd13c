"""Jobs through the whole service: real processes on loopback, answers judged in fp64."""

import json
import os
import pty
import subprocess
import tempfile
import threading
import unittest

import numpy
from safetensors.numpy import load_file, save_file

from tests.end_to_end import cluster

REAL_DATA = "tests/data/minilm_layer3.safetensors"
LENGTHS = (0, 1, 7, 509, 4097, 16385)
DTYPES = ("fp32", "bf16", "fp16")
STRATEGIES = ("ring-pass-kv", "all-gather-kv", "rotate-kv", "halo")
LAYOUTS = ("contiguous", "zigzag", "striped", "zigzag-per-sequence")
# Masks of AttentionSpec's JSON, beside the plain ones.
MASKS = (
    {"causal": True, "windowLeft": "40"},
    {"causal": True, "windowLeft": "12", "alwaysVisible": "3"},
    {"windowLeft": "9", "windowRight": "30", "alignment": "ALIGNMENT_TOP_LEFT"},
    {"causal": True, "chunk": "32"},
    {"causal": True, "prefix": "50"},
    {"causal": True, "windowLeft": "70", "windowRight": "0", "chunk": "48", "prefix": "20", "alwaysVisible": "5"},
)


def hidden_by(mask, q_len, kv_len):
    """Which (row, key) a mask hides: the rule of docs/numerics.md to the letter."""
    field = {name: int(mask[name]) for name in mask if name not in ("causal", "alignment")}
    j = numpy.arange(kv_len)[None, :]
    p = numpy.arange(q_len)[:, None] + (0 if "alignment" in mask else kv_len - q_len)
    order = (j <= p) | (j < field.get("prefix", 0)) if mask.get("causal") else numpy.ones((q_len, kv_len), bool)
    local = (j >= p - field.get("windowLeft", 1 << 40)) & (j <= p + field.get("windowRight", 1 << 40))
    if "chunk" in field:
        local &= j // field["chunk"] == p // field["chunk"]
    return ~(order & (local | (j < field.get("alwaysVisible", 0))))


def reference(q, k, v, mask, real):
    """Attention of one head set in the float type `real`; (output, lse), rows that see nothing give (0, -inf).

    `mask` is "full", "causal", "causal-top-left", or what is hidden.
    """
    q, k, v = (array.astype(real) for array in (q, k, v))
    group = q.shape[1] // k.shape[1]
    out = numpy.zeros((q.shape[0], q.shape[1], v.shape[2]), real)
    lse = numpy.full((q.shape[1], q.shape[0]), -numpy.inf, real)
    hidden = mask
    if isinstance(mask, str):
        named = {"full": {}, "causal": {"causal": True}, "causal-top-left": {"causal": True, "alignment": "top left"}}
        hidden = hidden_by(named[mask], len(q), len(k))
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T * real(q.shape[2] ** -0.5)
        scores[hidden] = -numpy.inf
        seen = ~hidden.all(axis=1) if len(k) else numpy.zeros(len(q), bool)
        if not seen.any():
            continue
        top = scores[seen].max(axis=1, keepdims=True)
        weights = numpy.exp(scores[seen] - top)
        total = weights.sum(axis=1, keepdims=True)
        out[seen, head] = (weights / total) @ v[:, head // group]
        lse[head, seen] = (top + numpy.log(total))[:, 0]
    return out, lse


class EndToEndTest(unittest.TestCase):
    WORKERS = 4

    @classmethod
    def setUpClass(cls):
        cls.service = cls.enterClassContext(cluster.Serve(cls.WORKERS, "--threads", "1"))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")))

    def attend(self, *flags, expect=0):
        done = self.service.annulus("attend", "--json", *flags)
        self.assertEqual(done.returncode, expect, f"{flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def assert_within_budget(self, answer, exact, naive, lse_relative, what):
        """semantics N13, head by head."""
        out, lse = answer["output"].astype(numpy.float64), answer["lse"].astype(numpy.float64)
        self.assertEqual(out.shape, exact[0].shape, what)
        self.assertEqual(lse.shape, exact[1].shape, what)
        if out.size == 0:
            return
        largest = numpy.abs(exact[0]).max(axis=(0, 2))
        budget = 2 * numpy.abs(naive - exact[0]).max(axis=(0, 2))
        # A naive answer that is wrong would allow anything.
        self.assertTrue((budget <= 1e-4 * numpy.maximum(1, largest)).all(), f"{what}: budget {budget}")
        budget += numpy.spacing(largest.astype(numpy.float32)) / 2
        error = numpy.abs(out - exact[0]).max(axis=(0, 2))
        self.assertTrue((error <= budget).all(), f"{what}: {error} of {budget}")
        seen = numpy.isfinite(exact[1])
        self.assertTrue((lse[~seen] == -numpy.inf).all(), what)
        off = numpy.abs(lse[seen] - exact[1][seen]) / numpy.maximum(1, numpy.abs(exact[1][seen]))
        self.assertTrue((off <= lse_relative).all(), f"{what}: LSE off by {off.max() if off.size else 0}")


class MatrixTest(EndToEndTest):
    def test_every_world_size_strategy_and_layout(self):
        for world in (1, 2, 3, 4):
            for strategy in STRATEGIES:
                for number, layout in enumerate(LAYOUTS):
                    path = ("direct", "gateway")[(number + world) % 2]
                    with self.subTest(world=world, strategy=strategy, layout=layout, path=path):
                        facts = self.attend(
                            "--synthetic", "1,509,509,4,2,32,fp32,3", "--mask", "causal", "--verify", "24",
                            "--world-size", str(world), "--strategy", strategy, "--layout", layout, "--path", path,
                        )
                        self.assertEqual((facts["world_size"], facts["path"]), (world, path))
                        if world > 1:
                            self.assertEqual((facts["strategy"], facts["layout"]), (strategy, layout))

    def test_every_length_type_and_mask(self):
        cases = [
            (length, dtype, mask)
            for length in LENGTHS
            for dtype in (DTYPES if length < 16385 else ("bf16",))
            for mask in ("full", "causal")
        ]
        for index, (length, dtype, mask) in enumerate(cases):
            world = 1 + (index + index // self.WORKERS) % self.WORKERS  # Each mask and type meets each.
            with self.subTest(length=length, dtype=dtype, mask=mask, world=world):
                facts = self.attend(
                    "--synthetic", f"1,{length},{length},2,1,32,{dtype},5", "--mask", mask, "--verify", "12",
                    "--path", ("direct", "gateway")[index % 2], "--world-size", str(world),
                )
                self.assertEqual(facts["world_size"], world)

    def test_lengths_that_differ_and_batches(self):
        for shape in ("1,100,700,4,4,64,fp32,1", "1,700,100,4,1,64,bf16,1", "3,65,33,4,2,16,48,fp16,1",
                      "2,0,50,2,2,8,fp32,1", "2,50,0,2,2,8,fp32,1", "1,1,4097,8,2,64,fp32,1"):
            for mask in ("full", "causal", "causal-top-left"):
                with self.subTest(shape=shape, mask=mask):
                    self.attend("--synthetic", shape, "--mask", mask, "--verify", "200")

    def test_both_paths_and_every_world_size_give_the_same_bits_of_the_same_plan(self):
        flags = ("--synthetic", "1,700,700,4,4,64,fp32,8", "--strategy", "ring-pass-kv", "--world-size", "3")
        first, second = self.attend(*flags, "--path", "direct"), self.attend(*flags, "--path", "gateway")
        for name in ("output_crc32c", "lse_crc32c"):
            self.assertEqual(first[name], second[name])


class FilesTest(EndToEndTest):
    def run_file(self, tensors, *flags):
        source, target = (os.path.join(self.folder, name) for name in ("in", "out"))
        save_file(tensors, source)
        facts = self.attend("--input", source, "--output", target, *flags)
        return load_file(target), facts

    def test_the_real_activations(self):
        data = load_file(REAL_DATA)
        for mask in ("full", "causal"):
            naive, _ = reference(data["q"], data["k"], data["v"], mask, numpy.float32)
            exact = (data[f"{mask}_output"], data[f"{mask}_lse"])
            for world in (1, 2, 3, 4):
                with self.subTest(mask=mask, world=world):
                    target = os.path.join(self.folder, "real")
                    self.attend("--input", REAL_DATA, "--output", target, "--mask", mask, "--world-size", str(world))
                    self.assert_within_budget(load_file(target), exact, naive, 1e-5, f"{mask} on {world}")

    def test_answers_come_in_the_callers_order(self):
        random = numpy.random.default_rng(4)
        for q_len, kv_len, mask in ((33, 50, "causal"), (50, 33, "causal"), (50, 33, "causal-top-left"), (64, 64, "full")):
            q, k, v = (random.standard_normal(shape).astype(numpy.float32)
                       for shape in ((q_len, 4, 16), (kv_len, 2, 16), (kv_len, 2, 24)))
            exact = reference(q, k, v, mask, numpy.float64)
            naive, _ = reference(q, k, v, mask, numpy.float32)
            for layout in LAYOUTS:
                with self.subTest(q_len=q_len, kv_len=kv_len, mask=mask, layout=layout):
                    answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--mask", mask, "--layout", layout,
                                              "--world-size", "3")
                    self.assert_within_budget(answer, exact, naive, 1e-5, layout)

    def test_packed_sequences(self):
        random = numpy.random.default_rng(5)
        lengths = ((10, 10), (0, 3), (33, 40), (7, 0), (1, 1))
        q, k, v = (random.standard_normal((sum(pair[side] for pair in lengths), 2, 16)).astype(numpy.float32)
                   for side in (0, 1, 1))
        spec = {"sequences": [{"qLen": a, "kvLen": b} for a, b in lengths], "masks": [{"causal": True}]}
        spec_file = os.path.join(self.folder, "spec.json")
        with open(spec_file, "w", encoding="utf-8") as file:
            json.dump(spec, file)
        parts, naive, at = [], [], [0, 0]
        for a, b in lengths:
            rows = (q[at[0] : at[0] + a], k[at[1] : at[1] + b], v[at[1] : at[1] + b])
            parts.append(reference(*rows, "causal", numpy.float64))
            naive.append(reference(*rows, "causal", numpy.float32)[0])
            at = [at[0] + a, at[1] + b]
        exact = (numpy.concatenate([p[0] for p in parts]), numpy.concatenate([p[1] for p in parts], axis=1))
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--spec", spec_file, "--layout", layout,
                                          "--world-size", "2")
                self.assert_within_budget(answer, exact, numpy.concatenate(naive), 1e-5, layout)

    def test_windows_chunks_prefixes_and_first_keys(self):
        random = numpy.random.default_rng(7)
        spec_file = os.path.join(self.folder, "mask.json")
        for index, mask in enumerate(MASKS):
            with open(spec_file, "w", encoding="utf-8") as file:
                json.dump({"masks": [mask]}, file)
            for q_len, kv_len in ((150, 150), (90, 140), (140, 90)):
                q, k, v = (random.standard_normal(shape).astype(numpy.float32)
                           for shape in ((q_len, 4, 64), (kv_len, 2, 64), (kv_len, 2, 64)))
                hidden = hidden_by(mask, q_len, kv_len)
                exact = reference(q, k, v, hidden, numpy.float64)
                naive, _ = reference(q, k, v, hidden, numpy.float32)
                flags = ("--world-size", str(1 + index % self.WORKERS), "--verify", "50", "--spec", spec_file,
                         "--strategy", STRATEGIES[index % 4], "--layout", LAYOUTS[(index + q_len) % 4])
                with self.subTest(mask=mask, q_len=q_len, kv_len=kv_len, flags=flags):
                    answer, _ = self.run_file({"q": q, "k": k, "v": v}, *flags)
                    self.assert_within_budget(answer, exact, naive, 1e-5, str(mask))

    def test_every_mask_on_every_plan(self):
        spec_file = os.path.join(self.folder, "mask.json")
        for index, (mask, layout) in enumerate((mask, layout) for mask in MASKS for layout in LAYOUTS):
            with open(spec_file, "w", encoding="utf-8") as file:
                json.dump({"masks": [mask]}, file)
            strategy = STRATEGIES[index // 4 % 4]
            with self.subTest(mask=mask, layout=layout, strategy=strategy):
                facts = self.attend("--synthetic", "2,300,300,4,2,32,fp32,9", "--spec", spec_file, "--verify", "600",
                                    "--world-size", str(2 + index % 3), "--strategy", strategy, "--layout", layout)
                self.assertEqual((facts["strategy"], facts["layout"]), (strategy, layout))

    def test_scale_and_batches_in_files(self):
        random = numpy.random.default_rng(6)
        q, k, v = (random.standard_normal((2, 20, 2, 8)).astype(numpy.float32) for _ in range(3))
        answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--scale", "0")
        self.assertEqual(answer["lse"].shape, (2, 2, 20))
        numpy.testing.assert_allclose(answer["output"], numpy.broadcast_to(v.mean(axis=1, keepdims=True), v.shape), atol=1e-5)
        numpy.testing.assert_allclose(answer["lse"], numpy.log(20), rtol=1e-5)


class CommandLineTest(EndToEndTest):
    WORKERS = 2

    def test_the_cluster_shows_its_workers_and_nothing_held(self):
        self.attend("--synthetic", "1,64,64,2,2,16,fp32,1")
        done = self.service.annulus("cluster", "--json", "--wait", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertTrue(facts["ready"])
        self.assertEqual({worker["state"] for worker in facts["workers"]}, {"ready"})
        self.assertEqual(len(facts["workers"]), 2)
        self.assertTrue(all(worker["staging"]["limit_bytes"] > 0 for worker in facts["workers"]))
        self.assertIn("succeeded", {job["state"] for job in facts["jobs"]})
        self.assertEqual(self.service.annulus("cluster").returncode, 0)

    def test_waiting_for_too_many_workers_ends_at_the_deadline(self):
        done = self.service.annulus("cluster", "--wait", "9", "--timeout", "300ms")
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_a_plan_says_why(self):
        done = self.service.annulus("plan", "--json", "--synthetic", "1,4096,4096,8,2,64,bf16,1", "--mask", "causal",
                                    "--world-size", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["world_size"], 2)
        self.assertGreater(plan["predicted_seconds"], 0)
        self.assertEqual(len(plan["shards"]), 2)
        self.assertEqual(self.service.annulus("plan", "--synthetic", "1,64,64,2,2,16,fp32,1").returncode, 0)

    def test_no_progress_bar_in_a_pipe(self):
        done = self.service.annulus("attend", "--synthetic", "1,64,64,2,2,16,fp32,1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("GB/s", done.stdout)

    def test_a_progress_bar_on_a_terminal(self):
        ours, terminal = pty.openpty()
        shown = []

        def read():
            while True:
                try:
                    shown.append(os.read(ours, 4096))
                except OSError:  # Its last writer is gone.
                    return

        reader = threading.Thread(target=read)
        reader.start()
        with subprocess.Popen(
            [cluster.program(), "attend", "--address", self.service.address, "--json",
             "--synthetic", "1,4097,4097,4,2,64,bf16,1"],
            stdout=subprocess.PIPE, stderr=terminal, text=True,
        ) as process:
            os.close(terminal)
            out, _ = process.communicate(timeout=cluster.CALL_SECONDS)
        reader.join(timeout=cluster.CALL_SECONDS)
        os.close(ours)
        text = b"".join(shown).decode()
        self.assertEqual(process.returncode, 0, text)
        json.loads(out)  # The bar is on standard error alone.
        self.assertRegex(text, r"^\r(waiting|uploading|computing|fetching) +\[#* *\] +\d+ %")
        self.assertRegex(text, r"\r +\r$")  # It is taken away.
        self.assertNotIn("\n", text)

    def test_wrong_command_lines_end_with_2_and_one_line(self):
        for arguments in (("attend",), ("attend", "--nonsense"), ("attend", "--mask", "diagonal"),
                          ("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--world-size", "-1"), ("dance",), (),
                          ("cluster", "--timeout", "soon"), ("serve", "--workers", "0"),
                          ("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--scale", "nan"),
                          ("plan", "--synthetic", "1,1,1,1,1,1,fp32,1", "--scale", "-inf"),
                          ("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--scale", "1e39")):
            done = cluster.annulus(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_an_output_that_cannot_be_written_fails_before_the_job(self):
        before = json.loads(self.service.annulus("cluster", "--json").stdout)["jobs"]
        for path in ("/nonexistent/out", "/"):
            done = self.service.annulus("attend", "--synthetic", "1,1,1,1,1,1,fp32,1", "--output", path)
            self.assertNotEqual(done.returncode, 0, path)
            self.assertIn(path, done.stderr)
        self.assertEqual(json.loads(self.service.annulus("cluster", "--json").stdout)["jobs"], before)

    def test_no_coordinator_is_try_again(self):
        done = cluster.annulus("cluster", "--address", "127.0.0.1:1", "--json")
        self.assertEqual(done.returncode, 4, done.stderr)


if __name__ == "__main__":
    unittest.main()
