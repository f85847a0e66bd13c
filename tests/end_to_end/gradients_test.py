"""`annulus gradients` over real processes: files, strategies, layouts, masks and both paths, judged in fp64."""

import json
import os
import unittest

import numpy
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.end_to_end.harness import segments
from tests.end_to_end.harness.attend_case import (ALL_LAYOUTS, ALL_STRATEGIES, FILE_DTYPES, GRIDS, PATHS, RUNS, AttendCase, every_pair, hidden_by, judged,
                                          kept_weights, load_tensors, ranks, rounded, save_tensors)
from tests.end_to_end.harness.gradient_case import GradientCase, gradients

MASKS = (
    {},
    {"causal": True},
    {"causal": True, "windowLeft": "40", "alwaysVisible": "3"},
    {"causal": True, "chunk": "32", "alignment": "top left"},
    {"windowLeft": "9", "windowRight": "30"},
)


class GradientsTest(GradientCase):
    WORKERS = 4

    def test_every_strategy_layout_mask_type_and_path(self):
        """Every two of them meet, and of ranks, lengths and whether there is a gradient into the LSE."""
        random = numpy.random.default_rng(1)
        axes = (ALL_STRATEGIES, ALL_LAYOUTS, MASKS, (1, 2, 3, 4), tuple(FILE_DTYPES), ((150, 170), (170, 150)), PATHS, (True, False))
        for strategy, layout, mask, world, dtype, (q_len, kv_len), path, d_lse in every_pair(*axes):
            with self.subTest(strategy=strategy, world=world, layout=layout, mask=mask, dtype=dtype, path=path, d_lse=d_lse):
                spec = {"masks": [{**mask, **({"alignment": "ALIGNMENT_TOP_LEFT"} if "alignment" in mask else {})}]}
                tensors = self.forward(self.made(random, q_len, kv_len, dtype=dtype), spec, dtype)
                if not d_lse:
                    del tensors["d_lse"]
                answer, facts = self.run_gradients(tensors, spec, dtype, *ranks(strategy, world), "--layout", layout, "--path", path,
                                                   "--verify", "50")
                self.assertEqual(facts["verified"]["k_rows"], 50)
                self.assertEqual((facts["world_size"], facts["path"]), (world, path))
                if world > 1:
                    self.assertEqual((facts["strategy"], facts["layout"]), (strategy, layout))
                if world == 4 and strategy in GRIDS:
                    self.assertEqual(facts["ulysses_degree" if strategy == "ulysses-ring" else "inner_ring_degree"], 2)
                self.assert_gradients(answer, tensors, hidden_by(mask, q_len, kv_len), dtype, f"{strategy} {world}")

    def test_the_largest_heads(self):
        for dtype in FILE_DTYPES:
            made = self.made(numpy.random.default_rng(15), 90, 110, dims=(256, 256), dtype=dtype)
            with self.subTest(dtype=dtype):
                answer, _ = self.run_file(made, "--mask", "causal", "--world-size", "3", "--verify", "50", dtype=dtype)
                exact, naive = judged(*(made[name] for name in "qkv"), "causal", dtype)
                self.assert_within_budget(answer, exact, naive, dtype, dtype)
                spec = {"masks": [{"causal": True}]}
                tensors = self.forward(made, spec, dtype)
                answer, _ = self.run_gradients(tensors, spec, dtype, "--world-size", "3", "--verify", "50")
                self.assert_gradients(answer, tensors, hidden_by({"causal": True}, 90, 110), dtype, dtype)

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
                answer, facts = self.run_gradients(tensors, spec, "fp32", *ranks(strategy, world), "--verify", "30")
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
                    answer, facts = self.run_gradients(tensors, spec, dtype, *ranks(strategy, world), "--path", PATHS[index % 2],
                                                       "--verify", "30")
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

    def test_a_d_out_in_fp32_as_autograd_gives_it(self):
        """Outputs in fp32 of 16-bit inputs have gradients in fp32. Keys with a large mean multiply what is wrong with delta."""
        random = numpy.random.default_rng(16)
        for dtype in ("bf16", "fp16"):
            made = self.made(random, 60, 80, dtype=dtype)
            made["k"] = rounded(made["k"] + 100, dtype)
            target = os.path.join(self.folder, "gradients")
            for batch, strategy, world in ((False, "ring-pass-kv", 3), (True, "ulysses", 2), (False, "ring-pass-q", 2)):
                tensors = self.forward(made, {"outDtype": "DATA_TYPE_FP32"}, dtype)
                tensors["d_out"] = random.standard_normal(tensors["output"].shape).astype(numpy.float32)
                exact = gradients(tensors, numpy.zeros((60, 80), bool), numpy.float64, dtype)
                if batch:
                    tensors = {name: array[None] for name, array in tensors.items()}
                source = os.path.join(self.folder, "upstream")
                wide = ("lse", "d_lse", "output", "d_out")
                save_tensors(source, tensors, dtype, fp32=wide)
                flags = ("--input", source, "--output", target, *ranks(strategy, world))
                self.gradients(*flags, "--verify", "20")
                answer, _ = load_tensors(target)
                for name, right in exact.items():
                    off = numpy.abs(answer[name].reshape(right.shape) - right).max()
                    self.assertLessEqual(off, 0.02 * numpy.abs(right).max(), f"{dtype} {strategy} {name}")
                save_tensors(source, tensors, dtype, fp32=("lse", "d_lse", "d_out"))  # The output is of 16 bits.
                error = self.gradients(*flags, expect=3)["error"]
                self.assertEqual(error["reason"], "UNSUPPORTED_DTYPE")

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

    def test_an_lse_of_another_base_or_scale_is_refused(self):
        """Handed on with what the file of the forward job says of it."""
        made = self.made(numpy.random.default_rng(8), 20, 20)
        source, target = (os.path.join(self.folder, name) for name in ("upstream", "out"))
        for spec, said in (({"outputs": {"lseBase": "LSE_BASE_2"}}, "lse_base 2, not e"), ({"scale": 0.5}, "scale 0.5, not"), ({}, None)):
            tensors = self.forward(made, spec, "fp32")
            with safe_open(target, "numpy") as answer:
                metadata = answer.metadata()
            self.assertEqual((metadata["op"], metadata["lse_base"]), ("attend", "2" if "outputs" in spec else "e"))
            save_file({name: numpy.ascontiguousarray(array) for name, array in tensors.items()}, source, metadata)
            told = self.gradients("--input", source, "--verify", "5", expect=3 if said else 0)
            if said:
                self.assertEqual(told["error"]["reason"], "LSE_MISMATCH")
                self.assertIn(said, told["error"]["message"])

    def test_an_lse_of_base_2_is_refused_where_nothing_says_its_base(self):
        """A few rows are enough to detect it, without --verify. An explicit base is accepted."""
        source, causal = os.path.join(self.folder, "upstream"), {"masks": [{"causal": True}]}
        for dtype in ("fp32", "bf16"):
            made = self.made(numpy.random.default_rng(16), 200, 220, dtype=dtype)
            self.run_gradients(self.forward(made, causal, dtype), causal, dtype)
            save_tensors(source, self.forward(made, {**causal, "outputs": {"lseBase": "LSE_BASE_2"}}, dtype), dtype, fp32=("lse", "d_lse"))
            error = self.gradients("--input", source, "--mask", "causal", expect=3)["error"]
            self.assertEqual(error["reason"], "LSE_MISMATCH")
            self.assertRegex(error["message"], r"the lse of row \d+, head \d does not match these inputs: its weights sum to [\d.e-]+, not 1")
            self.gradients("--input", source, "--spec", self.spec_file({**causal, "outputs": {"lseBase": "LSE_BASE_E"}}))
        tensors, _ = load_tensors(source)
        save_file({name: numpy.ascontiguousarray(array) for name, array in tensors.items()}, source, {"lse_base": "e"})
        self.gradients("--input", source, "--mask", "causal")

    def test_a_forgotten_mask_is_refused(self):
        """By what the file says, and where it says nothing, by --verify."""
        source, target = (os.path.join(self.folder, name) for name in ("upstream", "out"))
        tensors = self.forward(self.made(numpy.random.default_rng(9), 60, 60), {"masks": [{"causal": True}]}, "fp32")
        with safe_open(target, "numpy") as answer:
            metadata = answer.metadata()
        tensors = {name: numpy.ascontiguousarray(array) for name, array in tensors.items()}
        save_file(tensors, source, metadata)
        self.gradients("--input", source, "--mask", "causal", "--verify", "10")
        error = self.gradients("--input", source, expect=3)["error"]
        self.assertEqual(error["reason"], "LSE_MISMATCH")
        self.assertIn('the forward job had masks [{"causal":true}]; this one has no masks. Give the same', error["message"])
        save_file(tensors, source)
        self.gradients("--input", source, "--mask", "causal", "--verify", "10")
        error = self.gradients("--input", source, "--verify", "10", expect=3)["error"]
        self.assertEqual(error["reason"], "LSE_MISMATCH")
        self.assertRegex(error["message"], r"the lse of row \d+, head 0 does not match these inputs: its weights sum to [\d.]+, not 1")

    def test_an_output_of_another_job_is_refused(self):
        """By what the file says of its dropout, and where it says nothing, by --verify: delta is made of it."""
        source = os.path.join(self.folder, "upstream")
        dropout = {"dropout": {"rate": 0.25, "seed": "5"}}
        for dtype in ("fp32", "bf16", "fp16"):
            tensors = self.forward(self.made(numpy.random.default_rng(10), 60, 60, dtype=dtype), dropout, dtype)
            for rows in ("1", "20"):
                self.run_gradients(tensors, dropout, dtype, "--verify", rows)
            other = {**tensors, "output": numpy.random.default_rng(11).standard_normal(tensors["output"].shape).astype(numpy.float32)}
            for given, spec in ((tensors, {}), (tensors, {"dropout": {"rate": 0.25, "seed": "6"}}), (other, dropout)):
                save_tensors(source, given, dtype, fp32=("lse", "d_lse"))
                error = self.gradients("--input", source, "--spec", self.spec_file(spec), "--verify", "20", expect=3)["error"]
                self.assertEqual(error["reason"], "OUTPUT_MISMATCH")
                self.assertRegex(error["message"], r"the output of head \d does not match these inputs: off by [\d.e-]+, [\d.e-]+ is allowed; dropout")

    def test_a_forgotten_dropout_is_refused(self):
        source, target = (os.path.join(self.folder, name) for name in ("upstream", "out"))
        spec = {"dropout": {"rate": 0.25, "seed": "5"}}
        tensors = self.forward(self.made(numpy.random.default_rng(12), 20, 20), spec, "fp32")
        with safe_open(target, "numpy") as answer:
            metadata = answer.metadata()
        self.assertEqual(json.loads(metadata["output_rules"]), spec)
        save_file({name: numpy.ascontiguousarray(array) for name, array in tensors.items()}, source, metadata)
        self.gradients("--input", source, "--spec", self.spec_file(spec))
        error = self.gradients("--input", source, expect=3)["error"]
        self.assertEqual((error["reason"], error["fields"][0]["field"]), ("OUTPUT_MISMATCH", "output"))
        self.assertIn('the forward job had dropout {"rate":0.25,"seed":"5"}; this one has no dropout', error["message"])

    def test_an_output_of_partials_in_bf16_is_verified_as_one(self):
        source, target = (os.path.join(self.folder, name) for name in ("upstream", "out"))
        made = self.made(numpy.random.default_rng(13), 200, 300)
        save_tensors(source, made, "fp32")
        self.attend("--input", source, "--output", target, "--strategy", "ring-pass-q", "--world-size", "3", "--bf16-partials")
        with safe_open(target, "numpy") as answer:
            metadata, outputs = answer.metadata(), {name: answer.get_tensor(name) for name in ("output", "lse")}
        self.assertEqual(metadata["bf16_partials"], "true")
        tensors = {**made, **outputs, "d_out": rounded(numpy.random.default_rng(14).standard_normal(outputs["output"].shape), "fp32")}
        for said, refused in ((metadata, False), (None, False), ({**metadata, "bf16_partials": "false"}, True)):
            save_file(tensors, source, said)
            told = self.gradients("--input", source, "--verify", "40", expect=3 if refused else 0)
            if refused:
                self.assertEqual(told["error"]["reason"], "OUTPUT_MISMATCH")

    def test_of_a_job_without_rows_nothing_is_verified(self):
        for verb in ("attend", "gradients"):
            done = self.service.annulus(verb, "--synthetic", "1,0,0,4,2,16,fp32,1", "--verify", "3")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("\nverified nothing: no rows\n", done.stdout)

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

    WORKERS = 4
    SERVE_FLAGS = ("--coordinator-flag=--segment=2ms",)

    def test_long_jobs_run_in_segments(self):
        for index, strategy in enumerate(ALL_STRATEGIES):
            with self.subTest(strategy=strategy):
                world, flags = (4, GRIDS[strategy]) if strategy in GRIDS else (3, ())
                job = ("--synthetic", f"1,1025,1025,6,3,64,{('fp32', 'bf16')[index % 2]},2", "--mask", "causal", *ranks(strategy, world))
                plan = json.loads(self.service.annulus("plan", "--json", "--spec", self.spec_file({"gradients": {}}), *job).stdout)
                self.assertGreater(plan["predicted_seconds"], 0.004)
                segments.assert_told(self, self.service.address, 1025, segments.execution_of(strategy, world, flags), gradients=True)
                done = self.service.annulus("gradients", "--json", "--verify", "40", *job)
                self.assertEqual(done.returncode, 0, f"{strategy}\n{done.stdout}\n{done.stderr}")
                self.assertEqual(json.loads(done.stdout)["strategy"], strategy)


if __name__ == "__main__":
    unittest.main()
