"""A second C++ toolchain, clang 14, beside the default one (g++).

The sanitizer and thread-safety variants choose it with --crosstool_top, so that switching variants
neither reconfigures nor rebuilds the default one.
"""

load("@bazel_tools//tools/cpp:lib_cc_configure.bzl", "get_cpu_value")
load("@bazel_tools//tools/cpp:unix_cc_configure.bzl", "configure_unix_toolchain")

def _clang_toolchain_impl(repository_ctx):
    clang = repository_ctx.which("clang-14")
    if clang == None:
        fail("clang-14 is not installed; run tools/setup")
    configure_unix_toolchain(repository_ctx, get_cpu_value(repository_ctx), {"gcc": str(clang)})

clang_toolchain = repository_rule(
    implementation = _clang_toolchain_impl,
    configure = True,
    local = True,
)
