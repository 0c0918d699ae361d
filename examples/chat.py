"""A conversation of several turns, in the roles of the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence

import plait

QUESTIONS = [
    "What is the capital of France?",
    "Which river flows through it?",
    "What should I see there?",
]


@plait.function
def conversation(s: plait.State, questions: Sequence[str]) -> None:
    for question in questions:
        s += plait.user(question)
        with s.assistant():
            s += plait.gen("answer", max_tokens=64, stop=[".", "\n"]) + "."


def main(backend: plait.Backend | None = None) -> None:
    state = conversation.run(QUESTIONS, backend=backend, temperature=0, repetition_penalty=1.1)
    for message in state.messages():
        print(f"{message['role']:>9}: {message['content']}")


if __name__ == "__main__":
    main()
