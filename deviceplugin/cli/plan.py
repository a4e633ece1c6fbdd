"""`plan`: what a config makes of this node, and what would change in the plugin that runs here now."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deviceplugin.app.acceptance import newly_waiting
from deviceplugin.app.in_force import InForce, in_force
from deviceplugin.cli.words import holders, render_left_out
from deviceplugin.config.load import load_config
from deviceplugin.config.model import Config, HeldPolicy
from deviceplugin.config.settings import Settings, add_flags, go_style, settings_from
from deviceplugin.driver import open_driver
from deviceplugin.errors import ConfigError
from deviceplugin.model.node import Snapshot
from deviceplugin.model.offer import Waiting
from deviceplugin.model.plan import Plan
from deviceplugin.model.words import counted
from deviceplugin.observe.status_socket import StatusUnavailable, read_status
from deviceplugin.planning.build import build
from deviceplugin.planning.explain import WINDOW, difference, explain, unhealthy
from deviceplugin.planning.identity import remember
from deviceplugin.planning.transition import transition

Document = dict[str, Any]

NO_DIFFERENCE, ERRORS, DIFFERENCES, REFUSED = 0, 1, 3, 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """A plan beside the plugin that runs here.

    Attributes:
        running: whether one answers.
        changes: what would change in it.
        waits: the changes that would wait for pods; those that the plan is refused for, where it is.
        refused: `sharing.transition` is refuse and something new would wait: then nothing changes.
        unhealthy: what is Unhealthy in the running plugin. No config decides that, so that it is no change.
    """

    running: bool = False
    changes: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    refused: bool = False
    unhealthy: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """What the command ends with."""
        if self.refused:
            return REFUSED
        return DIFFERENCES if self.changes else NO_DIFFERENCE


def run(words: list[str]) -> int:
    """The command; takes the flags and variables of `serve`, so that it plans what `serve` would.

    Returns:
        0: planned, and nothing differs from what a running plugin has in force (or none runs); 3: something does;
        4: the running plugin would refuse it now, since pods hold what it changes (`sharing.transition: refuse`);
        1: the config or the driver is refused, or `serve` would not start with it.
    """
    parser = argparse.ArgumentParser(
        prog="gpu-device-plugin plan",
        description=__doc__,
        epilog="exit status: 0 nothing would change, or no plugin runs here; 3 something would; 4 the plugin would "
        "refuse it now, since sharing.transition is refuse and pods hold what it changes; 1 the config or the driver "
        "is refused; 2 wrong usage",
        allow_abbrev=False,
    )
    parser.usage = "%(prog)s [FILE] [--output text|json] [flags of serve]"
    parser.add_argument("config", nargs="?", metavar="FILE", help="the config file (as --config-file); - is stdin")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default %(default)s")
    add_flags(parser)
    options = parser.parse_args(go_style(words))
    settings = settings_from(options, os.environ)
    for warning in settings.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    running = _running(Path(settings.status_socket))
    try:
        snapshot, config, plan = _plan(settings, options.config or settings.config_file, running)
    except ConfigError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return ERRORS
    document = explain(snapshot, config, plan)
    compared = Comparison() if running is None else _compare(document, snapshot, config, plan, running)
    if options.output == "json":
        print(json.dumps({**document, **asdict(compared)}, indent=2))
    else:
        print("\n".join(render(document)))
        print("\n".join(_render_comparison(compared)))
    return ERRORS if _ends_a_start(document) else compared.exit_status


def _running(status_socket: Path) -> Document | None:
    """The status of the plugin that runs here; None when none answers."""
    try:
        return read_status(status_socket)
    except StatusUnavailable:
        return None


def _plan(settings: Settings, config_file: str | None, running: Document | None) -> tuple[Snapshot, Config, Plan]:
    config = load_config(config_file, settings.overrides, lenient=settings.lenient)
    driver = open_driver(settings.driver, container_driver_root=config.flags.container_driver_root)
    try:
        snapshot = driver.snapshot()
    finally:
        driver.close()
    if running is not None:
        # A GPU that is lost by now is the same to the running plugin, which knew it before.
        snapshot = remember(in_force(running).snapshot, snapshot)
    return snapshot, config, build(snapshot, config)


def _compare(document: Document, snapshot: Snapshot, config: Config, plan: Plan, running: Document) -> Comparison:
    if running["plan"] is None:
        changes = [f"+ {resource['name']}: nothing is in force yet" for resource in document["resources"]]
        return Comparison(running=True, changes=tuple(changes))
    now = in_force(running)
    step = transition(now.offers, plan, now.held, snapshot=snapshot)
    told = tuple(unhealthy(running["plan"]))
    if config.transition is HeldPolicy.REFUSE and (waits := newly_waiting(step, now.waiting)):
        return Comparison(running=True, waits=_in_words(waits, now), refused=True, unhealthy=told)
    changes = difference(document, running["plan"])
    return Comparison(running=True, changes=tuple(changes), waits=_in_words(step.waiting, now), unhealthy=told)


def _in_words(waits: Iterable[Waiting], now: InForce) -> tuple[str, ...]:
    """Each change with those who hold what it takes away; or why nobody knows who does."""
    known = not now.held.unknown_because
    return tuple(f"{one.what}; {holders(one.ids, now.held.pods) if known else f'for {one.waits_for}'}" for one in waits)


def _render_comparison(compared: Comparison) -> Iterator[str]:
    if not compared.running:
        yield "no running plugin answers here: nothing to compare with"
        return
    if compared.refused:
        yield "refused: sharing.transition is refuse, and these changes would have to wait; nothing would change:"
        yield from (f"  {wait}" for wait in compared.waits)
        yield "  end these pods, then edit the file or send the plugin SIGHUP; or set sharing.transition to drain"
    else:
        yield from _render_changes(compared)
    if compared.unhealthy:
        yield "Unhealthy in the running plugin, which is not compared, since no config decides it:"
        yield from (f"  {line}" for line in compared.unhealthy)


def _render_changes(compared: Comparison) -> Iterator[str]:
    if compared.changes:
        yield "the running plugin would change:"
        yield from (f"  {change}" for change in compared.changes)
        yield f"  ({WINDOW})"
    else:
        yield "the running plugin has exactly this in force: nothing would change"
    if compared.waits:
        yield "waits until pods have ended:"
        yield from (f"  {wait}" for wait in compared.waits)


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
