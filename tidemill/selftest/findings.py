"""What a self-test found wrong, gathered by place."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Part"]


@dataclass
class Part:
    """One part of the chip: how many elements were looked at, and which places had wrong ones.

    wrong: place (bank, stream, lane) to the number of wrong elements and the first of them.
    """

    name: str
    elements: int = 0
    wrong: dict[str, tuple[int, str]] = field(default_factory=dict)

    def judge(self, place: str, got: int, want: int, where: str) -> None:
        """Count an element; `where`: what tells it from others of its place."""
        self.elements += 1
        if got != want:
            count, first = self.wrong.get(place, (0, f"{where}: {want} expected, {got} found"))
            self.wrong[place] = count + 1, first

    def sentences(self) -> list[str]:
        """One for each place that is wrong."""
        return [
            f"{self.name} {place}: {count} wrong, first {first}"
            for place, (count, first) in self.wrong.items()
        ]
