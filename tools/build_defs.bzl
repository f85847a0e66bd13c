"""The project's C++ rules: native ones with our warnings, and a rule for protos.

Tags that a test may carry are explained in docs/explanation/testing.md: asan, tsan, fuzz, bench, manual, exclusive.
"""

ANNULUS_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]

# For sources with AVX-512 bf16 products. Without contraction, two separate operations are rounded
# twice in every file that includes them.
AVX512_BF16_COPTS = [
    "-ffp-contract=off",
    "-mavx512f",
    "-mavx512dq",
    "-mavx512bw",
    "-mavx512vl",
    "-mavx512bf16",
]

def annulus_cc_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = ANNULUS_COPTS + copts, **kwargs)

def annulus_cc_binary(name, copts = [], **kwargs):
    native.cc_binary(name = name, copts = ANNULUS_COPTS + copts, **kwargs)

def annulus_cc_test(name, copts = [], deps = [], size = "small", main = True, **kwargs):
    """A GoogleTest. With main = False it brings its own main().

    Its own sources are compiled with -O1, in two thirds of the time of -O2; what they test is not.
    """
    gtest = "@system//:gtest_main" if main else "@system//:gtest"
    native.cc_test(
        name = name,
        size = size,
        copts = ANNULUS_COPTS + ["-O1"] + copts,
        deps = deps + [gtest],
        **kwargs
    )

def annulus_proto_library(name, srcs, deps = [], grpc = False, visibility = None):
    """Generated C++ of protos, compiled as it comes: without our warnings and uninstrumented.

    Args:
      name: the cc_library; NAME_messages has no stubs and links no gRPC (for what runs under TSan); NAME_files is a filegroup of
        the .proto files for those that import them.
      srcs: .proto files below //proto, imported as their path below it ("annulus/v1/types.proto").
      deps: annulus_proto_library targets whose protos these import.
      grpc: whether the files have services; stubs (x.grpc.pb.h) are made for every one of them.
      visibility: as everywhere.
    """
    if not native.package_name().startswith("proto"):
        fail("protos live below //proto")
    below = native.package_name()[len("proto"):].strip("/")
    prefix = below + "/" if below else ""
    stems = [src[:-len(".proto")] for src in srcs]
    messages = [stem + ".pb" for stem in stems]
    stubs = [stem + ".grpc.pb" for stem in stems] if grpc else []
    generated = [stem + suffix for stem in messages + stubs for suffix in (".h", ".cc")]
    native.filegroup(
        name = name + "_files",
        srcs = srcs + [dep + "_files" for dep in deps],
        visibility = visibility,
    )
    grpc_flags = "--grpc_out=$(GENDIR)/proto --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin "
    native.genrule(
        name = name + "_generate",
        srcs = [":" + name + "_files"],
        outs = generated,
        cmd = "protoc -Iproto --cpp_out=$(GENDIR)/proto " +
              (grpc_flags if grpc else "") + " ".join([prefix + src for src in srcs]),
        message = "Generating C++ of " + name,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name + "_messages",
        srcs = [stem + ".cc" for stem in messages],
        hdrs = [stem + ".h" for stem in messages],
        copts = ["-w"],
        strip_include_prefix = "/proto",
        deps = [dep + "_messages" for dep in deps] + ["@system//:protobuf"],
        visibility = visibility,
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".cc" for stem in stubs],
        hdrs = [stem + ".h" for stem in stubs],
        copts = ["-w"],
        strip_include_prefix = "/proto",
        deps = [":" + name + "_messages"] + deps + (["@system//:grpcpp"] if grpc else []),
        visibility = visibility,
    )

def annulus_fuzz_test(name, srcs, deps, runs, copts = [], **kwargs):
    """A libFuzzer target with a bounded run: `runs` inputs from a fixed seed.

    It builds only with --config=fuzz, where tools/test runs it, so `manual` keeps it out of //... .
    """
    native.cc_test(
        name = name,
        size = "medium",
        srcs = srcs,
        args = [
            "-runs=%d" % runs,
            "-seed=1",
            "-max_len=4096",
            "-rss_limit_mb=2048",
            "-timeout=20",
            "-print_final_stats=1",
        ],
        copts = ANNULUS_COPTS + copts,
        linkopts = ["-fsanitize=fuzzer"],
        tags = [
            "fuzz",
            "manual",
        ],
        deps = deps,
        **kwargs
    )

def annulus_py_test(name, main, data = [], args = [], size = "small", **kwargs):
    """The unittest cases of the Python file `main`, run with the pinned tools of .venv.

    Imports start at the workspace ("from tests.end_to_end.harness import cluster"); what is imported is in
    data. @python_tools has grpcurl, kubectl and kubernetes-validate for data.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tools/testing:py_test.sh"],
        args = ["%s/%s" % (native.package_name(), main)] + args,
        data = data + [
            main,
            "//tools:requirements.txt",
            "//tools/testing:unittest_xml.py",
            "@python_tools//:python",
        ],
        **kwargs
    )
