"""What each signal does: the config file's `health:` over the table, NVIDIA's two variables over the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deviceplugin.config.model import HealthConfig
from deviceplugin.config.settings import XidList
from deviceplugin.health.xids import TABLE, UNKNOWN, name_of
from deviceplugin.model.health import Condition, Response, Signal, Xid

CONDITIONS: Mapping[Condition, Response] = {
    Condition.UNCORRECTABLE_ECC: Response.UNTIL_RECOVERED,
    Condition.REMAPPING_PENDING: Response.UNTIL_RECOVERED,
    Condition.REMAPPING_FAILED: Response.UNTIL_RECOVERED,
    Condition.RETIREMENT_PENDING: Response.UNTIL_RECOVERED,
    Condition.RESET_REQUIRED: Response.UNTIL_RECOVERED,
    Condition.FAILED_CALL: Response.UNTIL_RECOVERED,
}
"""Unless the config says otherwise. The standing ones last as long as the probe finds them, whatever the quiet time:
what awaits a reset recovers by one."""

ALWAYS_COUNT = frozenset({Condition.RESET_REQUIRED, Condition.FAILED_CALL})
"""A GPU that does not answer, or answers that it must be reset, can't be given out whatever anybody configures."""


NONE_NAMED = XidList()


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy in force.

    Attributes:
        config: of the file.
        disabled, enabled: DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS; what is enabled wins (design 8).
    """

    config: HealthConfig = field(default_factory=HealthConfig)
    disabled: XidList = NONE_NAMED
    enabled: XidList = NONE_NAMED

    def response(self, signal: Signal) -> Response:
        """What a signal does."""
        if isinstance(signal, Condition):
            return self._to_condition(signal)
        entry = TABLE.get(signal.number)
        asked = self.config.xids.get(signal.number, entry.response if entry else UNKNOWN)
        if self.enabled.every or signal.number in self.enabled.xids:
            return asked if asked.takes_out else Response.UNTIL_RECOVERED
        if self.disabled.every or signal.number in self.disabled.xids:
            return Response.IGNORE
        return asked

    def _to_condition(self, condition: Condition) -> Response:
        if condition in ALWAYS_COUNT:
            return CONDITIONS[condition]
        # `all` turns NVIDIA's health checks off altogether; ours then still say what they see.
        if self.disabled.every and not self.enabled.every:
            return Response.WARN
        return self.config.conditions.get(condition, CONDITIONS[condition])

    @property
    def quiet_s(self) -> float:
        """How long a GPU must have been without a new signal before it may recover, in seconds."""
        return self.config.quiet_s


def words(signal: Signal) -> str:
    """A signal for people: `Xid 79 (GPU has fallen off the bus)`."""
    if isinstance(signal, Xid):
        return f"Xid {signal.number} ({name_of(signal.number)})"
    return _CONDITION_WORDS[signal]


_CONDITION_WORDS = {
    Condition.UNCORRECTABLE_ECC: "uncorrectable ECC error",
    Condition.REMAPPING_PENDING: "a row remapping awaits a reset",
    Condition.REMAPPING_FAILED: "a row remapping failed: the board has to be replaced",
    Condition.RETIREMENT_PENDING: "a page retirement awaits a reset",
    Condition.RESET_REQUIRED: "the driver requires a reset of it",
    Condition.FAILED_CALL: "the driver failed for it",
}
