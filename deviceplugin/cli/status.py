"""`status`: what the running plugin offers, to whom and why; `--ready` and `--live` for exec probes."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deviceplugin.cli.words import by_pod, render_left_out
from deviceplugin.config.settings import DEFAULT_STATUS_SOCKET
from deviceplugin.model.ids import unit_of
from deviceplugin.model.words import counted
from deviceplugin.observe.status_socket import StatusUnavailable, read_status

Document = dict[str, Any]


def run(words: list[str]) -> int:
    """The command.

    Returns:
        0; 1 when no plugin answers, or when `--ready` or `--live` asks and the answer is no.
    """
    parser = argparse.ArgumentParser(prog="gpu-device-plugin status", description=__doc__)
    parser.add_argument(
        "--status-socket",
        default=os.environ.get("STATUS_SOCKET") or DEFAULT_STATUS_SOCKET,
        help="the running plugin's status socket (env STATUS_SOCKET, default %(default)s)",
    )
    probe = parser.add_mutually_exclusive_group()
    probe.add_argument(
        "--ready",
        action="store_true",
        help="exit 0 if config and driver are there and every resource is registered, but for one that waits for its "
        "first MPS control daemon; else 1",
    )
    probe.add_argument("--live", action="store_true", help="exit 0 unless the process hangs and must be restarted")
    probe.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(words)
    try:
        document = read_status(Path(options.status_socket))
    except StatusUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    if options.live:
        return _probe(document["live"])
    if options.ready:
        return _probe(document["ready"], _unserved(document))
    if options.output == "json":
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(render(document)))
    return 0


def _probe(verdict: Document, notes: Iterable[str] = ()) -> int:
    if verdict["ok"]:
        print("\n".join(["ok", *notes]))
        return 0
    print("\n".join(verdict["reasons"]), file=sys.stderr)
    return 1


def render(document: Document) -> Iterator[str]:
    """The document as lines for people: what is wrong first, then GPUs, resources, what waits, what is left out."""
    plugin = document["plugin"]
    yield f"gpu-device-plugin {plugin['version']}, pid {plugin['pid']}, since {plugin['started_at']}"
    ready = document["ready"]
    yield ("ready" if ready["ok"] else "NOT READY") + _but(document)
    yield from (f"  {reason}" for reason in (*document["live"]["reasons"], *ready["reasons"]))
    yield from _render_config(document["config"])
    yield from _render_gpus(document)
    yield from _render_health(document["health"])
    yield from _render_resources(document)
    yield from _render_mps(document)
    if changes := [item for item in document["waiting"] if item["ids"]]:
        yield "waiting:"
        yield from (f"  {item['what']}: waits for {item['waits_for']}" for item in changes)
    plan = document["plan"] or {}
    if plan.get("left_out"):
        yield from render_left_out(plan["left_out"])
    if plan.get("warnings"):
        yield "warnings:"
        yield from (f"  {warning}" for warning in plan["warnings"])


def _but(document: Document) -> str:
    """What a reader of the first lines must not miss."""
    broken = sum(bool(gpu["problem"]) for gpu in document["gpus"])
    found = ["the newest config is REFUSED"] if document["config"]["refused"] else []
    found += [f"{counted(broken, 'GPU')} with a PROBLEM"] if broken else []
    ill = sum(not unit["healthy"] for unit in document["health"]["units"])
    found += [f"{ill} UNHEALTHY"] if ill and not broken else []
    found += ["the driver is RELEASED"] if document["health"]["released"] else []
    unserved = sum(not resource["served"] for resource in document["resources"])
    found += [f"{counted(unserved, 'resource')} NOT REGISTERED"] if unserved else []
    changes = sum(bool(item["ids"]) for item in document["waiting"])
    found += [f"{counted(changes, 'change')} waiting"] if changes else []
    return f", but: {', '.join(found)}" if found else ""


def _render_config(config: Document) -> Iterator[str]:
    if config["loaded_at"]:
        yield f"config in force: {config['source'] or 'none (defaults)'}, loaded {config['loaded_at']}"
    else:
        yield "config in force: none"
    if config["refused"]:
        yield f"config REFUSED at {config['refused']['at']}:"
        yield from (f"  {problem}" for problem in config["refused"]["problems"])
    yield from (f"  config does not fit this node: {problem}" for problem in config["plan_problems"])
    yield from (f"  warning: {warning}" for warning in config["warnings"])


def _render_gpus(document: Document) -> Iterator[str]:
    driver = document["driver"]
    if driver["node_without_gpus"]:
        yield "GPUs: none, and no driver: a node without GPUs"
        return
    yield f"GPUs (driver {driver['version'] or 'unknown'}):"
    if driver["problem"]:
        yield f"  the driver does not answer: {driver['problem']}"
    offered = _offered(document["plan"] or {})
    draining = _draining(document)
    for gpu in document["gpus"]:
        trouble = f"  PROBLEM: {gpu['problem']}" if gpu["problem"] else ""
        what = "; ".join(offered.get(gpu["uuid"], ["offered as nothing"]))
        if still := draining.get(gpu["uuid"]):
            what = f"DRAINING {'; '.join(still)}; then: {what}"
        yield f"  {gpu['index']:>2}  {gpu['product_name'] or '?'}  {gpu['uuid'] or '(no UUID)'}  {what}{trouble}"


def _render_health(health: Document) -> Iterator[str]:
    """What is wrong, with when it began; what only warns; what the driver reported of nothing that it lists."""
    if health["released"]:
        yield "the driver is RELEASED to the operator; `gpu-device-plugin release --end` takes it up again"
    if health["events_problem"]:
        yield f"events of the driver are not heard, GPUs are looked at only: {health['events_problem']}"
    if health["unknown_events"]:
        yield f"{counted(health['unknown_events'], 'event')} of the driver named no device that it lists"
    for unit in health["units"]:
        for cause in unit["causes"]:
            again = f", {cause['times']} times" if cause["times"] > 1 else ""
            yield f"  UNHEALTHY {unit['uuid']}: {cause['signal']}, since {cause['since']}{again}"
        if unit["causes"]:
            yield f"    awaited: {unit['awaited']} (quiet for {unit['quiet_for_s']:.0f} s)"
        yield from (f"  warning {unit['uuid']}: {warning}" for warning in unit["warnings"])


def _offered(plan: Document) -> dict[str, list[str]]:
    """GPU UUID -> what it is offered as: `nvidia.com/gpu.shared, 4 replicas`."""
    units: dict[str, dict[str, list[int]]] = {}
    for resource in plan.get("resources", []):
        for unit in resource["units"]:
            units.setdefault(unit["gpu_uuid"], {}).setdefault(resource["name"], []).append(max(1, unit["replicas"]))
    return {
        gpu: [f"{name} x{sum(devices)}" if sum(devices) > 1 else name for name, devices in names.items()]
        for gpu, names in units.items()
    }


def _draining(document: Document) -> dict[str, list[str]]:
    """GPU UUID -> what pods still hold of it on terms that go away: `nvidia.com/gpu.shared (time-slicing, 2 held)`."""
    gpus = {one["uuid"]: gpu["uuid"] for gpu in document["gpus"] for one in gpu["mig_instances"]}
    resources = {resource["name"]: resource for resource in document["resources"]}
    known = not document["held_unknown_because"]
    found: dict[str, list[str]] = {}
    for item in document["waiting"]:
        units = {unit_of(device_id) for device_id in item["ids"]}
        for gpu in sorted({gpus.get(unit, unit) for unit in units}):
            resource = resources[item["resource"]]
            terms = [resource["terms"][one]["mode"] for one in item["ids"] if one in resource["terms"]]
            mode = terms[0] if terms else resource["mode"]
            held = f"{len(item['ids'])} held" if known else f"{len(item['ids'])} held or not, which is not known"
            found.setdefault(gpu, []).append(f"{item['resource']} ({mode}, {held})")
    return found


def _unserved(document: Document) -> Iterator[str]:
    """The resources that the kubelet does not know of, and what each awaits."""
    for resource in document["resources"]:
        if not resource["served"]:
            yield f"{resource['name']}: {resource['mode']}, NOT REGISTERED, awaiting {resource['awaiting']}"


def _render_resources(document: Document) -> Iterator[str]:
    yield "resources:" if document["resources"] else "resources: none"
    if document["held_unknown_because"]:
        yield f"  what pods hold is not known: {document['held_unknown_because']}"
    yield from (f"  {line}" for line in _unserved(document))
    for resource in (one for one in document["resources"] if one["served"]):
        unknown = document["held_unknown_because"] and not resource["held"]
        held = "held: unknown" if unknown else f"{len(resource['held'])} held"
        state = "registered" if resource["registered"] and resource["stream_open"] else "NOT REGISTERED"
        yield (
            f"  {resource['name']}: {resource['mode']}, {resource['healthy']} of {resource['capacity']} healthy, "
            f"{held}, {state}" + ("" if resource["planned"] else ", going away")
        )
        yield from _render_holders(resource)
        for key in ("last_error", "conflict"):
            if resource.get(key):
                yield f"      {key.replace('_', ' ')}: {resource[key]}"
        for reason, count in _reasons(resource["unhealthy"]).items():
            yield f"      {count} unhealthy: {reason}"


def _render_holders(resource: Document) -> Iterator[str]:
    """The pods that hold devices of it, with the ids; ids that no running pod is known for come last."""
    for pod, ids in by_pod(resource["held"], resource["pods"]).items():
        draining = (
            " (to be freed: " + resource["name"] + " gives it up)" if set(ids) & set(resource["draining"]) else ""
        )
        yield f"      held by {pod}: {', '.join(ids)}{draining}"


def _render_mps(document: Document) -> Iterator[str]:
    """The control daemons, by what the MPS supervisor says that it does, and the clients that wait for a server."""
    if not document.get("mps"):
        return
    yield "MPS control daemons, as their supervisor says:"
    shared = [one for one in (document["plan"] or {}).get("resources", []) if one["mode"] == "mps"]
    yield from (f"  note: {note}" for note in dict.fromkeys(note for one in shared for note in one["notes"]))
    for gpu in document["mps"]:
        kept = gpu["supervisor"]
        if kept is None:
            yield f"  {gpu['daemon']}: no MPS supervisor says anything of it; {gpu['problem'] or 'it serves'}"
            continue
        state = "serves" if kept["serves"] else "DOES NOT SERVE"
        runs = f"pid {kept['pid']} since {kept['since']}, {kept['limits']}" if kept["pid"] else "no process"
        restarts = f", {counted(kept['restarts'], 'restart')}" if kept["restarts"] else ""
        yield f"  {kept['daemon']}: {state}, {runs}{restarts}"
        if kept["problem"]:
            yield f"      {kept['problem']}"
        for one in kept["waiting"]:
            process = f"process {one['pid']}" if one["pid"] else "a process"
            yield f"      WAITS for a server: {process} of user {one['uid']}, since {one['since']}"
        if kept["advice"]:
            yield f"      {kept['advice']}"


def _reasons(unhealthy: dict[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in unhealthy.values():
        counts[reason] = counts.get(reason, 0) + 1
    return counts
