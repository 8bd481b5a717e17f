"""Commands whose reader stops reading end quietly, with the exit code of their own."""

import json
import subprocess
import sys

import pytest

RELEASE = {
    "format": "dpjax-release",
    "version": 1,
    "model": {"kind": "binomial"},
    "records": 57,
    "scaling": None,
    "statistics": {"successes": 20.0},
    "mechanism": {"kind": "laplace", "scale": 10.0},
}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["check", "release.json"], 0), (["fit", "--help"], 0), (["check", "impossible.json"], 1)],
)
@pytest.mark.parametrize("unbuffered", [True, False])
def test_reader_that_is_gone(arguments, code, unbuffered, tmp_path):
    (tmp_path / "release.json").write_text(json.dumps(RELEASE))
    (tmp_path / "impossible.json").write_text(json.dumps(RELEASE | {"statistics": {"successes": 1e6}}))
    command = [sys.executable, *(["-u"] if unbuffered else []), "-m", "dpjax", *arguments]
    made = tmp_path / "made.json"
    if arguments[0] == "check":
        command += ["--json", str(made)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    process.stdout.close()  # before anything is written
    said = process.stderr.read()
    assert process.wait() == code
    assert "Broken" not in said and "Traceback" not in said and "Exception" not in said
    assert said.count("\n") == (code == 1)
    assert made.exists() == (arguments[0] == "check")
