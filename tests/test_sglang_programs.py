"""Programs in the shapes that SGLang's users write, after ``import plait as sgl`` and no other change.

Real runtime, tiny model. What is checked is what must hold whatever a model says: branches, names, types, order, stops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait as sgl

pytestmark = pytest.mark.filterwarnings("ignore::plait.PlaitWarning")  # a random model does not know when to stop


@pytest.fixture(scope="module", autouse=True)
def default_backend(tiny_model_path: Path) -> Iterator[None]:
    with sgl.Runtime(tiny_model_path, mode="reference", kv_tokens=16384, threads=1) as runtime:
        sgl.set_default_backend(runtime)
        yield
        sgl.set_default_backend(None)


# ------------------------------------------------------------------ one gen, many runs


@sgl.function
def few_shot_qa(s: Any, question: str) -> None:
    s += "The following are questions with answers.\n\n"
    s += "Q: What is the capital of France?\nA: Paris\n"
    s += "Q: What is the capital of Germany?\nA: Berlin\n"
    s += "Q: " + question + "\n"
    s += "A:" + sgl.gen("answer", stop="\n", max_tokens=12)


def test_few_shot_qa_alone_in_a_batch_and_streamed() -> None:
    alone = few_shot_qa.run(question="What is the capital of Italy?", temperature=0)
    assert "\n" not in alone["answer"]
    assert alone.text().endswith("Q: What is the capital of Italy?\nA:" + alone["answer"])
    questions = [f"What is the capital of {place}?" for place in ("Italy", "Spain", "Peru")]
    states = few_shot_qa.run_batch([{"question": q} for q in questions], temperature=0, num_threads=2)
    assert states[0]["answer"] == alone["answer"]
    assert all(q in state.text() for q, state in zip(questions, states))
    streamed = few_shot_qa.run(question=questions[0], temperature=0, stream=True)
    assert "".join(streamed.text_iter()) == alone.text()
    by_name = few_shot_qa.run(question=questions[0], temperature=0, stream=True)
    assert "".join(by_name.text_iter(var_name="answer")) == alone["answer"]


def test_generator_style_batches() -> None:
    states = few_shot_qa.run_batch([{"question": str(i)} for i in range(5)], temperature=0, generator_style=True)
    assert [f"Q: {i}\n" in state.text() for i, state in enumerate(states)] == [True] * 5


# ------------------------------------------------------------------ turns


@sgl.function
def multi_turn_question(s: Any, first: str, second: str) -> None:
    s += sgl.system("You are a helpful assistant.")
    s += sgl.user(first)
    s += sgl.assistant(sgl.gen("answer_1", max_tokens=10))
    s += sgl.user_begin() + second
    s += sgl.user_end()
    s += sgl.assistant_begin()
    s += sgl.gen("answer_2", max_tokens=10)
    s += sgl.assistant_end()


def test_multi_turn_question() -> None:
    state = multi_turn_question.run("one?", "two?", temperature=0.7, seed=1, max_new_tokens=6)
    messages = state.messages()
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[2]["content"] == state["answer_1"]
    assert messages[4] == {"role": "assistant", "content": state["answer_2"]}


@sgl.function
def multi_turn_chat(s: Any, turns: list[dict[str, Any]]) -> None:
    for turn in turns:
        s += turn["prompt"]
        s += sgl.gen(max_tokens=turn["new_tokens"], ignore_eos=True)


def test_unnamed_gens_of_a_chat_extend_one_text() -> None:
    turns = [{"prompt": f"<{i}>", "new_tokens": 4 + i} for i in range(4)]
    text = multi_turn_chat.run(turns, temperature=0).text()
    assert [text.index(turn["prompt"]) for turn in turns] == sorted(text.index(turn["prompt"]) for turn in turns)


# ------------------------------------------------------------------ choices


@pytest.mark.parametrize(
    "method",
    [
        sgl.token_length_normalized,
        sgl.greedy_token_selection,
        sgl.unconditional_likelihood_normalized,
    ],
)
def test_select_by_each_method(method: Any) -> None:
    @sgl.function
    def tool(s: Any) -> None:
        s += "To answer I need a "
        s += sgl.select("tool", choices=["calculator", "calendar", "search"], choices_method=method) + "."
        s += sgl.gen("again", choices=["yes", "no"], choices_method=method)

    state = tool.run()
    assert state["tool"] in ("calculator", "calendar", "search")
    assert state.text() == f"To answer I need a {state['tool']}.{state['again']}"


@sgl.function
def react(s: Any, question: str, steps: int) -> str:
    s += question + "\n"
    for i in range(1, steps + 1):
        s += f"Thought {i}:" + sgl.gen(stop=["\n", "Observation"], max_tokens=8) + "\n"
        s += f"Action {i}: " + sgl.select("action", ["Search", "Finish"]) + "["
        if s["action"] == "Finish" or i == steps:
            s += sgl.gen("result", stop="]", max_tokens=6) + "]\n"
            break
        s += sgl.gen("query", stop="]", max_tokens=6) + "]\n"
        s += f"Observation {i}: nothing about {s['query']}\n"
    return str(s["result"])


def test_a_select_decides_where_a_react_loop_goes() -> None:
    state = react.run("Who wrote it?", 3, temperature=0.8, seed=4)
    text = state.text()
    rounds = len(re.findall(r"^Action \d: ", text, re.MULTILINE))
    assert 1 <= rounds <= 3
    assert state.ret_value == state["result"] and "]" not in state["result"]
    assert text.count("nothing about") == rounds - 1
    assert ("query" in state) == (rounds > 1)


@sgl.function
def replayed_react(s: Any, triplets: list[tuple[str, str]]) -> None:
    for thought, observation in triplets:
        step = s.fork(1)[0]  # its text is thrown away: only what was recorded goes on
        step += sgl.gen("thought", max_tokens=6, stop="Observation")
        s += f"{thought}\nObservation: {observation}\n"
    s += sgl.gen("answer", max_tokens=4)


def test_branches_nobody_joins_are_let_go() -> None:
    state = replayed_react.run([("a", "1"), ("b", "2")], temperature=0)
    assert state.text() == f"a\nObservation: 1\nb\nObservation: 2\n{state['answer']}"
    assert "thought" not in state


# ------------------------------------------------------------------ forks


@sgl.function
def judge(s: Any, essay: str, sides: list[str]) -> None:
    s += sgl.system("Please evaluate an essay.")
    s += sgl.user("Essay: " + essay)
    forks = s.fork(len(sides))
    for i in range(len(sides)):
        forks[i] += sgl.user("Evaluate the " + sides[i] + '. End with "END".')
        forks[i] += sgl.assistant("Judgment: " + sgl.gen("judgment", stop="END", max_tokens=8))
    forks.join()
    s += sgl.user("Judgments:\n" + "\n".join(branch["judgment"] for branch in forks) + "\nScore:")
    s += sgl.assistant(sgl.gen("score", max_tokens=2))


def test_a_judge_reads_its_branches() -> None:
    state = judge.run("trees", ["clarity", "style", "logic"], temperature=0.5, seed=2)
    assert len(state["judgment"]) == 3 == len(set(state["judgment"]))
    assert all(judgment in state.text() for judgment in state["judgment"])
    assert [message["role"] for message in state.messages()] == ["system", "user", "user", "assistant"]


def propose(s: Any, branches: int) -> Any:
    s += sgl.user("Propose a plan.")
    forks = s.fork(branches)
    forks += sgl.assistant(sgl.gen("plan", max_tokens=4, temperature=0.9))
    return forks


def execute(s: Any, branches: int) -> Any:
    s += sgl.user("Execute it.")
    forks = s.fork(branches)
    forks += sgl.assistant(sgl.gen("solution", max_tokens=4, temperature=0.9))
    return forks


@sgl.function
def tree_search(s: Any, question: str, branches: int) -> list[str]:
    s += sgl.user("Question: " + question)
    leaves = []
    plans = propose(s, branches)
    for plan in plans:
        solutions = execute(plan, branches)
        leaves.extend(solutions)
        solutions.join()
    plans.join()
    return [leaf["plan"] + "|" + leaf["solution"] for leaf in leaves]


def test_tree_of_thought_with_nested_joins() -> None:
    state = tree_search.run("how many?", 2, seed=3)
    solutions = state["solution"]
    assert [len(group) for group in solutions] == [2, 2]
    flat = [f"{plan}|{solution}" for plan, group in zip(state["plan"], solutions) for solution in group]
    assert state.ret_value == flat
    assert len({solution for group in solutions for solution in group}) == 4, "branches draw from seeds of their own"


@sgl.function
def suggest_tips(s: Any, topic: str) -> None:
    s += f"Tips for {topic}: 1." + sgl.gen("tip_1", max_tokens=4, stop="\n")
    s += "2." + sgl.gen("tip_2", max_tokens=4, stop="\n")
    details = [expand_tip(topic=topic, tip=s[name])["detail"] for name in ("tip_1", "tip_2")]
    s += "\n" + "\n".join(details) + sgl.gen("summary", max_tokens=4)


@sgl.function
def expand_tip(s: Any, topic: str, tip: str) -> None:
    s += f"About {topic}, in detail: {tip}:" + sgl.gen("detail", max_tokens=6, stop=["\n\n"])


def test_programs_call_programs() -> None:
    state = suggest_tips.run(topic="gardens", temperature=0)
    assert "detail" not in state, "the callee has a state of its own"
    assert state["summary"]


@sgl.function
def parallel_encoding(s: Any, passages: list[str]) -> None:
    s += "Read the passages.\n"
    forks = s.fork(len(passages))
    forks += lambda i: f"[{i}] {passages[i]}\n"
    forks.join(mode="concate_and_append")
    s += "Answer:" + sgl.gen("answer", max_tokens=4)


def test_branches_are_appended_in_order() -> None:
    state = parallel_encoding.run(passages=["one", "two", "three"], temperature=0)
    assert state.text() == f"Read the passages.\n[0] one\n[1] two\n[2] three\nAnswer:{state['answer']}"


# ------------------------------------------------------------------ structure


@sgl.function
def character(s: Any) -> None:
    s += "A character as JSON.\n"
    with s.var_scope("json_output"):
        s += "{\n"
        s += '  "house": ' + sgl.gen("house", regex=r'"(red|blue) house"') + ",\n"
        s += '  "age": ' + sgl.gen("age", regex=r"[1-9][0-9]?", max_tokens=8) + ",\n"
        s += '  "height": ' + sgl.gen(regex=r"[0-9]\.[0-9]{1,3}", max_tokens=16) + ",\n"
        s += '  "alive": ' + sgl.gen("alive", choices=["true", "false"]) + "\n"
        s += "}"


def test_json_of_gens_in_a_scope() -> None:
    state = character.run(temperature=1.0, seed=6)
    record = json.loads(state["json_output"])
    assert list(record) == ["house", "age", "height", "alive"]
    assert (record["house"], str(record["age"])) == (json.loads(state["house"]), state["age"])
    assert state.text() == "A character as JSON.\n" + state["json_output"]


def test_dtypes() -> None:
    @sgl.function
    def typed(s: Any) -> None:
        s += "int " + sgl.gen("int", dtype=int, max_tokens=32)
        s += " float " + sgl.gen("float", dtype="float", max_tokens=64)
        s += " bool " + sgl.gen("bool", dtype=bool, max_tokens=8)
        s += " string " + sgl.gen_string("string", max_tokens=40)

    state = typed.run(seed=1, temperature=1.0)
    assert int(state["int"]) == state["int"]
    assert float(state["float"]) == state["float"]
    assert state["bool"] in (True, False)
    result = state.result("string")
    assert result.text.startswith('"')
    assert isinstance(result.value, str) or result.finish_reason == "length"  # a random model seldom closes it


def test_regex_of_an_ip_address() -> None:
    octet = r"(25[0-5]|2[0-4]\d|[01]?\d\d?)"

    @sgl.function
    def address(s: Any) -> None:
        s += "The address of the name server is " + sgl.gen("ip", regex=rf"({octet}\.){{3}}{octet}", max_tokens=24)

    assert re.fullmatch(r"(\d{1,3}\.){3}\d{1,3}", address.run(temperature=1.0, seed=2)["ip"])


def test_json_schema_as_a_string_and_a_stop_regex() -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 8},
                "population": {"type": "integer", "maximum": 9999},
            },
            "required": ["name", "population"],
            "additionalProperties": False,
        }
    )

    @sgl.function
    def capital(s: Any) -> None:
        s += "The capital of France as JSON:\n" + sgl.gen("json_output", max_tokens=128, json_schema=schema)
        s += "\nIn words: " + sgl.gen("words", max_tokens=24, stop_regex=r"[.!?]|\n\n")

    state = capital.run(temperature=1.0, seed=3)
    assert set(state["json_output"]) == {"name", "population"}
    assert json.loads(state.result("json_output").text) == state["json_output"]
    assert not re.search(r"[.!?]", state["words"])


# ------------------------------------------------------------------ the rest of the vocabulary


def test_a_tool_s_answer_goes_into_the_text() -> None:
    @sgl.function
    def calculate(s: Any) -> None:
        s += "2 + 3 = calculate(" + sgl.gen("expression", stop=")", max_tokens=8) + ")"
        s += f" = {len(s['expression'])}. So the answer is" + sgl.gen("answer", max_tokens=4)

    state = calculate.run(temperature=0)
    assert f") = {len(state['expression'])}. So" in state.text()


def test_sampling_names_and_results() -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "say"
        s += sgl.gen("x", max_tokens=12, min_tokens=12, return_logprob=True, top_logprobs_num=2)
        s["note"] = "set by hand"
        s.set_var("other", 2)

    state = program.run(temperature=0.9, top_p=0.9, top_k=40, min_p=0.01, frequency_penalty=0.1, presence_penalty=0.1)
    result = state.result("x")
    assert len(result.tokens) == 12 == len(result.logprobs)
    assert all(1 <= len(logprob.top) <= 2 for logprob in result.logprobs)
    assert (state["note"], state.get_var("other")) == ("set by hand", 2)
    state.sync()
    assert state.error() is None


def test_a_copy_and_a_bound_program() -> None:
    @sgl.function
    def program(s: Any, greeting: str, name: str) -> None:
        s += greeting
        with s.copy() as branch:
            branch += name + sgl.gen("aside", max_tokens=3)
        with s.user():
            s += "go on"
        with s.assistant():
            s += sgl.gen("x", max_tokens=3)

    state = program.bind(greeting="hello ").run(name="Ada", temperature=0)
    assert "Ada" not in state.text()
    assert isinstance(state["aside"], str)
    assert state.messages()[-1]["content"] == state["x"]
