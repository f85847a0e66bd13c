"""`annulus gradients` over real processes: files, strategies, layouts, masks and both paths, judged in fp64."""

import itertools
import json
import os
import unittest

import numpy

from tests.end_to_end import segments
from tests.end_to_end.attend_case import (
    ALL_STRATEGIES, LARGEST_BUDGET, LAYOUTS, RUNS, AttendCase, hidden_by, kept_weights, load_tensors, product,
    rounded, save_tensors, spacing)

MASKS = (
    {},
    {"causal": True},
    {"causal": True, "windowLeft": "40", "alwaysVisible": "3"},
    {"causal": True, "chunk": "32", "alignment": "top left"},
    {"windowLeft": "9", "windowRight": "30"},
)


def gradients(tensors, hidden, real, dtype, kept=None):
    """dq, dk and dv of one sequence in the float type `real`, from the formulas of docs/numerics.md. In float32 weights, dS
    and the gradients are rounded to `dtype`. `kept`: what dropout multiplies weights by, [heads, rows, keys]."""
    q, k, v, out, d_out = (tensors[name].astype(real) for name in ("q", "k", "v", "output", "d_out"))
    lse = tensors["lse"].astype(real)
    d_lse = tensors["d_lse"].astype(real) if "d_lse" in tensors else numpy.zeros_like(lse)
    naive = real == numpy.float32
    group, scale = q.shape[1] // k.shape[1], real(q.shape[2] ** -0.5)
    dq, dk, dv = (numpy.zeros(array.shape, real) for array in (q, k, v))
    for head in range(q.shape[1]):
        of = head // group
        scores = product(q[:, head], k[:, of].T) * scale
        with numpy.errstate(invalid="ignore", over="ignore"):
            weights = numpy.where(hidden, real(0), numpy.exp(scores - lse[head][:, None]))
        delta = (d_out[:, head] * out[:, head]).sum(axis=1) - d_lse[head]
        factor = real(1) if kept is None else kept[head].astype(real)
        d_scores = weights * (factor * product(d_out[:, head], v[:, of].T) - delta[:, None])
        weights = factor * weights
        if naive:
            weights, d_scores = rounded(weights, dtype), rounded(d_scores, dtype)
        dq[:, head] = product(d_scores, k[:, of]) * scale
        dk[:, of] += product(numpy.ascontiguousarray(d_scores.T), q[:, head]) * scale
        dv[:, of] += product(numpy.ascontiguousarray(weights.T), d_out[:, head])
    return {name: rounded(array, dtype) if naive else array for name, array in (("dq", dq), ("dk", dk), ("dv", dv))}


class GradientsTest(AttendCase):
    WORKERS = 3

    def gradients(self, *flags, expect=0):
        done = self.service.annulus("gradients", "--json", *flags)
        self.assertEqual(done.returncode, expect, f"{flags}\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def made(self, random, q_len, kv_len, heads=(4, 2), dims=(24, 16), dtype="fp32"):
        shapes = {"q": (q_len, heads[0], dims[0]), "k": (kv_len, heads[1], dims[0]), "v": (kv_len, heads[1], dims[1])}
        return {name: rounded(random.standard_normal(shape), dtype) for name, shape in shapes.items()}

    def forward(self, tensors, spec, dtype):
        """q, k and v with what a forward job gives, and random upstream gradients."""
        source, target = (os.path.join(self.folder, name) for name in ("in", "out"))
        save_tensors(source, tensors, dtype)
        self.attend("--input", source, "--output", target, "--spec", self.spec_file(spec))
        answer, _ = load_tensors(target)
        random = numpy.random.default_rng(7)
        d_out = rounded(random.standard_normal(answer["output"].shape), dtype)
        d_lse = random.standard_normal(answer["lse"].shape).astype(numpy.float32)
        return {**tensors, "output": answer["output"], "lse": answer["lse"], "d_out": d_out, "d_lse": d_lse}

    def run_gradients(self, tensors, spec, dtype, *flags):
        source, target = (os.path.join(self.folder, name) for name in ("upstream", "gradients"))
        save_tensors(source, tensors, dtype, fp32=("lse", "d_lse"))
        facts = self.gradients("--input", source, "--output", target, "--spec", self.spec_file(spec), *flags)
        answer, dtypes = load_tensors(target)
        of_sinks = {"d_sink": "fp32"} if "sinks" in spec.get("modifiers", {}) else {}
        self.assertEqual(dtypes, {"dq": dtype, "dk": dtype, "dv": dtype, **of_sinks})
        return answer, facts

    def assert_gradients(self, answer, tensors, hidden, dtype, what, kept=None):
        exact = gradients(tensors, hidden, numpy.float64, dtype, kept)
        naive = gradients(tensors, hidden, numpy.float32, dtype, kept)
        for name, right in exact.items():
            got = answer[name].astype(numpy.float64)
            self.assertEqual(got.shape, right.shape, what)
            if got.size == 0:
                continue
            largest = numpy.abs(right).max()
            # The naive error of few rows is luck: the largest of all heads counts, and an ulp more.
            budget = 2 * numpy.abs(naive[name] - right).max() + 2 * spacing(numpy.array(largest), dtype)
            self.assertLessEqual(budget, 4 * LARGEST_BUDGET[dtype] * max(1, largest), f"{what} {name}")
            self.assertLessEqual(numpy.abs(got - right).max(), budget, f"{what} {name}")

    def test_every_strategy_layout_mask_type_and_path(self):
        random = numpy.random.default_rng(1)
        for index, (strategy, world) in enumerate(itertools.product(ALL_STRATEGIES, (1, 2, 3))):
            mask, dtype = MASKS[index % 5], ("fp32", "bf16", "fp16")[index // 2 % 3]
            layout, path = LAYOUTS[index % 4], ("direct", "gateway")[index % 2]
            q_len, kv_len = ((150, 170), (170, 150))[index // 3 % 2]
            with self.subTest(strategy=strategy, world=world, layout=layout, mask=mask, dtype=dtype, path=path):
                spec = {"masks": [{**mask, **({"alignment": "ALIGNMENT_TOP_LEFT"} if "alignment" in mask else {})}]}
                tensors = self.forward(self.made(random, q_len, kv_len, dtype=dtype), spec, dtype)
                if index % 2 == 0:
                    del tensors["d_lse"]
                answer, facts = self.run_gradients(tensors, spec, dtype, "--strategy", strategy, "--layout", layout,
                                                   "--world-size", str(world), "--path", path, "--verify", "50")
                self.assertEqual(facts["verified"]["k_rows"], 50)
                self.assertEqual((facts["world_size"], facts["path"]), (world, path))
                self.assert_gradients(answer, tensors, hidden_by(mask, q_len, kv_len), dtype, f"{strategy} {world}")

    def test_packed_sequences_with_rows_that_see_nothing(self):
        lengths = ((40, 60), (0, 5), (30, 0), (50, 20))
        spec = {"masks": [{"causal": True}], "sequences": [{"qLen": str(q), "kvLen": str(kv)} for q, kv in lengths]}
        random = numpy.random.default_rng(2)
        tensors = self.forward(self.made(random, 120, 85), spec, "fp32")
        hidden = numpy.ones((120, 85), bool)
        row = key = 0
        for q_len, kv_len in lengths:
            hidden[row:row + q_len, key:key + kv_len] = hidden_by({"causal": True}, q_len, kv_len)
            row, key = row + q_len, key + kv_len
        for world in (1, 3):
            answer, _ = self.run_gradients(tensors, spec, "fp32", "--world-size", str(world))
            self.assert_gradients(answer, tensors, hidden, "fp32", f"packed {world}")
            self.assertTrue((answer["dq"][40:70] == 0).all())

    def test_dropout_is_that_of_the_forward_job(self):
        rate, seed = 0.3, 2**40 + 5
        kept = kept_weights(rate, seed, 4, 40, 50)
        spec = {"masks": [{"causal": True}], "dropout": {"rate": rate, "seed": str(seed)}}
        tensors = self.forward(self.made(numpy.random.default_rng(5), 40, 50), spec, "fp32")
        for strategy, world in RUNS:
            with self.subTest(strategy=strategy, world=world):
                answer, facts = self.run_gradients(tensors, spec, "fp32", "--strategy", strategy, "--world-size", str(world),
                                                   "--verify", "30")
                self.assertEqual(facts["world_size"], world)
                self.assert_gradients(answer, tensors, hidden_by({"causal": True}, 40, 50), "fp32", strategy, kept)

    def test_gradients_of_sinks(self):
        sinks = numpy.array([1.0, -2.0, 0.5, 3.0])
        spec = {"masks": [{"causal": True}], "modifiers": {"sinks": list(sinks)}}
        for dtype, batch in (("fp32", 1), ("bf16", 2)):
            made = self.made(numpy.random.default_rng(6), 60, 45, dtype=dtype)  # The first rows see their sink alone.
            tensors = self.forward({name: numpy.stack([array] * batch) for name, array in made.items()}, spec, dtype)
            self.assertTrue(numpy.isfinite(tensors["lse"]).all())
            delta = (tensors["d_out"].astype(numpy.float64) * tensors["output"]).sum(axis=3).swapaxes(1, 2) - tensors["d_lse"]
            terms = -numpy.exp(sinks[:, None] - tensors["lse"]) * delta
            answers = {}
            for index, (strategy, world) in enumerate(RUNS):
                with self.subTest(strategy=strategy, world=world, dtype=dtype):
                    answer, facts = self.run_gradients(tensors, spec, dtype, "--strategy", strategy, "--world-size", str(world),
                                                       "--path", ("direct", "gateway")[index % 2], "--verify", "30")
                    self.assertEqual(facts["world_size"], world)
                    self.assertEqual((answer["d_sink"].shape, answer["d_sink"].dtype), ((4,), numpy.float32))
                    numpy.testing.assert_allclose(answer["d_sink"], terms.sum(axis=(0, 2)), rtol=0, atol=2e-6 * numpy.abs(terms).sum(axis=(0, 2)).max())
                    answers[strategy, world] = answer["d_sink"].tobytes()
            self.assertEqual(len(set(answers.values())), 1, dtype)
            one = {name: array[0] for name, array in tensors.items()}
            self.assert_gradients({name: answer[name][0] for name in ("dq", "dk", "dv")}, one, hidden_by({"causal": True}, 60, 45), dtype, "sinks")

    def test_a_batch_keeps_its_shape(self):
        random = numpy.random.default_rng(3)
        one = self.made(random, 33, 21)
        batch = {name: numpy.stack([array, array[::-1]]) for name, array in one.items()}
        tensors = self.forward(batch, {}, "fp32")
        self.assertEqual(tensors["lse"].shape, (2, 4, 33))
        answer, _ = self.run_gradients(tensors, {}, "fp32")
        for index in (0, 1):
            own = {name: array[index] for name, array in tensors.items()}
            self.assert_gradients({name: array[index] for name, array in answer.items()}, own,
                                  numpy.zeros((33, 21), bool), "fp32", f"batch {index}")

    def test_auto_says_what_it_took(self):
        done = self.service.annulus("plan", "--json", "--synthetic", "1,4096,4096,4,4,64,bf16,1", "--spec",
                                    self.spec_file({"gradients": {}}))
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertIn(plan["strategy"], ALL_STRATEGIES)
        self.assertIn("tree", {entry["strategy"] for entry in plan["rejected"]})

    def test_what_is_wrong_is_named(self):
        tensors = self.forward(self.made(numpy.random.default_rng(4), 20, 20), {}, "fp32")
        source = os.path.join(self.folder, "wrong")
        for change, reason, field in (
            (lambda t: t.pop("d_out"), "MISSING_TENSOR", "d_out"),
            (lambda t: t.pop("output"), "MISSING_TENSOR", "output"),
            (lambda t: t.update(lse=t["lse"].T.copy()), "SHAPE_MISMATCH", "lse"),
            (lambda t: t.update(d_out=t["d_out"][:-1]), "SHAPE_MISMATCH", "d_out"),
        ):
            wrong = dict(tensors)
            change(wrong)
            save_tensors(source, wrong, "fp32")
            error = self.gradients("--input", source, expect=3)["error"]
            self.assertEqual((error["reason"], error["fields"][0]["field"]), (reason, field))

    def test_what_is_not_served_says_so(self):
        for flags, spec, field in (
            ((), {"outputs": {"maxLogit": True}}, "spec.outputs"),
        ):
            with self.subTest(flags=flags, spec=spec):
                error = self.gradients("--synthetic", "1,64,64,4,2,16,fp32,1", "--spec", self.spec_file(spec), *flags, expect=3)
                self.assertEqual(error["error"]["reason"], "NOT_SERVED")
                self.assertIn(field, [entry["field"] for entry in error["error"]["fields"]])


class SegmentsTest(AttendCase):
    """Every job is a long one: its steps are split, accumulators and all."""

    WORKERS = 3
    SERVE_FLAGS = ("--coordinator-flag=--segment=2ms",)

    def test_long_jobs_run_in_segments(self):
        for index, strategy in enumerate(ALL_STRATEGIES):
            with self.subTest(strategy=strategy):
                job = ("--synthetic", f"1,1025,1025,6,3,64,{('fp32', 'bf16')[index % 2]},2", "--mask", "causal", "--strategy", strategy,
                       "--world-size", "3")
                plan = json.loads(self.service.annulus("plan", "--json", "--spec", self.spec_file({"gradients": {}}), *job).stdout)
                self.assertGreater(plan["predicted_seconds"], 0.004)
                segments.assert_told(self, self.service.address, 1025, segments.execution_of(strategy, 3), gradients=True)
                done = self.service.annulus("gradients", "--json", "--verify", "40", *job)
                self.assertEqual(done.returncode, 0, f"{strategy}\n{done.stdout}\n{done.stderr}")
                self.assertEqual(json.loads(done.stdout)["strategy"], strategy)


if __name__ == "__main__":
    unittest.main()
