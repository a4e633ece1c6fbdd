"""The document behind `plan`."""

import json
from dataclasses import replace

from deviceplugin.config.model import Config, DeviceFilter, DeviceIdStrategy, MigStrategy, SelectIndex
from deviceplugin.model.health import HealthReport
from deviceplugin.model.node import Link, PcieLevel
from deviceplugin.model.plan import AllocationPolicy, Mode
from deviceplugin.planning.build import build
from deviceplugin.planning.explain import Document, difference, explain
from deviceplugin.planning.nvidia import otherwise
from tests.planning.nodes import A100, config, entry, gpu, indices, node, plain, uuid

MPS = Mode.MPS
WHOLE, HEALTHY = config(), HealthReport()


def document(chosen: Config = WHOLE, count: int = 2, health: HealthReport = HEALTHY) -> Document:
    """The document of some T4s."""
    return explain(plain(count), chosen, build(plain(count), chosen, health))


def test_it_is_json_and_says_what_each_resource_is() -> None:
    chosen = config(entry(4, *indices(1)), entry(8, *indices(2), mode=MPS))
    found = document(chosen, 3, HealthReport({uuid(1): "Xid 79"}))
    assert json.loads(json.dumps(found)) == found
    assert found["version"] == 1
    facts = {one["name"]: (one["mode"], one["devices"], one["healthy"]) for one in found["resources"]}
    assert facts == {
        "nvidia.com/gpu": ("exclusive", 1, 1),
        "nvidia.com/gpu.mps": ("mps", 8, 8),
        "nvidia.com/gpu.shared": ("time-slicing", 4, 0),
    }
    isolation = {
        one["mode"]: [one["isolation"][key] for key in ("memory", "faults", "time")] for one in found["resources"]
    }
    assert isolation == {
        "exclusive": ["hardware", "hardware", "hardware"],
        "mps": ["limited", "no", "limited"],
        "time-slicing": ["no", "no", "no"],
    }
    shared = found["resources"][2]
    assert (shared["units"][0]["gpu_index"], shared["units"][0]["reason"]) == (1, "Xid 79")
    assert shared["largest_replicas"] > 50_000
    assert found["resources"][0]["largest_replicas"] is None


def test_each_unit_has_the_index_by_which_the_config_selects_it() -> None:
    snapshot = node(gpu(0), gpu(1, A100, "3g.20gb", "1g.5gb"))
    chosen = config(strategy=MigStrategy.MIXED)
    found = explain(snapshot, chosen, build(snapshot, chosen))
    assert {one["name"]: [unit["index"] for unit in one["units"]] for one in found["resources"]} == {
        "nvidia.com/gpu": ["0"],
        "nvidia.com/mig-1g.5gb": ["1:1"],
        "nvidia.com/mig-3g.20gb": ["1:0"],
    }


def test_a_huge_count_is_counted_without_making_devices() -> None:
    chosen = config(entry(4))
    plan = build(plain(1), chosen)
    (resource,) = plan.resources
    huge = replace(resource, units=(replace(resource.units[0], replicas=10**9),))
    assert explain(plain(1), chosen, replace(plan, resources=(huge,)))["resources"][0]["devices"] == 10**9


def test_advisory_mps_limits_are_said() -> None:
    shared = entry(4, mode=MPS)
    assert "advisory" in document(config(shared, refuse=False))["resources"][0]["notes"][-1]
    enforced = document(config(shared, refuse=True))["resources"][0]
    assert not any("advisory" in note for note in enforced["notes"])
    assert enforced["units"][0]["mps"] == {
        "memory_mib": 10240,
        "active_thread_percentage": 25,
        "enforced": True,
        "root": "/run/nvidia/mps",
    }


def test_shares_that_may_use_more_than_a_gpu_has_are_a_note_that_names_the_gpus() -> None:
    def notes(limit_mib: int) -> list[str]:
        shared = replace(entry(4, *indices(0, 2), mode=MPS), memory_limit_mib=limit_mib)
        (resource,) = (one for one in document(config(shared), 3)["resources"] if one["mode"] == "mps")
        return [note for note in resource["notes"] if "together" in note]

    assert notes(10240) == []
    (note,) = notes(10241)
    assert note.startswith("4 shares of 10241M each may use 40964M together, more than the 40960M of GPU 0, 2: ")


def test_what_spread_allows_is_said_where_it_allows_less() -> None:
    spread = AllocationPolicy.SPREAD
    (shared,) = document(config(entry(4, policy=spread)), 3)["resources"]
    assert "at most one device of a GPU, so at most 3 in all" in shared["notes"][0]
    (whole,) = document(config(policy=spread), 3)["resources"]
    assert whole["notes"] == []
    split = node(gpu(0, A100, "1g.5gb", "1g.5gb"), gpu(1, A100, "1g.5gb"))
    slices = config(strategy=MigStrategy.SINGLE, policy=spread)
    assert "at most 2 in all" in explain(split, slices, build(split, slices))["resources"][0]["notes"][0]


def test_link_scores_stand_in_the_order_of_the_units() -> None:
    linked = replace(plain(3), links=(Link(uuid(0), uuid(2), 4, PcieLevel.SAME_CPU),))
    (whole,) = explain(linked, WHOLE, build(linked, WHOLE))["resources"]
    assert [unit["uuid"] for unit in whole["units"]] == [uuid(0), uuid(1), uuid(2)]
    assert whole["link_scores"] == [[0, 0, 420], [0, 0, 0], [420, 0, 0]]
    assert document(config(entry(4)))["resources"][0]["link_scores"] == []


def test_warnings_of_the_loader_come_first() -> None:
    chosen = replace(
        config(entry(4, SelectIndex(9))), warnings=("config.yaml:2: unknown key `foo`",), source="config.yaml"
    )
    found = explain(plain(1), chosen, build(plain(1), chosen))
    assert found["config"]["source"] == "config.yaml"
    assert [line.partition(":")[2][:12] for line in found["warnings"]] == ["2: unknown k", "10: sharing."]


def test_left_out_and_layout_problems() -> None:
    chosen = config(strategy=MigStrategy.SINGLE)
    snapshot = node(gpu(0, A100, "1g.5gb"), gpu(1))
    found = explain(snapshot, chosen, build(snapshot, chosen))
    assert [one["uuid"] for one in found["left_out"]] == [snapshot.gpus[0].mig_instances[0].uuid, uuid(1)]
    assert len(found["layout_problems"]) == 1


def test_a_file_that_means_the_same_to_nvidia() -> None:
    assert otherwise(config(entry(4), strategy=MigStrategy.MIXED, rename_by_default=True, refuse=True)) == ()


def test_what_nvidia_reads_otherwise() -> None:
    full = config(
        entry(4, *indices(0), rename="nvidia.com/a", policy=AllocationPolicy.PACKED),
        entry(4, *indices(1), number=1),
        replace(entry(1, *indices(2), mode=MPS), memory_limit_mib=1024, active_thread_percentage=50),
        strategy=MigStrategy.MIXED,
        gpus=[("*T4", "nvidia.com/t4")],
        devices=DeviceFilter(exclude=(SelectIndex(7),)),
        policy=AllocationPolicy.SPREAD,
    )
    found = [(one.key.removeprefix("config.yaml:"), one.nvidia.split()[0]) for one in otherwise(full)]
    assert found == [
        ("sharedDevicesAllocationPolicy", "refuses"),
        ("devices", "ignores"),
        ("3: resources.gpus[0]", "ignores"),
        ("9: sharing.timeSlicing", "ignores"),
        ("9: sharing.mps", "ends"),
        ("9: sharing.mps", "gives"),
        ("10: sharing.timeSlicing.resources[0].devices", "ignores"),
        ("10: sharing.timeSlicing.resources[0].rename", "ignores"),
        ("10: sharing.timeSlicing.resources[0].allocationPolicy", "ignores"),
        ("11: sharing.timeSlicing.resources[1]", "lets"),
        ("11: sharing.timeSlicing.resources[1].devices", "ignores"),
        ("10: sharing.mps.resources[0].devices", "ignores"),
        ("10: sharing.mps.resources[0].replicas", "refuses"),
        ("10: sharing.mps.resources[0].memoryLimit", "ignores"),
        ("10: sharing.mps.resources[0].activeThreadPercentage", "ignores"),
    ]


def test_no_difference_is_no_line() -> None:
    assert difference(document(), document()) == []


def test_differences_name_resources_gpus_and_numbers() -> None:
    lines = difference(document(config(entry(4, *indices(1)))), document())
    assert lines == [
        "~ nvidia.com/gpu: devices 2 -> 1",
        f"~ nvidia.com/gpu: gives up GPU 1 ({uuid(1)})",
        "+ nvidia.com/gpu.shared: 4 devices, time-slicing",
    ]
    lines = difference(document(config(entry(4), refuse=True)), document(config(entry(2))))
    assert "~ nvidia.com/gpu: failRequestsGreaterThanOne false -> true" in lines
    assert f"~ nvidia.com/gpu: GPU 0 ({uuid(0)}): replicas 2 -> 4" in lines
    assert difference(document(config(ids=DeviceIdStrategy.INDEX)), document())[0].endswith(f"told as {uuid(0)} -> 0")
    excluded = document(config(devices=DeviceFilter(exclude=(SelectIndex(0),))))
    assert f"+ left out: GPU 0 ({uuid(0)}, Tesla T4): devices.exclude names it (index 0)" in difference(
        excluded, document()
    )
    assert any(line.startswith("- left out: GPU 0") for line in difference(document(), excluded))


def test_documents_of_two_versions_are_not_compared() -> None:
    assert difference(document(), {"version": 2}) == ["documents of version 1 and 2 can't be compared"]
