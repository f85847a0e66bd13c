"""deploy/smoke.sh holds against a service that answers right, and fails against each wrong answer.

The service here is canned: it proves the script. tests/deploy/smoke_test.py runs the script against Annulus.
"""

import concurrent.futures
import os
import subprocess
import unittest

import grpc
from google.protobuf import any_pb2
from grpc_reflection.v1alpha import reflection

from tools.testing import proto_stubs

proto_stubs.load()
from annulus.v1 import attention_pb2, attention_pb2_grpc  # noqa: E402
from annulus.v1 import jobs_pb2_grpc, types_pb2  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402


class Canned(
    attention_pb2_grpc.AttentionServicer, jobs_pb2_grpc.JobsServicer, health_pb2_grpc.HealthServicer
):
    """Answers what smoke.sh expects, but for what `wrong` names."""

    def __init__(self, wrong=""):
        self.wrong = wrong
        self.calls = 0

    def Check(self, request, context):
        serving = self.wrong != "health"
        return health_pb2.HealthCheckResponse(status=1 if serving else 2)

    def GetServerInfo(self, request, context):
        info = attention_pb2.ServerInfo(ready=self.wrong != "ready")
        info.capabilities.add(feature="mask/causal", served=True)
        return info

    def AttendInline(self, request, context):
        self.calls += 1
        answer = attention_pb2.AttendInlineResponse()
        if request.HasField("tensors"):
            answer.out.shape[:] = [1, 1, 2]
            answer.out.values[:] = [2, 5 if self.wrong == "output" else 4]
            answer.lse.shape[:] = [1, 1, 1]
            answer.lse.values[:] = [0.7 if self.wrong == "lse" else 0.6931472]
        else:
            same = self.wrong == "constant digest"
            answer.out_crc32c = 17 if same else request.synthetic.seed
            if self.wrong == "changing digest":
                answer.out_crc32c = self.calls
        return answer

    def PlanJob(self, request, context):
        if request.spec.q_heads % request.spec.kv_heads and self.wrong != "takes all":
            self.refuse(context)
        plan = types_pb2.Plan()
        if self.wrong != "no shards":
            plan.shards.add(rank=0)
        plan.predicted_time.FromMilliseconds(3)
        return plan

    def refuse(self, context):
        reason = "SOMETHING" if self.wrong == "reason" else "SHAPE_MISMATCH"
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="annulus.v1"))
        code = grpc.StatusCode.INTERNAL if self.wrong == "code" else grpc.StatusCode.INVALID_ARGUMENT
        status = status_pb2.Status(code=code.value[0], message="q_heads 3", details=[detail])
        context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
        context.abort(code, "q_heads 3")


class SmokeTest(unittest.TestCase):
    def smoke(self, wrong="", reflect=True, **variables):
        """Exit code and output of the script against a canned service."""
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
        canned = Canned(wrong)
        attention_pb2_grpc.add_AttentionServicer_to_server(canned, server)
        jobs_pb2_grpc.add_JobsServicer_to_server(canned, server)
        health_pb2_grpc.add_HealthServicer_to_server(canned, server)
        names = [
            "annulus.v1.Attention",
            "annulus.v1.Jobs",
            "grpc.health.v1.Health",
            reflection.SERVICE_NAME,
        ]
        if reflect:
            reflection.enable_server_reflection(names, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            done = subprocess.run(
                ["deploy/smoke.sh", f"127.0.0.1:{port}"],
                env=dict(os.environ, GRPCURL="external/python_tools/grpcurl", **variables),
                capture_output=True,
                text=True,
                timeout=100,
            )
        finally:
            server.stop(grace=None).wait()
        return done.returncode, done.stdout + done.stderr

    def test_all_holds_against_right_answers(self):
        code, output = self.smoke()
        self.assertEqual(code, 0, output)
        self.assertIn("7 of 7 hold", output)

    def test_one_check_fails_for_each_wrong_answer(self):
        for wrong in (
            "health",
            "ready",
            "output",
            "lse",
            "constant digest",
            "changing digest",
            "no shards",
            "takes all",
            "reason",
            "code",
        ):
            with self.subTest(wrong=wrong):
                code, output = self.smoke(wrong)
                self.assertEqual(code, 1, output)
                self.assertIn("6 of 7 hold", output)

    def test_flags_of_the_caller_replace_plaintext_also_when_there_are_none(self):
        code, output = self.smoke(GRPCURL_FLAGS="-plaintext -max-msg-sz 100000")
        self.assertEqual(code, 0, output)
        code, output = self.smoke(GRPCURL_FLAGS="")  # TLS, which the service does not speak.
        self.assertEqual(code, 1, output)
        self.assertIn("tls", output.lower())

    def test_it_fails_where_nothing_is_described_or_nothing_listens(self):
        code, output = self.smoke(reflect=False)
        self.assertEqual(code, 1, output)
        done = subprocess.run(
            ["deploy/smoke.sh", "127.0.0.1:1"],
            env=dict(os.environ, GRPCURL="external/python_tools/grpcurl"),
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(done.returncode, 1, done.stdout)


if __name__ == "__main__":
    unittest.main()
