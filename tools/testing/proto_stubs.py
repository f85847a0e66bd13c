"""Plain generated Python stubs of the protos below proto/, made when first asked for.

    from tools.testing import proto_stubs
    proto_stubs.load("annulus/v1/attention.proto")
    from annulus.v1 import attention_pb2, attention_pb2_grpc

The test lists the proto files' filegroups in its data.
"""

import os
import sys
import tempfile


def load(*protos, root="proto"):
    """Generates stubs of `protos` and of every proto below `root`, and makes them importable.

    Raises RuntimeError when the compiler refuses them or a wanted one is missing.
    """
    import grpc
    from grpc_tools import protoc

    found = []
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            if name.endswith(".proto"):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    missing = sorted(set(protos) - set(found))
    if missing:
        raise RuntimeError(f"not below {root}: {missing}")
    out = tempfile.mkdtemp(prefix="stubs-", dir=os.environ.get("TEST_TMPDIR"))
    well_known = os.path.join(os.path.dirname(protoc.__file__), "_proto")
    code = protoc.main(
        ["protoc", f"-I{root}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}"]
        + sorted(found)
    )
    if code != 0:
        raise RuntimeError(f"protoc ended with {code}")
    sys.path.insert(0, out)
    # grpc.health.v1 lies below the package of grpcio, which is no namespace.
    grpc.__path__.append(os.path.join(out, "grpc"))
    return out
