"""A judge that looks at an essay from several sides at once, then gives one grade."""

from __future__ import annotations

import plait

ESSAY = (
    "Trees make our cities better. They give shade in summer, clean the air, and birds live in them. "
    "A street with trees is a street where people like to walk."
)
SIDES = ["clarity", "structure", "style"]


@plait.function
def judge(s: plait.State, essay: str) -> str:
    s += plait.system("You are a teacher who reviews essays briefly and fairly.")
    s += plait.user(f"Here is an essay:\n{essay}")
    s += plait.assistant("Thank you, I have read it.")
    reviews = s.fork(len(SIDES))
    reviews += [
        plait.user(f"In one sentence, what do you think of its {side}?")
        + plait.assistant(plait.gen("review", max_tokens=48, stop=[".", "\n"]) + ".")
        for side in SIDES
    ]
    reviews.join()
    listed = "\n".join(f"{side}: {review}" for side, review in zip(SIDES, s["review"]))
    s += plait.user(f"Your reviews were:\n{listed}\nWhich grade do you give, from A (best) to D?")
    s += plait.assistant("Grade: " + plait.gen("grade", max_tokens=4, regex="[ABCD]"))
    return str(s["grade"])


def main(backend: plait.Backend | None = None) -> None:
    state = judge.run(ESSAY, backend=backend, temperature=0)
    for side, review in zip(SIDES, state["review"]):
        print(f"{side}: {review}")
    print(f"grade: {state.ret_value}")


if __name__ == "__main__":
    main()
