"""Lists of cells, by name: screened with one draw, confirmed with three or in five folds."""

from dataclasses import replace
from itertools import product

from benchmarks.utility.cell import Cell

SMALL = ("sms-fr", "chat", "essays-es", "rooms", "blogs")
# Step noise around the top that the law names.
NOISES = (0.02, 0.045, 0.09)
_DEMO = Cell("chat", 0, "counts-train", rho=0.45, loss=0.0)
_ALL = [(name, 0) for name in SMALL]
_LEARN = Cell("talk", 3_000, "train", noise=False, loss=0.0)

LISTS: dict[str, list[Cell]] = {
    "simple": [Cell("talk", 300, arm) for arm in ("start", "ngram", "start+ngram")]
    + [Cell("talk", people, "start+counts") for people in (300, 1_000, 3_000, 10_000)]
    + [Cell(name, 0, arm) for name, arm in product(SMALL, ("start", "ngram", "start+ngram", "start+counts"))],
    # Counts of few people or of little rho, where noise drowns them.
    "counts": [
        Cell("talk", people, "start+counts", rho=rho)
        for people, rho in product((100, 300, 1_000, 3_000), (0.002, 0.02))
    ]
    + [Cell(name, 0, "start+counts", rho=rho) for name, rho in product(SMALL, (0.002, 0.02))],
    # Wider counts as people grow: more contexts, or a longer clip norm.
    "widths": [
        Cell("talk", people, "start+counts", contexts=contexts, counts_clip=clip)
        for people, (contexts, clip) in (
            *product((40_000, 10_000), ((2_000, 5.0), (2_000, 15.0), (500, 5.0), (500, 15.0), (4_000, 5.0))),
            *product((3_000, 1_000, 300), ((500, 5.0), (2_000, 5.0))),
            (3_000, (2_000, 15.0)),
        )
    ]
    + [Cell("talk", people, "start+counts", rho=0.02, contexts=2_000) for people in (10_000, 3_000, 1_000)]
    + [Cell(name, 0, "start+counts", contexts=2_000) for name in ("blogs", "rooms", "chat")],
    # A start that has read typed chat, too.
    "with-chat": [
        Cell("talk", people, arm, rho=rho, public="sample-with-chat")
        for people in (1_000, 10_000)
        for arm, rho in (("start", 0.5), ("start+ngram", 0.5), ("start+counts", 0.5), ("counts-train", 0.45))
    ],
    # Both ways to train by the law, which the forecast is fitted to.
    "forecast": [
        cell
        for name, people in (*((name, 0) for name in SMALL), ("talk", 300), ("talk", 1_000), ("talk", 3_000))
        for cell in (Cell(name, people, "train"), Cell(name, people, "counts-train", rho=0.45))
    ],
    # Whether one step noise fits other people, mechanisms and server steps.
    "law": [Cell(name, 0, "train", step_noise=noise) for name, noise in product(SMALL, NOISES)]
    + [Cell("talk", people, "train", step_noise=noise) for people, noise in product((300, 1_000), NOISES)]
    + [Cell("talk", 1_000, "train", mechanism=kind) for kind in ("blt", "tree")],
    # Counts as a start, beside the ways without it.
    "ways": [
        cell
        for name, people in (("chat", 0), ("talk", 1_000), ("talk", 3_000), ("talk", 10_000))
        for cell in (
            *(Cell(name, people, arm) for arm in ("start", "ngram", "start+counts", "train")),
            Cell(name, people, "counts-train", rho=0.45),
        )
    ],
    # People by the ten thousand, at rho 0.5 and at 0.02, which is epsilon 0.83 at delta 1e-6.
    "many": [
        cell
        for people, times in ((10_000, 4), (40_000, 1))
        for cell in (
            Cell("talk", people, "start"),
            Cell("talk", people, "ngram"),
            Cell("talk", people, "start+counts"),
            Cell("talk", people, "train", participations=times),
            Cell("talk", people, "train", participations=times, rho=0.02),
            Cell("talk", people, "start+counts", rho=0.02),
            Cell("talk", people, "counts-train", participations=times, rho=0.45),
            Cell("talk", people, "train", participations=times, noise=False),
            Cell("talk", people, "central"),
        )
    ],
    # The same with other noise and cohorts, and on other held-out people.
    "draws": [
        replace(cell, draw=draw)
        for draw in (1, 2)
        for name, people in (("chat", 0), ("talk", 3_000))
        for cell in (Cell(name, people, "train"), Cell(name, people, "counts-train", rho=0.45))
    ],
    "folds": [
        Cell(name, 0, arm, rho=0.45 if arm == "counts-train" else 0.5, fold=fold)
        for name, fold in product(SMALL, range(1, 5))
        for arm in ("start", "start+counts", "train", "counts-train")
    ],
    # The product's loss of devices' training beside the cross entropy, at equal noise and cohorts.
    "loss": [
        Cell(name, people, "train", loss=loss, draw=draw)
        for draw, (name, people), loss in product(range(3), (("talk", 3_000), *_ALL), (0.0, 0.2))
    ]
    + [Cell(name, 0, "train", loss=loss, fold=fold) for fold, name, loss in product(range(1, 5), SMALL, (0.0, 0.2))],
    # A total epsilon of 1 at delta 1e-6, which is rho 0.028, and the demo's at half of its epsilon.
    "epsilon-one": [
        cell
        for name, people in (("talk", 300), ("talk", 1_000), ("talk", 3_000), ("chat", 0))
        for cell in (
            Cell(name, people, "start+counts", rho=0.028),
            Cell(name, people, "train", rho=0.028),
            Cell(name, people, "counts-train", rho=0.0252, counts_rho=0.0028),
        )
    ]
    + [Cell("chat", 0, "counts-train", rho=0.126, counts_rho=0.014)],
    # Other networks and vocabularies at one step noise, each over its own start.
    "sizes": [
        Cell("talk", people, arm, hidden=hidden, words=words)
        for hidden, words in product((256, 128, 512), (4_000, 8_000, 16_000))
        for people, arm in ((3_000, "start"), (3_000, "train"), (10_000, "train"))
    ],
    # What the demo might take, one change a cell, by the cross entropy.
    "demo": [
        replace(_DEMO, **change)
        for change in ({"batch": 256}, {"max_words": 400}, {"participations": 16}, {"batch": 256, "max_words": 400})
    ],
    # Learning per round, without noise and by the cross entropy: one change a cell.
    "learn": [
        _LEARN,
        Cell("talk", 3_000, "central", loss=0.0),
        *(
            replace(_LEARN, **{name: value})
            for name, value in (
                ("epochs", 2),
                ("epochs", 4),
                ("device_rate", 1.0),
                ("device_rate", 0.25),
                ("batch", 4),
                ("batch", 256),
                ("max_words", 400),
                ("clipping", "per-layer"),
                ("clip", 0.1),
                ("clip", 1.0),
                ("optimizer", "nesterov"),
            )
        ),
        replace(_LEARN, rounds=256),
        replace(_LEARN, rounds=512),
        replace(_LEARN, participations=8),
        replace(_LEARN, rounds=128, participations=8),
    ],
}
