"""A conversation of several turns, in the roles of the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence

import plait

QUESTIONS = [
    "What is the capital of France?",
    "Name one food I should try there.",
    "And one to drink with it?",
]


@plait.function
def conversation(s: plait.State, questions: Sequence[str]) -> None:
    s += plait.system("You are a friendly assistant. You answer in one sentence.")
    for question in questions:
        s += plait.user(question)
        with s.assistant():
            s += plait.gen("answer", max_tokens=64, stop=[".", "\n"]) + "."


def main(backend: plait.Backend | None = None) -> None:
    state = conversation.run(QUESTIONS, backend=backend, temperature=0)
    for message in state.messages():
        print(f"{message['role']:>9}: {message['content']}")


if __name__ == "__main__":
    main()
