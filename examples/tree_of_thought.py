"""A tree of thoughts: plans fork from the question, solutions fork from each plan, and each gives a grade to itself.

Every node of the tree shares the KV of the path above it, and all nodes of a level run at the same time.
"""

from __future__ import annotations

import plait

QUESTION = "Anna has 3 boxes with 4 apples each. She eats 2 apples. How many apples are left?"


@plait.function
def solve(s: plait.State, question: str, branches: int) -> tuple[int, str]:
    """The best grade and its answer."""
    s += f"Question: {question}\n"
    plans = s.fork(branches)
    plans += "Plan: first," + plait.gen("plan", max_tokens=32, stop="\n") + "\n"
    groups = []
    for plan in plans:
        solutions = plan.fork(branches)
        solutions += "Working:" + plait.gen("working", max_tokens=48, stop="\n") + "\n"
        solutions += "Answer: " + plait.gen_int("answer", max_tokens=8) + " apples\n"
        solutions += "Grade of this solution, from 1 (wrong) to 5 (right): "
        solutions += plait.select("grade", ["1", "2", "3", "4", "5"])
        groups.append(solutions)
    # Nothing above waited. Joining the inner forks first makes lists of lists in the root.
    for solutions in groups:
        solutions.join()
    plans.join()
    leaves = [
        (int(grade), str(answer))
        for grades, answers in zip(s["grade"], s["answer"])
        for grade, answer in zip(grades, answers)
    ]
    return max(leaves, key=lambda leaf: leaf[0])


def main(backend: plait.Backend | None = None) -> None:
    state = solve.run(QUESTION, branches=2, backend=backend, temperature=0.7, seed=7)
    for plan, answers, grades in zip(state["plan"], state["answer"], state["grade"]):
        print(f"plan:{plan}\n  answers {answers}, grades {grades}")
    grade, answer = state.ret_value
    print(f"best: {answer} (grade {grade})")


if __name__ == "__main__":
    main()
