"""Debian's libraries as Bazel targets: @system//:NAME, one cc_library for each.

Flags come from pkg-config; headers come from the compiler's default search path.
"""

# Target name -> pkg-config modules.
_PKG_CONFIG_LIBRARIES = {
    "crypto": ["libcrypto"],
    "gmock": ["gmock"],
    "gtest": ["gtest", "gmock"],
    "gtest_main": ["gmock_main", "gmock", "gtest"],
    "isal": ["libisal"],
    "protobuf": ["protobuf"],
    "spdlog": ["spdlog", "fmt"],
    # All that the project uses of Abseil. The locks (absl_synchronization) are not among them:
    # ours are in base/mutex.h.
    "absl": [
        "absl_algorithm_container",
        "absl_any_invocable",
        "absl_bits",
        "absl_btree",
        "absl_cleanup",
        "absl_cord",
        "absl_fixed_array",
        "absl_flat_hash_map",
        "absl_flat_hash_set",
        "absl_function_ref",
        "absl_hash",
        "absl_inlined_vector",
        "absl_int128",
        "absl_optional",
        "absl_random_random",
        "absl_span",
        "absl_status",
        "absl_statusor",
        "absl_str_format",
        "absl_strings",
        "absl_time",
    ],
    "grpcpp": ["grpc++", "protobuf", "absl_status"],
}

# Libraries without a pkg-config file: target name -> (linkopts, targets that it needs).
_PLAIN_LIBRARIES = {
    "cli11": ([], []),
    "gloo": (["-lgloo"], []),
    "grpcpp_reflection": (["-lgrpc++_reflection"], [":grpcpp"]),
    "nlohmann_json": ([], []),
}

_CC_LIBRARY = """
cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
    deps = {deps},
    visibility = ["//visibility:public"],
)
"""

def _pkg_config(repository_ctx, modules):
    command = ["pkg-config", "--cflags", "--libs"] + modules
    result = repository_ctx.execute(command)
    if result.return_code != 0:
        fail("pkg-config %s: %s\nRun tools/setup first." % (" ".join(modules), result.stderr))
    return [flag for flag in result.stdout.strip().split(" ") if flag]

def _from_pkg_config(repository_ctx, name, modules):
    flags = _pkg_config(repository_ctx, modules)
    linkopts = []
    for flag in flags:
        if flag.startswith("-l") or flag.startswith("-L") or flag.startswith("-pthread"):
            if flag not in linkopts:
                linkopts.append(flag)
    defines = [flag[2:] for flag in flags if flag.startswith("-D")]
    return _CC_LIBRARY.format(name = name, defines = repr(defines), linkopts = repr(linkopts), deps = "[]")

def _system_libraries_impl(repository_ctx):
    build = ""
    for name, modules in _PKG_CONFIG_LIBRARIES.items():
        build += _from_pkg_config(repository_ctx, name, modules)
    for name, (linkopts, deps) in _PLAIN_LIBRARIES.items():
        build += _CC_LIBRARY.format(name = name, defines = "[]", linkopts = repr(linkopts), deps = repr(deps))
    repository_ctx.file("BUILD", build)

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    configure = True,
    local = True,
)
