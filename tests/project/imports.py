"""The import rules of the package (design section 3), checked on syntax trees: nothing is imported to be checked.

Every import counts: inside functions, under TYPE_CHECKING, relative ones, and `import_module` as far as it is spelled
out.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "deviceplugin"

# Highest first. A part imports itself and the parts of lower layers; parts of one layer never import each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"cli"}),
    frozenset({"app"}),
    frozenset({"observe", "kubelet", "mps", "health", "driver", "simulator", "cdi"}),
    frozenset({"allocation", "planning"}),
    frozenset({"config"}),
    frozenset({"model"}),
    frozenset({"errors"}),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

# Modules and packages that only the named parts may import: what is behind them can then be replaced in one place.
RESTRICTED: dict[str, frozenset[str]] = {
    "pynvml": frozenset({"driver"}),
    "yaml": frozenset({"config"}),
    "watchdog": frozenset({"app"}),
    "prometheus_client": frozenset({"observe"}),
    "grpc": frozenset({"kubelet", "simulator"}),
    "google": frozenset({"kubelet", "simulator"}),
    f"{PACKAGE}.stubs": frozenset({"kubelet", "simulator"}),
}

# The middle of the product is pure: no I/O, no clock, no threads, no chance.
PURE = frozenset({"model", "planning", "allocation"})
IMPURE = frozenset(
    {"asyncio", "ctypes", "datetime", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"}
    | {"selectors", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "urllib"}
)
IMPURE_CALLS = frozenset({"open", "print", "input"})


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name as it can be resolved without running it: `deviceplugin.model.plan.Mode`, `os`."""

    target: str
    line: int


def module_name(path: Path, root: Path) -> str:
    """The dotted name of the module in `path`, a file below `root`: `deviceplugin.model` for `__init__.py`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[Import]:
    """Every import in a syntax tree, `from x import a, b` as `x.a` and `x.b`, relative ones resolved."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(f"{origin}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and _called(node.func) in {"import_module", "__import__"}:
            yield Import(_named_at_run_time(node.args), node.lineno)


def _named_at_run_time(arguments: list[ast.expr]) -> str:
    """What `import_module(...)` imports: a literal, or an f-string that at least names the part; `?` when unknown."""
    match arguments:
        case [ast.Constant(value=str(name)), *_]:
            return name
        case [ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]), *_] if start.count(".") > 1:
            return start.rpartition(".")[0]
    return "?"


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _within(target: str, name: str) -> bool:
    return target == name or target.startswith(name + ".")


def part_of(module: str) -> str | None:
    """The part a module belongs to: `driver` for `deviceplugin.driver.nvml`; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What one module does against the rules, each as `module:line: what, and which rule`.

    Args:
        source: the text of the module.
        module: its dotted name.
        is_package: whether it is an `__init__.py`, which relative imports start from.
    """
    tree = ast.parse(source)
    part = part_of(module)
    found: list[tuple[int, str]] = []
    if part == "stubs":
        return []
    if part is not None and part not in LEVEL and part != "__main__":
        found.append((1, f"{part} is a part that LAYERS does not name: give it its place"))
    for imported in imports_of(tree, module, is_package):
        found += [(imported.line, problem) for problem in _problems(imported.target, part)]
    if part in PURE:
        found += [
            (node.lineno, f"{part} is pure, but calls {_called(node.func)}()")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
        ]
    return [f"{module}:{line}: {problem}" for line, problem in sorted(set(found))]


def _problems(target: str, part: str | None) -> Iterator[str]:
    if target == "?":
        yield "imports a name that is only known when it runs: write it out"
        return
    for name, parts in RESTRICTED.items():
        if _within(target, name) and part not in parts:
            yield f"imports {name}, which only {' and '.join(sorted(parts))} may"
    if _within(target, PACKAGE):
        yield from _direction(part, part_of(target))
    elif part in PURE and (top := target.partition(".")[0]) in IMPURE:
        yield f"{part} is pure, but imports {top}"


def _direction(part: str | None, other: str | None) -> Iterator[str]:
    """Whether `part` may import `other`. The package itself (its version) is below everything, `__main__` above."""
    if other is None or other == part or other not in LEVEL or part == "__main__":
        return
    if part is None:
        yield f"the package itself imports {other}: it is what every part may import"
    elif part in LEVEL and LEVEL[other] == LEVEL[part]:
        yield f"{part} imports its sibling {other}: let app wire them through a Protocol"
    elif part in LEVEL and LEVEL[other] < LEVEL[part]:
        yield f"{part} imports {other}, which lies above it"


def third_party(source: str, module: str, *, is_package: bool = False) -> frozenset[str]:
    """The top-level modules that a module imports from neither the standard library nor the package."""
    tops = {imported.target.split(".")[0] for imported in imports_of(ast.parse(source), module, is_package)}
    return frozenset(tops - sys.stdlib_module_names - {PACKAGE, "?"})
