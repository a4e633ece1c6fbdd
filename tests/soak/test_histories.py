"""Whatever happens to a node, in any order, keeps what issue 5 promises."""

import os

from tests.soak.histories import Histories, run

# As many as take some ten seconds. `make soak` runs 20 000, other ones each time.
STEPS = int(os.environ.get("SOAK_STEPS", "2000"))
EVENTS = (
    "edit",
    "unchanged resource",
    "bad edit",
    "edit during an Allocate",
    "pod runs",
    "pod ends",
    "inventory",
    "kubelet restart",
    "checkpoint lost",
    "time",
)


def test_any_history_keeps_the_promises() -> None:
    Histories.occurred.clear()
    run(Histories, STEPS, random="SOAK_STEPS" in os.environ)
    print(*(f"{count:6} {what}" for what, count in sorted(Histories.occurred.items())), sep="\n")
    never = [event for event in EVENTS if not Histories.occurred[event]]
    assert not never, f"these never occurred, so that nothing is known of them: {never}"
