"""Every strategy that exchanges heads, moves queries or has rings of rings: real processes, answers verified in fp64."""

import itertools
import json
import unittest

import numpy

from tests.end_to_end.harness import segments
from tests.end_to_end.harness.attend_case import ALL_LAYOUTS, LAYOUTS, PATHS, AttendCase, every_pair, judged, rounded
from tests.end_to_end.harness.gradient_case import GradientCase

# Name, ranks, flags, and what the answer then says.
RUNS = (
    ("ulysses", 2, (), {"ulysses_degree": 2, "ring_degree": 1}),
    ("ulysses", 3, ("--head-deal", "whole-heads"), {"ulysses_degree": 3, "head_deal": "whole-heads"}),
    ("ulysses", 4, ("--head-deal", "units"), {"ulysses_degree": 4, "head_deal": "units"}),
    ("ulysses", 6, (), {"ulysses_degree": 6}),
    ("ulysses-ring", 4, ("--ulysses-degree", "2"), {"ulysses_degree": 2, "ring_degree": 2}),
    ("ulysses-ring", 6, ("--ring-degree", "3"), {"ulysses_degree": 2, "ring_degree": 3}),
    ("ulysses-ring", 6, ("--ring-degree", "2", "--head-deal", "units"), {"ulysses_degree": 3, "head_deal": "units"}),
    ("ulysses-ring", 5, (), {}),
    ("ulysses-ring", 8, ("--ulysses-degree", "4"), {"ulysses_degree": 4, "ring_degree": 2}),
    ("ring-pass-kv", 7, (), {"ring_degree": 7}),
    ("ring-pass-kv", 8, (), {"ring_degree": 8}),
    ("ring-pass-q", 2, (), {"ring_degree": 2}),
    ("ring-pass-q", 5, (), {"ring_degree": 5}),
    ("ring-pass-q", 7, (), {"ring_degree": 7}),
    ("double-ring", 4, (), {"inner_ring_degree": 2}),
    ("double-ring", 6, ("--inner-ring-degree", "3"), {"inner_ring_degree": 3}),
    ("halo", 3, (), {"ring_degree": 3}),
    ("tree", 4, (), {"ring_degree": 4}),
)
# Gradients on eight ranks, one of each family of strategies.
OF_EIGHT = (
    ("ring-pass-kv", (), {"ring_degree": 8}),
    ("ring-pass-q", (), {"ring_degree": 8}),
    ("all-gather-kv", (), {"ring_degree": 8}),
    ("rotate-kv", (), {"ring_degree": 8}),
    ("halo", (), {"ring_degree": 8}),
    ("ulysses", ("--head-deal", "units"), {"ulysses_degree": 8, "head_deal": "units"}),
    ("ulysses", ("--head-deal", "whole-heads"), {"ulysses_degree": 8, "head_deal": "whole-heads"}),
    ("ulysses-ring", ("--ulysses-degree", "4"), {"ulysses_degree": 4, "ring_degree": 2}),
    ("ulysses-ring", ("--ulysses-degree", "2"), {"ulysses_degree": 2, "ring_degree": 4}),
    ("double-ring", ("--inner-ring-degree", "4"), {"inner_ring_degree": 4}),
    ("tree", (), {"ring_degree": 8}),
)
HEADS = ("4,2", "6,3", "2,1", "8,1", "5,5", "7,7", "12,4")
MASKS = (
    {"causal": True},
    {},
    {"causal": True, "windowLeft": "60", "alwaysVisible": "3"},
    {"causal": True, "chunk": "64"},
)


class StrategiesTest(GradientCase):
    WORKERS = 8

    def test_every_strategy_with_any_number_of_heads(self):
        for index, ((strategy, world, flags, said), heads) in enumerate(itertools.product(RUNS, HEADS)):
            layout, dtype = LAYOUTS[index % 4], ("fp32", "bf16", "fp16")[index % 3]
            path, mask = ("direct", "gateway")[index // 4 % 2], MASKS[(index + index // 7) % 4]
            with self.subTest(strategy=strategy, world=world, flags=flags, heads=heads, layout=layout, mask=mask, path=path):
                facts = self.attend(
                    "--synthetic", f"2,257,301,{heads},32,{dtype},{index}", "--spec", self.spec_file({"masks": [mask]}),
                    "--strategy", strategy, "--world-size", str(world), "--layout", layout, "--path", path, "--verify", "128", *flags,
                )
                wanted = {"strategy": strategy, "world_size": world, "layout": layout, **said}
                self.assertEqual({name: facts[name] for name in wanted}, wanted)

    def test_gradients_of_eight_ranks(self):
        for (strategy, flags, said), (layout, mask, heads, dtype, path) in zip(
            itertools.cycle(OF_EIGHT), every_pair(ALL_LAYOUTS, MASKS, ("8,2", "5,5", "12,4"), ("fp32", "bf16", "fp16"), PATHS)
        ):
            with self.subTest(strategy=strategy, flags=flags, heads=heads, layout=layout, mask=mask, path=path):
                facts = self.gradients(
                    "--synthetic", f"1,257,301,{heads},32,{dtype},9", "--spec", self.spec_file({"masks": [mask]}), "--strategy", strategy,
                    "--world-size", "8", "--layout", layout, "--path", path, "--verify", "60", *flags,
                )
                wanted = {"strategy": strategy, "world_size": 8, "layout": layout, **said}
                self.assertEqual({name: facts[name] for name in wanted}, wanted)

    def test_partials_in_bf16_are_fewer_bytes_and_another_answer(self):
        for index, strategy in enumerate(("ring-pass-q", "tree", "auto")):
            with self.subTest(strategy=strategy):
                job = ("--synthetic", "1,65,1301,4,2,32,fp32,3", "--world-size", "3")
                flags = ("--path", ("direct", "gateway")[index % 2], "--verify", "65")
                rounded = self.attend(*job, *flags, "--strategy", strategy, "--bf16-partials")
                # The way that it ran, named: what jobs have shown meanwhile may have changed what would be chosen.
                way = ("--strategy", rounded["strategy"], "--layout", rounded["layout"])
                exact = self.attend(*job, *flags, *way)
                plan = json.loads(self.service.annulus("plan", "--json", *job, *way, "--bf16-partials").stdout)
                self.assertTrue(rounded["bf16_partials"])
                self.assertIn(rounded["strategy"], ("ring-pass-q", "tree"))
                self.assertEqual(rounded["bytes_sent_per_rank"], plan["bytes_sent_per_rank"])
                self.assertNotEqual(rounded["output_crc32c"], exact["output_crc32c"])
                self.assertEqual(rounded["lse_crc32c"], exact["lse_crc32c"])
                self.assertLess(sum(rounded["bytes_sent_per_rank"]), sum(exact["bytes_sent_per_rank"]))

    def test_more_ranks_than_rows(self):
        for strategy, world, flags, _ in RUNS:
            for shape in ("1,3,2,2,1,8,fp32,1", "1,0,5,2,1,8,fp32,1", "1,5,0,2,1,8,fp32,1", "1,1,700,5,5,16,fp32,1"):
                with self.subTest(strategy=strategy, world=world, shape=shape):
                    self.attend("--synthetic", shape, "--strategy", strategy, "--world-size", str(world), "--mask", "causal",
                                "--verify", "64", *flags)

    def test_answers_come_in_the_callers_order(self):
        random = numpy.random.default_rng(4)
        q, k, v = (rounded(random.standard_normal(shape), "fp32") for shape in ((150, 6, 32), (170, 3, 32), (170, 3, 48)))
        exact, naive = judged(q, k, v, "causal")
        for (strategy, world, flags, _), layout in zip(RUNS, itertools.cycle(LAYOUTS)):
            with self.subTest(strategy=strategy, world=world, flags=flags, layout=layout):
                answer, _ = self.run_file({"q": q, "k": k, "v": v}, "--mask", "causal", "--strategy", strategy, "--layout", layout,
                                          "--world-size", str(world), *flags)
                self.assert_within_budget(answer, exact, naive, strategy)

    def test_hundreds_of_sequences_that_are_cut_one_by_one(self):
        random = numpy.random.default_rng(6)
        lengths = [int(length) for length in random.integers(0, 40, 400)]
        spec = {"masks": [{"causal": True}], "sequences": [{"qLen": str(length), "kvLen": str(length)} for length in lengths]}
        tensors = {name: rounded(random.standard_normal((sum(lengths), 2, 16)), "fp32") for name in "qkv"}
        for strategy, world in (("ring-pass-kv", 2), ("rotate-kv", 3), ("ulysses-ring", 8)):
            with self.subTest(strategy=strategy, world=world):
                flags = ("--layout", "zigzag-per-sequence", "--strategy", strategy, "--world-size", str(world), "--verify", "200")
                _, facts = self.run_file(tensors, "--spec", self.spec_file(spec), *flags)
                self.assertEqual((facts["layout"], facts["world_size"]), ("zigzag-per-sequence", world))

    def test_a_plan_compares_them(self):
        done = self.service.annulus("plan", "--json", "--synthetic", "1,8192,8192,6,6,64,bf16,1", "--world-size", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        seen = {(entry["strategy"], entry["ulysses_degree"], entry["head_deal"]) for entry in (plan, *plan["rejected"])}
        for wanted in (("rotate-kv", 1, "auto"), ("ring-pass-q", 1, "auto"), ("tree", 1, "auto"), ("ulysses", 4, "units"),
                       ("ulysses", 4, "whole-heads"), ("ulysses-ring", 2, "whole-heads")):
            self.assertIn(wanted, seen)
        for entry in plan["rejected"]:
            self.assertTrue(entry["reason"])
            self.assertGreater(entry["predicted_seconds"], 0)

    def test_a_plan_for_degrees_alone_has_the_ranks_they_make(self):
        done = self.service.annulus("plan", "--json", "--synthetic", "1,4096,4096,4,4,64,bf16,1", "--ulysses-degree", "2",
                                    "--ring-degree", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual((plan["strategy"], plan["world_size"]), ("ulysses-ring", 6))

    def test_degrees_that_do_not_fit_are_refused_with_their_field(self):
        for flags, field in (
            (("--strategy", "ulysses-ring", "--world-size", "6", "--ulysses-degree", "4"), "execution.ulysses_degree"),
            (("--strategy", "ulysses-ring", "--world-size", "6", "--ulysses-degree", "2", "--ring-degree", "2"),
             "execution.ring_degree"),
            (("--strategy", "ring-pass-q", "--ulysses-degree", "2"), "execution.ulysses_degree"),
            (("--strategy", "halo", "--head-deal", "units"), "execution.head_deal"),
            (("--strategy", "double-ring", "--world-size", "6", "--inner-ring-degree", "4"), "execution.inner_ring_degree"),
        ):
            with self.subTest(flags=flags):
                done = self.service.annulus("attend", "--json", "--synthetic", "1,64,64,4,2,16,fp32,1", *flags)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertEqual(json.loads(done.stdout)["error"]["fields"][0]["field"], field)


class SegmentsTest(AttendCase):
    """Every job is a long one: its steps are split, and a cancel has places to act."""

    WORKERS = 8
    SERVE_FLAGS = ("--coordinator-flag=--segment=2ms",)

    def test_long_jobs_run_in_segments(self):
        for strategy, world, flags, _ in RUNS:
            with self.subTest(strategy=strategy, world=world, flags=flags):
                job = ("--synthetic", "1,2049,2049,6,3,64,bf16,2", "--mask", "causal", "--strategy", strategy,
                       "--world-size", str(world), *flags)
                plan = json.loads(self.service.annulus("plan", "--json", *job).stdout)
                self.assertGreater(plan["predicted_seconds"], 0.004)
                segments.assert_told(self, self.service.address, 2049, segments.execution_of(strategy, world, flags))
                self.attend(*job, "--verify", "128")


if __name__ == "__main__":
    unittest.main()
