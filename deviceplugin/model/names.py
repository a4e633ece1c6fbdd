"""Which resource names the kubelet accepts (contract R4). Pure."""

import re

DEFAULT_DOMAIN = "nvidia.com"
# 253, what a DNS subdomain may have, minus the `requests.` that a quota puts before it.
MAX_DOMAIN_LENGTH = 244
MAX_NAME_LENGTH = 63

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def qualified(name: str) -> str:
    """The full resource name: one without a domain belongs to `nvidia.com/` (design 8)."""
    return name if "/" in name else f"{DEFAULT_DOMAIN}/{name}"


def name_problem(name: str) -> str | None:
    """Why the kubelet would refuse the full resource name, in words; None when it takes it (contract R4)."""
    domain, _, rest = name.partition("/")
    slashes = name.count("/")
    plus = " (NVIDIA's plugin writes the `+` of a MIG profile as `.`)" if "+" in rest else ""
    rules = (
        (slashes != 1, f"a resource name has exactly one `/`, this one has {slashes}"),
        ("kubernetes.io/" in name, "names under kubernetes.io are the kubelet's own"),
        (domain.startswith("requests."), "the domain must not begin with `requests.`"),
        (
            len(domain) > MAX_DOMAIN_LENGTH,
            f"the domain has {len(domain)} characters, at most {MAX_DOMAIN_LENGTH} are allowed",
        ),
        (
            not _DOMAIN.fullmatch(domain),
            "the domain must be lower-case letters, digits, `-` and `.`, with a letter or digit at both ends",
        ),
        (
            len(rest) > MAX_NAME_LENGTH,
            f"the part after `/` has {len(rest)} characters, at most {MAX_NAME_LENGTH} are allowed",
        ),
        (
            not _NAME.fullmatch(rest),
            "the part after `/` must be letters, digits, `.`, `_` and `-`, with a letter or digit at both ends" + plus,
        ),
    )
    return next((words for broken, words in rules if broken), None)
