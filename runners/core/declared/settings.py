"""The settings of a run: typed, frozen, and checked where they are declared. No torch.

An experiment declares a class, and each of its runs an instance:

    class Settings(RunSettings):
        width: Count = 256
        batch_size: Count = 2048

        @closed_form
        def activation_bytes(self) -> int:
            return 4 * self.batch_size * self.width

A closed form follows from the settings before anything runs: a trace records it like one, a claim
compares it with what was measured, and nobody can set it. `world_size`, `strategy` and `seed` are
the run's own, so that closed forms may follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypeVar

from proofbook.runners.core.trace.schema import Setting
from proofbook.runners.system.errors import FixableError

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Factor = Annotated[float, Field(gt=0)]
FactorOrZero = Annotated[float, Field(ge=0)]
NUM_SETTLING_STEPS = 3  # the first steps of a timed pass build buckets and fill caches
Settled = Annotated[int, Field(gt=NUM_SETTLING_STEPS)]  # steps, some of them settled

if TYPE_CHECKING:
    closed_form = property
else:

    class closed_form(property):  # noqa: N801 it decorates as `property` does
        """A property of settings that a trace records beside them."""


class SettingsError(FixableError):
    """An experiment declares a setting that its own class forbids; names the file and the line."""

    @classmethod
    def of(cls, error: ValidationError) -> SettingsError:
        """A `SettingsError`: pydantic's first error in words, after the loading module and line.

        That line is the innermost outside any function.
        """
        loading = [at for at in extract_tb(error.__traceback__) if at.name == "<module>"]
        place = f"{loading[-1].filename}:{loading[-1].lineno}: " if loading else ""
        return cls(f"{place}{error.title}: {_in_words(error.errors()[0])}")


class RunSettings(BaseModel):
    """The settings of a run; a subclass names each one with its type."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )
    # Pairs of settings, of which the second is into how many equal parts the first is divided.
    equal_parts: ClassVar[tuple[tuple[str, str], ...]] = ()
    _strategy: str = PrivateAttr("")
    _world_size: int = PrivateAttr(1)
    _seed: int = PrivateAttr(0)

    @property
    def strategy(self) -> str:
        """The strategy of the run."""
        return self._strategy

    @property
    def world_size(self) -> int:
        """The number of ranks of the run."""
        return self._world_size

    @property
    def seed(self) -> int:
        """The seed of the run, from which random settings may follow."""
        return self._seed

    def forced(self) -> dict[str, Setting]:
        """Settings whose values this strategy and number of ranks determine."""
        return {}

    def check(self) -> None:
        """Raise ValueError, with one line, for settings impossible with this strategy and ranks."""

    def closed_forms(self) -> dict[str, Setting]:
        """By name: the value of each `closed_form` of these settings, a base class's first."""
        return {
            name: getattr(self, name)
            for kind in reversed(type(self).__mro__)
            for name, value in vars(kind).items()
            if isinstance(value, closed_form)
        }

    def of_run(self, strategy: str, world_size: int, seed: int) -> Self:
        """A copy bound to a run's strategy, ranks and seed, changed by `forced`; or ValueError."""
        bound = type(self)(**self.declared())
        bound._strategy, bound._world_size, bound._seed = strategy, world_size, seed
        bound = bound.model_copy(update=bound.forced())
        for whole, parts in bound.equal_parts:
            size, number = getattr(bound, whole), getattr(bound, parts)
            if not number or size % number:
                raise ValueError(f"{whole} {size} cannot be divided by {parts} {number}")
        bound.check()
        return bound

    def changed(self, changes: Mapping[str, Setting]) -> Self:
        """These settings with changes, outside any run; ValueError where a change cannot be."""
        return type(self).from_json({**self.declared(), **changes})

    def declared(self) -> dict[str, Any]:
        """The settings by name, without closed forms."""
        names = (*type(self).model_fields, *(self.model_extra or {}))
        return {name: getattr(self, name) for name in names}

    def as_json(self) -> dict[str, Setting]:
        """The settings and closed forms by name, as a trace records them."""
        values = {**self.declared(), **self.closed_forms()}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    @classmethod
    def from_json(cls, declared: Mapping[str, Any]) -> Self:
        """Settings from JSON, where a tuple is a list; ValueError as for the class itself."""
        try:
            return cls.model_validate_json(json.dumps(declared))
        except ValidationError as error:
            raise ValueError(_in_words(error.errors()[0])) from None


# The settings of a run or of a rank: `Declaration[Settings]`. By default they may be any.
S = TypeVar("S", bound=RunSettings, default=Any, covariant=True)


class FreeSettings(RunSettings):
    """Settings without declared types: constants of a program that a learner reads."""

    model_config = ConfigDict(extra="allow")


def _in_words(error: ErrorDetails) -> str:
    """One line for a person, from an error of pydantic."""
    name = ".".join(map(str, error["loc"][:1]))
    if error["type"] == "extra_forbidden":
        return f"there is no setting {name!r}"
    wanted = error["msg"].partition("should be ")[2] or error["msg"]
    return f"{name} must be {wanted}, not {error['input']!r}"
