"""Draw the flow network of a small cluster: ``python docs/figures/network.py``."""

from __future__ import annotations

import sys

from drawing import Drawing, write


def draw() -> Drawing:
    """Two jobs, two racks, three machines."""
    d = Drawing(860, 380, "The flow network of two jobs on three machines")
    ys = {"train": 105, "web": 250}
    d.box(90, ys["train"], 130, 62, "job train", "3 tasks alike", "8 cpu, 1 gpu")
    d.box(90, ys["web"], 130, 62, "job web", "2 tasks alike", "4 cpu")
    d.box(290, ys["train"], 96, 44, "class A", "anywhere")
    d.box(290, ys["web"], 96, 44, "class B", "anywhere")
    d.box(440, 105, 84, 44, "rack 1", "class A")
    d.box(440, 215, 84, 44, "rack 1", "class B")
    d.box(440, 285, 84, 44, "rack 2", "class B")
    d.box(610, 80, 100, 44, "machine-1", "32 cpu, 2 gpu", cls="cool")
    d.box(610, 180, 100, 44, "machine-2", "96 cpu", cls="cool")
    d.box(610, 285, 100, 44, "machine-3", "96 cpu", cls="cool")
    d.box(785, 180, 90, 62, "sink", "takes every", "task")
    d.box(290, 335, 130, 44, "web waits", "unscheduled", cls="warm")
    d.box(290, 35, 130, 44, "train waits", "unscheduled", cls="warm")
    for job, waits in (("train", 42), ("web", 328)):
        y = ys[job]
        d.arc(f"M155 {y} L240 {y}")
        up = y - 31 if job == "train" else y + 31
        d.arc(f"M90 {up} C90 {waits} 150 {waits} 223 {waits}", kind="wait")
    d.arc("M338 105 L396 105")
    d.arc("M338 240 L396 219")
    d.arc("M338 258 L396 281")
    d.arc("M482 100 L558 84")
    d.arc("M482 210 L558 187")
    d.arc("M482 203 C520 185 530 130 558 96")
    d.arc("M482 285 L558 285")
    d.arc("M660 85 L744 160")
    d.arc("M660 180 L738 180")
    d.arc("M660 280 L744 202")
    d.arc("M355 30 C620 12 770 40 786 147", kind="wait")
    d.arc("M355 340 C640 362 770 330 786 213", kind="wait")
    d.arc("M125 219 C180 150 430 148 558 174", kind="stay")
    d.text(197, 96, "supply 3", "small")
    d.text(197, 241, "supply 2", "small")
    d.text(520, 78, "load", "small")
    d.text(520, 278, "load", "small")
    d.text(706, 172, "slots", "small")
    d.text(545, 16, "waiting becomes more expensive with age", "small")
    d.text(330, 152, "a task that runs there already: cheaper", "small")
    return d


if __name__ == "__main__":
    sys.exit(write(draw(), "network.svg"))
