"""The machine that runs every constraint: context-free rules over lexemes, determinized lazily, byte by byte.

::

    rules.py       nonterminals and their productions     encoding.py   code points as UTF-8 and as JSON writes them
    stacks.py      stack nodes and sets of them           lexemes.py    byte rows and token masks of regular languages
         └───────────────┬──────────────────────────────────────┘
                    machine.py, mask_walk.py     the reference, in Python
                    native_machine.py            its twin over native/machine.cpp (native_library.py: what twins share)
                         │
                    matcher.py                   a sequence's position; json_text.py for rules that depend on values
                    nearest.py                   the shortest way to the end, for samples and estimates
"""
