"""The `health` section: from checked values to a HealthConfig."""

from typing import cast

from deviceplugin.config.model import HealthConfig, Origin
from deviceplugin.config.reader import Found, Reader, Values
from deviceplugin.model.health import Condition, Response


def health_config(values: Values, reader: Reader) -> HealthConfig:
    """What the section says, defaults for the rest. An Xid in two lists, or twice in one, is reported to `reader`."""
    defaults = HealthConfig()

    def seconds(name: str, default: float) -> float:
        return cast(float, values[name].value) if name in values else default

    return HealthConfig(
        xids=_xids(_below(values, "xids"), reader),
        conditions={
            Condition(name): Response(cast(str, found.value)) for name, found in _below(values, "conditions").items()
        },
        poll_s=seconds("pollInterval", defaults.poll_s),
        quiet_s=seconds("quietTime", defaults.quiet_s),
        live_after_s=seconds("liveAfter", defaults.live_after_s),
    )


def _xids(lists: Values, reader: Reader) -> dict[int, Response]:
    xids: dict[int, Response] = {}
    first: dict[int, Origin] = {}
    for name, found in lists.items():
        for item in cast(list[Found], found.value):
            number = cast(int, item.value)
            if number in first:
                reader.report(
                    item.origin, f"found Xid {number} again (first at {first[number].path}), expected it once"
                )
                continue
            first[number] = item.origin
            xids[number] = Response(name)
    return xids


def _below(values: Values, name: str) -> Values:
    return cast(Values, values[name].value) if name in values else {}
