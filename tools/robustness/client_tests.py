"""huggingface_hub's own tests against `unknot hub serve`: which pass, and a reason for each that does not.

The tests are those of a checkout of huggingface_hub with the package that belongs to them. They run unchanged: what
they send to huggingface.co or its test host goes to a server started here.

    python tools/robustness/client_tests.py CHECKOUT --json results.json
"""

import argparse
import collections
import contextlib
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

SERVE = "import sys; from unknot.cli import main; sys.exit(main(sys.argv[1:]))"
HOSTS = ("hub-ci.huggingface.co", "huggingface.co")
FILES = (
    *("auth", "cache_layout", "cache_no_symlinks", "cli", "cli_discussions", "commit_scheduler", "copy_files"),
    *("file_download", "hf_api", "hf_file_system", "hub_mixin", "hub_mixin_pytorch", "repocard", "snapshot_download"),
)
"""Files whose tests ask a hub for repositories; the others of the checkout send it nothing."""
OUTSIDE = {
    "data sets, Spaces and kernels": r"models only|/(datasets|spaces|kernels)[/?]|datasets-server|DuckDB|::TestSpace",
    "other services: buckets, collections, likes, followers, papers, inference": r"/api/(buckets|collections|users)|"
    r"/api/(organizations|papers|model|settings)/|/likers|/like\b|/catalog",
    "pull requests and discussions": r"no pull requests;|create_pr=1|/discussions|refs%2Fpr",
    "gated repositories": r"no setting gated|/user-access-request",
    "repositories of huggingface.co": r"(?m)^4\d\d huggingface\.co |https://huggingface\.co/|Production::",
}
"""Needs of tests that a hub for models does not meet: patterns in the name, message and requests of a test."""
REASONS = {
    "File names that some systems cannot hold are refused": r"422 .*/preupload/|/preupload/main. \(Request",
    "Small files travel inside the commit, not before it": r"'regular' == 'lfs'|_is_uploaded",
    "Large files go by LFS, not by xet": r"::test_xet",
    "A .gitignore in the repository is not applied; ignore_patterns of the client is": r"gitignore",
    "Users have one name, without a full name beside it": r"Dummy User",
    "Organisations have no setting that makes new repositories private": r"private_by_default",
    "Old contents are dropped by squashing a branch, not one by one": r"/lfs-files",
    "Names of licenses in a card are not checked": r"test_validate_repocard",
    "Refused as the test expects, in other words": r"test_create_commit_(conflict|repo_does_not_exist)",
}
"""Reasons of tests of model repositories that do not pass, found in the same way."""


class Recorder:
    """A pytest plugin that sends requests to a server and keeps requests and outcome of each test.

    Args:
        port: of the server, on this machine.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.tests: dict[str, dict[str, Any]] = collections.defaultdict(
            lambda: {"outcome": "passed", "requests": [], "message": ""}
        )
        self._requests: list[str] = []

    @contextlib.contextmanager
    def redirected(self) -> Iterator[None]:
        """Send what goes to the Hub's hosts to the server instead, under the name of the host."""
        import httpx

        handle = httpx.HTTPTransport.handle_request

        def redirect(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
            if request.url.host not in HOSTS:
                self._requests.append(f"{request.method} {request.url.copy_with(query=None)}")
                return handle(transport, request)
            headers = [*request.headers.raw, (b"x-forwarded-proto", request.url.scheme.encode())]
            url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self.port)
            response = handle(
                transport,
                httpx.Request(
                    request.method, url, headers=headers, stream=request.stream, extensions=request.extensions
                ),
            )
            address = f"{request.url.host} {request.method} {request.url.raw_path.decode()}"
            self._requests.append(f"{response.status_code} {address}")
            return response

        httpx.HTTPTransport.handle_request = redirect  # type: ignore[method-assign]
        try:
            yield
        finally:
            httpx.HTTPTransport.handle_request = handle  # type: ignore[method-assign]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what a phase of a test came to."""
        test = self.tests[report.nodeid]
        test["requests"] += self._requests
        self._requests.clear()
        if report.outcome != "passed" and test["outcome"] == "passed":
            crash = getattr(report.longrepr, "reprcrash", None)
            test["outcome"] = "error" if report.outcome == "failed" and report.when != "call" else report.outcome
            test["message"] = (crash.message if crash else str(report.longrepr))[:2000]


@contextlib.contextmanager
def served(constants: dict[str, Any]) -> Iterator[int]:
    """Serve a new hub with the users of the tests, and give its port."""
    lines = [f"{constants[f'{who}USER']} {constants[f'{who}TOKEN']}\n" for who in ("", "OTHER_", "ENTERPRISE_")]
    lines += ["valid_org: {USER}\n".format(**constants), "{ENTERPRISE_ORG}: {ENTERPRISE_USER}\n".format(**constants)]
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.txt"
        tokens.write_text("".join(lines))
        tokens.chmod(0o600)
        words = [sys.executable, "-c", SERVE, "hub", "serve", f"{folder}/hub", "--port", "0", "--tokens", str(tokens)]
        for host in HOSTS:
            words += ["--name", host]
        environment = {name: text for name, text in os.environ.items() if name != "HUGGINGFACE_CO_STAGING"}
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert server.stdout is not None
            yield int(re.findall(r"\d+", server.stdout.readline())[-1])
        finally:
            server.terminate()
            server.wait(30)


def run(checkout: Path, selection: list[str]) -> dict[str, dict[str, Any]]:
    """Run the tests of a checkout and give what each came to."""
    os.environ |= {"HUGGINGFACE_CO_STAGING": "1", "HF_TOKEN": "", "HF_HUB_DISABLE_XET": "1"}
    os.chdir(checkout)
    sys.path[:0] = [str(checkout / "src"), str(checkout)]
    files = [f"tests/test_{name}.py" for name in FILES]
    with served(runpy.run_path(str(checkout / "tests" / "testing_constants.py"))) as port:
        recorder = Recorder(port)
        with recorder.redirected():
            options = [
                "-q",
                "--continue-on-collection-errors",
                "-p",
                "no:cacheprovider",
                "-o",
                "addopts=",
                "--tb=short",
                "--no-summary",
                "-m",
                "not inference",
            ]
            pytest.main([*options, *(selection or files)], plugins=[recorder])
    return dict(recorder.tests)


def sort(tests: Mapping[str, dict[str, Any]]) -> tuple[list[str], dict[str, list[str]], dict[str, list[str]]]:
    """Return the tests that asked the hub and passed, and those that did not pass by what they need or by reason."""
    passed: list[str] = []
    outside: dict[str, list[str]] = collections.defaultdict(list)
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for name, test in tests.items():
        if test["outcome"] in ("passed", "skipped"):
            if test["outcome"] == "passed" and any(re.match(r"\d+ ", line) for line in test["requests"]):
                passed.append(name)
            continue
        text = "\n".join([name, test["message"], *test["requests"]])
        needs = next((need for need, pattern in OUTSIDE.items() if re.search(pattern, text)), None)
        reason = next((reason for reason, pattern in REASONS.items() if re.search(pattern, text)), test["message"])
        (reasons[" ".join(reason.split())[:200]] if needs is None else outside[needs]).append(name)
    return passed, outside, reasons


def page(tests: Mapping[str, dict[str, Any]]) -> str:
    """Return the results as Markdown, each test that did not pass under its reason."""
    passed, outside, reasons = sort(tests)
    failed, rest = (sum(map(len, groups.values())) for groups in (reasons, outside))
    lines = [f"{len(passed)} of {len(passed) + failed} tests of model repositories pass.", ""]
    lines += [_group(*group) for group in sorted(reasons.items(), key=lambda group: -len(group[1]))]
    lines += ["", f"{rest} tests need what this hub does not have:", ""]
    lines += [_group(*group) for group in sorted(outside.items(), key=lambda group: -len(group[1]))]
    return "\n".join(lines)


def _group(title: str, tests: list[str]) -> str:
    names = [name.removeprefix("tests/test_").replace(".py::", ": ", 1).replace("::", ".") for name in tests]
    return "\n".join([f"* **{title}** ({len(tests)})", *(f"  * {name}" for name in names)])


def main() -> None:
    """Run the tests and write what they came to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="of huggingface_hub")
    parser.add_argument(
        "--select", nargs="+", default=[], help="files or tests of it (default: all about repositories)"
    )
    parser.add_argument("--json", type=Path, default=Path("client_tests.json"), help="where the results go")
    parser.add_argument("--read", action="store_true", help="print what is in the file, and run nothing")
    options = parser.parse_args()
    target = options.json.resolve()
    if not options.read:
        target.write_text(json.dumps(run(options.checkout.resolve(), options.select), indent=1))
    print(page(json.loads(target.read_text())))


if __name__ == "__main__":
    main()
