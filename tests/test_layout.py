"""Rules about the tree itself: who imports whom, what is packaged, what must not be written."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import tidemill

REPO = Path(__file__).resolve().parents[1]
ROOTS = {"tidemill": REPO, "tidemill_hdl": REPO / "hdl", "tidemill_sim": REPO / "sim"}
#: Endings of the files that a wheel carries.
KINDS = (".py", ".vlt", ".sv")


def sources(package):
    return sorted((ROOTS[package] / package).rglob("*.py"))


def imports(path):
    """Names of the modules a file imports, `from a import b` as both a and a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def offenders(paths, pattern):
    found = re.compile(pattern)
    return sorted(
        {
            f"{p.relative_to(REPO)} imports {name}"
            for p in paths
            for name in imports(p)
            if found.match(name)
        }
    )


def test_hardware_files_keep_their_annotations():
    """With postponed annotations an Amaranth struct is zero bits wide, without an error."""
    assert offenders(sources("tidemill_hdl"), r"__future__\.annotations") == []


def test_no_old_amaranth():
    """What 0.6 removes, some of it without a warning in 0.5."""
    old = r"amaranth\.(hdl\.)?(Memory|Record)$|amaranth\.hdl\.rec|amaranth\.lib\.(coding|scheduler)"
    assert offenders([p for package in ROOTS for p in sources(package)], old) == []


def test_contract_knows_nobody():
    """chip, isa and numerics import nothing of ours but each other."""
    files = [REPO / "tidemill" / f"{name}.py" for name in ("chip", "isa", "numerics")]
    assert (
        offenders(files, r"tidemill(_hdl|_sim|\.(?!chip\b|isa\b|numerics\b))|amaranth|cocotb") == []
    )


def test_hardware_does_not_know_the_toolchain():
    assert offenders(sources("tidemill_hdl"), r"tidemill_sim|tidemill\.(compiler|model|cli)") == []


def test_compiler_and_models_know_neither_hardware_nor_engines():
    files = [
        p for p in sources("tidemill") if p.relative_to(REPO).parts[1] in ("compiler", "model")
    ]
    assert offenders(files, r"tidemill_(hdl|sim)|amaranth|cocotb|torch|tidemill\.cli") == []


def test_run_time_needs_no_development_package():
    paths = [p for package in ROOTS for p in sources(package)]
    assert offenders(paths, r"(sentencepiece|torch|pytest|hypothesis|yowasp)") == []


def test_nobody_imports_the_command_line():
    paths = [p for package in ROOTS for p in sources(package) if p.stem not in ("cli", "__main__")]
    assert offenders(paths, r"tidemill\.cli") == []


def test_every_folder_of_a_package_is_a_package():
    for package in ROOTS:
        for path in sources(package):
            assert (path.parent / "__init__.py").is_file(), f"{path.parent} lacks __init__.py"


def test_every_module_says_what_it_is():
    for package in ROOTS:
        for path in sources(package):
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} lacks a docstring"


def test_dependencies_carry_a_reason():
    """One dependency a line, each with a comment that says why it is there."""
    text = (REPO / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    for dependency in [*project["dependencies"], *extras]:
        assert re.search(rf'^    "{re.escape(dependency)}", +# \S', text, re.M), dependency


def test_executables_are_executable():
    for name in ("check", ".ci/run"):
        path = REPO / name
        assert os.access(path, os.X_OK), name
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0, name


GOALS = ("venv", "venv-train", "demo", "test", "check", "clean", "distclean", "help")


@pytest.mark.parametrize("goal", GOALS)
def test_make_knows_its_goals(goal):
    done = subprocess.run(
        ["make", "-n", goal], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_make_refuses_an_old_python(tmp_path):
    """The first thing a newcomer meets on an old machine must be a sentence."""
    old = tmp_path / "oldpython"
    # Claims to be 3.9 to whatever `python -c` asks.
    old.write_text(
        f"#!{sys.executable}\n"
        "import collections, sys\n"
        "V = collections.namedtuple('V', 'major minor micro releaselevel serial')\n"
        "sys.version_info = V(3, 9, 2, 'final', 0)\n"
        "exec(sys.argv[2])\n"
    )
    old.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}", "venv"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert re.search(r"needs Python 3\.11 or newer, and .* is 3\.9", done.stderr)


@pytest.mark.slow
def test_wheel_holds_the_packages_and_nothing_else(tmp_path):
    """Built from a copy, without network."""
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "sim_build")
    for name in ("tidemill", "hdl", "sim", "tests", "train"):
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, source / name, ignore=ignore)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"tidemill-{tidemill.__version__}-")
    with zipfile.ZipFile(wheel) as z:
        held = {n for n in z.namelist() if n.endswith(KINDS)}
    want = {
        str(p.relative_to(root))
        for name, root in ROOTS.items()
        for p in (root / name).rglob("*")
        if p.name.endswith(KINDS)
    }
    assert held == want
