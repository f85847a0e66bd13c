"""Specs and executions that cannot be served are refused at every entry, before a tensor byte moves."""

import math
import unittest

from tests.end_to_end.harness import cluster, raw_client
from tests.end_to_end.harness.raw_client import attention_pb2, jobs_pb2, types_pb2
from tests.end_to_end.harness.raw_job import Job
from tests.end_to_end.harness.service_case import ServiceCase

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


def attend(stubs, spec, execution, timeout):
    with raw_client.Attend(stubs, timeout) as call:
        call.start(spec, execution)
        call.accepted()


def attend_inline(stubs, spec, execution, timeout):
    inputs = attention_pb2.SyntheticInputs(seed=1)
    request = attention_pb2.AttendInlineRequest(spec=spec, execution=execution, synthetic=inputs)
    raw_client.call(stubs.attention.AttendInline, request, timeout)


def run_job(stubs, spec, execution, timeout):
    request = jobs_pb2.RunJobRequest(spec=spec, execution=execution)
    with raw_client.Stream(stubs.jobs.RunJob, timeout, request) as call:
        event = call.read()
        # A job of many rows is planned beside others: it waits, placed nowhere, until its plan is refused.
        while event and event.state_changed.state in (jobs_pb2.Job.STATE_QUEUED, jobs_pb2.Job.STATE_FAILED):
            event = call.read()
        raise AssertionError(f"taken: {event}")


def plan_job(stubs, spec, execution, timeout):
    request = jobs_pb2.PlanJobRequest(spec=spec, execution=execution)
    raw_client.call(stubs.jobs.PlanJob, request, timeout)


ENTRIES = (attend, run_job, plan_job, attend_inline)


class BadInputTest(ServiceCase):
    FLAGS = cluster.SLOW

    def refused(self, change, code, reason, field=None, execution=None, **options):
        """Every entry of `entries` refuses a good spec after `change`, in the same words."""
        spec = types_pb2.AttentionSpec()
        spec.CopyFrom(Job([(8, 8)]).spec)
        if change is not None:
            change(spec)
        for entry in options.get("entries", ENTRIES):
            with self.subTest(entry=entry.__name__):
                with self.assertRaises(raw_client.CallError) as caught:
                    entry(self.stubs, spec, execution, options.get("timeout", 30))
                inside = "start." if entry is attend else ""
                fields = [inside + field] if field else []
                self.assert_refused(caught.exception, code, reason, *fields)

    def invalid(self, reason, field, **values):
        """INVALID_ARGUMENT for each field of `values` set in the spec."""

        def change(spec):
            for name, value in values.items():
                setattr(spec, name, value)

        self.refused(change, "INVALID_ARGUMENT", reason, field)

    def invalid_length(self, reason, q_len, kv_len, field):
        def change(spec):
            spec.sequences.add(q_len=q_len, kv_len=kv_len)

        self.refused(change, "INVALID_ARGUMENT", reason, field)

    def test_zero_dims(self):
        self.invalid("DIM_OVERFLOW", "spec.q_heads", q_heads=0)
        self.invalid("DIM_OVERFLOW", "spec.kv_heads", kv_heads=0)
        self.invalid("DIM_OVERFLOW", "spec.head_dim", head_dim=0)

    def test_negative_dims(self):
        for field in ("q_heads", "kv_heads", "head_dim", "head_dim_v"):
            self.invalid("DIM_OVERFLOW", f"spec.{field}", **{field: -1})
            self.invalid("DIM_OVERFLOW", f"spec.{field}", **{field: -(2**31)})
        self.invalid_length("DIM_OVERFLOW", -1, 8, "spec.sequences[1].q_len")
        self.invalid_length("DIM_OVERFLOW", 8, -(2**63), "spec.sequences[1].kv_len")

    def test_overflowing_dims(self):
        # The sum passes 2^63 - 1; then only the product of rows does.
        self.invalid_length("DIM_OVERFLOW", MAX_INT64, 8, "spec.sequences[1].q_len")
        self.invalid_length("DIM_OVERFLOW", 2**40, 2**40, "spec.sequences")

    def test_dims_past_a_limit(self):
        self.invalid("LIMIT_EXCEEDED", "spec.head_dim", head_dim=257)
        self.invalid("LIMIT_EXCEEDED", "spec.q_heads", q_heads=MAX_INT32)
        self.invalid_length("LIMIT_EXCEEDED", 1, 2**27, "spec.sequences")

    def test_query_heads_are_no_multiple_of_key_heads(self):
        self.invalid("SHAPE_MISMATCH", "spec.q_heads", q_heads=4, kv_heads=3)

    def test_no_sequence(self):
        def change(spec):
            del spec.sequences[:]

        self.refused(change, "INVALID_ARGUMENT", "SHAPE_MISMATCH", "spec.sequences")

    def test_no_dtype(self):
        self.invalid("UNSUPPORTED_DTYPE", "spec.dtype", dtype=types_pb2.DATA_TYPE_UNSPECIFIED)

    def test_a_dtype_that_is_not_served(self):
        def change(spec):
            spec.dtype = types_pb2.DATA_TYPE_FP8_E4M3

        self.refused(change, "UNIMPLEMENTED", "NOT_SERVED", "spec.dtype")

    def test_unknown_enums_of_a_spec(self):
        def alignment(spec):
            spec.masks.add(causal=True, alignment=99)

        def kind(spec):
            spec.masks.add().ranges.add(q_end=1, k_end=1, kind=77)

        self.invalid("UNKNOWN_ENUM", "spec.dtype", dtype=99)
        self.invalid("UNKNOWN_ENUM", "spec.out_dtype", out_dtype=-1)
        self.refused(alignment, "INVALID_ARGUMENT", "UNKNOWN_ENUM", "spec.masks[0].alignment")
        self.refused(kind, "INVALID_ARGUMENT", "UNKNOWN_ENUM", "spec.masks[0].ranges[0].kind")

    def test_unknown_enums_of_an_execution(self):
        for field in ("strategy", "layout"):
            execution = types_pb2.Execution(**{field: 99})
            path = f"execution.{field}"
            self.refused(None, "INVALID_ARGUMENT", "UNKNOWN_ENUM", path, execution)

    def test_a_scale_that_is_no_number(self):
        for scale in (math.nan, math.inf, -math.inf, 1e300, 1e20, -1e-20):
            self.invalid("INVALID_SCALE", "spec.scale", scale=scale)

    def test_masks_out_of_range(self):
        def left(spec):
            spec.masks.add(window_left=-1)

        def chunk(spec):
            spec.masks.add(chunk=0)

        def index(spec):
            spec.sequences[0].mask = 3

        self.refused(left, "INVALID_ARGUMENT", "INVALID_MASK", "spec.masks[0].window_left")
        self.refused(chunk, "INVALID_ARGUMENT", "INVALID_MASK", "spec.masks[0].chunk")
        self.refused(index, "INVALID_ARGUMENT", "INVALID_MASK", "spec.sequences[0].mask")

    def test_a_bias_and_a_bit_mask_of_wrong_heads_or_type(self):
        def bit_heads(spec):
            spec.masks.add(bit_mask=True)
            spec.bit_mask_heads = 3

        def heads(spec):
            spec.modifiers.bias.heads = 3

        def dtype(spec):
            spec.modifiers.bias.dtype = types_pb2.DATA_TYPE_FP8_E4M3

        self.refused(bit_heads, "INVALID_ARGUMENT", "SHAPE_MISMATCH", "spec.bit_mask_heads")
        self.refused(heads, "INVALID_ARGUMENT", "SHAPE_MISMATCH", "spec.modifiers.bias.heads")
        self.refused(dtype, "INVALID_ARGUMENT", "UNSUPPORTED_DTYPE", "spec.modifiers.bias.dtype")

    def test_the_gradient_of_a_bias_that_is_not_there(self):
        def change(spec):
            spec.gradients.d_bias = True

        entries = (attend, run_job, plan_job)
        self.refused(
            change, "INVALID_ARGUMENT", "INVALID_MODIFIER", "spec.gradients.d_bias", entries=entries
        )

    def test_a_tensor_larger_than_the_budgets(self):
        def change(spec):  # 512 GiB of keys.
            spec.q_heads = spec.kv_heads = 64
            spec.head_dim = 256
            spec.sequences[0].kv_len = 2**23

        entries = (attend, run_job, plan_job)
        self.refused(change, "FAILED_PRECONDITION", "INSUFFICIENT_CAPACITY", entries=entries)

    def test_more_inline_than_is_taken(self):
        def change(spec):
            spec.sequences[0].kv_len = 2**20

        entries = (attend_inline,)
        self.refused(change, "INVALID_ARGUMENT", "LIMIT_EXCEEDED", "spec.sequences", entries=entries)

    def test_an_impossible_deadline(self):
        def change(spec):  # 2^37 pairs and 384 MiB: it fits, and takes many minutes.
            spec.q_heads, spec.kv_heads, spec.head_dim = 32, 1, 32
            spec.sequences[0].q_len = spec.sequences[0].kv_len = 2**16

        self.refused(
            change, "DEADLINE_EXCEEDED", "DEADLINE_UNREACHABLE", entries=(attend, run_job), timeout=10
        )

    def test_more_ranks_than_ready_workers(self):
        execution = types_pb2.Execution(world_size=self.WORKERS + 1)
        path = "execution.world_size"
        self.refused(None, "FAILED_PRECONDITION", "INSUFFICIENT_WORKERS", path, execution)

    def test_a_world_size_out_of_range(self):
        path = "execution.world_size"
        execution = types_pb2.Execution(world_size=-1)
        self.refused(None, "INVALID_ARGUMENT", "INVALID_EXECUTION", path, execution)
        execution = types_pb2.Execution(world_size=MAX_INT32)
        self.refused(None, "INVALID_ARGUMENT", "LIMIT_EXCEEDED", path, execution)

    def test_a_way_to_run_that_is_not_served(self):
        strategy = types_pb2.Execution.STRATEGY_ROTATE_KV
        for field in ("bf16_partials", "timeline"):
            execution = types_pb2.Execution(world_size=2, strategy=strategy, **{field: True})
            self.refused(None, "UNIMPLEMENTED", "NOT_SERVED", f"execution.{field}", execution)

    def test_outputs_that_this_operation_does_not_have(self):
        def gradients(spec):
            spec.gradients.SetInParent()
            spec.outputs.max_logit = True

        self.refused(
            gradients,
            "UNIMPLEMENTED",
            "NOT_SERVED",
            "spec.outputs",
            entries=(attend, run_job, plan_job),
        )

    def test_a_strategy_that_this_job_cannot_use(self):
        def deterministic(spec):  # These two would add in an order of their own.
            spec.deterministic = True

        for strategy in (types_pb2.Execution.STRATEGY_TREE, types_pb2.Execution.STRATEGY_RING_PASS_Q):
            execution = types_pb2.Execution(world_size=2, strategy=strategy)
            self.refused(deterministic, "UNIMPLEMENTED", "NOT_SERVED", "execution.strategy", execution)

    def test_a_layout_that_this_job_cannot_use(self):
        def sequences(spec):
            del spec.sequences[:]
            for _ in range(1025):
                spec.sequences.add(q_len=1, kv_len=1)

        def windows(spec):  # A row sees one window; 257 of them stand side by side.
            del spec.sequences[:]
            for _ in range(257):
                spec.sequences.add(q_len=4, kv_len=4)
            spec.masks.add(causal=True, window_left=1)

        for change, layout in (
            (sequences, types_pb2.Execution.LAYOUT_ZIGZAG_PER_SEQUENCE),
            (windows, types_pb2.Execution.LAYOUT_STRIPED),
        ):
            execution = types_pb2.Execution(world_size=2, layout=layout)
            self.refused(change, "INVALID_ARGUMENT", "LIMIT_EXCEEDED", "execution.layout", execution)

    def test_inline_numbers_of_another_shape_than_the_spec(self):
        job = Job([(3, 5), (2, 0)])
        for name in ("q", "k", "v"):
            for reason, path, change in (
                ("SHAPE_MISMATCH", "shape", lambda tensor: tensor.shape.__setitem__(0, 4)),
                ("SHAPE_MISMATCH", "shape", lambda tensor: tensor.shape.pop()),
                ("TENSOR_BYTES_MISMATCH", "values", lambda tensor: tensor.values.pop()),
                ("TENSOR_BYTES_MISMATCH", "values", lambda tensor: tensor.values.append(0)),
            ):
                request = attention_pb2.AttendInlineRequest(spec=job.spec)
                for known, (_, values) in zip("qkv", job.inputs()):
                    getattr(request.tensors, known).shape.extend(values.shape)
                    getattr(request.tensors, known).values.extend(values.ravel())
                change(getattr(request.tensors, name))
                with self.subTest(tensor=name, reason=reason):
                    with self.assertRaises(raw_client.CallError) as caught:
                        raw_client.call(self.stubs.attention.AttendInline, request, 30)
                    self.assert_refused(caught.exception, "INVALID_ARGUMENT", reason, f"tensors.{name}.{path}")

    def test_a_refused_job_asks_for_no_payload(self):
        """A caller that does not wait for `accepted` has sent next to nothing when it is refused."""
        job = Job([(8, 2**16)], head_dim=64)
        spec, chunks, taken = job.spec, list(job.chunks()), 0
        spec.scale = math.nan

        def requests():
            nonlocal taken
            yield attention_pb2.AttendRequest(start=attention_pb2.AttendRequest.Start(spec=spec))
            while taken < 16 * len(chunks):
                taken += 1
                yield attention_pb2.AttendRequest(chunks=[chunks[taken % len(chunks)]])

        with self.assertRaises(raw_client.CallError) as caught:
            with raw_client.Stream(self.stubs.attention.Attend, 60, requests()) as call:
                call.read()
        self.assert_refused(caught.exception, "INVALID_ARGUMENT", "INVALID_SCALE", "start.spec.scale")
        # The transport's windows hold this much; the rest of about 1 GiB stayed with the caller.
        self.assertLess(taken, 64)


if __name__ == "__main__":
    unittest.main()
