"""Edits and SIGHUPs all the time, to another resource, while pods come and go (issue 5: the run that hurts elsewhere).

NVIDIA's plugin lost 94 of 263 such pods, and node status showed zero for unchanged resources in two samples of five.
"""

import itertools
import threading
from collections import deque

from deviceplugin.simulator import AdmittedPod
from tests.serving.harness import Node, deadline
from tests.serving.moments import never_offered_twice
from tests.serving.test_reload import GPU, SHARED_NAME

SMALL = "nvidia.com/mig-1g.5gb"
MIG_GPUS, SLICES_EACH, ALL_GPUS = 6, 4, 8
SLICES = MIG_GPUS * SLICES_EACH
EDITED = 40
"""Edits during which pods come: the run had as many, and 263 pods."""


def _node() -> str:
    lines = ["driver 570.133.20 cuda=12080"]
    for gpu in range(ALL_GPUS):
        mig = " mig=1" if gpu < MIG_GPUS else ""
        lines.append(
            f"gpu {gpu} model=a100-40gb uuid=GPU-0000000{gpu}-0000-4000-8000-000000000000 minor={gpu} "
            f"bus=00000000:{0x10 + gpu:02x}:00.0 numa={gpu // 4}{mig}"
        )
    for gpu, slot in itertools.product(range(MIG_GPUS), range(SLICES_EACH)):
        lines.append(
            f"mig gpu={gpu} slot={slot} gi={7 + slot} ci=0 giprofile=0 ciprofile=0 start={slot} size=1 "
            f"uuid=MIG-0000000{gpu}-000{slot}-4000-8000-000000000000"
        )
    return "\n".join(lines) + "\n"


def _config(sharing: str = "") -> str:
    return f"version: v1\nflags: {{migStrategy: mixed}}\n{sharing}"


def _shared(replicas: int, devices: str, rename: str) -> str:
    entry = f"{{name: {GPU}, replicas: {replicas}, devices: {devices}, rename: {rename}}}"
    return _config(f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}\n")


EDITS = (
    _config(),
    _shared(2, "all", GPU),
    _shared(4, "[6]", SHARED_NAME),
    "version: v1\nflags: {migStrategy: mixde}\n",
    _shared(4, "[7]", SHARED_NAME),
    "version: v1\nsharing: [unclosed",
    _shared(3, "all", SHARED_NAME),
)


class Storm:
    """Somebody who edits the file and sends SIGHUP without a pause, until told to stop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stop = threading.Event()
        self._edited = threading.Condition()
        self.edits = 0
        self._thread = threading.Thread(target=self._run, name="storm", daemon=True)

    def __enter__(self) -> "Storm":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def wait_edit(self) -> None:
        """Wait until one more edit has begun to take effect."""
        with self._edited:
            before = self.edits
            assert self._edited.wait_for(lambda: self.edits > before, 10)

    def _run(self) -> None:
        for text in itertools.cycle(EDITS):
            self._node.write_config(text)
            self._node.hang_up()
            with self._edited:
                self.edits += 1
                self._edited.notify_all()
            if self._stop.wait(0.06):
                return


def _slice_pods(node: Node, running: deque[AdmittedPod], count: int, others: bool) -> None:
    """Admit pods that ask for a slice; the oldest end, so that four slices of five are in use."""
    for _ in range(count):
        pod = node.pod(f"slice-{len(node.kubelet.pods())}", {SMALL: 1})
        assert pod.phase == "Running", pod.message
        running.append(pod)
        if len(running) > SLICES * 4 // 5:
            node.kubelet.end(running.popleft().uid)
        if others and len(running) % 5 == 0:
            # These ask for what is being edited: the last word on them is the kubelet's and the scheduler's (design 8).
            other = node.pod(f"other-{len(node.kubelet.pods())}", {GPU: 1})
            if len(running) % 2:
                node.kubelet.end(other.uid)


def test_no_pod_that_asks_for_what_did_not_change_dies_and_status_never_dips() -> None:
    with Node(_node(), _config()).run(SMALL, GPU) as node:
        node.wait_ready()
        sockets = node.sockets()
        running: deque[AdmittedPod] = deque()
        with Storm(node) as storm, deadline(60):
            for _ in range(EDITED):
                storm.wait_edit()
                _slice_pods(node, running, 7, others=True)
        node.kubelet.tick()
        unchanged = node.kubelet.resources[SMALL]
        assert len(unchanged.registrations) == 1
        assert len(unchanged.lists) == 1, "not one list for a resource that did not change"
        assert sockets["nvidia-mig-1g.5gb.sock"] == node.sockets()["nvidia-mig-1g.5gb.sock"]
        seen = [status.resources.get(SMALL) for status in node.kubelet.status_history]
        first = seen.index((SLICES, SLICES))
        assert set(seen[first:]) == {(SLICES, SLICES)}
        assert all(node.kubelet.pod(pod.uid).phase == "Running" for pod in running)
        assert node.kubelet.faults == ()
        assert node.log.count("config loaded from") > 5
        assert len(node.kubelet.resources[GPU].lists) < 4 * storm.edits
        never_offered_twice(node.kubelet, (SMALL, GPU, SHARED_NAME), {})


def test_kubelet_restarts_in_the_storm() -> None:
    """What runs goes on; pods that come once the plugin is back are served; status is as before at once."""
    with Node(_node(), _config()).run(SMALL, GPU) as node:
        node.wait_ready()
        running: deque[AdmittedPod] = deque()
        gaps: list[tuple[float, float]] = []
        with Storm(node) as storm, deadline(60):
            for _ in range(4):
                for _ in range(4):
                    storm.wait_edit()
                    _slice_pods(node, running, 6, others=False)
                lists = len(node.kubelet.resources[SMALL].lists)
                stopped = node.kubelet.clock.now()
                node.kubelet.restart()
                node.kubelet.wait_for(lambda lists=lists: len(node.kubelet.resources[SMALL].lists) > lists)  # type: ignore[misc]
                gaps.append((stopped, node.kubelet.resources[SMALL].lists[lists].at))
            _slice_pods(node, running, 10, others=False)
        assert all(node.kubelet.pod(pod.uid).phase == "Running" for pod in running)
        node.kubelet.tick()
        for status in node.kubelet.status_history:
            if gaps[0][0] < status.at and not any(begun <= status.at <= over for begun, over in gaps):
                assert status.resources[SMALL] == (SLICES, SLICES), status
        for record in node.kubelet.resources[SMALL].lists:
            assert len(record.healthy) == SLICES
        assert len(node.kubelet.resources[SMALL].registrations) <= 2 * len(gaps) + 1
        assert node.kubelet.faults == ()
