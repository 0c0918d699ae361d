"""Classification with a few examples: the label is chosen by its likelihood, so it is always one of the labels."""

from __future__ import annotations

import plait

LABELS = ["positive", "negative"]

EXAMPLES = """\
Review: I loved every minute of it.
Sentiment: positive
Review: A boring film with a terrible ending.
Sentiment: negative
Review: The actors are wonderful and the story is great.
Sentiment: positive
"""

REVIEWS = [
    "What a beautiful and funny movie!",
    "I wanted my money back after ten minutes.",
    "The best film I have seen this year.",
]


@plait.function
def classify(s: plait.State, review: str) -> str:
    s += EXAMPLES
    s += f"Review: {review}\nSentiment:" + plait.select("label", [f" {label}" for label in LABELS])
    return str(s["label"]).strip()


def main(backend: plait.Backend | None = None) -> None:
    # All programs share the examples, which are computed once.
    states = classify.run_batch([{"review": review} for review in REVIEWS], backend=backend)
    for review, state in zip(REVIEWS, states):
        scores = dict(zip(LABELS, state.result("label").scores or ()))
        listed = ", ".join(f"{label} {score:.2f}" for label, score in scores.items())
        print(f"{review}\n  {state.ret_value} ({listed})")


if __name__ == "__main__":
    main()
