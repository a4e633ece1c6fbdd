"""A change that waits for a pod which has ended, where nobody can see that it has."""

from tests.soak.histories import CONFIGS, SNAPSHOTS
from tests.soak.world import World, pod


def test_a_change_waits_while_podresources_is_away_says_so_and_ends_when_it_is_back() -> None:
    """C3, A13: the checkpoint keeps pods that have ended until PodResources has made the kubelet forget them."""
    world = World(CONFIGS, SNAPSHOTS[0], 1)
    try:
        assert world.admit(pod("p", "nvidia.com/gpu")).phase == "Running"
        world.pass_time(8.0)
        world.edit(b"4")
        (waiting,) = world.reconciler.state.waiting
        assert "cannot be seen" not in waiting.waits_for
        socket = world.kubelet.pod_resources_socket
        away = socket.rename(socket.with_name("away.sock"))
        for uid in world.running():
            world.kubelet.end(uid)
        world.pass_time(100.0)
        (waiting,) = world.reconciler.state.waiting
        assert f"whether their pods have ended cannot be seen: {socket}: List: " in waiting.waits_for
        away.rename(socket)
        world.pass_time(40.0)
        assert not world.reconciler.state.waiting
        assert {name: len(ids) for name, ids in world.offered().items() if ids} == {
            "nvidia.com/a": 2,
            "nvidia.com/b": 2,
        }
    finally:
        world.close()


def test_a_new_kubelet_that_lost_its_checkpoint_frees_nothing_before_it_takes_registrations() -> None:
    """Its PodResources answers, with nothing, from its start on; the rest of it waits for the runtime (S1, P5, A31)."""
    world = World(CONFIGS, SNAPSHOTS[0], 1)
    try:
        assert world.admit(pod("p", "nvidia.com/gpu")).phase == "Running"
        world.pass_time(100.0)
        world.edit(b"4")
        (waiting,) = world.reconciler.state.waiting
        world.kubelet.stop()
        world.kubelet.checkpoint_path.unlink()
        world.kubelet.start(runtime_ready=False)
        for _ in range(4):
            world.read_held(5.0)
        assert world.reconciler.state.waiting == (waiting,)
        world.kubelet.runtime_ready()
        world.pass_time(20.0)
        assert set(waiting.ids) <= world.offered()["nvidia.com/gpu"]
        assert world.kubelet.faults == ()
    finally:
        world.close()
