"""Contract R4, clause by clause."""

import pytest

from deviceplugin.model.names import name_problem, qualified


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb.me",
        "k8s.io/x",
        "ex/x",
        "ex/X.y_Z-9",
        f"nvidia.com/{'x' * 63}",
        f"{'.'.join(['a' * 60] * 4)}/x",
    ],
)
def test_names_that_the_kubelet_takes(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "a/b/c",
        "/gpu",
        "nvidia.com/",
        "kubernetes.io/gpu",
        "x.kubernetes.io/gpu",
        "xkubernetes.io/gpu",
        "requests.nvidia.com/gpu",
        "Nvidia.com/gpu",
        "nvidia_x.com/gpu",
        "-nvidia.com/gpu",
        "nvidia..com/gpu",
        f"{'.'.join(['a' * 60] * 4)}.b/x",
        f"nvidia.com/{'x' * 64}",
        "nvidia.com/a+b",
        "nvidia.com/a:b",
        "nvidia.com/.a",
        "nvidia.com/a-",
        "nvidia.com/gpü",
        "nvidia.com/gpu\n",
    ],
)
def test_names_that_the_kubelet_refuses(name: str) -> None:
    assert name_problem(name)


def test_a_name_without_a_domain_is_nvidias() -> None:
    assert qualified("gpu") == "nvidia.com/gpu"
    assert qualified("example.com/gpu") == "example.com/gpu"
