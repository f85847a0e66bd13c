"""The CUDA toolkit as @cuda, where there is one.

It is looked for in $CUDA_HOME (environment or --repo_env), else in /usr/local/cuda. Without a toolkit, or with
CUDA_HOME=none, HAVE_CUDA of @cuda//:defs.bzl is False and everything of CUDA is left out of the build.
"""

_DEFAULT_HOME = "/usr/local/cuda"

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Linked statically, so that binaries start where there is neither a toolkit nor a driver.
cc_library(
    name = "cudart",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**"]),
    includes = ["include"],
    linkopts = ["-L{home}/lib64", "-l:libcudart_static.a", "-ldl", "-lrt", "-pthread"],
)
"""

_DEFS = """
HAVE_CUDA = {have}
CUDA_HOME = "{home}"
NVCC_VERSION = "{version}"

def if_cuda(with_cuda, without_cuda = []):
    return with_cuda if HAVE_CUDA else without_cuda
"""

def _home(repository_ctx):
    asked = repository_ctx.os.environ.get("CUDA_HOME", "")
    if asked == "none":
        return None
    home = repository_ctx.path(asked or _DEFAULT_HOME)
    if home.get_child("bin").get_child("nvcc").exists:
        return home
    if asked:
        fail("CUDA_HOME is %s, where there is no bin/nvcc; CUDA_HOME=none builds without CUDA" % asked)
    return None

def _version(repository_ctx, home):
    result = repository_ctx.execute([str(home) + "/bin/nvcc", "--version"])
    if result.return_code != 0:
        fail("nvcc --version: " + result.stderr)
    return result.stdout.strip().split("\n")[-1]

def _cuda_toolkit_impl(repository_ctx):
    home = _home(repository_ctx)
    if home == None:
        repository_ctx.file("BUILD", "")
        repository_ctx.file("defs.bzl", _DEFS.format(have = False, home = "", version = ""))
        return
    repository_ctx.symlink(home.get_child("include"), "include")
    repository_ctx.file("BUILD", _BUILD.format(home = home))
    repository_ctx.file(
        "defs.bzl",
        _DEFS.format(have = True, home = home, version = _version(repository_ctx, home)),
    )

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    configure = True,
    environ = ["CUDA_HOME"],
    local = True,
)
