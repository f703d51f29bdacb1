"""Three modules of this room touch files; all others are pure, and none brings a heavy package along."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import audition.checkpoint

ROOM = Path(audition.checkpoint.__file__).parent
EDGES = {"header", "locate", "reader"}
EFFECTS = {
    "os",
    "io",
    "pathlib",
    "time",
    "random",
    "socket",
    "subprocess",
    "sys",
    "shutil",
    "tempfile",
    "logging",
    "asyncio",
    "stat",
    "json",
}


def imported(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module if node.module.startswith("audition.") else node.module.split(".")[0])
    return names


def test_only_the_edges_touch_anything() -> None:
    modules = {module.stem: imported(module) for module in ROOM.glob("*.py")}
    assert set(modules) >= EDGES | {"facts", "predict", "findings", "kv"}
    edges = {"audition.plain_file", *(f"audition.checkpoint.{name}" for name in EDGES)}
    for name, names in modules.items():
        if name not in EDGES:
            assert names & EFFECTS == set(), name
            assert names & edges == set(), name


def test_the_room_imports_no_third_party_package() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import audition.checkpoint.reader, audition.checkpoint.findings, audition.checkpoint.compare\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(new))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['audition']"
