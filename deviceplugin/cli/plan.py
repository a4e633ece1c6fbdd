"""`plan`: what a config makes of this node, and what would change in the plugin that runs here now."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deviceplugin.cli.words import render_left_out
from deviceplugin.config.load import load_config
from deviceplugin.config.model import Config, HeldPolicy
from deviceplugin.config.settings import Settings, add_flags, go_style, settings_from
from deviceplugin.driver import open_driver
from deviceplugin.errors import ConfigError
from deviceplugin.model.held import Held
from deviceplugin.model.node import Snapshot
from deviceplugin.model.plan import Plan
from deviceplugin.model.words import counted
from deviceplugin.observe.status_socket import StatusUnavailable, read_status
from deviceplugin.planning.build import build
from deviceplugin.planning.explain import WINDOW, difference, explain
from deviceplugin.planning.transition import transition

Document = dict[str, Any]

NO_DIFFERENCE, ERRORS, DIFFERENCES = 0, 1, 3


def run(words: list[str]) -> int:
    """The command; takes the flags and variables of `serve`, so that it plans what `serve` would.

    Returns:
        0: planned, and nothing differs from what a running plugin has in force (or none runs); 3: something does;
        1: the config or the driver is refused, or `serve` would not start with it.
    """
    parser = argparse.ArgumentParser(prog="gpu-device-plugin plan", description=__doc__, allow_abbrev=False)
    parser.usage = "%(prog)s [FILE] [--output text|json] [flags of serve]"
    parser.add_argument("config", nargs="?", metavar="FILE", help="the config file (as --config-file); - is stdin")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default %(default)s")
    add_flags(parser)
    options = parser.parse_args(go_style(words))
    settings = settings_from(options, os.environ)
    for warning in settings.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    try:
        snapshot, config, plan = _plan(settings, options.config or settings.config_file)
    except ConfigError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return ERRORS
    document = explain(snapshot, config, plan)
    running = _running(Path(settings.status_socket))
    changes = [] if running is None else _changes(document, running["plan"])
    waits = [] if running is None else _waits(snapshot, plan, running)
    if options.output == "json":
        compared = {"running": running is not None, "changes": changes, "waits": waits}
        print(json.dumps({**document, **compared}, indent=2))
    else:
        print("\n".join(render(document)))
        print("\n".join(_render_changes(running is not None, changes, waits, config.transition)))
    if _ends_a_start(document):
        return ERRORS
    return DIFFERENCES if changes else NO_DIFFERENCE


def _plan(settings: Settings, config_file: str | None) -> tuple[Snapshot, Config, Plan]:
    config = load_config(config_file, settings.overrides, lenient=settings.lenient)
    driver = open_driver(settings.driver, container_driver_root=config.flags.container_driver_root)
    try:
        snapshot = driver.snapshot()
    finally:
        driver.close()
    return snapshot, config, build(snapshot, config)


def _running(status_socket: Path) -> Document | None:
    """The status of the plugin that runs here; None when none answers."""
    try:
        return read_status(status_socket)
    except StatusUnavailable:
        return None


def _changes(document: Document, in_force: Document | None) -> list[str]:
    if in_force is None:
        return [f"+ {resource['name']}: nothing is in force yet" for resource in document["resources"]]
    return difference(document, in_force)


def _waits(snapshot: Snapshot, plan: Plan, running: Document) -> list[str]:
    """What of the plan would wait for pods that hold devices now."""
    held = Held({one["name"]: frozenset(one["held"]) for one in running["resources"]})
    waits = [f"{item.what}; for {item.waits_for}" for item in transition({}, plan, held, snapshot=snapshot).waiting]
    if because := running["held_unknown_because"]:
        waits.append(f"whatever withdraws a device; for knowledge of what pods hold: {because}")
    return waits


def _render_changes(running: bool, changes: list[str], waits: list[str], policy: HeldPolicy) -> Iterator[str]:
    if not running:
        yield "no running plugin answers here: nothing to compare with"
        return
    if not changes:
        yield "the running plugin has exactly this in force"
    else:
        yield "the running plugin would change:"
        yield from (f"  {change}" for change in changes)
        yield f"  ({WINDOW})"
    if waits:
        refused = bool(changes) and policy is HeldPolicy.REFUSE
        yield (
            "refused, since sharing.transition is refuse and pods hold:" if refused else "waits until pods have ended:"
        )
        yield from (f"  {wait}" for wait in waits)


def render(document: Mapping[str, Any]) -> Iterator[str]:
    """The plan as lines for people."""
    node, config = document["node"], document["config"]
    if _ends_a_start(document):
        yield "`serve` would not start with this, since failOnInitError is true:"
        yield from (f"  {problem}" for problem in document["layout_problems"])
    yield (
        f"node: {counted(node['gpus'], 'GPU')}, driver {node['driver_version'] or 'unknown'}; "
        f"config: {config['source'] or 'none (defaults)'}, migStrategy {config['migStrategy']}"
    )
    if not document["resources"]:
        yield "resources: none"
    for resource in document["resources"]:
        yield from _render_resource(resource)
    yield from render_left_out(document["left_out"])
    if document["layout_problems"] and not _ends_a_start(document):
        yield "MIG layouts that the strategy can't offer:"
        yield from (f"  {line}" for line in document["layout_problems"])
    if document["warnings"]:
        yield "warnings:"
        yield from (f"  {line}" for line in document["warnings"])
    if document["nvidia_otherwise"]:
        yield "what NVIDIA's plugin does otherwise with this config:"
        yield from (f"  {one['key']}: {one['nvidia']}" for one in document["nvidia_otherwise"])


def _ends_a_start(document: Mapping[str, Any]) -> bool:
    return bool(document["layout_problems"]) and document["config"]["failOnInitError"]


def _render_resource(resource: Mapping[str, Any]) -> Iterator[str]:
    isolation = resource["isolation"]
    devices = counted(resource["devices"], "device")
    yield f"{resource['name']}: {devices}, {resource['mode']}, by {resource['origin']}"
    yield (
        f"    isolates memory: {isolation['memory']}, faults: {isolation['faults']}, time: {isolation['time']}"
        f" ({isolation['why']})"
    )
    for unit in resource["units"]:
        what = unit["profile"] or "GPU"
        replicas = f", {unit['replicas']} replicas" if unit["replicas"] else ""
        if share := unit["mps"]:
            replicas += f", {share['memory_mib']}M and {share['active_thread_percentage']} % for each process"
        health = "" if unit["health"] == "Healthy" else f", {unit['health']}: {unit['reason']}"
        yield f"    {what} {unit['index']} {unit['uuid']} ({unit['product_name'] or 'unknown'}){replicas}{health}"
    yield from (f"    note: {note}" for note in resource["notes"])
