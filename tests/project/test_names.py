"""Check that names lead to one thing each: "go to class" has one answer."""

import ast
from collections import defaultdict
from pathlib import Path

import gateway

ROOT = Path(gateway.__file__).parent


def public_classes():
    """Yield the name and the module of each public top-level class of the package."""
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, str(path.relative_to(ROOT))


def test_class_name_is_unique_in_the_package():
    places = defaultdict(list)
    for name, module in public_classes():
        places[name].append(module)
    assert len(places) > 300
    assert {name: sorted(modules) for name, modules in places.items() if len(modules) > 1} == {}
