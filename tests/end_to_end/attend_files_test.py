"""Jobs over files through the whole service: what comes back, judged by numpy in fp64."""

import itertools
import os
import unittest

import numpy
from safetensors.numpy import load_file

from tests.end_to_end.harness.attend_case import LAYOUTS, STRATEGIES, AttendCase, hidden_by, judged, load_tensors, reference
from tests.end_to_end.harness.attend_case import rounded, save_tensors

REAL_DATA = "tests/data/minilm_layer3.safetensors"
# Masks of AttentionSpec's JSON, beside the plain ones.
MASKS = (
    {"causal": True, "windowLeft": "40"},
    {"causal": True, "windowLeft": "12", "alwaysVisible": "3"},
    {"windowLeft": "9", "windowRight": "30", "alignment": "ALIGNMENT_TOP_LEFT"},
    {"causal": True, "chunk": "32"},
    {"causal": True, "prefix": "50"},
    {"causal": True, "windowLeft": "70", "windowRight": "0", "chunk": "48", "prefix": "20", "alwaysVisible": "5"},
)


def concatenated(parts):
    """Exact and naive answers of a job from those of its sequences."""
    exact = numpy.concatenate([p[0][0] for p in parts]), numpy.concatenate([p[0][1] for p in parts], axis=1)
    return exact, numpy.concatenate([p[1] for p in parts], axis=1)


class FilesTest(AttendCase):
    def setUp(self):
        self.random = numpy.random.default_rng(4)

    def normal(self, *shape, dtype="fp32"):
        return rounded(self.random.standard_normal(shape), dtype)

    def test_the_real_activations(self):
        data = load_file(REAL_DATA)
        for mask in ("full", "causal"):
            naive, _ = reference(data["q"], data["k"], data["v"], mask, numpy.float32)
            exact = (data[f"{mask}_output"], data[f"{mask}_lse"])
            for world, path in itertools.product((1, 2, 3, 4), ("direct", "gateway")):
                with self.subTest(mask=mask, world=world, path=path):
                    target = os.path.join(self.folder, "real")
                    facts = self.attend("--input", REAL_DATA, "--output", target, "--mask", mask,
                                        "--world-size", str(world), "--path", path)
                    self.assertEqual((facts["world_size"], facts["path"]), (world, path))
                    self.assert_within_budget(load_file(target), exact, naive[None], f"{mask} on {world}, {path}",
                                              by_head=True)

    def test_every_element_type(self):
        """Files of three and of four dimensions, values of another dimension than keys."""
        for dtype, (q_len, kv_len), mask in itertools.product(
            ("fp32", "fp16", "bf16"), ((150, 90), (90, 150)), ("full", "causal")
        ):
            for batch, world, path in ((None, 3, "gateway"), (2, 2, "direct")):
                with self.subTest(dtype=dtype, q_len=q_len, kv_len=kv_len, mask=mask, batch=batch):
                    tensors = {
                        name: self.normal(*(() if batch is None else (batch,)), *shape, dtype=dtype)
                        for name, shape in (("q", (q_len, 4, 32)), ("k", (kv_len, 2, 32)), ("v", (kv_len, 2, 48)))
                    }
                    answer, _ = self.run_file(tensors, "--mask", mask, "--world-size", str(world), "--path", path,
                                              dtype=dtype)
                    for b in range(batch or 1):
                        q, k, v = (array if batch is None else array[b] for array in tensors.values())
                        one = answer if batch is None else {name: array[b] for name, array in answer.items()}
                        self.assert_within_budget(one, *judged(q, k, v, mask, dtype), f"sequence {b}", dtype)

    def test_fp32_output_of_16_bits(self):
        """On request; it holds what a rounding to 16 bits would take away."""
        spec = self.spec_file({"outDtype": "DATA_TYPE_FP32"})
        for dtype, world, path in (("bf16", 1, "direct"), ("bf16", 3, "gateway"), ("fp16", 2, "direct")):
            with self.subTest(dtype=dtype, world=world, path=path):
                q, k, v = (self.normal(*shape, dtype=dtype) for shape in ((150, 4, 32), (190, 2, 32), (190, 2, 48)))
                source, target = (os.path.join(self.folder, name) for name in ("in", "out"))
                save_tensors(source, {"q": q, "k": k, "v": v}, dtype)
                self.attend("--input", source, "--output", target, "--mask", "causal", "--spec", spec, "--verify", "150",
                            "--world-size", str(world), "--path", path)
                answer, dtypes = load_tensors(target)
                self.assertEqual(dtypes, {"output": "fp32", "lse": "fp32"})
                self.assertLess(numpy.mean(rounded(answer["output"], dtype) == answer["output"]), 0.1)
                self.assert_within_budget(answer, *judged(q, k, v, "causal", dtype), dtype, dtype)

    def test_answers_come_in_the_callers_order(self):
        for q_len, kv_len, mask in ((33, 50, "causal"), (50, 33, "causal"), (50, 33, "causal-top-left"), (64, 64, "full")):
            q, k, v = self.normal(q_len, 4, 16), self.normal(kv_len, 2, 16), self.normal(kv_len, 2, 24)
            exact, naive = judged(q, k, v, mask)
            for layout in LAYOUTS:
                with self.subTest(q_len=q_len, kv_len=kv_len, mask=mask, layout=layout):
                    answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--mask", mask, "--layout", layout,
                                              "--world-size", "3")
                    self.assert_within_budget(answer, exact, naive, layout)

    def test_packed_sequences(self):
        lengths = ((100, 100), (0, 3), (133, 140), (7, 0), (1, 1), (90, 60))
        rows = [numpy.cumsum([0] + [pair[side] for pair in lengths]) for side in (0, 1)]
        masks = ({"causal": True}, {}, {"causal": True, "windowLeft": "40"}, {"windowLeft": "9", "windowRight": "30"})
        for index, layout in enumerate(LAYOUTS * 3):
            dtype, strategy = ("fp32", "fp16", "bf16")[index // 4], STRATEGIES[(index + index // 4) % len(STRATEGIES)]
            mask, path = masks[(index + index // 2) % 4], ("direct", "gateway")[(index + index // 4) % 2]
            with self.subTest(layout=layout, dtype=dtype, strategy=strategy, mask=mask, path=path):
                q, k, v = (self.normal(rows[side][-1], heads, 32, dtype=dtype) for side, heads in ((0, 4), (1, 2), (1, 2)))
                spec = {"sequences": [{"qLen": a, "kvLen": b} for a, b in lengths], "masks": [mask] if mask else []}
                answer, facts = self.run_file(
                    {"q": q, "k": k, "v": v}, "--spec", self.spec_file(spec), "--layout", layout, "--strategy", strategy,
                    "--world-size", str(2 + index % 3), "--path", path, dtype=dtype,
                )
                self.assertEqual((facts["strategy"], facts["layout"]), (strategy, layout))
                parts = []
                for n, (q_len, kv_len) in enumerate(lengths):
                    keys = slice(rows[1][n], rows[1][n + 1])
                    one = q[rows[0][n] : rows[0][n + 1]], k[keys], v[keys]
                    parts.append(judged(*one, hidden_by(mask, q_len, kv_len), dtype))
                self.assert_within_budget(answer, *concatenated(parts), layout, dtype)

    def test_windows_chunks_prefixes_and_first_keys(self):
        for index, mask in enumerate(MASKS):
            spec_file = self.spec_file({"masks": [mask]})
            for q_len, kv_len in ((150, 150), (90, 140), (140, 90)):
                q, k, v = self.normal(q_len, 4, 64), self.normal(kv_len, 2, 64), self.normal(kv_len, 2, 64)
                flags = ("--world-size", str(1 + index % self.WORKERS), "--verify", "50", "--spec", spec_file,
                         "--strategy", STRATEGIES[index % len(STRATEGIES)], "--layout", LAYOUTS[(index + q_len) % 4])
                with self.subTest(mask=mask, q_len=q_len, kv_len=kv_len, flags=flags):
                    answer, _ = self.run_file({"q": q, "k": k, "v": v}, *flags)
                    self.assert_within_budget(answer, *judged(q, k, v, hidden_by(mask, q_len, kv_len)), str(mask))

    def test_every_mask_on_every_plan(self):
        for index, (mask, layout) in enumerate(itertools.product(MASKS, LAYOUTS)):
            strategy = STRATEGIES[index // 4 % len(STRATEGIES)]
            with self.subTest(mask=mask, layout=layout, strategy=strategy):
                facts = self.attend("--synthetic", "2,300,300,4,2,32,fp32,9", "--verify", "600",
                                    "--spec", self.spec_file({"masks": [mask]}),
                                    "--world-size", str(2 + index % 3), "--strategy", strategy, "--layout", layout)
                self.assertEqual((facts["strategy"], facts["layout"]), (strategy, layout))

    def test_rows_of_long_jobs(self):
        """Judged by rows that are drawn, against all of their keys."""
        for tokens, dtype, world, how in (
            (4097, "fp32", 3, ("--strategy", "ring-pass-kv", "--layout", "zigzag")),
            (4097, "bf16", 4, ("--strategy", "ulysses-ring", "--layout", "striped")),
            (16385, "fp16", 2, ("--strategy", "ring-pass-kv", "--layout", "zigzag")),
            (16385, "fp32", 4, ()),
        ):
            with self.subTest(tokens=tokens, dtype=dtype, world=world, how=how):
                tensors = {"q": self.normal(tokens, 2, 32, dtype=dtype), "k": self.normal(tokens, 1, 32, dtype=dtype),
                           "v": self.normal(tokens, 1, 32, dtype=dtype)}
                answer, facts = self.run_file(tensors, "--mask", "causal", "--world-size", str(world), *how, dtype=dtype)
                self.assertEqual(facts["world_size"], world)
                rows = numpy.sort(numpy.concatenate([[0, tokens - 1], self.random.choice(tokens, 126, replace=False)]))
                hidden = numpy.arange(tokens)[None, :] > rows[:, None]
                exact, naive = judged(tensors["q"][rows], tensors["k"], tensors["v"], hidden, dtype)
                of_rows = {"output": answer["output"][rows], "lse": answer["lse"][:, rows]}
                self.assert_within_budget(of_rows, exact, naive, f"{tokens} {dtype}", dtype)

    def test_scale_and_batches_in_files(self):
        q, k, v = (self.normal(2, 20, 2, 8) for _ in range(3))
        answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--scale", "0")
        self.assertEqual(answer["lse"].shape, (2, 2, 20))
        numpy.testing.assert_allclose(answer["output"], numpy.broadcast_to(v.mean(axis=1, keepdims=True), v.shape), atol=1e-5)
        numpy.testing.assert_allclose(answer["lse"], numpy.log(20), rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
