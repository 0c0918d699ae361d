"""Roles, a fork, a choice and a regex in one program. `plait demo` runs this."""

from __future__ import annotations

from collections.abc import Callable

import plait

SENTENCE_END = [".", "\n"]
FACTS = r'\{"city": "[A-Z][a-z]{2,14}", "country": "[A-Z][a-z]{2,14}", "currency": "[A-Z][a-z]{2,14}"\}'


@plait.function
def program(s: plait.State, city: str) -> None:
    s += plait.system("You are a travel guide. Answer in one short sentence.")
    s += plait.user(f"What is {city} famous for?")
    s += plait.assistant(plait.gen("famous for", max_tokens=48, stop=SENTENCE_END) + ".")

    # Two branches run at the same time; what they share so far is computed once.
    tips = s.fork(2)
    for tip, season in zip(tips, ["summer", "winter"]):
        tip += plait.user(f"Give one tip for a visit in {season}.")
        tip += plait.assistant(plait.gen("tip", max_tokens=48, stop=SENTENCE_END) + ".")
    tips.join()

    # A reference puts in what a branch writes, without waiting for it here.
    s += plait.user("Tip 1: " + tips[0].ref("tip") + "\nTip 2: " + tips[1].ref("tip") + "\nWhich tip is better?")
    s += plait.assistant("Tip " + plait.select("better tip", ["1", "2"]) + " is better.")

    # The regex's fixed parts are never sampled: they are put in whole.
    s += plait.user(f"Give the facts about {city} as JSON.")
    s += plait.assistant(plait.gen("facts", max_tokens=80, regex=FACTS))


def run_demo(backend: plait.Backend | None, on_text: Callable[[str], None]) -> list[tuple[str, plait.Result]]:
    """Streams the program's text to ``on_text``; then a name and a result for each gen and select."""
    state = program.stream("Paris", backend=backend, temperature=0, seed=1)
    for text in state.text_iter():
        on_text(text)
    tips: list[plait.Result] = state.result("tip")
    return [
        ("famous for", state.result("famous for")),
        *((f"tip {index + 1}", result) for index, result in enumerate(tips)),
        ("better tip", state.result("better tip")),
        ("facts", state.result("facts")),
    ]


def main(backend: plait.Backend | None = None) -> None:
    results = run_demo(backend, lambda text: print(text, end="", flush=True))
    print()
    for name, result in results:
        print(f"{name}: {result.value!r}")


if __name__ == "__main__":
    main()
